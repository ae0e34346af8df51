#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <set>

#include "ahead/errors.h"
#include "compile/dump.h"
#include "compile/observed_call.h"
#include "compile/tape_rules.h"
#include "observe/state/entry_state.h"
#include "observe/tape/replay.h"
#include "runtime/backends.h"
#include "tensors/size_marks.h"

/// Programs that are made of recordings.
namespace ahead::detail {

using observe::Tape;

bool ObservedCall::may_be_sized() const {
  return options_.dynamic != Dynamic::Static && runtime::traits_of(options_.backend).takes_sizes;
}

bool ObservedCall::had_many_values(size_t real) const {
  std::set<double> values;
  for (const std::vector<double>& reals : reals_seen_) {
    if (real < reals.size() && !is_special(reals[real])) values.insert(reals[real]);
  }
  return values.size() >= 3;
}

Options ObservedCall::options_for(bool reads) const {
  Options options = options_;
  // Nothing may be written before all values have been looked at.
  if (reads) options.keep_input_mutations = false;
  return options;
}

compiling::Compilation ObservedCall::make(compiling::Subject& subject, const Options& options,
                                          const Tape* before, compiling::ManySizes* sizes) {
  compiling::Compilation made = compiling::compile_function(subject, options, compilers_, sizes);
  if (made.plan != nullptr) check_histories(*made.plan, subject.inputs, before);
  if (made.is_new) compiling::dump(made, options_);
  state_.trace_seconds.fetch_add(made.trace_seconds);
  state_.compile_seconds.fetch_add(made.compile_seconds);
  return made;
}

/// Notes which arguments the callable holds as well.
void ObservedCall::pin(const Observation::State& observation, const Tape& tape, Entry& entry) {
  for (size_t i = 0; i < observation.outer.size(); ++i) {
    const at::Tensor& leaf = observation.outer[i];
    const auto handles = observation.host_before.find(leaf.unsafeGetTensorImpl());
    if (handles.empty()) continue;
    entry.pinned.emplace_back(i, observe::WeakTensor(leaf.getIntrusivePtr()));
    for (const observe::HeldTensor& held : tape.held) {
      if (handles.size() == 1 && held.handle == handles[0]) entry.pinned.back().handle = handles[0];
    }
  }
}

compiling::ManySizes ObservedCall::sizes_for(const Observation::State& observation) {
  return {state_.sized_programs, !is_like_others_ && is_within_limit(),
          observation.inputs.spec.reals(), tensors::static_sizes(observation.outer)};
}

bool ObservedCall::is_usable(const Observation::State& observation, const Tape& tape,
                             const compiling::Compilation& made) const {
  const bool is_certain = made.is_certain && observation.before != nullptr &&
                          observe::have_same_contents(*observation.before, tape);
  // What the host makes itself has to be the same in two calls of these sizes.
  if (made.plan != nullptr && (!is_like_others_ || is_certain)) return true;
  observation.candidate->is_beyond_limit = made.plan == nullptr && !is_within_limit();
  return false;
}

std::shared_ptr<Entry> ObservedCall::make_entry(const Observation::State& observation,
                                                const Tape& tape, compiling::Compilation made,
                                                const std::vector<at::Tensor>& arguments) const {
  auto entry =
      std::make_shared<Entry>(CallKind(observation.now, state_.modules.read(),
                                       options_.depends_on ? options_.depends_on.value() : nullptr,
                                       made.plan, arguments, made.with_offsets));
  // What the call returns besides tensors is that of this call.
  const bool are_free = !tape.result_has_reals &&
                        std::all_of(made.free.begin(), made.free.end(), [&](const auto& number) {
                          return had_many_values(number.real);
                        });
  if (!are_free) made.free.clear();
  if (!made.free.empty()) entry->kind.free_reals.resize(observation.inputs.spec.reals().size());
  for (const compiling::FreeNumber& number : made.free) entry->kind.free_reals[number.real] = true;
  entry->compiled = std::move(made);
  entry->reads_values = reads_values(tape);
  pin(observation, tape, *entry);
  return entry;
}

std::shared_ptr<Entry> ObservedCall::compile_wrapped(Observation::State& observation,
                                                     const std::shared_ptr<const Tape>& tape) {
  if (observe::has_hooks(*tape))
    throw Unsupported("compile",
                      "register_hook, retain_grad: the function registers a hook, and has wrappers "
                      "among its tensors. Do so outside, on what it returns.");
  auto wrapped = std::make_shared<WrappedProgram>(*tape, observation.outer, observation.versions);
  const auto describe = [&](compiling::Subject& subject) {
    subject.inputs = wrapped->arguments(observation.outer).value().plain;
    subject.static_arguments = wrapped->static_arguments();
  };
  compiling::Subject subject{wrapped->plain_function(tape)};
  describe(subject);
  subject.changes = [&](compiling::Subject& traced) {
    const bool has_changed = wrapped->has_other_gradients();
    if (has_changed)
      describe(traced);
    else
      traced.constants = wrapped->constants();
    return has_changed;
  };
  compiling::ManySizes sizes = sizes_for(observation);
  compiling::Compilation made = make(subject, options_for(reads_values(*tape)),
                                     observation.before.get(), may_be_sized() ? &sizes : nullptr);
  if (made.is_new && made.sized != nullptr) state_.compilations.fetch_add(1);
  if (!is_usable(observation, *tape, made)) return nullptr;
  std::shared_ptr<Entry> entry = make_entry(observation, *tape, std::move(made), subject.inputs);
  entry->wrapped = std::move(wrapped);
  return entry;
}

std::shared_ptr<Entry> ObservedCall::compile_plain(Observation::State& observation,
                                                   const std::shared_ptr<const Tape>& tape) {
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
  compiling::ManySizes sizes = sizes_for(observation);
  compiling::Subject subject{observe::replay(tape, observe::whole(*tape)), std::move(arguments)};
  compiling::Compilation made = make(subject, options_for(reads), observation.before.get(),
                                     may_be_sized() ? &sizes : nullptr);
  // What a divided function runs is compiled, and counted, part by part.
  if (split != nullptr && split->is_divided()) made.is_new = false;
  if (made.is_new && made.sized != nullptr) state_.compilations.fetch_add(1);
  if (may_trust(observation.now)) {
    std::lock_guard<std::mutex> lock(state_.mutex);
    if (!state_.agreed.note_graph(call_of(observation.now), made.family)) distrust(observation);
  }
  if (!is_usable(observation, *tape, made)) return nullptr;
  if (split != nullptr) {
    made.free.clear();
    split->use(made);
  }
  std::shared_ptr<Entry> entry = make_entry(observation, *tape, std::move(made), subject.inputs);
  entry->split = std::move(split);
  entry->has_state = !tape->stored.empty() || !tape->held.empty() || !tape->takings.empty();
  if (entry->has_state) entry->kind_by_arguments.emplace(observation.candidate->kind);
  // What reads values may end the call before anything has happened.
  if (!reads && entry->split == nullptr)
    entry->leaves_without_grads = leaves_without_grads(*tape, *entry->kind.plan);
  return entry;
}

void ObservedCall::guard_by_leaves(const Tape& tape, Entry& entry) const {
  for (const observe::CapturedTensor& captured : tape.captured) {
    if (state_.depends_on_grads && captured.grad_of == nullptr)
      entry.grads.push_back({captured.tensor, captured.had_grad});
    if (tape.differentiates && captured.look.requires_grad)
      entry.hooks.push_back({captured.tensor, captured.num_hooks});
  }
  for (const observe::OtherLeaf& leaf : tape.other_leaves) {
    if (state_.depends_on_grads) entry.grads.push_back({leaf.tensor, leaf.had_grad});
  }
}

std::shared_ptr<Entry> ObservedCall::compile(Observation::State& observation,
                                             const std::shared_ptr<const Tape>& tape,
                                             const CompiledCore::MakePrototype& prototype) {
  at::AutoGradMode grad_mode(observation.now.ambient.grad_mode);
  const observe::AtEntry at_entry(observation.recorder->entry_states());
  std::vector<Entry::Holders> holders;
  for (const observe::CapturedTensor& captured : tape->captured)
    holders.emplace_back(captured.tensor);
  const bool is_wrapped = observation.now.outer != nullptr || captures_wrappers(*tape);
  std::shared_ptr<Entry> entry =
      is_wrapped ? compile_wrapped(observation, tape) : compile_plain(observation, tape);
  if (entry == nullptr) return nullptr;
  entry->prototype = prototype();
  guard_by_leaves(*tape, *entry);
  const compiling::SizedProgram* sized = entry->compiled.sized.get();
  if (sized != nullptr && !entry->has_state && entry->split == nullptr &&
      sized->value_sizes() != nullptr)
    entry->value_sizes = sized->value_sizes()->expected(entry->compiled.sizes);
  entry->count_owners(*tape, holders);
  entry->count_owners_of_objects();
  return entry;
}

}  // namespace ahead::detail
