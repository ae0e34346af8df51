#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/input_metadata.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ahead/checkpoint.h"
#include "ahead/graph.h"
#include "ahead/host_state.h"
#include "base/ambient.h"
#include "base/libtorch.h"
#include "observe/recorder/observed_op.h"
#include "observe/tape/custom_formula.h"
#include "observe/tape/hook_closure.h"

namespace ahead::observe {

/// A tensor of a recording, by number; none: no_variable.
using VariableId = int32_t;
constexpr VariableId no_variable = -1;
/// Among what a custom autograd function saved: the state that a generator had at a mark.
constexpr VariableId state_at(size_t mark) {
  return -2 - static_cast<VariableId>(mark);
}

using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

/// Where a callable has a tensor: the offset in bytes into its own object and that of its module,
/// one after the other.
using Handle = uint32_t;

/// The history that a custom autograd function gave to its results.
struct CustomHistory {
  std::string name;
  /// The backward; tensors among its saved values are in `saved_variables`, in order.
  CustomFormula formula;
  std::vector<VariableId> saved_variables;
  /// Where an edge leads: to the history that a variable had then, or to another custom function.
  struct Edge {
    VariableId variable = no_variable;
    std::shared_ptr<const CustomHistory> function = nullptr;
    uint32_t number = 0;  ///< which result of that function
  };
  std::vector<Edge> edges;
  /// The metadata of its results.
  std::vector<torch::autograd::InputMetadata> results;
};

/// One thing that the user's code did.
struct Step {
  enum class Kind : uint8_t {
    Call,             ///< called an operator
    Read,             ///< read a value of ins[0], or whether ins[0] and ins[1] are equal
    History,          ///< ran a custom autograd function, of which outs[0] is the result `number`
    RequiresGrad,     ///< let ins[0] require grad, or not
    SetGrad,          ///< made ins[1], or nothing, the gradient of the leaf ins[0]
    Data,             ///< took outs[0], the data of ins[0], which has a version of its own
    Fill,             ///< wrote `contents` to ins[0] without an operator
    Number,           ///< made outs[0] of a number: `contents`
    EnterCheckpoint,  ///< what follows is a checkpointed function's
    LeaveCheckpoint,
    AddHook,     ///< registered `hook` for the gradient of ins[0]
    RemoveHook,  ///< took back the hook of ins[0] that the step `number` registered
    RetainGrad,  ///< let ins[0], which is no leaf, have its gradient in `.grad`
    GoBack,      ///< set a default generator to where it stood at the mark `number`
  };

  Kind kind;
  /// Of a Call of a composite operator: the operators that it called, which are the steps up to
  /// `end`, are replayed in its place.
  bool is_apart = false;
  /// Of a hook: no gradient can reach it any more when the call is over.
  bool is_lost = false;
  uint32_t ambient = 0;  ///< among Tape::ambients
  uint32_t end = 0;
  /// Call: one more than the step of the composite operator around it; 0: there is none. AddHook
  /// and RetainGrad: one more than the step that gave ins[0] its history; 0: none did.
  uint32_t number = 0;
  uint64_t sequence = 0;  ///< that the next autograd node would have got before it
  const ObservedOp* op = nullptr;
  /// Of a Call: where the user's code made it, as user_place() says; null unless recorded.
  const std::string* place = nullptr;
  /// Of a Call: its arguments, with none for a tensor, `false` for a tensor that is not given, and
  /// the number of its elements for a list of tensors. RequiresGrad, Read: the value.
  std::vector<c10::IValue> args = {};
  std::vector<VariableId> ins = {};
  std::vector<VariableId> outs = {};
  /// Of a Call of a custom operator, or one whose results are as large as values say: the metadata
  /// of its results.
  std::vector<TensorMeta> looks = {};
  at::Tensor contents = {};
  std::shared_ptr<CustomHistory> history = nullptr;
  std::shared_ptr<const CheckpointPolicy> policy = nullptr;
  std::shared_ptr<const HookClosure> hook = nullptr;

  /// Whether values decided how large its results are, as `looks` has them.
  bool is_sized_by_values() const {
    return kind == Kind::Call && op->is_sized_by_values && !looks.empty();
  }
  /// Whether the code got to know something about values by it.
  bool reads_values() const { return kind == Kind::Read || is_sized_by_values(); }
  bool is_hook() const {
    return kind == Kind::AddHook || kind == Kind::RemoveHook || kind == Kind::RetainGrad;
  }
};

/// A tensor that stands for a number of the host's.
struct HostInput {
  uint32_t taking;  ///< among Tape::takings
  uint32_t index;   ///< among the inputs of that
  bool operator==(const HostInput& other) const = default;
};

/// Numbers of the host's that the user's code took.
struct HostTaking {
  std::weak_ptr<HostState> state;
  uint32_t ahead = 0;    ///< how often the call had taken from it before
  bool is_held = false;  ///< its guard held then

