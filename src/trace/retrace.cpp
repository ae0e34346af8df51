#include "trace/retrace.h"

#include <ATen/core/grad_mode.h>

#include "ahead/errors.h"
#include "trace/tracer.h"

namespace ahead::tracing {

Graph retrace(const Graph& graph, const aot::FlatFunction& function,
              const std::vector<TensorMeta>& inputs) {
  const auto tracer = c10::make_intrusive<Tracer>(TraceOptions{});
  {
    TraceScope scope(*tracer);
    at::NoGradGuard no_grad;
    tracer->writer().set_phase(Phase::Backward);
    std::vector<at::Tensor> arguments;
    for (size_t i = 0; i < inputs.size(); ++i) {
      TensorMeta meta = inputs[i];
      meta.offset = 0;
      arguments.push_back(tracer->writer().add_input(graph.inputs()[i].slot, std::move(meta)));
    }
    const std::vector<at::Tensor> results = function(arguments);
    for (size_t i = 0; i < results.size(); ++i) {
      Value* value = results[i].defined() ? value_of(results[i]) : nullptr;
      tracer->writer().graph().add_output(value, graph.outputs()[i].slot);
    }
  }
  Graph retraced = tracer->close();
  if (retraced.inputs().size() != inputs.size()) {
    throw Unsupported("trace", "a graph holds tensors that it does not take as inputs.");
  }
  return retraced;
}

}  // namespace ahead::tracing
