#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/log.h"
#include "compile/agreed_sizes.h"
#include "compile/entry.h"
#include "compile/module_watch.h"
#include "compile/recent_calls.h"
#include "compile/sized_entries.h"
#include "observe/recorder/recorder.h"

namespace ahead::detail {

/// What was seen of one kind of call that has no program yet.
struct Candidate {
  explicit Candidate(CallKind call_kind) : kind(std::move(call_kind)) {}

  CallKind kind;
  /// The last recording for each outcome; see TapeDifference::is_outcome.
  std::vector<std::shared_ptr<const observe::Tape>> tapes{};
  int64_t observed = 0;
  int64_t refused = 0;
  int64_t differences = 0;
  /// There were too many programs to make one more for it.
  bool is_beyond_limit = false;
};

/// All that a compiled callable knows.
struct CompiledCore::State {
  using Entries = std::vector<std::shared_ptr<Entry>>;

  compiling::ModuleWatch modules;
  /// The programs that stand alone.
  std::atomic<std::shared_ptr<const Entries>> entries{std::make_shared<const Entries>()};
  /// The programs for many sizes, and what they are made of.
  SizedEntries sized_entries;
  compiling::SizedPrograms sized_programs;
  /// The same for the parts of functions that hooks divide, which are compiled otherwise.
  compiling::SizedPrograms sized_parts;
  /// Why all calls run eagerly; null: they do not.
  std::atomic<std::shared_ptr<const std::string>> eager_reason{};

  /// Held while the members below are used; never while user code, a trace or a backend runs.
  std::mutex mutex;
  std::vector<std::shared_ptr<Candidate>> candidates;
  std::shared_ptr<Candidate> last_candidate;  ///< of the last observed call
  std::shared_ptr<const observe::Tape> last_tape;
  /// What calls did, but for numbers (see skeleton_of()), and with which floating-point numbers
  /// among their arguments; some of these only.
  std::unordered_map<uint64_t, std::vector<std::vector<double>>> skeletons;
  /// Arguments of these sizes came while new sizes were not worth observing; see RecentCalls.
  std::unordered_set<uint64_t> sizes_seen;
  bool said_passing = false;
  /// For Dynamic::Trusting.
  AgreedSizes agreed;
  observe::HostSnapshot last_host;  ///< after the last observed call
  /// What the function does depends on which leaves have a gradient: programs are guarded by that.
  std::atomic<bool> depends_on_grads{false};
  /// Leaves that calls have used.
  std::vector<observe::WeakTensor> leaves;
  /// Adds the leaves of a recording. True: one of them was new.
  bool learn_leaves(const observe::Tape& tape);
  /// Handles of the callable's own that calls assign to.
  std::vector<observe::KnownHandle> handles;
  /// Adds the handles of a recording. If one is new, all programs and recordings are dropped.
  void learn_handles(const observe::Tape& tape, const observe::HostSnapshot& after);
  /// Raised by each observed call that stored tensors in places that are not known, or threw:
  /// programs have to learn which tensors are there now.
  std::atomic<uint64_t> stores{0};
  /// An observed call threw: for which sizes calls do is not known.
  std::atomic<bool> has_thrown{false};
  int64_t contradictions = 0;                 ///< programs that turned out to be wrong
  std::atomic<int64_t> observed_in_a_row{0};  ///< calls without one that ran from a graph
  /// Raised by reset(): observations that were begun before do not count any more.
  uint64_t generation = 0;

  RecentCalls recent;
  std::atomic<uint64_t> calls{0}, observed_calls{0}, cache_hits{0}, eager_calls{0};
  std::atomic<uint64_t> value_misses{0}, traces{0}, compilations{0}, guard_failures{0};
  std::atomic<double> trace_seconds{0}, compile_seconds{0};

  Warnings warnings;
  /// Says once why calls run eagerly, or slowly. Reasons that differ in numbers only are one.
  void say(const std::string& reason, const std::string& consequence);

  /// The thread that called first, and whether others do, which hold the arguments that they pass.
  std::atomic<std::thread::id> thread{};
  std::atomic<bool> has_several_threads{false};
  /// To be called by each call.
  void note_thread() {
    std::thread::id none{};
    const std::thread::id self = std::this_thread::get_id();
    if (thread.load(std::memory_order_relaxed) == self) return;
    if (!thread.compare_exchange_strong(none, self) && none != self) has_several_threads = true;
  }

