#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <utility>

#include "ahead/detail/compiled_core.h"
#include "ahead/errors.h"
#include "base/process_end.h"
#include "compile/observed_call.h"
#include "compile/state_run.h"
#include "observe/tape/expect.h"
#include "runtime/call/call.h"
#include "runtime/call/surroundings.h"
#include "tensors/size_marks.h"

/// Calls of functions that are observed: which run from a program, and which are recorded.
namespace ahead::detail {
namespace {

using observe::Tape;

/// How many kinds of call without a program are remembered.
constexpr size_t most_candidates = 32;

bool is_power_of_two(uint64_t number) {
  return (number & (number - 1)) == 0;
}

bool is_dense(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.has_storage() && !tensor.is_nested() &&
         !tensor.is_quantized();
}

std::vector<int64_t> versions_of(const std::vector<at::Tensor>& tensors) {
  std::vector<int64_t> versions;
  for (const at::Tensor& tensor : tensors)
    versions.push_back(tensor.is_inference() ? 0 : tensor._version());
  return versions;
}

}  // namespace

Observation::Observation() = default;
Observation::~Observation() = default;

Observation::State::State(const Situation& situation, std::shared_ptr<const Tape> call_before,
                          const std::vector<observe::KnownHandle>& handles,
                          const std::vector<observe::WeakTensor>& leaves,
                          CompiledCore::State& core_state, bool with_places)
    : inputs(situation.inputs),
      outer(situation.arguments()),
      versions(versions_of(outer)),
      host(*situation.host),
      host_before(host),
      now{inputs, situation.ambient, &host, situation.outer == nullptr ? nullptr : &outer},
      before(std::move(call_before)),
      core(core_state),
      recorder(std::make_shared<observe::Recorder>(
          outer, before, observe::HandleWatch(host, host_before, handles), leaves, with_places)) {}

Served ObservedCall::run_eagerly() {
  state_.eager_calls.fetch_add(1, std::memory_order_relaxed);
  return {};
}

Served ObservedCall::serve(const FlatTree& inputs, const HostParts& host, GiveAway give_away) {
  give_away_ = give_away;
  state_.calls.fetch_add(1, std::memory_order_relaxed);
  state_.note_thread();
  if (state_.eager_reason.load() != nullptr || is_process_ending()) return run_eagerly();
  if (!std::all_of(inputs.leaves.begin(), inputs.leaves.end(), is_dense)) {
    const std::string reason = "an argument is no dense tensor (sparse, nested or the like).";
    if (options_.fullgraph) throw Unsupported("compile", reason + " Make it dense.");
    state_.say(reason, " Such calls run eagerly.");
    return run_eagerly();
  }
  if (has_wrappers(inputs.leaves)) {
    const FlatTree plain = with_plain_leaves(inputs);
    return serve(Situation{plain, Ambient::current(), &host, &inputs.leaves});
  }
  return serve(Situation{inputs, Ambient::current(), &host});
}

Served ObservedCall::serve(const Situation& now) {
  const HostParts& host = *now.host;
  std::vector<std::shared_ptr<Entry>> entries;
  Served served;
  bool is_eager = false, is_due = false;
  std::shared_ptr<Entry> rechecked;
  state_.for_each_fitting(now, options_, [&](const std::shared_ptr<Entry>& entry) {
    is_eager = !entry->eager_reason.empty();
    if (is_eager) return true;
    if ((!entry->compiled.free.empty() || entry->is_trusted) && this->is_due(*entry)) {
      rechecked = entry;
      return true;
    }
    entries.push_back(entry);
    // With other bytes the function may do something else: a program for that may follow.
    if (!entry->seen.load()->host.holds(host)) return false;
    is_due |= this->is_due(*entry);
    if (!is_due) served = run(entry, now);
    return served.entry != nullptr;
  });
  if (served.entry != nullptr) return served;
  if (!is_eager && entries.empty() && rechecked == nullptr) {
    if (const std::shared_ptr<Entry> trusted = trust(now)) served = run(trusted, now);
    if (served.entry != nullptr) return served;
  }
  if (is_eager || (entries.empty() && rechecked == nullptr && is_passing(now)))
    return run_eagerly();
  const size_t num_fitting = entries.size();
  add_without_state(now, entries);
  missed_values_ &= !is_due;
  served.observation = observe(now, std::move(entries));
  if (served.observation != nullptr) {
    served.observation->state->num_fitting = num_fitting;
    served.observation->state->rechecked = std::move(rechecked);
  }
  return served;
}

std::shared_ptr<Entry> ObservedCall::trust(const Situation& now) {
  if (options_.dynamic != Dynamic::Trusting || options_.confirm == Confirm::EveryCall ||
      state_.has_thrown)
    return nullptr;
  std::shared_ptr<const AgreedSizes::Agreement> agreement;
  uint64_t generation = 0;
  {
    std::lock_guard<std::mutex> lock(state_.mutex);
    agreement = state_.agreed.find(call_of(now));
    generation = state_.generation;
  }
  if (agreement == nullptr || !agreement->last->seen.load()->host.holds(*now.host)) return nullptr;
  std::shared_ptr<Entry> entry = make_trusted_entry(*agreement, call_of(now));
  if (entry == nullptr || is_due(*entry)) return nullptr;
  std::lock_guard<std::mutex> lock(state_.mutex);
  // What was known may have been forgotten meanwhile.
  if (generation != state_.generation || state_.agreed.find(call_of(now)) == nullptr)
    return nullptr;
  state_.add(entry, now);
  return entry;
}

void ObservedCall::distrust(const Observation::State& observation) {
  const bool is_this = observation.rechecked != nullptr && observation.rechecked->is_trusted;
  if (!state_.sized_entries.remove_trusted() && !is_this) return;
  state_.say(
      "Options::dynamic: the function does something else for some sizes, and calls of others were "
      "trusted. Results of these may be wrong. Use Dynamic::Automatic",
      " New sizes are observed from now on.");
}

/// Adds programs whose state somebody replaced: they are right again once the new state is known.
void ObservedCall::add_without_state(const Situation& now,
                                     std::vector<std::shared_ptr<Entry>>& entries) const {
  const auto add_if_it_fits = [&](const std::shared_ptr<Entry>& entry) {
    if (!entry->has_state || std::find(entries.begin(), entries.end(), entry) != entries.end())
      return;
    if (entry->kind_by_arguments->fits(now, state_.modules, options_.depends_on, now.inputs.leaves))
      entries.push_back(entry);
  };
  const std::shared_ptr<const CompiledCore::State::Entries> all = state_.entries.load();
  for (const std::shared_ptr<Entry>& entry : *all) add_if_it_fits(entry);
  state_.for_each_sized(now, [&](const std::shared_ptr<Entry>& entry) {
    add_if_it_fits(entry);
    return false;
  });
}

bool ObservedCall::is_due(Entry& entry) const {
  if (options_.confirm == Confirm::EveryCall || entry.lost_an_owner()) return true;
  const std::shared_ptr<const Entry::Seen> seen = entry.seen.load();
  if (entry.seen_stores() != state_.stores.load()) return true;
  for (const StateTensor& state : seen->states) {
    if (!state.handles.empty()) continue;
    if (state.object.use_count() != state.owners || seen->eager_calls != state_.eager_calls.load())
      return true;
  }
  if (options_.confirm == Confirm::Never) return false;
  // Which of several programs a value decides for is not known yet.
  const std::atomic<uint64_t>& calls = entry.reads_values ? state_.calls : entry.counted_calls();
  return is_power_of_two(calls.load(std::memory_order_relaxed) + (entry.reads_values ? 0 : 1));
}

/// Runs a program; nothing if a value that it reads is another one, or its state is gone or in use.
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
    const std::vector<at::Tensor>& given = entry->wrapped != nullptr ? now.apart->plain
                                           : state                   ? state->arguments()
                                                                     : now.inputs.leaves;
    if (entry->split != nullptr) {
      std::optional<std::vector<at::Tensor>> results = run_parts(*entry, given);
      if (!results) return {};
      served.results = std::move(*results);
    } else {
      for (const observe::WeakTensor& leaf : entry->leaves_without_grads) {
        if (const at::Tensor tensor = observe::lock(leaf); tensor.defined())
          tensor.mutable_grad().reset();
      }
      // If a value is another one, the function itself still needs the arguments.
      const bool is_sure = !entry->reads_values && entry->wrapped == nullptr && !state;
      served.results = runtime::call(entry->plan_for(now.inputs.spec), given,
                                     is_sure && give_away_ ? &give_away_() : nullptr);
      if (entry->wrapped != nullptr)
        served.results =
            entry->wrapped->finish(now.arguments(), *now.apart, std::move(served.results));
    }
  } catch (const observe::ValueMismatch&) {
    before->apply();
    state_.value_misses.fetch_add(1, std::memory_order_relaxed);
    missed_values_ = true;
    return {};
  }
  if (state) state->store(served.results);
  entry->counted_calls().fetch_add(1, std::memory_order_relaxed);
  if (entry->compiled.sized != nullptr)
    entry->last_run.store(state_.calls.load(std::memory_order_relaxed), std::memory_order_relaxed);
  state_.recent.note(true);
  state_.cache_hits.fetch_add(1, std::memory_order_relaxed);
  state_.observed_in_a_row.store(0, std::memory_order_relaxed);
  return served;
}

