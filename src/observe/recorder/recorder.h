#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <c10/util/flat_hash_map.h>

#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/user_place.h"
#include "observe/state/entry_state.h"
#include "observe/state/handles.h"
#include "observe/tape/tape.h"
#include "trace/observers/generator_position.h"

namespace ahead::observe {

class OwnerCount;

/// Records what user code does while it runs on real tensors.
///
/// A variable is a tensor object, held weakly: the recorder keeps nothing alive that eager would
/// not. A tensor that no operator returned, such as one that autograd saved, is known by where it
/// lies in memory.
class Recorder {
 public:
  /// `before` is the recording of the call before, if there was one; `handles` are the callable's;
  /// `leaves` are those whose `.grad` is watched even if the call does not use them. `with_places`:
  /// each step says from where in the user's code it was called.
  Recorder(const std::vector<at::Tensor>& inputs, std::shared_ptr<const Tape> before,
           HandleWatch handles, const std::vector<WeakTensor>& leaves, bool with_places);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// The recorder of the observed call that this thread, or a thread of the autograd engine, is in;
  /// null: none is, or recording is paused.
  static Recorder* current();

  /// Runs an operator and records the call.
  void call(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, torch::jit::Stack& stack);

  /// Notes why the call cannot be repeated from a recording. The first reason counts.
  void refuse(const std::string& reason);

  /// Records that a checkpointed function begins, and that it ends with these results.
  void enter_checkpoint(const CheckpointPolicy& policy);
  void leave_checkpoint(const std::vector<at::Tensor>& results);

  /// The code asks whether a tensor has a gradient.
  void ask_for_grad(const at::Tensor& leaf);
  /// The code takes the numbers that a state of the host's has next.
  std::vector<at::Tensor> take_next(const std::shared_ptr<HostState>& state);

  /// Records that a hook was just registered or removed, which happens without an operator.
  void add_hook(const at::Tensor& tensor, const std::shared_ptr<const HookClosure::Function>& hook,
                unsigned position);
  void remove_hook(const at::Tensor& tensor, unsigned position);
  void retain_grad(const at::Tensor& tensor);

  /// Ends the recording of a call that returned these tensors, on each of which the caller has
  /// `handles_of_result` handles.
  std::shared_ptr<Tape> finish(const std::vector<at::Tensor>& results, size_t handles_of_result);

  /// The entry states of tensors from outside; complete after finish().
  std::vector<EntryState>& entry_states() { return entry_states_; }

 private:
  struct Variable {
    WeakTensor tensor;
    const torch::autograd::Node* history = nullptr;
    uint32_t output_nr = 0;
    bool requires_grad = false;
    bool has_flag = false;         ///< it requires grad by a flag of its own
    bool is_watched_leaf = false;  ///< its `.grad` may be changed
    const c10::TensorImpl* grad = nullptr;
    int32_t scope = -1;     ///< the composite operator that made it, as a step
    bool is_inner = false;  ///< it is used outside of that one, which did not return it
    bool is_saved_copy = false;  ///< only autograd has it
    const c10::StorageImpl* storage = nullptr;
    uint64_t place = 0;
  };
  struct Memory {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    c10::SmallVector<VariableId, 4> variables;
    size_t bytes;  ///< as the last operator left it
  };
  class Scope;
  class WholeCall;

  void call_in_kernel(const ObservedOp& kernel, const c10::OperatorHandle& handle,
                      c10::DispatchKeySet keys, torch::jit::Stack& stack);
  void expect_as_much_as(const Tape& tape);
  uint32_t note_ambient();
  const std::string* place_of_call() const;
  void check_engine();
  bool is_in_backward() const;
  void check_modes();
  void compare_stored(const OwnerCount& count);
  void find_states();
  bool is_shared_with_result(const at::Tensor& input, const std::vector<at::Tensor>& results) const;
  void note_entry(const at::Tensor& tensor, const WeakTensor& grad,
                  const at::Tensor& shell_of_grad = {});
  void note_first_grad(const at::Tensor& leaf);
  void find_other_leaves();
  VariableId meet(const at::Tensor& tensor);
  VariableId meet_unknown(const at::Tensor& tensor);
  VariableId find_by_place(const at::Tensor& tensor);
  void meet_owner(const at::Tensor& handle);
  bool is_captured(VariableId id) const;
  void watch_memory(const ObservedOp& op, const at::Tensor& tensor, VariableId id);
  VariableId add_captured(const at::Tensor& tensor);
  VariableId add_number(const at::Tensor& tensor);
  VariableId add_variable(const at::Tensor& tensor);
  void place(VariableId id, const at::Tensor& tensor);
  void see(VariableId id, const at::Tensor& tensor);
  void note_changes(VariableId id, const at::Tensor& tensor);
  Memory& memory_of(const at::Tensor& tensor);
  void note_bytes(const ObservedOp& op, const Step& step);
  void check_bytes(const c10::StorageImpl& storage);
  void check_all_bytes();
  void note_history(VariableId id, const at::Tensor& tensor);
  std::shared_ptr<CustomHistory> describe_history(const NodePtr& node);
  VariableId find_saved(const at::Tensor& tensor);
  void note_saved_copy(const at::Tensor& written, size_t index);
  CustomHistory::Edge find_origin(const torch::autograd::Edge& edge,
                                  const torch::autograd::Node& node);
  void note_grad(VariableId id, const at::Tensor& tensor);
  void leave_scopes(VariableId id);
  void take_users_apart(VariableId id);
  bool is_inside(int32_t scope) const;
  void take_arguments(const ObservedOp& op, const c10::IValue* args, Step& step);
  void take_results(const ObservedOp& op, const c10::IValue* results, Step& step);
  static void note_looks(const ObservedOp& op, const c10::IValue* results, Step& step);
  using Memories = c10::SmallVector<c10::Storage, 2>;
  Memories note_fills(const ObservedOp& op, const c10::IValue* args);
  void watch_again(const Memories& read);
  void forget_memories(size_t first_step);
  void fill(const at::Tensor& tensor, VariableId id);
  struct WatchedGenerator {
    at::Generator generator;
    tracing::GeneratorPosition last;  ///< as the last look found it
  };
  void watch_generators();
  void note_drawn();
  void check_generators();
  void check_generator(WatchedGenerator& watched);
  void add_mark(const WatchedGenerator& watched);
  std::optional<size_t> find_mark(at::Device device, uint64_t fingerprint) const;
  std::optional<size_t> find_mark_of(const at::Tensor& state) const;
  bool goes_back() const;
  size_t add(Step step);
  void find_stored(const std::vector<at::Tensor>& results, size_t handles_of_result);
  bool is_visible(int32_t scope) const;
  void read_value(size_t index, const c10::IValue& value);
  size_t add_hook_step(Step::Kind kind, const at::Tensor& tensor);
  size_t first_step_after(const torch::autograd::Node& node) const;
  void find_lost_hooks();
  int32_t own_variable(const void* tensor) const;
  void count_captured_by_hooks(OwnerCount& count) const;
  bool leaves_history() const;
  void check_retained();
  void check_numbers(const std::shared_ptr<HostState>& state);
  void expect_numbers(const std::shared_ptr<HostState>& state);
  void add_number_of_host(const HostInput& input, const at::Tensor& number);

