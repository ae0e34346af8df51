#include <ATen/core/grad_mode.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <cmath>

#include "ahead/detail/compiled_core.h"
#include "ahead/errors.h"
#include "compile/core_state.h"
#include "compile/dump.h"
#include "compile/state_run.h"
#include "compile/tape_rules.h"
#include "observe/state/entry_state.h"
#include "observe/state/state_tensor.h"
#include "observe/tape/expect.h"
#include "observe/tape/replay.h"
#include "runtime/call/call.h"
#include "runtime/call/surroundings.h"

/// Calls of functions that are observed: what a program is made of is what user code was seen to
/// do.
namespace ahead::detail {
namespace {

using observe::Tape;
using observe::TapeDifference;
using runtime::AmbientState;

/// How often one kind of call may turn out to do something else before it runs eagerly.
constexpr int64_t most_differences = 3;
/// How many programs of a function may turn out to be wrong.
constexpr int64_t most_contradictions = 2;
/// How many calls in a row may be observed before it is said that nothing comes of it.
constexpr int64_t most_observed_in_a_row = 32;
/// How many kinds of call without a program are remembered.
constexpr size_t most_candidates = 32;

bool is_power_of_two(uint64_t number) {
  return (number & (number - 1)) == 0;
}

bool is_dense(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.has_storage() && !tensor.is_nested() &&
         !tensor.is_quantized();
}

/// Somebody replaced what a program finds outside, so that it may be right for the next call.
bool is_replaced(const Observation::State& observation) {
  const auto first = observation.entries.begin() + static_cast<int64_t>(observation.num_fitting);
  return std::any_of(first, observation.entries.end(), [](const std::shared_ptr<Entry>& entry) {
    return entry->seen.load()->tape->num_stored_anywhere() != 0;
  });
}

}  // namespace

Observation::Observation() = default;
Observation::~Observation() = default;

Observation::State::State(const Situation& situation, std::shared_ptr<const Tape> call_before,
                          const std::vector<observe::KnownHandle>& handles,
                          const std::vector<observe::WeakTensor>& leaves,
                          std::atomic<uint64_t>& stored)
    : inputs(situation.inputs),
      host(*situation.host),
      host_before(host),
      now{inputs, situation.ambient, &host},
      before(std::move(call_before)),
      stores(stored),
      recorder(std::make_shared<observe::Recorder>(
          inputs.leaves, before, observe::HandleWatch(host, host_before, handles), leaves)) {}

namespace {

/// What is decided about one call, and done.
class ObservedCall {
 public:
  ObservedCall(const Options& options, const Compilers& compilers, CompiledCore::State& state)
      : options_(options), compilers_(compilers), state_(state) {}

  Served serve(const FlatTree& inputs, const HostParts& host);
  void finish(Observation::State& observation, const CompiledCore::Ending& ending,
              const CompiledCore::MakePrototype& prototype);

 private:
  /// Whether a call that a program fits is to be observed all the same.
  bool is_due(Entry& entry) const;
  void add_without_state(const Situation& now, std::vector<std::shared_ptr<Entry>>& entries) const;
  Served run(const std::shared_ptr<Entry>& entry, const Situation& now);
  std::optional<std::vector<at::Tensor>> run_parts(Entry& entry,
                                                   const std::vector<at::Tensor>& arguments);
  std::unique_ptr<Observation> observe(const Situation& now,
                                       std::vector<std::shared_ptr<Entry>> entries);
  Served run_eagerly();
  void settle(const std::string& reason);
  void refuse(const Candidate& candidate, const std::string& reason);
  std::shared_ptr<Candidate> candidate_for(const Situation& now);
  void confirm(const std::shared_ptr<Entry>& entry, const std::shared_ptr<const Tape>& tape,
               observe::HostSnapshot host);
  bool is_ready(Candidate& candidate, const std::shared_ptr<const Tape>& tape);
  void note_refusal(Candidate& candidate, const std::string& reason);
  void note_waiting();
  std::string why_never_settled(const Observation::State& observation, const Tape& tape) const;
  void note_difference(Candidate& candidate, const TapeDifference& found);
  void guard_by_grads();
  /// A program for a recorded function that reads values, or not; `before` is the recording of the
  /// call before.
  compiling::Compilation make(const aot::FlatFunction& function,
                              const std::vector<at::Tensor>& arguments, bool reads,
                              const Tape* before);
  std::shared_ptr<Entry> compile(Observation::State& observation,
                                 const std::shared_ptr<const Tape>& tape,
                                 const CompiledCore::MakePrototype& prototype);

