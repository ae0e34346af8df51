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
#include "tensors/wrapper_keys.h"

/// Programs that are made of recordings.
namespace ahead::detail {

using observe::Tape;

namespace {

bool captures_wrappers(const Tape& tape) {
  for (const observe::CapturedTensor& captured : tape.captured) {
    const at::Tensor tensor = observe::lock(captured.tensor);
    if (tensor.defined() && tensors::is_wrapper(tensor)) return true;
  }
  return false;
}

}  // namespace

bool ObservedCall::may_be_sized(const Observation::State& observation, const Tape& tape) const {
  return options_.dynamic != Dynamic::Static && observation.now.outer == nullptr &&
         runtime::traits_of(options_.backend).takes_sizes && !captures_wrappers(tape);
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

compiling::Compilation ObservedCall::make(const aot::FlatFunction& function,
                                          const std::vector<at::Tensor>& arguments,
                                          const Options& options, const Tape* before,
                                          compiling::ManySizes* sizes,
                                          runtime::StaticArguments static_arguments) {
  compiling::Compilation made = compiling::compile_function(
      function, arguments, options, compilers_, sizes, std::move(static_arguments));
  if (made.plan != nullptr) check_histories(*made.plan, arguments, before);
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

std::shared_ptr<Entry> ObservedCall::compile_wrapped(Observation::State& observation,
                                                     const std::shared_ptr<const Tape>& tape,
                                                     const CompiledCore::MakePrototype& prototype) {
  if (observe::has_hooks(*tape))
    throw Unsupported("compile",
                      "register_hook, retain_grad: the function registers a hook, and has wrappers "
                      "among its tensors. Do so outside, on what it returns.");
  at::AutoGradMode grad_mode(observation.now.ambient.grad_mode);
  const observe::AtEntry at_entry(observation.recorder->entry_states());
  auto wrapped = std::make_shared<WrappedProgram>(*tape, observation.outer, observation.versions);
  const bool reads = reads_values(*tape);
  std::vector<at::Tensor> arguments;
  compiling::Compilation made;
  do {
    arguments = wrapped->arguments(observation.outer).value().plain;
    made = make(wrapped->plain_function(tape), arguments, options_for(reads),
                observation.before.get(), /*sizes=*/nullptr, wrapped->static_arguments());
  } while (wrapped->has_other_gradients());
  auto entry =
      std::make_shared<Entry>(CallKind(observation.now, state_.modules.read(),
                                       options_.depends_on ? options_.depends_on.value() : nullptr,
                                       made.plan, arguments, made.with_offsets));
  entry->prototype = prototype();
  entry->compiled = std::move(made);
  entry->wrapped = std::move(wrapped);
  entry->reads_values = reads;
  pin(observation, *tape, *entry);
  entry->count_owners();
  return entry;
}

std::shared_ptr<Entry> ObservedCall::compile(Observation::State& observation,
                                             const std::shared_ptr<const Tape>& tape,
                                             const CompiledCore::MakePrototype& prototype) {
  if (observation.now.outer != nullptr || captures_wrappers(*tape))
    return compile_wrapped(observation, tape, prototype);
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
  compiling::ManySizes sizes{state_.sized_programs, !is_like_others_ && is_within_limit(),
                             observation.inputs.spec.reals(),
                             tensors::static_sizes(observation.inputs.leaves)};
  compiling::Compilation made =
      make(observe::replay(tape, observe::whole(*tape)), arguments, options_for(reads),
           observation.before.get(), may_be_sized(observation, *tape) ? &sizes : nullptr);
  // What a divided function runs is compiled, and counted, part by part.
  if (split != nullptr && split->is_divided()) made.is_new = false;
  if (made.is_new && made.sized != nullptr) state_.compilations.fetch_add(1);
  if (options_.dynamic == Dynamic::Trusting) {
    std::lock_guard<std::mutex> lock(state_.mutex);
    if (!state_.agreed.note_graph(call_of(observation.now), made.family)) distrust(observation);
  }
  const bool is_certain = made.is_certain && observation.before != nullptr &&
                          observe::have_same_contents(*observation.before, *tape);
  // What the host makes itself has to be the same in two calls of these sizes.
  if (made.plan == nullptr || (is_like_others_ && !is_certain)) {
    observation.candidate->is_beyond_limit = made.plan == nullptr && !is_within_limit();
    return nullptr;
  }
  auto entry =
      std::make_shared<Entry>(CallKind(observation.now, state_.modules.read(),
                                       options_.depends_on ? options_.depends_on.value() : nullptr,
                                       made.plan, arguments, made.with_offsets));
  // What the call returns besides tensors is that of this call.
  const bool are_free = !tape->result_has_reals &&
                        std::all_of(made.free.begin(), made.free.end(), [&](const auto& number) {
                          return had_many_values(number.real);
                        });
  if (!are_free || split != nullptr) made.free.clear();
  if (!made.free.empty()) entry->kind.free_reals.resize(sizes.reals.size());
  for (const compiling::FreeNumber& number : made.free) entry->kind.free_reals[number.real] = true;
  entry->prototype = prototype();
  if (split != nullptr) split->use(made);
  entry->compiled = std::move(made);
  entry->split = std::move(split);
  entry->reads_values = reads;
  entry->has_state = !tape->stored.empty() || !tape->held.empty() || !tape->takings.empty();
  if (entry->compiled.sized != nullptr && !entry->has_state && entry->split == nullptr &&
      entry->compiled.sized->value_sizes() != nullptr)
    entry->value_sizes = entry->compiled.sized->value_sizes()->expected(entry->compiled.sizes);
  pin(observation, *tape, *entry);
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
  entry->count_owners_of_objects();
  return entry;
}

}  // namespace ahead::detail
