#include "trace/retrace.h"

#include "ahead/errors.h"
#include "trace/backward_writes.h"
#include "trace/open_trace.h"
#include "trace/sparse_gradients.h"
#include "trace/tensor/functional.h"

namespace ahead::tracing {

Graph retrace(const Graph& graph, const aot::FlatFunction& function,
              const std::vector<TensorMeta>& inputs) {
  OpenTrace open({.joint = false});
  open.enter();
  at::GradMode::set_enabled(false);
  open.writer().set_phase(Phase::Backward);
  std::vector<at::Tensor> arguments;
  for (size_t i = 0; i < inputs.size(); ++i) {
    TensorMeta meta = inputs[i];
    meta.offset = 0;
    arguments.push_back(open.writer().add_input(graph.inputs()[i].slot, std::move(meta)));
  }
  const CheckedGraph checked;
  std::vector<at::Tensor> results = function(arguments);
  for (size_t i = 0; i < results.size(); ++i) open.add_output(results[i], graph.outputs()[i].slot);
  results.clear();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (functional_wrapper(arguments[i]).has_data_mutation())
      add_backward_write(open.graph(), open.graph().inputs()[i].value, value_of(arguments[i]));
  }
  arguments.clear();
  Graph retraced = open.close();
  if (retraced.inputs().size() != inputs.size()) {
    throw Unsupported("trace", "a graph holds tensors that it does not take as inputs.");
  }
  return retraced;
}

}  // namespace ahead::tracing