  const std::shared_ptr<const Tape> before_;
  HandleWatch handles_;
  std::shared_ptr<Tape> tape_ = std::make_shared<Tape>();
  std::recursive_mutex mutex_;
  std::vector<Variable> variables_;
  ska::flat_hash_map<const c10::TensorImpl*, VariableId> ids_;
  /// Tensors that the call before used, by storage: another handle on that may be met first.
  std::unordered_map<const c10::StorageImpl*, std::vector<WeakTensor>> used_before_;
  ska::flat_hash_map<const c10::StorageImpl*, Memory> memories_;
  /// New memory that the host may write to: uninitialised memory, and copy-on-write memory, which
  /// shows whether somebody asked for it.
  struct NewMemory {
    VariableId id;
    bool is_empty;
    size_t made_at;  ///< how many steps there were
  };
  std::unordered_map<const c10::StorageImpl*, NewMemory> new_memories_;
  /// The variables that have a node as their grad_fn, and as which of its results.
  struct Made {
    VariableId id;
    uint32_t output_nr;
  };
  ska::flat_hash_map<const torch::autograd::Node*, c10::SmallVector<Made, 2>> made_by_;
  std::unordered_map<const torch::autograd::Node*, std::shared_ptr<CustomHistory>> customs_;
  /// By leaf: its `.grad` when the call began, or when the leaf was met.
  struct FirstGrad {
    WeakTensor grad;
    at::Tensor shell;
    size_t num_hooks;
  };
  std::unordered_map<const c10::TensorImpl*, FirstGrad> first_grads_;
  const std::vector<WeakTensor> leaves_;
  std::unordered_map<const c10::TensorImpl*, const c10::TensorImpl*> leaf_of_grad_;
  std::vector<int32_t> scopes_;
  /// The hooks that the call registered: the step, and where LibTorch put it.
  struct Hook {
    size_t step;
    unsigned position;
    std::weak_ptr<const HookClosure::Function> registered;
  };
  std::vector<Hook> hooks_;
  std::vector<EntryState> entry_states_;
  std::vector<size_t> owners_of_inputs_;            ///< as the call began
  std::unordered_set<VariableId> stored_at_entry_;  ///< stored by the call before and still there
  ska::flat_hash_set<const c10::TensorImpl*> noted_;
  /// Numbers that nobody but the state itself may change while the call runs.
  struct ExpectedNumbers {
    std::weak_ptr<HostState> state;
    std::vector<at::Tensor> numbers;
  };
  std::vector<ExpectedNumbers> expected_numbers_;
  std::vector<WatchedGenerator> generators_;
  const bool with_places_;
  const StackMark entry_;  ///< what is beyond has called the function
  const uint64_t first_sequence_;
  /// The autograd node in whose backward the call is made; null: in none.
  const NodePtr outer_node_;
};

/// While it exists, what this thread does is recorded.
class RecordingScope {
 public:
  explicit RecordingScope(Recorder& recorder);
  ~RecordingScope();
  RecordingScope(const RecordingScope&) = delete;
  RecordingScope& operator=(const RecordingScope&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// While it exists, what this thread does is not recorded.
class RecordingPause {
 public:
  RecordingPause();
  ~RecordingPause();
  RecordingPause(const RecordingPause&) = delete;
  RecordingPause& operator=(const RecordingPause&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ahead::observe
