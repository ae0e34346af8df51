#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "observe/recorder/place.h"
#include "observe/recorder/recorder.h"
#include "observe/state/state_tensor.h"
#include "observe/state/stored.h"
#include "observe/tape/parts.h"

/// What is found out when an observed call is over: what it returned, stored and left behind.
namespace ahead::observe {

std::shared_ptr<Tape> Recorder::finish(const std::vector<at::Tensor>& results,
                                       size_t handles_of_result) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  for (const at::Tensor& result : results)
    tape_->results.push_back(result.defined() ? meet(result) : no_variable);
  find_other_leaves();
  for (size_t i = 0; i < variables_.size(); ++i) {
    if (i >= static_cast<size_t>(tape_->num_inputs) && !variables_[i].is_watched_leaf) continue;
    const at::Tensor tensor = observe::lock(variables_[i].tensor);
    if (tensor.defined()) note_changes(static_cast<VariableId>(i), tensor);
  }
  check_all_bytes();
  check_generators();
  for (const HostTaking& taking : tape_->takings) {
    if (const std::shared_ptr<HostState> state = taking.state.lock()) check_numbers(state);
  }
  tape_->last_ambient = note_ambient();
  check_modes();
  find_stored(results, handles_of_result);
  // A stored tensor may have got a grad_fn without an operator.
  for (const StoredTensor& stored : tape_->stored) {
    const at::Tensor tensor = observe::lock(stored.tensor);
    if (tensor.defined()) meet(tensor);
  }
  find_states();
  tape_->num_variables = static_cast<int32_t>(variables_.size());
  if (has_hooks(*tape_)) {
    if (goes_back())
      refuse(
          "random numbers: the function sets a generator to where it was, and registers hooks. Do "
          "one of them outside.");
    find_lost_hooks();
    tape_->leaves_history = leaves_history();
    check_retained();
  }
  return tape_;
}

/// Finds leaves that no operator used. The call may still have set or cleared their `.grad`.
void Recorder::find_other_leaves() {
  for (const WeakTensor& known : leaves_) {
    const at::Tensor leaf = observe::lock(known);
    if (!leaf.defined() || ids_.count(leaf.unsafeGetTensorImpl()) != 0) continue;
    const auto first = first_grads_.find(leaf.unsafeGetTensorImpl());
    const c10::TensorImpl* grad = peek_grad(leaf);
    const bool had_grad = first != first_grads_.end() && first->second.shell.defined();
    const bool is_same =
        had_grad ? grad == first->second.grad._unsafe_get_target() : grad == nullptr;
    if (is_same) {
      tape_->other_leaves.push_back({known, had_grad});
    } else {
      meet(leaf);
    }
  }
}

/// Finds out which captured tensors are state: those that are in a handle, and those that the call
/// stored anew where the call before had stored them. All others stay the tensors they are.
void Recorder::find_states() {
  for (CapturedTensor& captured : tape_->captured) {
    captured.is_state =
        captured.state.defined() && (captured.handle.has_value() || captured.host.has_value());
    if (captured.handle || captured.host) {
      captured.stored_before = no_variable;
      continue;
    }
    for (const StoredTensor& stored : tape_->stored) {
      captured.is_state |=
          captured.state.defined() && stored.handles.empty() && stored.id == captured.stored_before;
    }
  }
}

/// What became of the tensors that calls before had stored in places that are not known.
void Recorder::compare_stored(const OwnerCount& count) {
  const auto is_owned = [&](const WeakTensor& tensor) { return count.unknown_owners(tensor) != 0; };
  size_t replaced = 0;
  const size_t num_stored = tape_->num_stored_anywhere();
  for (const StoredTensor& stored : before_->stored) {
    if (!stored.handles.empty()) continue;
    const bool is_stored_again =
        std::any_of(tape_->stored.begin(), tape_->stored.end(),
                    [&](const StoredTensor& now) { return now.id == stored.id; });
    if (is_stored_again && stored_at_entry_.count(stored.id) != 0 && !is_owned(stored.tensor))
      ++replaced;
    if (num_stored == 0) tape_->stored_earlier.push_back(stored.tensor);
    if (num_stored != 0) tape_->is_growing |= is_owned(stored.tensor);
  }
  for (const WeakTensor& earlier : before_->stored_earlier) {
    if (num_stored != 0) tape_->is_growing |= is_owned(earlier);
    if (num_stored == 0 && earlier.use_count() != 0) tape_->stored_earlier.push_back(earlier);
  }
  tape_->replaces_stored = replaced == num_stored;
}