std::optional<std::vector<at::Tensor>> ObservedCall::run_parts(
    Entry& entry, const std::vector<at::Tensor>& arguments) {
  Options options = options_for(entry.reads_values);
  // A part may write to an argument from which the backward of an earlier one would compute
  // something again.
  if (!options.partitioner.function()) options.partitioner = Partitioner::Default;
  const bool is_sized = entry.compiled.sized != nullptr;
  // Operators that are called one by one would have written by the time that a value turns out to
  // be another one.
  const bool can_wait = is_sized && !entry.reads_values;
  bool is_new = false;
  auto results =
      entry.split->run(arguments, [&](const auto& part, const auto& inputs, bool may_wait) {
        compiling::ManySizes sizes{state_.sized_parts,
                                   /*compiles_fixed=*/!may_wait || !can_wait,
                                   {},
                                   tensors::static_sizes(inputs)};
        compiling::Subject subject{part, inputs};
        compiling::Compilation made =
            make(subject, options, /*before=*/nullptr, is_sized ? &sizes : nullptr);
        is_new |= made.is_new;
        if (made.plan != nullptr) entry.add_owners(*made.plan);
        return made;
      });
  if (is_new && entry.split->is_divided()) state_.compilations.fetch_add(1);
  return results;
}

bool ObservedCall::is_within_limit() const {
  return static_cast<int64_t>(state_.entries.load()->size()) < options_.recompile_limit;
}

