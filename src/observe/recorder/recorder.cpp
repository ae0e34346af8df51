#include "observe/recorder/recorder.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/COW.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ScopeExit.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "base/autocast.h"
#include "base/process_end.h"
#include "observe/recorder/fallback.h"
#include "observe/recorder/place.h"
#include "observe/recorder/seen_object.h"
#include "ops/facts/facts.h"
#include "tensors/map_tensors.h"
#include "tensors/wrapper_call.h"

namespace ahead::observe {
namespace {

thread_local Recorder* current_recorder = nullptr;
thread_local int num_pauses = 0;
/// The custom operator whose kernel this thread runs while autocast is on; null: none.
thread_local const ObservedOp* kernel_under_autocast = nullptr;

/// Carries the recorder to the autograd engine's device threads.
struct RecorderInfo : c10::DebugInfoBase {
  explicit RecorderInfo(Recorder* r) : recorder(r) {}
  Recorder* recorder;
};
const auto info_kind = c10::DebugInfoKind::TEST_INFO_2;

/// Whether an operator returns the one tensor that it writes to.
bool writes_in_place(const ObservedOp& op) {
  return !op.is_custom && !op.arguments.empty() && op.arguments[0].is_written &&
         op.arguments[0].holds == ObservedOp::Holds::Tensor && op.results.size() == 1 &&
         op.results[0] == ObservedOp::Holds::Tensor;
}

/// Calls the operator below the recorder's key.
void call_recorded(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                   torch::jit::Stack& stack) {
  handle.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, recording_key),
                         &stack);
}

}  // namespace

Recorder* Recorder::current() {
  if (num_pauses > 0) return nullptr;
  if (current_recorder != nullptr) return current_recorder;
  auto* carried = dynamic_cast<RecorderInfo*>(c10::ThreadLocalDebugInfo::get(info_kind));
  return carried == nullptr ? nullptr : carried->recorder;
}

Recorder::Recorder(const std::vector<at::Tensor>& inputs, std::shared_ptr<const Tape> before,
                   HandleWatch handles, const std::vector<WeakTensor>& leaves, bool with_places)
    : before_(std::move(before)),
      handles_(std::move(handles)),
      leaves_(leaves),
      with_places_(with_places),
      entry_(with_places ? StackMark::of_caller() : StackMark()),
      first_sequence_(at::sequence_number::peek()),
      outer_node_(torch::autograd::get_current_node()) {
  watch_process_end();
  tape_->num_inputs = static_cast<int32_t>(inputs.size());
  tape_->first_sequence = first_sequence_;
  tape_->ambients.push_back(Ambient::current());
  if (before_ != nullptr) expect_as_much_as(*before_);
  for (const at::Tensor& input : inputs) {
    owners_of_inputs_.push_back(input.use_count());
    const auto known = ids_.find(input.unsafeGetTensorImpl());
    if (known != ids_.end()) {
      variables_.push_back(variables_[static_cast<size_t>(known->second)]);
      continue;
    }
    const at::Tensor grad = input.is_leaf() ? at::Tensor(input.grad()) : at::Tensor();
    note_entry(input, WeakTensor(grad.getIntrusivePtr()));
    add_variable(input);
  }
  if (before_ != nullptr) {
    for (const StoredTensor& stored : before_->stored) {
      if (stored.tensor.use_count() != 0) stored_at_entry_.insert(stored.id);
    }
    for (const CapturedTensor& captured : before_->captured) {
      const at::Tensor tensor = lock(captured.tensor);
      if (tensor.defined() && has_place(tensor)) {
        used_before_[tensor.storage().unsafeGetStorageImpl()].push_back(captured.tensor);
        memory_of(tensor);
      }
      if (tensor.defined()) note_first_grad(tensor);
    }
    for (const HostTaking& taking : before_->takings) {
      if (const std::shared_ptr<HostState> state = taking.state.lock()) expect_numbers(state);
    }
  }
  for (const WeakTensor& known : leaves_) {
    const at::Tensor leaf = lock(known);
    if (leaf.defined()) note_first_grad(leaf);
  }
  watch_generators();
}

Recorder::~Recorder() = default;