/// A graph cannot switch autocast or the default dtype for the caller.
void Recorder::check_modes() {
  const Ambient &first = tape_->ambients.front(), now = Ambient::current();
  if (!(first.autocast == now.autocast) || first.default_dtype != now.default_dtype)
    refuse(
        "autocast: the function leaves it, or the default dtype, in another state than it found "
        "it. (AOTAutograd does not support tracing graphs that mutate the autocast state.) Switch "
        "it outside, or with a guard inside.");
}

bool Recorder::is_shared_with_result(const at::Tensor& input,
                                     const std::vector<at::Tensor>& results) const {
  return std::any_of(results.begin(), results.end(), [&](const at::Tensor& result) {
    return result.defined() && has_place(result) && has_place(input) && result.is_alias_of(input);
  });
}

void Recorder::find_stored(const std::vector<at::Tensor>& results, size_t handles_of_result) {
  // Each thread numbers its own autograd nodes, and another thread may be running its own just now.
  const bool follows = before_ != nullptr && before_->thread == tape_->thread;
  OwnerCount count(follows ? before_->first_sequence : first_sequence_, first_sequence_);
  for (size_t i = 0; follows && i < before_->nodes.size(); ++i) {
    if (const NodePtr node = before_->nodes[i].lock()) count.add_node(node);
  }
  for (const at::Tensor& result : results) count.add_result(result, handles_of_result);
  count_captured_by_hooks(count);
  std::vector<bool> is_outside(variables_.size());
  for (const CapturedTensor& captured : tape_->captured)
    is_outside[static_cast<size_t>(captured.id)] = true;
  for (const Step& step : tape_->steps) {
    if (step.kind == Step::Kind::Number) is_outside[static_cast<size_t>(step.outs[0])] = true;
  }
  std::vector<MadeTensor> made;
  for (size_t i = 0; i < variables_.size(); ++i) {
    const at::Tensor tensor = observe::lock(variables_[i].tensor);
    if (!tensor.defined()) continue;
    count.add_owner(tensor);
    const bool is_input = i < static_cast<size_t>(tape_->num_inputs);
    if (!is_input && !is_outside[i] && !variables_[i].is_saved_copy &&
        is_visible(variables_[i].scope))
      made.push_back({static_cast<VariableId>(i), variables_[i].tensor});
  }
  tape_->stored = count.find_stored(made);
  handles_.finish(*tape_, [&](const WeakTensor& tensor) { return count.unknown_owners(tensor); });
  // become() may have to replace the stored tensor, which nodes must not hold then.
  for (const StoredTensor& stored : tape_->stored) {
    const at::Tensor tensor = observe::lock(stored.tensor);
    if (stored.handles.empty() && tensor.defined() && can_become(tensor)) count.let_go(tensor);
  }
  for (size_t i = 0; i < owners_of_inputs_.size(); ++i) {
    const at::Tensor input = observe::lock(variables_[i].tensor);
    // One more for `input` itself.
    tape_->stores_arguments |=
        input.defined() && count.unknown_owners(variables_[i].tensor) > owners_of_inputs_[i] + 1 &&
        !is_shared_with_result(input, results);
  }
  for (CapturedTensor& captured : tape_->captured)
    captured.owners = count.unknown_owners(captured.tensor);
  if (before_ != nullptr) compare_stored(count);
  if (!count.hooked().empty())
    refuse(count.hooked() + ": the function registers a hook, which runs with the backward");
}

/// Whether user code can get at tensors made in a scope: all composite operators around are apart.
bool Recorder::is_visible(int32_t scope) const {
  while (scope >= 0) {
    const Step& composite = tape_->steps[static_cast<size_t>(scope)];
    if (!composite.is_apart) return false;
    scope = static_cast<int32_t>(composite.number) - 1;
  }
  return true;
}

}  // namespace ahead::observe