  /// Whether it is the same state.
  bool is_of(const std::weak_ptr<HostState>& other) const {
    return !state.owner_before(other) && !other.owner_before(state);
  }
};

/// A tensor from outside that the user's code used without being given it.
struct CapturedTensor {
  VariableId id;
  WeakTensor tensor;
  /// The variable of the tape before as which that call stored it; none: that call did not.
  VariableId stored_before = no_variable;
  TensorMeta look = {};
  bool had_grad = false;  ///< when the call began
  size_t num_hooks = 0;   ///< likewise
  int64_t version = 0;    ///< of a wrapper, likewise
  /// The leaf whose `.grad` it was when the call began; null: none's.
  const c10::TensorImpl* grad_of = nullptr;
  /// Its contents, if the code seems to make it anew in each call; undefined: not looked at.
  at::Tensor contents = {};
  /// The handle by which the callable had it, if calls assign to that: it is state wherever it is
  /// from.
  std::optional<Handle> handle = {};
  /// The number that it stands for, if it does: each call has another tensor.
  std::optional<HostInput> host = {};
  /// Another call is given the tensor that is stored there by then, or the number that the host
  /// has.
  bool is_state = false;
  /// If it may be state: as it was when it was met. Only there until the call has been traced.
  at::Tensor state = {};
  /// A tensor with its metadata, for when it is gone.
  at::Tensor shell = {};
  size_t owners = 0;  ///< beside autograd, when the call was over; none: the host made it inside
};

/// A leaf that other calls use, and whether it had a gradient when the call began.
struct OtherLeaf {
  WeakTensor tensor;
  bool had_grad = false;
};

/// A tensor that the user's code made and stored outside itself.
struct StoredTensor {
  VariableId id;
  WeakTensor tensor;
  size_t owners = 0;  ///< beside autograd
  /// These owners, if the callable's own bytes show all of them; else empty.
  std::vector<Handle> handles = {};
};

/// What a handle that calls assign to had when a call began.
struct HeldTensor {
  Handle handle;
  const c10::TensorImpl* tensor = nullptr;  ///< null: it was undefined
  std::optional<TensorMeta> look = {};      ///< if that is known
  Handle first_same = 0;                    ///< the first handle that had the same tensor
  bool is_captured = false;                 ///< the call used it
  bool is_used = false;                     ///< this call or another one used the handle's tensor
  bool is_pinned = false;                   ///< the call has it by other ways as well
};

/// A handle that was given the tensor that another one had when the call began, or was reset.
struct MovedTensor {
  Handle to;
  std::optional<Handle> from;
  bool operator==(const MovedTensor& other) const = default;
};

/// Where in a recording the autograd node of a custom function was made.
struct MadeHistory {
  size_t before;  ///< this step
  std::shared_ptr<CustomHistory> history;
};

/// Where in a recording a default generator stood somewhere: when the call began, or something had
/// been drawn.
struct GeneratorMark {
  size_t before;  ///< this step
  at::Device device;
  uint64_t fingerprint;
};

/// What one run of the user's code did.
struct Tape {
  int32_t num_inputs = 0;  ///< the first variables are the arguments
  int32_t num_variables = 0;
  std::vector<Ambient> ambients = {};
  std::vector<Step> steps = {};
  std::vector<MadeHistory> histories = {};
  std::vector<GeneratorMark> marks = {};
  std::vector<CapturedTensor> captured = {};
  std::vector<HostTaking> takings = {};
  std::vector<OtherLeaf> other_leaves = {};
  std::vector<StoredTensor> stored = {};
  std::vector<HeldTensor> held = {};
  std::vector<MovedTensor> moved = {};
  std::vector<VariableId> results = {};
  std::string result_spec = {};
  bool result_has_reals = false;  ///< floating-point numbers are among what it returned
  uint32_t last_ambient = 0;      ///< as the code left it
  bool differentiates = false;
  /// A tensor that outlives the call has a grad_fn that the call made.
  bool leaves_history = false;
  /// The autograd nodes that the call made.
  std::vector<decltype(weak(NodePtr()))> nodes = {};
  std::thread::id thread = std::this_thread::get_id();
  uint64_t first_sequence = 0;  ///< of the autograd nodes that the call made, on that thread
  /// Whether it assigns a tensor to this handle, or resets it.
  bool assigns(Handle handle) const;
  /// Whether it stored this tensor.
  bool stores(const void* tensor) const;
  /// How many tensors it stored in places that are not known.
  size_t num_stored_anywhere() const;
  /// Tensors that the call before stored are still there: the code fills a container.
  bool is_growing = false;
  /// Each tensor that it stored took the place of the one that the call before had stored there.
  bool replaces_stored = false;
  /// The tensors that calls before stored, where this one stored none.
  std::vector<WeakTensor> stored_earlier = {};
  /// An argument has more owners than before: the code, or another thread.
  bool stores_arguments = false;
  /// Why it cannot be replayed; empty: it can.
  std::string refusal = {};
};

/// Where two recordings part.
struct TapeDifference {
  size_t step = 0;
  std::string text = {};
  /// Something tells the calls apart: a truth value or an integer that was read is another one, or
  /// tensors from outside look different, or have gradients that they had not, or numbers were
  /// taken from a state of the host's that is another one now.
  bool is_outcome = false;
  /// A leaf had a gradient in one of the calls only.
  bool has_other_grads = false;
};

/// Whether what the host itself put into tensors, and what hooks captured, is the same in both
/// recordings, step by step.
bool have_same_contents(const Tape& before, const Tape& now);

/// The first difference between what two calls did; none: they did the same.
std::optional<TapeDifference> difference(const Tape& before, const Tape& now);

}  // namespace ahead::observe
