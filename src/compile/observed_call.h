#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compile/core_state.h"
#include "compile/entry.h"
#include "observe/tape/tape.h"

namespace ahead::detail {

/// Decides what to do with one call, and does it.
class ObservedCall {
 public:
  ObservedCall(const Options& options, const Compilers& compilers, CompiledCore::State& state)
      : options_(options), compilers_(compilers), state_(state) {}

  Served serve(const FlatTree& inputs, const HostParts& host, GiveAway give_away);
  Served serve(const Situation& now);
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
  void confirm(const std::shared_ptr<Entry>& entry,
               const std::shared_ptr<const observe::Tape>& tape, observe::HostSnapshot host);
  bool is_ready(const Observation::State& observation,
                const std::shared_ptr<const observe::Tape>& tape);
  /// Whether a number among the arguments had enough values in calls that did the same.
  bool had_many_values(size_t real) const;
  /// Whether a program for many sizes may be made of a recording.
  bool may_be_sized() const;
  /// Whether sizes that no call had before may be trusted.
  bool may_trust(const Situation& now) const {
    return options_.dynamic == Dynamic::Trusting && now.outer == nullptr;
  }
  void note_tape(const Observation::State& observation, const observe::Tape& tape);
  void note_refusal(Candidate& candidate, const std::string& reason);
  void note_waiting();
  std::string why_never_settled(const Observation::State& observation,
                                const observe::Tape& tape) const;
  void note_difference(Candidate& candidate, const observe::TapeDifference& found);
  void guard_by_grads();
  /// How programs are made of recordings that read values, or not.
  Options options_for(bool reads) const;
  /// A program for a recorded function; `before` is the recording of the call before. Without a
  /// plan if it was only remembered; see ManySizes.
  compiling::Compilation make(compiling::Subject& subject, const Options& options,
                              const observe::Tape* before, compiling::ManySizes* sizes = nullptr);
  /// What is known of calls of other sizes than an observed one.
  compiling::ManySizes sizes_for(const Observation::State& observation);
  /// Whether what was made of a recording is to run from now on. Else it was remembered.
  bool is_usable(const Observation::State& observation, const observe::Tape& tape,
                 const compiling::Compilation& made) const;
  /// An entry for calls like an observed one, in which the plan is given these arguments.
  std::shared_ptr<Entry> make_entry(const Observation::State& observation,
                                    const observe::Tape& tape, compiling::Compilation made,
                                    const std::vector<at::Tensor>& arguments) const;
  /// What Dynamic::Trusting compares calls by.
  AgreedSizes::Call call_of(const Situation& now) const {
    return {now, state_.modules, options_.depends_on};
  }
  /// An entry for sizes that no call had before; null: these have to be observed.
  std::shared_ptr<Entry> trust(const Situation& now);
  /// Lets no call run for sizes that were not observed, since it was seen that they matter.
  void distrust(const Observation::State& observation);
  /// Whether one more program may be made.
  bool is_within_limit() const;
  /// Whether a program for many sizes may turn out to be right for a call that none fits.
  bool may_fit_other_sizes(const Situation& now);
  /// Whether a call with sizes that are new should not be observed, since hardly any comes again.
  bool is_passing(const Situation& now);
  std::shared_ptr<observe::Tape> end_recording(Observation::State& observation,
                                               const CompiledCore::Ending& ending) const;
  /// Takes from a recording what holds for calls of all kinds.
  void learn(Observation::State& observation, const std::shared_ptr<observe::Tape>& tape,
             observe::HostSnapshot& host);
  /// Compares a recording with those of programs and of calls before. True: it is to become a
  /// program.
  bool judge(Observation::State& observation, const std::shared_ptr<observe::Tape>& tape,
             observe::HostSnapshot& host);
  /// Drops programs that turned out to be wrong. True: there were too many.
  bool drop_contradicted(Observation::State& observation, const observe::Tape& tape);
  void add_program(Observation::State& observation,
                   const std::shared_ptr<const observe::Tape>& tape, observe::HostSnapshot host,
                   const CompiledCore::MakePrototype& prototype);
  /// A program for a recording; null: it was only remembered.
  std::shared_ptr<Entry> compile(Observation::State& observation,
                                 const std::shared_ptr<const observe::Tape>& tape,
                                 const CompiledCore::MakePrototype& prototype);
  std::shared_ptr<Entry> compile_plain(Observation::State& observation,
                                       const std::shared_ptr<const observe::Tape>& tape);
  /// For a call with wrappers among its arguments or what it captured.
  std::shared_ptr<Entry> compile_wrapped(Observation::State& observation,
                                         const std::shared_ptr<const observe::Tape>& tape);
  static void pin(const Observation::State& observation, const observe::Tape& tape, Entry& entry);
  /// Notes which leaves must have a gradient, or must not, and how many hooks.
  void guard_by_leaves(const observe::Tape& tape, Entry& entry) const;

  const Options& options_;
  const Compilers& compilers_;
  CompiledCore::State& state_;
  GiveAway give_away_ = {};
  bool missed_values_ = false;
  /// Somebody changed what the function can see, since it was observed last.
  bool is_explained_ = false;
  /// No call of this kind was observed before, but others that did the same with other numbers.
  bool is_like_others_ = false;
  /// The floating-point numbers among the arguments of calls that did the same, this one included.
  std::vector<std::vector<double>> reals_seen_;
};

}  // namespace ahead::detail
