#include <torch/csrc/autograd/cpp_hook.h>

#include <algorithm>
#include <string_view>
#include <typeinfo>

#include "ahead/errors.h"
#include "runtime/node/compiled_node.h"

/// Hooks that the user registers on results of a compiled function.
namespace ahead::runtime {

using torch::autograd::variable_list;

namespace {

/// The hook as one that at::Tensor::register_hook() made; null if it is none. LibTorch does not
/// export the type information that a dynamic_cast needs.
const torch::autograd::CppFunctionTensorPreHook* as_hooks_of_tensor(
    const torch::autograd::FunctionPreHook& hook) {
  constexpr std::string_view name = "N5torch8autograd24CppFunctionTensorPreHookE";
  if (typeid(hook).name() != name) return nullptr;
  return static_cast<const torch::autograd::CppFunctionTensorPreHook*>(&hook);
}

/// Whether this hook is for the gradient of the node's result with this number. Hooks of other
/// kinds may be, so the answer for them is yes.
bool is_hook_of(const torch::autograd::FunctionPreHook& hook, uint32_t number) {
  const auto* hooks = as_hooks_of_tensor(hook);
  if (hooks == nullptr) return true;
  // A removed hook leaves a null entry.
  const bool has_any = std::any_of(hooks->hooks_->begin(), hooks->hooks_->end(),
                                   [](const auto& each) { return each != nullptr; });
  return hooks->value_idx_ == number && has_any;
}

/// Whether the gradient of a node's result is seen by a hook or kept by retain_grad().
bool has_hook(torch::autograd::Node& node, uint32_t number) {
  const auto& hooks = node.tensor_pre_hooks();
  return node.retains_grad_hooks().count(number) != 0 ||
         std::any_of(hooks.begin(), hooks.end(),
                     [&](const auto& hook) { return is_hook_of(*hook, number); });
}

}  // namespace

void CompiledNode::watch(const at::Tensor& result) {
  if (!result.defined() || !result.requires_grad() || result.is_leaf()) return;
  torch::autograd::Edge edge(result.grad_fn(), 0);
  if (edge.function.get() == this) return;
  // The history of a view, or a fork.
  while (edge.is_valid() && edge.function.get() != this)
    edge =
        edge.function->num_outputs() == 0 ? torch::autograd::Edge() : edge.function->next_edge(0);
  if (edge.is_valid()) watched_.push_back({WeakTensor(result.getIntrusivePtr()), edge.input_nr});
}

/// Whether one of these gradients would pass through this result in eager.
bool CompiledNode::is_passed(size_t place, const variable_list& gradients) const {
  const std::vector<bool>& by = plan_->backward.passed_by[place];
  for (size_t i = 0; i < by.size(); ++i) {
    if (by[i] && gradients[i].defined()) return true;
  }
  return false;
}

/// Throws where a hook would miss a gradient: one node stands for a result and for the results that
/// were computed from it, so that gradients of the latter do not reach the hooks of the former.
void CompiledNode::check_hooks(const variable_list& gradients) {
  if (plan_->backward.passed_by.empty()) return;
  bool is_hidden = false;
  for (uint32_t place = 0; place < plan_->backward.passed_by.size(); ++place)
    is_hidden |= is_passed(place, gradients) && has_hook(*this, place);
  for (const Watched& watched : watched_) {
    auto alive = watched.result.lock();
    if (!alive || !is_passed(watched.place, gradients)) continue;
    const at::Tensor result(std::move(alive));
    is_hidden |= has_hook(*result.grad_fn(), static_cast<uint32_t>(result.output_nr()));
  }
  if (!is_hidden) return;
  throw UserError("backward",
                  plan_->name +
                      ": register_hook() or retain_grad() was called outside on a result from "
                      "which the compiled function computed another one that is differentiated "
                      "now. Its gradient cannot be shown there. Call it inside of the function, "
                      "or compute the other result in a function of its own.");
}

}  // namespace ahead::runtime