bool ObservedCall::may_fit_other_sizes(const Situation& now) {
  return !state_.sized_entries.empty() && !candidate_for(now)->is_beyond_limit;
}

bool ObservedCall::is_passing(const Situation& now) {
  // A data set may well have some dozens of sizes, each of which comes again.
  constexpr size_t few_sizes = 128;
  if (state_.sized_entries.all()->size() < few_sizes || !state_.recent.are_all_new() ||
      tensors::is_any_dynamic(now.arguments()))
    return false;
  std::lock_guard<std::mutex> lock(state_.mutex);
  constexpr size_t most_sizes = 4 * SizedEntries::kMost;
  if (state_.sizes_seen.size() >= most_sizes) state_.sizes_seen.clear();
  uint64_t key = now.keys->by_numbers;
  for (const auto& [program, sizes] : now.value_sizes) key = SizedEntries::key_with(key, sizes);
  if (!state_.sizes_seen.insert(key).second) return false;
  state_.recent.note(false);
  if (std::exchange(state_.said_passing, true)) return true;
  state_.say(
      "most calls have sizes, or numbers among their arguments, that never came before. Pad to "
      "fewer sizes, and pass a number that changes in every call as a tensor",
      " Calls with new ones run eagerly until these come again.");
  return true;
}

std::unique_ptr<Observation> ObservedCall::observe(const Situation& now,
                                                   std::vector<std::shared_ptr<Entry>> entries) {
  std::lock_guard<std::mutex> lock(state_.mutex);
  state_.recent.note(false);
  const size_t count = state_.entries.load()->size();
  const bool has_any = count != 0 || !state_.sized_entries.empty();
  if (has_any && entries.empty()) state_.guard_failures.fetch_add(1);
  if (missed_values_ && !is_within_limit()) {
    settle(
        "the function reads an integer or a truth value that has more values than "
        "Options::recompile_limit allows programs. Raise it, or return the tensor");
    run_eagerly();
    return nullptr;
  }
  if (entries.empty() && !is_within_limit() && !may_fit_other_sizes(now)) {
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
  // Should the call throw, no tape is left: the call may have stored something.
  std::shared_ptr<const Tape> before = std::move(state_.last_tape);
  observation->state = std::make_unique<Observation::State>(
      now, std::move(before), state_.handles, state_.leaves, state_, options_.record_places);
  for (const std::shared_ptr<Entry>& entry : entries)
    observation->state->owners.push_back(entry->owners_now());
  observation->state->entries = std::move(entries);
  observation->state->generation = state_.generation;
  observation->state->candidate_before = state_.last_candidate;
  observation->state->candidate = state_.last_candidate = candidate_for(now);
  observation->state->scope.emplace(*observation->state->recorder);
  return observation;
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

Served CompiledCore::serve(const FlatTree& inputs, const HostParts& host, GiveAway give_away) {
  const HostParts& announced = state_->modules.tensors();
  if (announced.empty())
    return ObservedCall(options_, compilers_, *state_).serve(inputs, host, give_away);
  // Handles are looked for at multiples of a word, as which the size of a lambda need not end.
  HostParts all = announced;
  all.append(host.begin(), host.end());
  return ObservedCall(options_, compilers_, *state_).serve(inputs, all, give_away);
}

void CompiledCore::finish(Observation& observation, const Ending& ending,
                          const MakePrototype& prototype) {
  ObservedCall(options_, compilers_, *state_).finish(*observation.state, ending, prototype);
}

}  // namespace ahead::detail