/// Most calls do what the one before did.
void Recorder::expect_as_much_as(const Tape& tape) {
  const auto num_variables = static_cast<size_t>(tape.num_variables);
  tape_->steps.reserve(tape.steps.size());
  tape_->nodes.reserve(tape.nodes.size());
  variables_.reserve(num_variables);
  ids_.reserve(num_variables);
  memories_.reserve(num_variables);
  made_by_.reserve(tape.nodes.size());
}

/// Notes the entry state of a tensor and of its base, once for each, when it is met first.
void Recorder::note_entry(const at::Tensor& tensor, const WeakTensor& grad,
                          const at::Tensor& shell_of_grad) {
  if (!noted_.insert(tensor.unsafeGetTensorImpl()).second) return;
  entry_states_.emplace_back(tensor, grad, shell_of_grad);
  if (tensor.is_inference() || !tensor.is_view()) return;
  const at::Tensor base(tensor._base());
  note_entry(
      base,
      WeakTensor((base.is_leaf() ? at::Tensor(base.grad()) : at::Tensor()).getIntrusivePtr()));
}

void Recorder::refuse(const std::string& reason) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (tape_->refusal.empty()) tape_->refusal = reason;
}

size_t Recorder::add(Step step) {
  step.ambient = note_ambient();
  step.sequence = at::sequence_number::peek();
  tape_->steps.push_back(std::move(step));
  return tape_->steps.size() - 1;
}

uint32_t Recorder::note_ambient() {
  std::vector<Ambient>& ambients = tape_->ambients;
  const Ambient now = Ambient::current();
  const uint32_t last = tape_->last_ambient;
  if (ambients[last] == now) return last;
  for (uint32_t i = 0; i < ambients.size(); ++i) {
    if (ambients[i] == now) return tape_->last_ambient = i;
  }
  ambients.push_back(now);
  return tape_->last_ambient = static_cast<uint32_t>(ambients.size() - 1);
}

/// What a composite operator calls is called from where that was.
const std::string* Recorder::place_of_call() const {
  return scopes_.empty() ? user_place(entry_)
                         : tape_->steps[static_cast<size_t>(scopes_.back())].place;
}

void Recorder::take_arguments(const ObservedOp& op, const c10::IValue* args, Step& step) {
  step.args.reserve(op.arguments.size());
  for (size_t i = 0; i < op.arguments.size(); ++i) {
    const c10::IValue& value = args[i];
    if (op.arguments[i].holds == ObservedOp::Holds::Nothing) {
      step.args.push_back(SeenObject::instead_of(value));
      continue;
    }
    if (value.isNone()) {
      step.args.emplace_back(false);
      continue;
    }
    if (value.isTensor()) {
      const bool is_defined = value.toTensor().defined();
      step.ins.push_back(is_defined ? meet(value.toTensor()) : no_variable);
      step.args.emplace_back();
      continue;
    }
    int64_t count = 0;
    const auto take = [&](const at::Tensor& tensor) {
      ++count;
      step.ins.push_back(tensor.defined() ? meet(tensor) : no_variable);
    };
    if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) take(tensor);
    } else if (value.isOptionalTensorList()) {
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
        take(tensor.value_or(at::Tensor()));
    }
    step.args.emplace_back(count);
  }
}

void Recorder::take_results(const ObservedOp& op, const c10::IValue* results, Step& step) {
  const int32_t parent = scopes_.empty() ? -1 : scopes_.back();
  const auto take = [&](const at::Tensor& tensor) {
    if (!tensor.defined()) return step.outs.push_back(no_variable);
    const auto known = ids_.find(tensor.unsafeGetTensorImpl());
    VariableId id = no_variable;
    if (known == ids_.end()) {
      id = add_variable(tensor);
    } else {
      id = known->second;
      see(id, tensor);
    }
    int32_t& scope = variables_[static_cast<size_t>(id)].scope;
    if (scope >= 0 && !is_inside(scope)) scope = parent;
    step.outs.push_back(id);
  };
  for (size_t i = 0; i < op.results.size(); ++i) {
    if (results[i].isTensor()) {
      take(results[i].toTensor());
    } else if (results[i].isTensorList()) {
      for (const at::Tensor& tensor : results[i].toTensorVector()) take(tensor);
    }
  }
}

