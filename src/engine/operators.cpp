#include "engine/operators.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "ahead/errors.h"
#include "engine/gradients.h"

namespace ahead::engine {
namespace {

/// Boxed, so that the gradient is not held by anybody else when the leaf decides whether to copy
/// it.
void run_accumulate_grad(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  Gradients* running = Gradients::current();
  if (running == nullptr) {
    throw UserError("compiled autograd",
                    "ahead::accumulate_grad: no captured backward is running on this thread. Run "
                    "the graph of a backward through loss.backward().");
  }
  const auto step = static_cast<size_t>(stack->back().toInt());
  stack->pop_back();
  at::Tensor gradient = std::move(stack->back()).toTensor();
  stack->pop_back();
  running->accumulate(step, std::move(gradient));
}

void do_nothing(const at::Tensor&, int64_t) {}

}  // namespace

void accumulate_grad(const at::Tensor& gradient, int64_t step) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("ahead::accumulate_grad", "")
                             .typed<void(const at::Tensor&, int64_t)>();
  op.call(gradient, step);
}

TORCH_LIBRARY_FRAGMENT(ahead, library) {
  library.def("accumulate_grad(Tensor gradient, int step) -> ()");
}

TORCH_LIBRARY_IMPL(ahead, CPU, library) {
  library.impl("accumulate_grad",
               torch::CppFunction::makeFromBoxedFunction<&run_accumulate_grad>());
}

TORCH_LIBRARY_IMPL(ahead, CUDA, library) {
  library.impl("accumulate_grad",
               torch::CppFunction::makeFromBoxedFunction<&run_accumulate_grad>());
}

TORCH_LIBRARY_IMPL(ahead, Meta, library) {
  library.impl("accumulate_grad", do_nothing);
}

}  // namespace ahead::engine
