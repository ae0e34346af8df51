#include "engine/operators.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/library.h>

#include "ahead/errors.h"
#include "engine/gradients.h"

namespace ahead::engine {
namespace {

/// LibTorch's rules. `update` is called with what takes the place of `grad`, unless that was
/// written to.
template <class Update>
void accumulate(const at::Tensor& variable, at::Tensor& grad, at::Tensor fresh,
                const Update& update) {
  // A gradient that shares its memory with something else must not be taken as it is.
  at::Tensor shared;
  if (fresh.has_storage() && fresh.storage().use_count() > 1) shared = fresh;
  torch::autograd::AccumulateGrad::accumulateGrad(variable, grad, fresh, /*num_expected_refs=*/1,
                                                  update);
}

at::Tensor pop(torch::jit::Stack& stack) {
  at::Tensor tensor;
  if (!stack.back().isNone()) tensor = std::move(stack.back()).toTensor();
  stack.pop_back();
  return tensor;
}

/// Boxed, so that the gradient is not held by anybody else when it is decided whether to copy it.
void run_accumulate_grad(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  at::Tensor fresh = pop(*stack), grad = pop(*stack);
  const at::Tensor variable = pop(*stack);
  at::Tensor result = grad;
  if (fresh.defined())
    accumulate(variable, grad, std::move(fresh),
               [&](at::Tensor&& updated) { result = std::move(updated); });
  stack->emplace_back(std::move(result));
}

void run_accumulate_grad_in_place(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  const at::NoGradGuard in_place;
  at::Tensor fresh = pop(*stack), grad = pop(*stack);
  const at::Tensor variable = pop(*stack);
  // Other threads may add to it as well.
  Gradients* running = Gradients::current();
  const auto lock =
      running == nullptr ? std::unique_lock<std::mutex>() : running->lock_leaf_with(grad);
  accumulate(variable, grad, std::move(fresh), [](at::Tensor&&) {
    throw UserError("compiled autograd",
                    "ahead::accumulate_grad_: such a gradient cannot be added in place. Use "
                    "ahead::accumulate_grad.");
  });
  // Graphs run below autograd, where writes are not counted.
  if (c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::ADInplaceOrView))
    torch::autograd::impl::bump_version(grad);
}

}  // namespace

const Operator& accumulate_grad() {
  static const Operator& op = *Operator::find("ahead.accumulate_grad");
  return op;
}

const Operator& accumulate_grad_in_place() {
  static const Operator& op = *Operator::find("ahead.accumulate_grad_");
  return op;
}

TORCH_LIBRARY_FRAGMENT(ahead, library) {
  library.def("accumulate_grad(Tensor variable, Tensor? grad, Tensor? new) -> Tensor");
  library.def("accumulate_grad_(Tensor variable, Tensor(a!) grad, Tensor new) -> ()");
}

TORCH_LIBRARY_IMPL(ahead, CompositeImplicitAutograd, library) {
  library.impl("accumulate_grad",
               torch::CppFunction::makeFromBoxedFunction<&run_accumulate_grad>());
  library.impl("accumulate_grad_",
               torch::CppFunction::makeFromBoxedFunction<&run_accumulate_grad_in_place>());
}

}  // namespace ahead::engine