/// Whether values decide how large the results of this call are.
bool are_sizes_of_values(const ObservedOp& op, c10::ArrayRef<c10::IValue> arguments) {
  if (!op.is_sized_by_values) return false;
  bool has_indices = false, has_mask = false;
  for (const c10::IValue& argument : arguments) {
    if (!argument.isOptionalTensorList()) continue;
    has_indices = true;
    for (const std::optional<at::Tensor> along : argument.toOptionalTensorList()) {
      has_mask |= along && along->defined() &&
                  (along->scalar_type() == at::kBool || along->scalar_type() == at::kByte);
    }
  }
  return !has_indices || has_mask;
}

/// Notes the metadata of the results of an operator for which there may be no shape rule.
void Recorder::note_looks(const ObservedOp& op, const c10::IValue* results, Step& step) {
  for (size_t i = 0; i < op.results.size(); ++i) {
    if (!results[i].isTensor() || !results[i].toTensor().defined() ||
        !has_place(results[i].toTensor()))
      return step.looks.clear();
    step.looks.push_back(TensorMeta::of(results[i].toTensor()));
  }
}

/// Watches new memory to which the host may write. It is made copy-on-write where possible, which
/// shows whether somebody asked for its address.
void Recorder::watch_memory(const ObservedOp& op, const at::Tensor& tensor, VariableId id) {
  if (!has_place(tensor) || tensor.numel() == 0 || tensors::is_wrapper(tensor)) return;
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  if (!op.makes_unfilled) {
    const bool can_tell = tensor.device().is_cpu() && tensor.storage().use_count() == 1 &&
                          c10::impl::cow::has_simple_data_ptr(*storage);
    if (!can_tell || !c10::impl::cow::lazy_clone_storage(*storage)) return;
  }
  new_memories_[storage] = {id, op.makes_unfilled, tape_->steps.size()};
}

/// Records the contents of new memory that the host may have written to, before an operator uses
/// it. Returns the new memory that stays watched while the operator reads it.
Recorder::Memories Recorder::note_fills(const ObservedOp& op, const c10::IValue* args) {
  Memories still_watched;
  for (size_t i = 0; i < op.arguments.size() && !new_memories_.empty(); ++i) {
    tracing::for_each_tensor(args[i], [&](const at::Tensor& tensor) {
      if (!has_place(tensor)) return;
      const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
      const auto made = new_memories_.find(storage);
      if (made == new_memories_.end()) return;
      const auto [id, is_empty, made_at] = made->second;
      const bool is_untouched = !is_empty && c10::impl::cow::is_cow_data_ptr(storage->data_ptr());
      const bool is_read = !op.arguments[i].is_written && !op.arguments[i].is_viewed;
      if (is_empty ? op.arguments[i].is_viewed : is_untouched && !op.arguments[i].is_written) {
        if (!is_empty && is_read) still_watched.push_back(tensor.storage());
        return;
      }
      new_memories_.erase(made);
      if (is_empty ? !is_read : is_untouched) return;
      const at::Tensor whole = observe::lock(variables_[static_cast<size_t>(id)].tensor);
      whole.defined() ? fill(whole, id) : fill(tensor, meet(tensor));
    });
  }
  return still_watched;
}

/// What was made inside a composite operator, and written to by that operator's own code, is made
/// again by it.
void Recorder::forget_memories(size_t first_step) {
  std::erase_if(new_memories_, [&](const auto& made) { return made.second.made_at > first_step; });
}

/// Some kernels ask for the address of what they read as if they would write to it. That was not
/// the host: such memory is watched anew.
void Recorder::watch_again(const Memories& read) {
  for (const c10::Storage& memory : read) {
    c10::StorageImpl& storage = *memory.unsafeGetStorageImpl();
    if (c10::impl::cow::is_cow_data_ptr(storage.data_ptr())) continue;
    if (!c10::impl::cow::lazy_clone_storage(storage)) new_memories_.erase(&storage);
  }
}

void Recorder::fill(const at::Tensor& tensor, VariableId id) {
  if (tensor.nbytes() > most_compared_bytes)
    return refuse("the host writes " + std::to_string(tensor.nbytes()) +
                  " bytes to a tensor inside the function. Make it an argument");
  leave_scopes(id);
  Step step{Step::Kind::Fill};
  step.ins = {id};
  step.contents = copy_of(tensor);
  add(std::move(step));
}

/// Whether a backward that the function itself called is running.
bool Recorder::is_in_backward() const {
  const NodePtr node = torch::autograd::get_current_node();
  return node && node != outer_node_;
}

