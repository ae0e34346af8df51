#include <c10/util/ScopeExit.h>

#include <algorithm>

#include "ahead/errors.h"
#include "base/hash.h"
#include "compile/observed_call.h"
#include "compile/state_run.h"
#include "compile/tape_rules.h"
#include "memory/trim.h"
#include "observe/state/state_tensor.h"
#include "observe/tape/skeleton.h"
#include "subclass/recipe.h"
#include "tensors/size_marks.h"

/// What comes of a recording: a program, a reason to run eagerly, or nothing yet.
namespace ahead::detail {
namespace {

/// How often one kind of call may turn out to do something else before it runs eagerly.
constexpr int64_t most_differences = 3;
/// How many programs of a function may turn out to be wrong.
constexpr int64_t most_contradictions = 2;
/// How many calls in a row may be observed before it is said that nothing comes of it.
constexpr int64_t most_observed_in_a_row = 32;

/// Whether somebody replaced the state of a program, so that it may be right for the next call.
bool is_replaced(const Observation::State& observation) {
  const auto first = observation.entries.begin() + static_cast<int64_t>(observation.num_fitting);
  return std::any_of(first, observation.entries.end(), [](const std::shared_ptr<Entry>& entry) {
    return entry->seen.load()->tape->num_stored_anywhere() != 0;
  });
}

}  // namespace

using observe::Tape;
using observe::TapeDifference;

/// Calls of this kind run eagerly.
void ObservedCall::refuse(const Candidate& candidate, const std::string& reason) {
  if (options_.fullgraph) throw Unsupported("compile", reason);
  state_.say(reason, " Such calls run eagerly.");
  state_.observed_in_a_row = 0;
  auto entry = std::make_shared<Entry>(candidate.kind);
  entry->eager_reason = reason;
  entry->seen.store(std::make_shared<const Entry::Seen>());
  state_.add_alone(std::move(entry));
}

/// Notes that a call did just what a program does.
void ObservedCall::confirm(const std::shared_ptr<Entry>& entry,
                           const std::shared_ptr<const Tape>& tape, observe::HostSnapshot host) {
  entry->seen.store(std::make_shared<const Entry::Seen>(
      Entry::Seen{tape, std::move(host), states_of(*tape), state_arguments_of(*tape),
                  state_.stores.load(), state_.eager_calls.load()}));
  entry->counted_calls().fetch_add(1);
  if (entry->compiled.sized != nullptr) entry->compiled.sized->stores = state_.stores.load();
}

/// Tells the user that a program fits, but each call has to be observed.
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
  std::string calls = "each of " + std::to_string(most_observed_in_a_row) +
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

/// From now on programs are guarded by which leaves have a gradient; earlier ones are dropped.
void ObservedCall::guard_by_grads() {
  if (state_.depends_on_grads.exchange(true)) return;
  state_.forget_programs();
}

void ObservedCall::note_difference(Candidate& candidate, const TapeDifference& found) {
  // The first call may do something else than all others.
  const bool is_strict = options_.confirm == Confirm::EveryCall && candidate.observed > 2;
  if (!is_explained_ && (++candidate.differences >= most_differences || is_strict))
    settle(in_words(found));
}

/// Whether what was seen is to become a program now.
bool ObservedCall::is_ready(const Observation::State& observation,
                            const std::shared_ptr<const Tape>& tape) {
  Candidate& candidate = *observation.candidate;
  const bool is_first = candidate.tapes.empty();
  if (is_first && options_.confirm == Confirm::Never && is_self_contained(*tape)) return true;
  const bool is_storable = why_not_storable(*tape).empty() && is_traceable(*tape) &&
                           (tape->num_stored_anywhere() == 0 || tape->replaces_stored);
  const bool may_compile = options_.confirm != Confirm::EveryCall && is_storable;
  std::optional<TapeDifference> last;
  for (std::shared_ptr<const Tape>& before : candidate.tapes) {
    last = difference(*before, *tape);
    if (last && last->has_other_grads) guard_by_grads();
    if (!last) {
      before = tape;
      candidate.differences = 0;
      return may_compile;
    }
    if (last->is_outcome) continue;
    before = tape;
    note_difference(candidate, *last);
    return false;
  }
  // Sizes that values decide may have very many.
  constexpr size_t most_outcomes = 256;
  if (candidate.tapes.size() >= most_outcomes) candidate.tapes.erase(candidate.tapes.begin());
  candidate.tapes.push_back(tape);
  // A call with other sizes that did the same is as good as one with these.
  if (!may_be_sized()) return false;
  constexpr size_t most_skeletons = 256;
  if (state_.skeletons.size() >= most_skeletons) state_.skeletons.clear();
  constexpr size_t most_reals = 8;
  uint64_t skeleton = observe::skeleton_of(*tape);
  for (const int64_t each : tensors::static_sizes(observation.outer))
    skeleton = hash_combine(skeleton, static_cast<uint64_t>(each));
  for (const at::Tensor& argument : observation.outer)
    skeleton = hash_combine(skeleton, subclass::hash_of_classes(argument));
  auto& seen = state_.skeletons[skeleton];
  const auto is_changing = [](const at::Tensor& leaf) { return tensors::changing_dims(leaf) != 0; };
  // What is marked to change is remembered at once, to be compared with the next size.
  is_like_others_ = (is_first || has_sizes_of_values(*tape)) &&
                    (!seen.empty() ||
                     std::any_of(observation.outer.begin(), observation.outer.end(), is_changing));
  if (seen.size() < most_reals) seen.push_back(observation.inputs.spec.reals());
  reals_seen_ = seen;
  return is_like_others_ && may_compile;
}

/// From now on all calls run eagerly.
void ObservedCall::settle(const std::string& reason) {
  state_.eager_reason.store(std::make_shared<const std::string>(reason));
  state_.forget_programs();
  state_.candidates.clear();
  state_.last_candidate.reset();
  state_.last_tape.reset();
  if (options_.fullgraph) throw Unsupported("compile", reason + ".");
  state_.say(reason, " Its calls run eagerly.");
}

std::shared_ptr<Tape> ObservedCall::end_recording(Observation::State& observation,
                                                  const CompiledCore::Ending& ending) const {
  observation.scope.reset();
  observation.is_finished = true;
  std::shared_ptr<Tape> tape =
      observation.recorder->finish(ending.outputs.leaves, ending.is_reference ? 1 : 2);
  tape->result_spec = ending.outputs.spec.str();
  tape->result_has_reals = !ending.outputs.spec.reals().empty();
  if (!tape->refusal.empty()) return tape;
  if (tape->stores_arguments && !state_.has_several_threads)
    tape->refusal =
        "the function keeps an argument outside itself. Keep a detached one, or a clone.";
  else if (!ending.keeps_arguments)
    tape->refusal =
        "arguments: the function assigns to them, which are passed by reference. Write "
        "into a tensor with copy_, or return the new value.";
  return tape;
}

void ObservedCall::learn(Observation::State& observation, const std::shared_ptr<Tape>& tape,
                         observe::HostSnapshot& host) {
  state_.last_tape = tape;
  if (tape->num_stored_anywhere() != 0) state_.stores.fetch_add(1);
  host.ignore(tape->held);
  state_.learn_handles(*tape, host);
  is_explained_ = !state_.last_host.holds(observation.host_before) || is_replaced(observation);
  state_.last_host = host;
  if (touches_grads(*tape)) guard_by_grads();
  // The programs so far are not guarded by the gradients of new leaves.
  if (state_.learn_leaves(*tape) && state_.depends_on_grads) state_.forget_programs();
}

/// For Dynamic::Trusting.
void ObservedCall::note_tape(const Observation::State& observation, const Tape& tape) {
  // The first call may do what no other will.
  if (!may_trust(observation.now) || state_.observed_calls.load() < 2) return;
  std::optional<uint64_t> skeleton;
  if (tape.refusal.empty() && may_be_sized() && !captures_wrappers(tape))
    skeleton = observe::skeleton_of(tape);
  if (!state_.agreed.note_tape(call_of(observation.now), skeleton)) distrust(observation);
}

bool ObservedCall::drop_contradicted(Observation::State& observation, const Tape& tape) {
  for (size_t i = 0; i < observation.entries.size(); ++i) {
    const std::shared_ptr<Entry>& entry = observation.entries[i];
    const auto seen = entry->seen.load();
    const std::optional<TapeDifference> found = difference(*seen->tape, tape);
    if (found->has_other_grads) guard_by_grads();
    if (found->is_outcome || !seen->host.holds(observation.host)) continue;
    if (i >= observation.num_fitting) continue;
    if (seen->tape->num_stored_anywhere() != 0 &&
        !entry->fits(observation.now, state_.modules, options_.depends_on))
      continue;
    state_.remove(entry);
    if (!entry->lost_an_owner() && ++state_.contradictions >= most_contradictions) {
      settle(in_words(*found));
      return true;
    }
  }
  return false;
}

bool ObservedCall::judge(Observation::State& observation, const std::shared_ptr<Tape>& tape,
                         observe::HostSnapshot& host) {
  const bool changed_itself = !observation.host_before.changed_by_storing(host, *tape);
  for (size_t i = 0; i < observation.entries.size(); ++i) {
    const std::shared_ptr<Entry>& entry = observation.entries[i];
    if (difference(*entry->seen.load()->tape, *tape)) continue;
    note_waiting();
    // Where its state is now has to be seen in another call.
    if (changed_itself && entry->has_state) return false;
    entry->drop_pins(observation.outer, observation.host_before);
    entry->count_owners(*tape);
    entry->lower_owners(observation.owners[i]);
    entry->count_owners_of_objects();
    confirm(entry, tape, std::move(host));
    return false;
  }
  Candidate& candidate = *observation.candidate;
  ++candidate.observed;
  if (!tape->refusal.empty()) {
    note_refusal(candidate, tape->refusal);
    return false;
  }
  if (drop_contradicted(observation, *tape)) return false;
  if (changed_itself) {
    note_difference(candidate, {0, "it changes its own members or captured values (a counter?)"});
    return false;
  }
  if (options_.confirm != Confirm::EveryCall &&
      state_.observed_in_a_row >= most_observed_in_a_row) {
    settle(why_never_settled(observation, *tape));
    return false;
  }
  const bool is_ready = this->is_ready(observation, tape);
  const std::string not_storable = why_not_storable(*tape);
  const bool is_hopeless = !not_storable.empty() && candidate.observed > 2;
  if (is_hopeless) refuse(candidate, not_storable + ".");
  return is_ready && !is_hopeless;
}

void ObservedCall::add_program(Observation::State& observation,
                               const std::shared_ptr<const Tape>& tape, observe::HostSnapshot host,
                               const CompiledCore::MakePrototype& prototype) {
  state_.traces.fetch_add(1);
  std::shared_ptr<Entry> entry;
  std::string refusal;
  try {
    entry = compile(observation, tape, prototype);
  } catch (const Unsupported& error) {
    if (options_.fullgraph) throw;
    refusal = error.msg();
  }
  const Candidate& candidate = *observation.candidate;
  std::lock_guard<std::mutex> lock(state_.mutex);
  if (observation.generation != state_.generation) return;
  if (!refusal.empty()) {
    if (may_trust(observation.now) && !state_.agreed.note_graph(call_of(observation.now), nullptr))
      distrust(observation);
    return refuse(candidate, refusal);
  }
  if (entry == nullptr) return;
  if (entry->compiled.is_new && entry->compiled.sized == nullptr) state_.compilations.fetch_add(1);
  entry->calls.store(static_cast<uint64_t>(std::max<int64_t>(candidate.observed - 1, 0)));
  confirm(entry, tape, std::move(host));
  state_.observed_in_a_row = 0;
  if (observation.rechecked != nullptr && !observation.rechecked->is_trusted &&
      entry->compiled.free.empty())
    state_.sized_programs.compare_numbers();
  if (may_trust(observation.now) && entry->compiled.sized != nullptr &&
      !state_.agreed.add(call_of(observation.now), entry))
    distrust(observation);
  state_.add(entry, observation.now);
}

void ObservedCall::finish(Observation::State& observation, const CompiledCore::Ending& ending,
                          const CompiledCore::MakePrototype& prototype) {
  const std::shared_ptr<Tape> tape = end_recording(observation, ending);
  // It would keep the history of state alive.
  const auto release = c10::make_scope_exit([&] {
    for (observe::CapturedTensor& captured : tape->captured) captured.state = at::Tensor();
  });
  observe::HostSnapshot host(observation.host);
  {
    std::lock_guard<std::mutex> lock(state_.mutex);
    if (observation.generation != state_.generation || state_.eager_reason.load() != nullptr)
      return;
    learn(observation, tape, host);
    // It comes back if this call did what it says.
    if (observation.rechecked != nullptr) state_.sized_entries.remove(observation.rechecked);
    note_tape(observation, *tape);
    if (!judge(observation, tape, host)) return;
  }
  add_program(observation, tape, std::move(host), prototype);
  // Its entry is small and stays; what the call computed is as large as its sizes, and goes.
  if (may_be_sized()) memory::trim_if_grown();
}

}  // namespace ahead::detail
