#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ahead/detail/compiled_core.h"
#include "compile/module_watch.h"
#include "compile/pipeline.h"
#include "compile/split_program.h"
#include "compile/wrapped_call.h"
#include "observe/state/host_snapshot.h"
#include "observe/tape/tape.h"
#include "runtime/call/call_guards.h"

namespace ahead::detail {

struct Situation;

/// Where entries of programs for many sizes are found; see SizedEntries.
struct SizedKeys {
  explicit SizedKeys(const Situation& now);

  uint64_t by_sizes;    ///< equal for arguments of equal sizes, whatever numbers come with them
  uint64_t by_numbers;  ///< equal for equal structures with arguments of equal sizes
};

/// A call, as far as it can be told from others without running the user's function.
struct Situation {
  const FlatTree& inputs;
  Ambient ambient;
  const HostParts* host = nullptr;  ///< the callable's own bytes; null: not looked at
  /// The arguments if wrappers are among them: `inputs` has the plain tensors inside. Else null.
  const std::vector<at::Tensor>* outer = nullptr;
  /// The plain tensors as the program needs them that was asked last.
  mutable std::optional<WrappedLayout::Apart> apart = {};
  /// What SizedEntries finds entries by, once somebody asked for it.
  mutable std::optional<SizedKeys> keys = {};
  /// The sizes that values decide in this call, by the programs that were asked.
  mutable std::vector<std::pair<const compiling::SizedProgram*, std::vector<int64_t>>> value_sizes =
      {};

  const std::vector<at::Tensor>& arguments() const {
    return outer == nullptr ? inputs.leaves : *outer;
  }
};

/// Whether code is likely to treat this number otherwise than those around it: 0, 1, infinity.
bool is_special(double number);

/// All calls that cannot be told apart without running the user's function.
struct CallKind {
  CallKind(const Situation& now, compiling::ModuleWatch::Readings modules,
           std::shared_ptr<const Dependence::Value> dependence,
           const std::shared_ptr<const runtime::CallPlan>& plan,
           const std::vector<at::Tensor>& arguments, bool with_offsets);

  /// Whether a call is of this kind.
  bool fits(const Situation& now, const compiling::ModuleWatch& watch, const Dependence& depends_on,
            const std::vector<at::Tensor>& arguments) const;
  /// The same, were the sizes of arguments others. Kinds of calls with wrappers fit none.
  bool fits_but_for_sizes(const Situation& now, const compiling::ModuleWatch& watch,
                          const Dependence& depends_on,
                          const std::vector<at::Tensor>& arguments) const;
  /// Why it is not, in words; empty: it is.
  std::string reason(const Situation& now, const compiling::ModuleWatch& watch,
                     const Dependence& depends_on, const std::vector<at::Tensor>& arguments) const;

  /// Whether a call has the structure, but for numbers that may have any value.
  bool has_structure(const TreeSpec& now) const;

  TreeSpec spec;
  /// For each of spec.reals(), whether it may have any value; empty: none may.
  std::vector<bool> free_reals = {};
  std::optional<WrappedLayout> wrapped;  ///< how arguments are made, if wrappers are among them
  Ambient ambient;
  compiling::ModuleWatch::Readings modules;
  std::shared_ptr<const Dependence::Value> dependence;  ///< null: there is none
  /// The plan that the guard is for; if there is no program, an empty one.
  std::shared_ptr<const runtime::CallPlan> plan;
  runtime::CallGuard guard;
};

/// A tensor that the function stores outside itself in every call.
struct StateTensor {
  observe::WeakTensor object;  ///< the one that the user holds
  size_t owners = 1;           ///< how many hold it
  /// Where the callable has it; none: that is not known.
  std::vector<observe::Handle> handles = {};
};

/// A tensor that the function uses and finds where a call stored it.
struct StateArgument {
  std::optional<observe::Handle> handle = {};
  observe::WeakTensor object;                   ///< if it is not known where
  std::optional<observe::HostInput> host = {};  ///< a number of the host's instead
};

/// The states of the host that a program takes numbers from, as its recording lists them; none if
/// one is gone, or does not have what the program is for.
std::optional<std::vector<std::shared_ptr<HostState>>> states_of_host(const observe::Tape& tape);

/// One program of a compiled callable and the calls it is right for; or the knowledge that such
/// calls have to run eagerly.
struct Entry {
  explicit Entry(CallKind call_kind) : kind(std::move(call_kind)) {}

  CallKind kind;
  std::shared_ptr<const void> prototype;
  compiling::Compilation compiled;  ///< empty for calls that run eagerly
  /// Runs instead of the plan, which only tells what the calls are like; null: the plan runs.
  std::unique_ptr<compiling::SplitProgram> split;
  /// What happens around the plan in calls with wrappers; null: there are none.
  std::shared_ptr<WrappedProgram> wrapped;
  /// Why calls run eagerly; empty if they do not.
  std::string eager_reason;
  /// For each captured tensor the fewest owners it has been seen with, this entry among them.
  std::vector<std::atomic<size_t>> owners{};
  /// The same for each of the user's objects that the program has as a constant.
  std::vector<std::atomic<size_t>> owners_of_objects{};

  // Of a function that is observed:

