#include "engine/part/operators.h"

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

void run_retain_grad(const at::Tensor& gradient, int64_t step, int64_t input) {
  const Gradients* running = Gradients::current();
  if (running == nullptr) {
    throw UserError("compiled autograd",
                    "ahead::retain_grad runs only in the backward that it belongs to.");
  }
  running->retain(static_cast<size_t>(step), static_cast<size_t>(input), gradient);
}

std::vector<at::Tensor> run_call_hook(c10::string_view what, int64_t step,
                                      const c10::List<std::optional<at::Tensor>>& /*gradients*/) {
  throw UserError("compiled autograd", "ahead::call_hook stands for " + std::string(what) +
                                           " at step " + std::to_string(step) +
                                           ", which are called by the backward that they belong "
                                           "to. Such a graph cannot run by itself.");
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

const Operator& retain_grad() {
  static const Operator& op = *Operator::find("ahead.retain_grad");
  return op;
}

const Operator& call_hook() {
  static const Operator& op = *Operator::find("ahead.call_hook");
  return op;
}

TORCH_LIBRARY_FRAGMENT(ahead, library) {
  library.def("accumulate_grad(Tensor variable, Tensor? grad, Tensor? new) -> Tensor");
  library.def("accumulate_grad_(Tensor variable, Tensor(a!) grad, Tensor new) -> ()");
  library.def("retain_grad(Tensor gradient, int step, int input) -> ()");
  library.def("call_hook(str what, int step, Tensor?[] gradients) -> Tensor[]");
}

TORCH_LIBRARY_IMPL(ahead, CompositeImplicitAutograd, library) {
  library.impl("accumulate_grad",
               torch::CppFunction::makeFromBoxedFunction<&run_accumulate_grad>());
  library.impl("accumulate_grad_",
               torch::CppFunction::makeFromBoxedFunction<&run_accumulate_grad_in_place>());
  library.impl("retain_grad", &run_retain_grad);
  library.impl("call_hook", &run_call_hook);
}

}  // namespace ahead::engine