/// Refuses a backward inside the function that goes on to autograd nodes made outside of it.
void Recorder::check_engine() {
  if (!is_in_backward()) return;
  const NodePtr node = torch::autograd::get_current_node();
  tape_->differentiates = true;
  if (node->sequence_nr() >= first_sequence_) return;
  if (dynamic_cast<torch::autograd::AccumulateGrad*>(node.get()) != nullptr) return;
  refuse(node->name() +
         ": backward() or grad() inside the function goes on outside of it, through what an "
         "argument or a captured tensor was computed from. Detach that tensor, or call it outside");
}

void Recorder::read_value(size_t index, const c10::IValue& value) {
  Step& step = tape_->steps[index];
  step.kind = Step::Kind::Read;
  step.args = {value};
}

/// While it exists, steps are recorded as those of a composite operator.
class Recorder::Scope {
 public:
  Scope(Recorder& recorder, size_t step, bool is_composite)
      : recorder_(recorder), step_(step), is_composite_(is_composite) {
    if (is_composite_) recorder_.scopes_.push_back(static_cast<int32_t>(step));
  }
  ~Scope() {
    if (!is_composite_) return;
    recorder_.scopes_.pop_back();
    recorder_.forget_memories(step_);
    recorder_.tape_->steps[step_].end = static_cast<uint32_t>(recorder_.tape_->steps.size());
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Recorder& recorder_;
  const size_t step_;
  const bool is_composite_;
};

/// What must be true of an operator that is called as one (OpFacts::is_whole): what its kernel
/// calls writes to no argument, and its results have no history.
class Recorder::WholeCall {
 public:
  WholeCall(const ObservedOp& op, c10::ArrayRef<c10::IValue> arguments) : op_(op) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (op.arguments[i].is_written) continue;
      tracing::for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
        if (!tensor.is_inference()) versions_.emplace_back(tensor, tensor._version());
      });
    }
  }

  /// Why it cannot be repeated as one call; empty: it can.
  std::string problem(c10::ArrayRef<c10::IValue> results) const {
    for (const auto& [tensor, version] : versions_) {
      if (tensor._version() != version)
        return op_.op->name() +
               ": its kernel writes to an argument, of which its schema does not tell. Say so in "
               "the schema: Tensor(a!)";
    }
    bool has_history = false;
    for (const c10::IValue& result : results) {
      tracing::for_each_tensor(
          result, [&](const at::Tensor& tensor) { has_history |= tensor.requires_grad(); });
    }
    if (!has_history) return "";
    return op_.op->name() +
           ": it was declared to be an effect, and the operators that its kernel calls have "
           "gradients, which one call has not. Call it on detached tensors, or register it for "
           "devices (CPU, CUDA) with a gradient of its own";
  }

 private:
  const ObservedOp& op_;
  std::vector<std::pair<at::Tensor, int64_t>> versions_;
};

/// Calls an operator from the kernel of a custom operator. Autocast must not cast for it, since
/// graphs run without autocast.
void Recorder::call_in_kernel(const ObservedOp& kernel, const c10::OperatorHandle& handle,
                              c10::DispatchKeySet keys, torch::jit::Stack& stack) {
  if (keys.has_any(observed_op(handle).autocast_keys))
    refuse(kernel.op->name() +
           ": autocast casts what its kernel computes with. Call it with autocast off.");
  call_recorded(handle, keys, stack);
}