  /// Arguments that the callable holds as well, as its bytes show: they must be these tensors.
  struct Pinned {
    size_t argument;
    observe::WeakTensor tensor;
    std::optional<observe::Handle> handle = {};  ///< if known: whatever tensor it has
    /// A call with another tensor did the same: what looked like a handle of it was none, as memory
    /// is used again.
    std::atomic<bool> is_void{false};
  };
  std::list<Pinned> pinned;
  /// Notes that a call with these arguments did what the program does; `before`: the callable's
  /// bytes when it began.
  void drop_pins(const std::vector<at::Tensor>& arguments, const observe::HostSnapshot& before);
  /// Tensors that must have a gradient, or must not.
  struct Grad {
    observe::WeakTensor tensor;
    bool is_defined;
  };
  std::vector<Grad> grads;
  /// Leaves whose gradient is let go before the program runs, as the function does: what it makes
  /// can have that memory.
  std::vector<observe::WeakTensor> leaves_without_grads;
  /// Tensors that must have so many hooks: a backward inside the function calls them.
  struct Hooks {
    observe::WeakTensor tensor;
    size_t count;
  };
  std::vector<Hooks> hooks;

  /// What the function does in such calls, and the bytes of its object after it did so last.
  /// Replaced as a whole when it is observed again.
  struct Seen {
    std::shared_ptr<const observe::Tape> tape;
    observe::HostSnapshot host;
    std::vector<StateTensor> states = {};
    std::vector<StateArgument> arguments = {};
    uint64_t stores = 0;       ///< CompiledCore::State::stores by then
    uint64_t eager_calls = 0;  ///< the eager calls by then, which may have stored tensors too
  };
  std::atomic<std::shared_ptr<const Seen>> seen{};
  std::atomic<uint64_t> calls{0};
  /// The number of calls after which it may be time to observe again: its own, or those of all
  /// sizes.
  std::atomic<uint64_t>& counted_calls() {
    return compiled.sized == nullptr ? calls : compiled.sized->calls;
  }
  /// The stores of the callable by which what the program does was seen: in a call of these sizes,
  /// or of any where there is no state.
  uint64_t seen_stores() const {
    return compiled.sized == nullptr || has_state ? seen.load()->stores
                                                  : compiled.sized->stores.load();
  }
  /// The plan for the numbers of a call, which may be others than those that it was made with.
  std::shared_ptr<const runtime::CallPlan> plan_for(const TreeSpec& now) const;
  /// When it ran last, in calls of the callable.
  std::atomic<uint64_t> last_run{0};
  bool reads_values = false;
  /// The sizes that values decide in its calls, as they can be found out before it runs; empty:
  /// there are none such.
  std::vector<int64_t> value_sizes = {};
  bool has_state = false;
  /// No call of these sizes was observed: others say what the program does; see AgreedSizes.
  bool is_trusted = false;
  /// If it has state: the kind of call by its arguments alone. None: that is `kind`.
  std::optional<CallKind> kind_by_arguments;
  /// Held while a program runs that has state.
  std::mutex state_mutex;

  /// The inputs of the program: the arguments of the call, and then the state that calls before
  /// stored. None if state is gone, or handles have tensors that the program is not for.
  std::optional<std::vector<at::Tensor>> arguments(const Situation& now) const;
  /// Whether a call is one that this is for.
  bool fits(const Situation& now, const compiling::ModuleWatch& watch,
            const Dependence& depends_on) const;
  /// Why it is not, in words; empty: it is.
  std::string reason(const Situation& now, const compiling::ModuleWatch& watch,
                     const Dependence& depends_on) const;

  /// Takes all that does not depend on sizes from another entry of the same program, whose plan for
  /// these sizes this one is to run.
  void take_over(const Entry& other, std::shared_ptr<const runtime::CallPlan> plan,
                 std::vector<int64_t> sizes);

  /// Notes how many owners each captured tensor has now, once the program is known to be right.
  void count_owners();
  /// Notes how many owners each of the user's objects has now, if these are fewer.
  void count_owners_of_objects();
  /// Counts one more program as an owner of the captured tensors that its plan holds.
  void add_owners(const runtime::CallPlan& plan);
  /// Lowers the numbers to those of a recording, which leaves out owners that autograd has for a
  /// while.
  void count_owners(const observe::Tape& tape);
  /// How many owners each captured tensor has at the moment.
  std::vector<size_t> owners_now() const;
  /// Lowers the numbers to those before a call that did what the program does: what the function
  /// made may own tensors for a while, such as a checkpoint that copied a callable.
  void lower_owners(const std::vector<size_t>& before);
  /// How many hold a tensor, and how many its AccumulateGrad, which holds it as well.
  struct Holders {
    explicit Holders(const observe::WeakTensor& tensor);
    size_t of_tensor = 0, of_accumulator = 0;
  };
  /// Counts the owners for a new entry; `before`: the holders of the tape's tensors before it was
  /// made.
  void count_owners(const observe::Tape& tape, const std::vector<Holders>& before);
  /// A captured tensor, or an object of the user's, has fewer owners than ever: the function may be
  /// using another one.
  bool lost_an_owner() const;
};

}  // namespace ahead::detail