  /// The kind of a call for which there is no program.
  CallKind kind_of(const Situation& now, const Options& options) const;
  /// For each entry that fits; stops when `visit` returns true.
  template <class Visit>
  void for_each_fitting(const Situation& now, const Options& options, Visit&& visit) const {
    const std::shared_ptr<const Entries> all = entries.load();
    for (const std::shared_ptr<Entry>& entry : *all) {
      if (entry->fits(now, modules, options.depends_on) && visit(entry)) return;
    }
    for_each_sized(now, [&](const std::shared_ptr<Entry>& entry) {
      return entry->fits(now, modules, options.depends_on) && visit(entry);
    });
  }
  /// For each entry of a program for many sizes whose arguments had the sizes that they have now;
  /// stops when `visit` returns true.
  template <class Visit>
  void for_each_sized(const Situation& now, Visit&& visit) const {
    const std::shared_ptr<const SizedEntries::Map> sized = sized_entries.all();
    if (sized->empty()) return;
    if (!now.keys) now.keys.emplace(now);
    std::vector<uint64_t> with_value_sizes;
    for (const uint64_t key : {now.keys->by_numbers, now.keys->by_sizes}) {
      const auto [first, last] = sized->equal_range(key);
      for (auto each = first; each != last; ++each) {
        if (!each->second->value_sizes.empty()) {
          const std::vector<int64_t>* found = value_sizes_of(now, *each->second);
          if (found != nullptr) with_value_sizes.push_back(SizedEntries::key_with(key, *found));
        } else if (visit(each->second)) {
          return;
        }
      }
    }
    for (const uint64_t key : with_value_sizes) {
      const auto [first, last] = sized->equal_range(key);
      for (auto each = first; each != last; ++each) {
        if (visit(each->second)) return;
      }
    }
  }
  /// The sizes that values decide in a call, if it is like those of this entry but for these; null:
  /// it is not.
  static const std::vector<int64_t>* value_sizes_of(const Situation& now, const Entry& entry);
  /// Adds or removes an entry, in a copy of the list: other threads may be reading it. `mutex` is
  /// held. An entry of a program for many sizes is for calls like `now`.
  void add(std::shared_ptr<Entry> entry, const Situation& now);
  void add_alone(std::shared_ptr<Entry> entry);
  /// If it is of a program for many sizes, all entries of that.
  void remove(const std::shared_ptr<Entry>& entry);
  /// Drops all programs.
  void forget_programs();
  /// Calls visit(entry) for all entries, once for each.
  template <class Visit>
  void for_each_entry(Visit&& visit) const {
    const std::shared_ptr<const Entries> all = entries.load();
    for (const std::shared_ptr<Entry>& entry : *all) visit(entry);
    const std::shared_ptr<const SizedEntries::Map> sized = sized_entries.all();
    std::unordered_set<const Entry*> visited;
    for (const auto& [key, entry] : *sized) {
      if (visited.insert(entry.get()).second) visit(entry);
    }
  }
};

/// One observed call, until it is finished.
struct Observation::State {
  State(const Situation& now, std::shared_ptr<const observe::Tape> call_before,
        const std::vector<observe::KnownHandle>& handles,
        const std::vector<observe::WeakTensor>& leaves, CompiledCore::State& core,
        bool with_places);
  /// A call that threw may have stored something before.
  ~State() {
    if (is_finished) return;
    core.stores.fetch_add(1);
    core.has_thrown = true;
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// The arguments, to which `now` refers.
  const FlatTree inputs;
  const std::vector<at::Tensor> outer;  ///< the user's; see Situation::outer
  const std::vector<int64_t> versions;  ///< theirs, if wrappers are among them
  const HostParts host;
  const observe::HostSnapshot host_before;
  const Situation now;
  /// The recording of the call before, if there was one.
  const std::shared_ptr<const observe::Tape> before;
  CompiledCore::State& core;
  bool is_finished = false;
  uint64_t generation = 0;
  /// The candidate for this kind of call.
  std::shared_ptr<Candidate> candidate;
  /// The candidate of the observed call before; null: there was none.
  std::shared_ptr<const Candidate> candidate_before;
  /// `num_fitting` programs that fit, and then programs that fit but for their state.
  std::vector<std::shared_ptr<Entry>> entries;
  /// For each of these how many owners its captured tensors had when the call began.
  std::vector<std::vector<size_t>> owners;
  size_t num_fitting = 0;
  /// A program that fits for any value of some numbers, which the call is to confirm.
  std::shared_ptr<Entry> rechecked;
  std::shared_ptr<observe::Recorder> recorder;
  /// Is ended before the recorder is asked for anything.
  std::optional<observe::RecordingScope> scope;
};

}  // namespace ahead::detail
