#include "engine/walk/hooks.h"

#include <ATen/core/VariableHooksInterface.h>
#include <torch/csrc/autograd/function_hook.h>

#include <atomic>

#include "ahead/errors.h"
#include "ahead/traceable_hook.h"
#include "base/private_members.h"

namespace ahead {
namespace engine {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

/// Before or Traced, or neither if all hooks of the list were removed.
uint8_t kind_of(torch::autograd::FunctionPreHook& hook) {
  const torch::autograd::hooks_list* functions = functions_of(hook);
  if (functions == nullptr) return Hooks::Before;
  uint8_t kinds = 0;
  for (const auto& function : *functions) {
    if (function) kinds |= function.target<TraceableHook>() ? Hooks::Traced : Hooks::Before;
  }
  return kinds;
}

}  // namespace

Hooks Hooks::find(Node& node) {
  const auto& on_tensors = node.tensor_pre_hooks();
  const auto& retained = node.retains_grad_hooks();
  Hooks hooks;
  for (const auto& hook : on_tensors) hooks.kinds |= kind_of(*hook);
  if (!node.pre_hooks().empty()) hooks.kinds |= Before;
  if (!node.post_hooks().empty()) hooks.kinds |= Outputs;
  if (!retained.empty()) hooks.kinds |= Retained;
  if (node.tensor_post_acc_grad_hooks() != nullptr) hooks.kinds |= After;
  hooks.count = static_cast<uint32_t>(on_tensors.size() + node.pre_hooks().size() +
                                      node.post_hooks().size() + retained.size());
  return hooks;
}

TraceableHook::TraceableHook(Function function) {
  static std::atomic<uint64_t> next_id{1};
  content_ = std::make_shared<const Content>(Content{std::move(function), next_id++});
}

at::TensorBase TraceableHook::operator()(const at::TensorBase& gradient) const {
  return content_->function(at::Tensor(gradient));
}

void for_each_traceable_hook(Node& node, const std::function<void(uint64_t)>& visit) {
  for (const auto& hook : node.tensor_pre_hooks()) {
    const torch::autograd::hooks_list* functions = functions_of(*hook);
    if (functions == nullptr) continue;
    for (const auto& function : *functions) {
      if (const auto* traceable = function.target<TraceableHook>()) visit(traceable->id());
    }
  }
}

variable_list call_tensor_hooks(Node& node, variable_list gradients) {
  for (const auto& hook : node.tensor_pre_hooks()) gradients = (*hook)(gradients);
  for (const auto& [index, hook] : node.retains_grad_hooks()) gradients = (*hook)(gradients);
  return gradients;
}

}  // namespace engine

unsigned register_traceable_hook(const at::Tensor& tensor,
                                 std::function<at::Tensor(const at::Tensor&)> hook) {
  const auto check = [](bool holds, const char* problem) {
    if (!holds) throw UserError("register_traceable_hook", problem);
  };
  check(static_cast<bool>(hook), "there is no function. Give it one that takes the gradient.");
  check(tensor.defined(), "the tensor is undefined.");
  check(tensor.requires_grad(),
        "the tensor does not require grad, so no gradient flows into it. Call requires_grad_() "
        "first.");
  return at::impl::GetVariableHooks()->_register_hook(tensor,
                                                      engine::TraceableHook(std::move(hook)));
}

}  // namespace ahead