void Recorder::call(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                    torch::jit::Stack& stack) {
  if (kernel_under_autocast != nullptr)
    return call_in_kernel(*kernel_under_autocast, handle, keys, stack);
  const ObservedOp& op = observed_op(handle);
  const size_t base = stack.size() - op.arguments.size();
  std::unique_lock<std::recursive_mutex> lock(mutex_);
  check_engine();
  Memories watched;
  if (!new_memories_.empty()) watched = note_fills(op, &stack[base]);
  if (op.is_random) check_generators();
  Step step{Step::Kind::Call};
  step.op = &op;
  take_arguments(op, &stack[base], step);
  const bool reads_wrapper =
      op.reads_value && tensors::has_wrapper(c10::ArrayRef<c10::IValue>(stack).slice(base));
  const bool has_looks =
      op.is_custom || are_sizes_of_values(op, c10::ArrayRef<c10::IValue>(stack).slice(base));
  step.number = scopes_.empty() ? 0 : static_cast<uint32_t>(scopes_.back() + 1);
  if (with_places_) step.place = place_of_call();
  const size_t index = add(std::move(step));
  // Where autocast handles the operator, it calls it once more, like a composite operator.
  const bool is_whole = op.is_composite && ops::facts(*op.op).is_whole;
  const bool is_composite = (op.is_composite && !is_whole) || keys.has_any(op.autocast_keys);
  std::optional<WholeCall> whole;
  if (is_whole) whole.emplace(op, c10::ArrayRef<c10::IValue>(stack).slice(base));
  bool threw = true;
  const auto note_error = c10::make_scope_exit([&] {
    if (threw) refuse(op.op->name() + ": it throws inside the function");
  });
  {
    const Scope scope(*this, index, is_composite);
    lock.unlock();
    const bool may_cast = !is_composite && op.is_custom && is_autocast_enabled();
    const auto leave_kernel = c10::make_scope_exit([] { kernel_under_autocast = nullptr; });
    if (may_cast) kernel_under_autocast = &op;
    std::optional<c10::impl::ExcludeDispatchKeyGuard> unseen;
    if (!is_composite && !may_cast) unseen.emplace(recording_key);
    call_recorded(handle, keys, stack);
    lock.lock();
  }
  threw = false;
  if (whole) {
    const std::string problem = whole->problem(c10::ArrayRef<c10::IValue>(stack).slice(base));
    if (!problem.empty()) refuse(problem);
  }
  watch_again(watched);
  if (op.is_random) note_drawn();
  if (!op.returns_tensors) note_bytes(op, tape_->steps[index]);
  if (op.returns_tensors) {
    Step results{Step::Kind::Call};
    take_results(op, &stack[base], results);
    Step& made = tape_->steps[index];
    made.outs = std::move(results.outs);
    if (has_looks) note_looks(op, &stack[base], made);
    const bool reads =
        op.is_composite && !op.has_decomposition &&
        std::any_of(tape_->steps.begin() + static_cast<int64_t>(index) + 1, tape_->steps.end(),
                    [](const Step& inner) { return inner.reads_values(); });
    if (reads) made.is_apart = true;
    if ((op.makes_unfilled || op.is_factory) && made.outs.size() == 1 &&
        made.outs[0] != no_variable)
      watch_memory(op, stack[base].toTensor(), made.outs[0]);
    if (writes_in_place(op) && !is_composite) note_saved_copy(stack[base].toTensor(), index);
  } else if (op.reads_value) {
    if (is_composite) {
      tape_->steps[index].is_apart = true;
    } else {
      if (reads_wrapper) refuse(op.op->name() + ": it reads a value of a wrapper. Do so outside.");
      read_value(index, stack[base]);
    }
  } else if (is_composite) {
    tape_->steps[index].is_apart = true;
  } else if (!op.results.empty()) {
    if (op.is_custom) refuse(op.op->name() + ": it returns something that is no tensor");
    tape_->steps.erase(tape_->steps.begin() + static_cast<int64_t>(index));
  }
}

void Recorder::enter_checkpoint(const CheckpointPolicy& policy) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  Step step{Step::Kind::EnterCheckpoint};
  step.policy = std::make_shared<const CheckpointPolicy>(policy);
  add(std::move(step));
}

void Recorder::leave_checkpoint(const std::vector<at::Tensor>& results) {
  std::lock_guard<std::recursive_mutex> lock(mutex_);
  Step step{Step::Kind::LeaveCheckpoint};
  for (const at::Tensor& result : results) {
    if (result.defined()) step.ins.push_back(meet(result));
  }
  add(std::move(step));
}

struct RecordingScope::State {
  explicit State(Recorder& recorder) : info(info_kind, std::make_shared<RecorderInfo>(&recorder)) {}
  c10::DebugInfoGuard info;
  c10::impl::IncludeDispatchKeyGuard key{recording_key};
};

RecordingScope::RecordingScope(Recorder& recorder) {
  ensure_recording();
  state_ = std::make_unique<State>(recorder);
  current_recorder = &recorder;
}

RecordingScope::~RecordingScope() {
  current_recorder = nullptr;
}

struct RecordingPause::State {
  c10::impl::ExcludeDispatchKeyGuard key{recording_key};
};

RecordingPause::RecordingPause() : state_(std::make_unique<State>()) {
  ++num_pauses;
}

RecordingPause::~RecordingPause() {
  --num_pauses;
}

}  // namespace ahead::observe
