#include "trace/retrace.h"

#include <ATen/EmptyTensor.h>
#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/grad_mode.h>

#include "ahead/errors.h"
#include "tensors/below_tracing.h"
#include "trace/tensor/functional.h"

namespace ahead::tracing {
at::Tensor add_traced_input(Tracer& tracer, Slot slot, TensorMeta meta) {
  BelowTracing below;
  at::Tensor shape(at::detail::empty_strided_meta(meta.sizes, meta.strides, meta.dtype));
  const at::Device device = meta.device;
  Value* value = tracer.graph().add_input(slot, std::move(meta));
  at::Tensor traced = at::functionalization::impl::to_functional_tensor(make_fake(
      std::move(shape), device, value, c10::intrusive_ptr<Tracer>::reclaim_copy(&tracer)));
  seal_storage(traced);
  return traced;
}

Graph retrace(const Graph& graph, const aot::FlatFunction& function,
              const std::vector<TensorMeta>& inputs) {
  const auto tracer = c10::make_intrusive<Tracer>(TraceOptions{});
  {
    TraceScope scope(*tracer);
    at::NoGradGuard no_grad;
    tracer->set_phase(Phase::Backward);
    std::vector<at::Tensor> arguments;
    for (size_t i = 0; i < inputs.size(); ++i) {
      TensorMeta meta = inputs[i];
      meta.offset = 0;
      arguments.push_back(add_traced_input(*tracer, graph.inputs()[i].slot, std::move(meta)));
    }
    const std::vector<at::Tensor> results = function(arguments);
    for (size_t i = 0; i < results.size(); ++i) {
      Value* value = results[i].defined() ? value_of(results[i]) : nullptr;
      tracer->graph().add_output(value, graph.outputs()[i].slot);
    }
  }
  Graph retraced = tracer->close();
  if (retraced.inputs().size() != inputs.size()) {
    throw Unsupported("trace", "a graph holds tensors that it does not take as inputs.");
  }
  return retraced;
}

}  // namespace ahead::tracing
