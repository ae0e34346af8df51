#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "observe/recorder/recorder.h"
#include "observe/state/stored.h"

/// Hooks that user code registers, and retain_grad().
namespace ahead::observe {

size_t Recorder::add_hook_step(Step::Kind kind, const at::Tensor& tensor) {
  if (!scopes_.empty() || is_in_backward())
    refuse("register_hook: an operator, or a hook, registers or removes a hook");
  Step step{kind};
  step.ins = {meet(tensor)};
  if (const auto* history = peek_history(tensor); history != nullptr)
    step.number = static_cast<uint32_t>(first_step_after(*history));
  return add(std::move(step));
}

/// The first step after a node was made.
size_t Recorder::first_step_after(const torch::autograd::Node& node) const {
  if (node.sequence_nr() < first_sequence_) return 0;
  const auto after =
      std::upper_bound(tape_->steps.begin(), tape_->steps.end(), node.sequence_nr(),
                       [](uint64_t number, const Step& step) { return number < step.sequence; });
  return static_cast<size_t>(after - tape_->steps.begin());
}

/// The variable that a tensor is, if it is an argument or the call made it.
int32_t Recorder::own_variable(const void* tensor) const {
  const auto known = ids_.find(static_cast<const c10::TensorImpl*>(tensor));
  if (known == ids_.end() || is_captured(known->second)) return no_variable;
  const WeakTensor& weak = variables_[static_cast<size_t>(known->second)].tensor;
  return weak.use_count() == 0 ? no_variable : known->second;
}

void Recorder::add_hook(const at::Tensor& tensor,
                        const std::shared_ptr<const HookClosure::Function>& hook,
                        unsigned position) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  auto closure = std::make_shared<const HookClosure>(
      *hook, [&](const void* captured) { return own_variable(captured); });
  for (const VariableId id : closure->variables()) leave_scopes(id);
  const size_t index = add_hook_step(Step::Kind::AddHook, tensor);
  Step& step = tape_->steps[index];
  for (const VariableId id : closure->variables()) step.ins.push_back(id);
  step.hook = std::move(closure);
  hooks_.push_back({index, position, hook});
}

/// Marks hooks that the call removed, or that are gone with their tensors.
void Recorder::find_lost_hooks() {
  for (const Hook& hook : hooks_) tape_->steps[hook.step].is_lost = hook.registered.expired();
  for (Step& step : tape_->steps) {
    if (step.kind == Step::Kind::RemoveHook && tape_->refusal.empty())
      step.is_lost = tape_->steps[step.number].is_lost;
  }
}

/// Counts the hooks that are still registered as owners of the tensors that they captured.
void Recorder::count_captured_by_hooks(OwnerCount& count) const {
  for (const Hook& hook : hooks_) {
    if (hook.registered.expired()) continue;
    const HookClosure& closure = *tape_->steps[hook.step].hook;
    for (const VariableId id : closure.variables())
      count.add_handle(variables_[static_cast<size_t>(id)].tensor);
    for (const CapturedTensor& captured : tape_->captured) {
      if (closure.holds(captured.tensor._unsafe_get_target())) count.add_handle(captured.tensor);
    }
  }
}

void Recorder::remove_hook(const at::Tensor& tensor, unsigned position) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  const size_t index = add_hook_step(Step::Kind::RemoveHook, tensor);
  Step& step = tape_->steps[index];
  const auto is_removed = [&](const Hook& hook) {
    return hook.position == position && tape_->steps[hook.step].ins[0] == step.ins[0];
  };
  const auto known = std::find_if(hooks_.rbegin(), hooks_.rend(), is_removed);
  if (known == hooks_.rend())
    return refuse("remove_hook: the function removes a hook that was registered outside of it");
  step.number = static_cast<uint32_t>(known->step);
}

void Recorder::retain_grad(const at::Tensor& tensor) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  add_hook_step(Step::Kind::RetainGrad, tensor);
}

/// Whether a tensor that outlives the call has a grad_fn that the call made.
bool Recorder::leaves_history() const {
  return std::any_of(variables_.begin(), variables_.end(), [&](const Variable& variable) {
    const at::Tensor tensor = observe::lock(variable.tensor);
    const auto* history = tensor.defined() ? peek_history(tensor) : nullptr;
    return history != nullptr && history->sequence_nr() >= first_sequence_;
  });
}

/// Refuses a gradient that a backward inside the function left in a tensor that is no leaf.
void Recorder::check_retained() {
  for (const Step& step : tape_->steps) {
    if (step.kind != Step::Kind::RetainGrad) continue;
    const at::Tensor tensor = observe::lock(variables_[static_cast<size_t>(step.ins[0])].tensor);
    if (tensor.defined() && peek_grad(tensor) != nullptr)
      refuse("retain_grad: a tensor that is no leaf gets its gradient inside the function");
  }
}

}  // namespace ahead::observe