  const Options& options_;
  const Compilers& compilers_;
  CompiledCore::State& state_;
  bool missed_values_ = false;
  /// Somebody changed what the function can see, since it was observed last.
  bool is_explained_ = false;
};

Served ObservedCall::run_eagerly() {
  state_.eager_calls.fetch_add(1, std::memory_order_relaxed);
  return {};
}

Served ObservedCall::serve(const FlatTree& inputs, const HostParts& host) {
  state_.calls.fetch_add(1, std::memory_order_relaxed);
  state_.note_thread();
  if (state_.eager_reason.load() != nullptr) return run_eagerly();
  if (!std::all_of(inputs.leaves.begin(), inputs.leaves.end(), is_dense)) {
    const std::string reason = "an argument is no dense tensor (sparse, nested or the like).";
    if (options_.fullgraph) throw Unsupported("compile", reason + " Make it dense.");
    state_.say(reason, " Such calls run eagerly.");
    return run_eagerly();
  }
  const Situation now{inputs, AmbientState::current(), &host};
  std::vector<std::shared_ptr<Entry>> entries;
  Served served;
  bool is_eager = false, is_due = false;
  state_.for_each_fitting(now, options_, [&](const std::shared_ptr<Entry>& entry) {
    is_eager = !entry->eager_reason.empty();
    if (is_eager) return true;
    entries.push_back(entry);
    // With other bytes the function may do something else: a program for that may follow.
    if (!entry->seen.load()->host.holds(host)) return false;
    is_due |= this->is_due(*entry);
    if (!is_due) served = run(entry, now);
    return served.entry != nullptr;
  });
  if (served.entry != nullptr) return served;
  if (is_eager) return run_eagerly();
  const size_t num_fitting = entries.size();
  add_without_state(now, entries);
  missed_values_ &= !is_due;
  served.observation = observe(now, std::move(entries));
  if (served.observation != nullptr) served.observation->state->num_fitting = num_fitting;
  return served;
}

/// A program whose state was replaced by somebody is right again once it is known where it is.
void ObservedCall::add_without_state(const Situation& now,
                                     std::vector<std::shared_ptr<Entry>>& entries) const {
  for (const std::shared_ptr<Entry>& entry : *state_.entries.load()) {
    if (!entry->has_state || std::find(entries.begin(), entries.end(), entry) != entries.end())
      continue;
    if (entry->kind_by_arguments->fits(now, state_.modules, options_.depends_on, now.inputs.leaves))
      entries.push_back(entry);
  }
}

bool ObservedCall::is_due(Entry& entry) const {
  if (options_.confirm == Confirm::EveryCall || entry.lost_an_owner()) return true;
  const std::shared_ptr<const Entry::Seen> seen = entry.seen.load();
  if (seen->stores != state_.stores.load()) return true;
  for (const StateTensor& state : seen->states) {
    if (!state.handles.empty()) continue;
    if (state.object.use_count() != state.owners || seen->eager_calls != state_.eager_calls.load())
      return true;
  }
  if (options_.confirm == Confirm::Never) return false;
  // Which of several programs a value decides for is not known yet.
  const std::atomic<uint64_t>& calls = entry.reads_values ? state_.calls : entry.calls;
  return is_power_of_two(calls.load(std::memory_order_relaxed) + (entry.reads_values ? 0 : 1));
}

/// Runs a program; null if a value that it reads is another one.
Served ObservedCall::run(const std::shared_ptr<Entry>& entry, const Situation& now) {
  std::unique_lock<std::mutex> alone(entry->state_mutex, std::defer_lock);
  std::optional<StateRun> state;
  if (entry->has_state) {
    if (!alone.try_lock()) return {};
    state = StateRun::begin(*entry, now);
    if (!state) return {};
  }
  std::optional<runtime::Surroundings> before;
  if (entry->reads_values) before.emplace();
  Served served{entry};
  try {
    const std::vector<at::Tensor>& given = state ? state->arguments() : now.inputs.leaves;
    if (entry->split != nullptr) {
      std::optional<std::vector<at::Tensor>> results = run_parts(*entry, given);
      if (!results) return {};
      served.results = std::move(*results);
    } else {
      for (const observe::WeakTensor& leaf : entry->leaves_without_grads) {
        if (const at::Tensor tensor = observe::lock(leaf); tensor.defined())
          tensor.mutable_grad().reset();
      }
      served.results = runtime::call(entry->kind.plan, given);
    }
  } catch (const observe::ValueMismatch&) {
    before->apply();
    state_.value_misses.fetch_add(1, std::memory_order_relaxed);
    missed_values_ = true;
    return {};
  }
  if (state) state->store(served.results);
  entry->calls.fetch_add(1, std::memory_order_relaxed);
  state_.cache_hits.fetch_add(1, std::memory_order_relaxed);
  state_.observed_in_a_row.store(0, std::memory_order_relaxed);
  return served;
}

std::optional<std::vector<at::Tensor>> ObservedCall::run_parts(
    Entry& entry, const std::vector<at::Tensor>& arguments) {
  return entry.split->run(arguments, [&](const aot::FlatFunction& part, const auto& inputs) {
    compiling::Compilation made = make(part, inputs, entry.reads_values, /*before=*/nullptr);
    entry.add_owners(*made.plan);
    return made;
  });
}

std::unique_ptr<Observation> ObservedCall::observe(const Situation& now,
                                                   std::vector<std::shared_ptr<Entry>> entries) {
  std::lock_guard<std::mutex> lock(state_.mutex);
  const size_t count = state_.entries.load()->size();
  if (count != 0 && entries.empty()) state_.guard_failures.fetch_add(1);
  const auto limit = static_cast<size_t>(std::max<int64_t>(options_.recompile_limit, 0));
  if (missed_values_ && count >= limit) {
    settle(
        "the function reads an integer or a truth value that has more values than "
        "Options::recompile_limit allows programs. Raise it, or return the tensor");
    run_eagerly();
    return nullptr;
  }
  if (entries.empty() && count >= limit) {
    const std::string reason = "recompile_limit reached: " + std::to_string(count) +
                               " programs do not fit this call. Raise Options::recompile_limit, or "
                               "make the calls more alike.";
    if (options_.fullgraph) throw Unsupported("compile", reason);
    state_.say(reason, " Such calls run eagerly.");
    run_eagerly();
    return nullptr;
  }
  state_.observed_calls.fetch_add(1);
  ++state_.observed_in_a_row;
  auto observation = std::make_unique<Observation>();
  // Gone, should the call throw: it may have stored something.
  std::shared_ptr<const Tape> before = std::move(state_.last_tape);
  observation->state = std::make_unique<Observation::State>(now, std::move(before), state_.handles,
                                                            state_.leaves, state_.stores);
  observation->state->entries = std::move(entries);
  observation->state->generation = state_.generation;
  observation->state->candidate_before = state_.last_candidate;
  observation->state->candidate = state_.last_candidate = candidate_for(now);
  observation->state->scope.emplace(*observation->state->recorder);
  return observation;
}

/// From now on all calls run eagerly.
void ObservedCall::settle(const std::string& reason) {
  state_.eager_reason.store(std::make_shared<const std::string>(reason));
  state_.entries.store(std::make_shared<const CompiledCore::State::Entries>());
  state_.candidates.clear();
  state_.last_candidate.reset();
  state_.last_tape.reset();
  if (options_.fullgraph) throw Unsupported("compile", reason + ".");
  state_.say(reason, " Its calls run eagerly.");
}

/// Calls of this kind run eagerly.
void ObservedCall::refuse(const Candidate& candidate, const std::string& reason) {
  if (options_.fullgraph) throw Unsupported("compile", reason);
  state_.say(reason, " Such calls run eagerly.");
  state_.observed_in_a_row = 0;
  auto entry = std::make_shared<Entry>(candidate.kind);
  entry->eager_reason = reason;
  entry->seen.store(std::make_shared<const Entry::Seen>());
  state_.add(std::move(entry));
}

std::shared_ptr<Candidate> ObservedCall::candidate_for(const Situation& now) {
  for (const auto& candidate : state_.candidates) {
    if (candidate->kind.fits(now, state_.modules, options_.depends_on, now.inputs.leaves))
      return candidate;
  }
  if (state_.candidates.size() >= most_candidates)
    state_.candidates.erase(state_.candidates.begin());
  return state_.candidates.emplace_back(std::make_shared<Candidate>(state_.kind_of(now, options_)));
}

/// A call that a program fitted did just what the program does.
void ObservedCall::confirm(const std::shared_ptr<Entry>& entry,
                           const std::shared_ptr<const Tape>& tape, observe::HostSnapshot host) {
  entry->seen.store(std::make_shared<const Entry::Seen>(
      Entry::Seen{tape, std::move(host), states_of(*tape), state_arguments_of(*tape),
                  state_.stores.load(), state_.eager_calls.load()}));
  entry->calls.fetch_add(1);
}

/// A program is right, and yet it is never its turn.
void ObservedCall::note_waiting() {
  if (options_.confirm == Confirm::EveryCall ||
      state_.observed_in_a_row.load() != most_observed_in_a_row)
    return;
  const std::string reason =
      "each of " + std::to_string(most_observed_in_a_row) +
      " calls in a row had to be observed, though a program fits: something that the function can "
      "see changes between all of them (a member that a hook or somebody outside writes to, a "
      "state "
      "that somebody else holds). Keep what the function does not read behind a pointer";
  if (options_.fullgraph) throw Unsupported("compile", reason + ".");
  state_.say(reason, "");
}

/// What keeps calls from being alike, and what to do about it.
std::string ObservedCall::why_never_settled(const Observation::State& observation,
                                            const Tape& tape) const {
  const Situation& now = observation.now;
  const CallKind* before =
      observation.candidate_before == nullptr ? nullptr : &observation.candidate_before->kind;
  const std::string other_kind =
      before == nullptr
          ? ""
          : before->reason(now, state_.modules, options_.depends_on, now.inputs.leaves);
  const auto& tapes = observation.candidate->tapes;
  if (other_kind.empty() && !tapes.empty()) {
    if (const auto found = difference(*tapes.back(), tape)) return in_words(*found);
  }
  const std::string calls = "each of " + std::to_string(most_observed_in_a_row) +
                            " calls in a row is of another kind than those before";
  if (other_kind.empty()) return calls;
  return calls + "; the last one: " + other_kind + ". " +
         (before->spec != now.inputs.spec
              ? "Pass a number that changes as a tensor"
              : "Make the calls more alike: pad to a few sizes, for example");
}

void ObservedCall::note_refusal(Candidate& candidate, const std::string& reason) {
  // The first call may do what no other will: fill a cache, initialise parameters.
  const int64_t most = options_.confirm == Confirm::Never ? 1 : 2;
  if (++candidate.refused >= most) refuse(candidate, reason);
}

/// Programs that were made before it was known that gradients decide are not guarded.
void ObservedCall::guard_by_grads() {
  if (state_.depends_on_grads.exchange(true)) return;
  state_.entries.store(std::make_shared<const CompiledCore::State::Entries>());
}

void ObservedCall::note_difference(Candidate& candidate, const TapeDifference& found) {
  // The first call may do something else than all others.
  const bool is_strict = options_.confirm == Confirm::EveryCall && candidate.observed > 2;
  if (!is_explained_ && (++candidate.differences >= most_differences || is_strict))
    settle(in_words(found));
}

/// Whether what was seen is to become a program now.
bool ObservedCall::is_ready(Candidate& candidate, const std::shared_ptr<const Tape>& tape) {
  const bool is_first = candidate.tapes.empty();
  if (is_first && options_.confirm == Confirm::Never && is_self_contained(*tape)) return true;
  std::optional<TapeDifference> last;
  for (std::shared_ptr<const Tape>& before : candidate.tapes) {
    last = difference(*before, *tape);
    if (last && last->has_other_grads) guard_by_grads();
    if (!last) {
      before = tape;
      candidate.differences = 0;
      const bool is_storable = why_not_storable(*tape).empty() && is_traceable(*tape) &&
                               (tape->num_stored_anywhere() == 0 || tape->replaces_stored);
      return options_.confirm != Confirm::EveryCall && is_storable;
    }
    if (last->is_outcome) continue;
    before = tape;
    note_difference(candidate, *last);
    return false;
  }
  candidate.tapes.push_back(tape);
  return false;
}

compiling::Compilation ObservedCall::make(const aot::FlatFunction& function,
                                          const std::vector<at::Tensor>& arguments, bool reads,
                                          const Tape* before) {
  Options options = options_;
  // Nothing may be written before all values have been looked at.
  if (reads) options.keep_input_mutations = false;
  compiling::Compilation made =
      compiling::compile_function(function, arguments, options, compilers_);
  check_histories(*made.plan, arguments, before);
  compiling::dump(made, options_);
  state_.trace_seconds.fetch_add(made.trace_seconds);
  state_.compile_seconds.fetch_add(made.compile_seconds);
  return made;
}

std::shared_ptr<Entry> ObservedCall::compile(Observation::State& observation,
                                             const std::shared_ptr<const Tape>& tape,
                                             const CompiledCore::MakePrototype& prototype) {
  std::vector<at::Tensor> arguments = observation.inputs.leaves;
  for (const observe::CapturedTensor& captured : tape->captured) {
    if (captured.is_state) arguments.push_back(captured.state);
  }
  std::unique_ptr<compiling::SplitProgram> split;
  if (observe::has_hooks(*tape)) split = std::make_unique<compiling::SplitProgram>(tape);
  if (options_.fullgraph && split != nullptr && split->is_divided())
    throw Unsupported("compile",
                      "register_hook, retain_grad: the function registers a hook between what it "
                      "computes, so that it is no one graph. Do so outside, on what it returns.");
  const bool reads = reads_values(*tape);
  at::AutoGradMode grad_mode(observation.now.ambient.grad_mode);
  const observe::AtEntry at_entry(observation.recorder->entry_states());
  std::vector<Entry::Holders> holders;
  for (const observe::CapturedTensor& captured : tape->captured)
    holders.emplace_back(captured.tensor);
  compiling::Compilation made = make(observe::replay(tape, observe::whole(*tape)), arguments, reads,
                                     observation.before.get());
  auto entry =
      std::make_shared<Entry>(CallKind(observation.now, state_.modules.read(),
                                       options_.depends_on ? options_.depends_on.value() : nullptr,
                                       made.plan, arguments, made.with_offsets));
  entry->prototype = prototype();
  if (split != nullptr) split->use(made);
  entry->compiled = std::move(made);
  entry->split = std::move(split);
  entry->reads_values = reads;
  entry->has_state = !tape->stored.empty() || !tape->held.empty() || !tape->takings.empty();
  for (size_t i = 0; i < observation.inputs.leaves.size(); ++i) {
    const at::Tensor& leaf = observation.inputs.leaves[i];
    const auto handles = observation.host_before.find(leaf.unsafeGetTensorImpl());
    if (handles.empty()) continue;
    entry->pinned.push_back({i, observe::WeakTensor(leaf.getIntrusivePtr())});
    for (const observe::HeldTensor& held : tape->held) {
      if (handles.size() == 1 && held.handle == handles[0])
        entry->pinned.back().handle = handles[0];
    }
  }
  if (entry->has_state) entry->kind_by_arguments.emplace(observation.candidate->kind);
  for (const observe::CapturedTensor& captured : tape->captured) {
    if (state_.depends_on_grads && captured.grad_of == nullptr)
      entry->grads.push_back({captured.tensor, captured.had_grad});
  }
  for (const observe::CapturedTensor& captured : tape->captured) {
    if (tape->differentiates && captured.look.requires_grad)
      entry->hooks.push_back({captured.tensor, captured.num_hooks});
  }
  for (const observe::OtherLeaf& leaf : tape->other_leaves) {
    if (state_.depends_on_grads) entry->grads.push_back({leaf.tensor, leaf.had_grad});
  }
  // What reads values may end the call before anything has happened.
  if (!reads && entry->split == nullptr)
    entry->leaves_without_grads = leaves_without_grads(*tape, *entry->kind.plan);
  entry->count_owners(*tape, holders);
  return entry;
}

void ObservedCall::finish(Observation::State& observation, const CompiledCore::Ending& ending,
                          const CompiledCore::MakePrototype& prototype) {
  observation.scope.reset();
  observation.is_finished = true;
  const std::shared_ptr<Tape> tape =
      observation.recorder->finish(ending.outputs.leaves, ending.is_reference ? 1 : 2);
  if (tape->stores_arguments && !state_.has_several_threads && tape->refusal.empty())
    tape->refusal =
        "the function keeps an argument outside itself. Keep a detached one, or a clone.";
  tape->result_spec = ending.outputs.spec.str();
  // It would keep the history of state alive.
  const auto release = c10::make_scope_exit([&] {
    for (observe::CapturedTensor& captured : tape->captured) captured.state = at::Tensor();
  });
  observe::HostSnapshot host(observation.host);
  std::unique_lock<std::mutex> lock(state_.mutex);
  if (observation.generation != state_.generation || state_.eager_reason.load() != nullptr) return;
  const Situation& now = observation.now;
  state_.last_tape = tape;
  if (tape->num_stored_anywhere() != 0) state_.stores.fetch_add(1);
  host.ignore(tape->held);
  state_.learn_handles(*tape, host);
  is_explained_ = !state_.last_host.holds(observation.host_before) || is_replaced(observation);
  state_.last_host = host;
  if (!ending.keeps_arguments && tape->refusal.empty())
    tape->refusal =
        "arguments: the function assigns to them, which are passed by reference. Write "
        "into a tensor with copy_, or return the new value.";
  if (touches_grads(*tape)) guard_by_grads();
  // Programs are guarded by the gradients of those leaves only that were known.
  if (state_.learn_leaves(*tape) && state_.depends_on_grads)
    state_.entries.store(std::make_shared<const CompiledCore::State::Entries>());
  const bool changed_itself = !observation.host_before.changed_by_storing(host, *tape);
  for (const std::shared_ptr<Entry>& entry : observation.entries) {
    if (!difference(*entry->seen.load()->tape, *tape)) {
      note_waiting();
      // With which tensors is seen in another call.
      if (changed_itself && entry->has_state) return;
      entry->count_owners(*tape);
      return confirm(entry, tape, std::move(host));
    }
  }
  Candidate& candidate = *observation.candidate;
  ++candidate.observed;
  if (!tape->refusal.empty()) return note_refusal(candidate, tape->refusal);
  // What does something else though nothing tells the calls apart was wrong, perhaps for long.
  for (size_t i = 0; i < observation.entries.size(); ++i) {
    const std::shared_ptr<Entry>& entry = observation.entries[i];
    const auto seen = entry->seen.load();
    const std::optional<TapeDifference> found = difference(*seen->tape, *tape);
    if (found->has_other_grads) guard_by_grads();
    if (found->is_outcome || !seen->host.holds(observation.host)) continue;
    if (i >= observation.num_fitting) continue;
    if (seen->tape->num_stored_anywhere() != 0 &&
        !entry->fits(now, state_.modules, options_.depends_on))
      continue;
    state_.remove(entry);
    if (!entry->lost_an_owner() && ++state_.contradictions >= most_contradictions)
      return settle(in_words(*found));
  }
  if (changed_itself) {
    return note_difference(candidate,
                           {0, "it changes its own members or captured values (a counter?)"});
  }
  if (options_.confirm != Confirm::EveryCall && state_.observed_in_a_row >= most_observed_in_a_row)
    return settle(why_never_settled(observation, *tape));
  const bool is_ready = this->is_ready(candidate, tape);
  const std::string not_storable = why_not_storable(*tape);
  if (!not_storable.empty() && candidate.observed > 2) return refuse(candidate, not_storable + ".");
  if (!is_ready) return;
  lock.unlock();
  state_.traces.fetch_add(1);
  std::shared_ptr<Entry> entry;
  std::string refusal;
  try {
    entry = compile(observation, tape, prototype);
  } catch (const Unsupported& error) {
    if (options_.fullgraph) throw;
    refusal = error.msg();
  }
  lock.lock();
  if (observation.generation != state_.generation) return;
  if (entry == nullptr) return refuse(candidate, refusal);
  if (!state_.entries.load()->empty()) state_.recompiles.fetch_add(1);
  entry->calls.store(static_cast<uint64_t>(std::max<int64_t>(candidate.observed - 1, 0)));
  confirm(entry, tape, std::move(host));
  state_.observed_in_a_row = 0;
  state_.add(entry);
}

}  // namespace

Served CompiledCore::serve(const FlatTree& inputs, const HostParts& host) {
  return ObservedCall(options_, compilers_, *state_).serve(inputs, host);
}

void CompiledCore::finish(Observation& observation, const Ending& ending,
                          const MakePrototype& prototype) {
  ObservedCall(options_, compilers_, *state_).finish(*observation.state, ending, prototype);
}

}  // namespace ahead::detail
