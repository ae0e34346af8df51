#include "ahead/detail/compiled_core.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <unordered_set>

#include "ahead/errors.h"
#include "checkpoint/saved_tensor_hooks.h"
#include "compile/core_state.h"
#include "compile/custom_op_check.h"
#include "compile/dump.h"
#include "passes/stages.h"
#include "runtime/backends.h"
#include "runtime/call/call.h"
#include "trace/tracer.h"

namespace ahead::detail {

using runtime::CallPlan;

namespace {

/// An enumerator may have any value that somebody casts to it.
template <class Enumerator>
void check_enumerator(Enumerator value, Enumerator last, const char* option) {
  if (value <= last) return;
  throw UserError("compile", std::string("Options::") + option +
                                 ": there is no enumerator of value " +
                                 std::to_string(static_cast<int>(value)) + ".");
}

const std::shared_ptr<torch::nn::Module>& checked(
    const std::shared_ptr<torch::nn::Module>& module) {
  if (module != nullptr) return module;
  throw UserError("compile",
                  "module: it is null. Make it, or assign one, before it is compiled or watched "
                  "(Options::watch).");
}

Options checked(Options options) {
  if (options.strict && options.backend == "native") options.backend = "native_strict";
  check_enumerator(options.dynamic, Dynamic::Trusting, "dynamic");
  check_enumerator(options.partitioner.kind(), Partitioner::MinCut, "partitioner");
  check_enumerator(options.compile_mode, CompileMode::Background, "compile_mode");
  check_enumerator(options.confirm.kind(), Confirm::Never, "confirm");
  check_enumerator(options.backward_autocast.kind(), BackwardAutocast::Off, "backward_autocast");
  check_enumerator(options.custom_op_aliasing, SchemaCheck::Throw, "custom_op_aliasing");
  passes::check_skippable(options.skip_passes);
  return options;
}

Compilers compilers_for(const Options& options) {
  const aot::GraphCompiler compiler = runtime::find_backend(options.backend);
  BackendTraits traits = runtime::traits_of(options.backend);
  // In the background graphs are compiled one after the other, those first that run first.
  if (options.compile_mode == CompileMode::Background) traits.begin = nullptr;
  return {.forward = compiler,
          .backward = compiler,
          .inference = compiler,
          .layouts = std::move(traits.layouts),
          .begin = std::move(traits.begin)};
}

/// A compiler whose requests say what a callable wants of all its graphs.
aot::GraphCompiler with_wishes(aot::GraphCompiler compiler, const Options& options,
                               std::shared_ptr<aot::KernelCounts> counts) {
  if (!compiler) return compiler;
  return [compiler = std::move(compiler),
          in_background = options.compile_mode == CompileMode::Background,
          counts = std::move(counts)](const aot::CompileRequest& request) {
    aot::CompileRequest wishing(request);
    wishing.kernel_counts = counts;
    wishing.in_background = in_background;
    return compiler(wishing);
  };
}

Compilers with_checks(Compilers compilers, const Options& options,
                      const std::shared_ptr<aot::KernelCounts>& counts) {
  for (aot::GraphCompiler* compiler :
       {&compilers.forward, &compilers.backward, &compilers.inference}) {
    *compiler = runtime::with_custom_op_check(with_wishes(std::move(*compiler), options, counts),
                                              options.custom_op_aliasing);
  }
  return compilers;
}

uint64_t count_backwards(const CompiledCore::State& state) {
  uint64_t count = 0;
  state.for_each_entry([&](const std::shared_ptr<Entry>& entry) {
    count +=
        entry->split != nullptr ? entry->split->num_backwards() : entry->compiled.num_backwards();
  });
  return count;
}

}  // namespace

bool is_inlined() {
  // A checkpointed function must do the same when it is called again in the backward.
  return tracing::Tracer::current() != nullptr || observe::Recorder::current() != nullptr ||
         runtime::PackerScope::is_active();
}

const void* prototype_of(const Entry& entry) {
  return entry.prototype.get();
}

CallKind CompiledCore::State::kind_of(const Situation& now, const Options& options) const {
  return {now,
          modules.read(),
          options.depends_on ? options.depends_on.value() : nullptr,
          std::make_shared<const CallPlan>(),
          now.inputs.leaves,
          /*with_offsets=*/false};
}

const std::vector<int64_t>* CompiledCore::State::value_sizes_of(const Situation& now,
                                                                const Entry& entry) {
  const compiling::SizedProgram* program = entry.compiled.sized.get();
  for (const auto& [known, sizes] : now.value_sizes) {
    if (known == program) return &sizes;
  }
  std::optional<WrappedLayout::Apart> apart;
  if (entry.wrapped != nullptr && !(apart = entry.wrapped->arguments(now.arguments())))
    return nullptr;
  const std::vector<at::Tensor>& arguments = apart ? apart->plain : now.inputs.leaves;
  if (!entry.kind.guard.holds(*entry.kind.plan, arguments)) return nullptr;
  now.value_sizes.emplace_back(
      program, program->value_sizes()->find(*entry.kind.plan, arguments, entry.compiled.sizes));
  return &now.value_sizes.back().second;
}

void CompiledCore::State::add(std::shared_ptr<Entry> entry, const Situation& now) {
  if (entry->compiled.sized != nullptr) return sized_entries.add(now, std::move(entry));
  add_alone(std::move(entry));
}

void CompiledCore::State::add_alone(std::shared_ptr<Entry> entry) {
  auto changed = std::make_shared<Entries>(*entries.load());
  changed->push_back(std::move(entry));
  entries.store(std::move(changed));
}

void CompiledCore::State::forget_programs() {
  entries.store(std::make_shared<const Entries>());
  sized_entries.clear();
  sized_programs.clear();
  sized_parts.clear();
  skeletons.clear();
  agreed.clear();
}

void CompiledCore::State::remove(const std::shared_ptr<Entry>& entry) {
  if (entry->compiled.sized != nullptr) {
    sized_programs.remove(entry->compiled.sized);
    agreed.forget(*entry->compiled.sized);
    return sized_entries.remove(entry->compiled.sized);
  }
  auto changed = std::make_shared<Entries>(*entries.load());
  changed->erase(std::remove(changed->begin(), changed->end(), entry), changed->end());
  entries.store(std::move(changed));
}

void CompiledCore::State::say(const std::string& reason, const std::string& consequence) {
  std::string key;
  std::copy_if(reason.begin(), reason.end(), std::back_inserter(key),
               [](unsigned char letter) { return std::isalpha(letter) != 0; });
  const bool names_stage = reason.starts_with('[');
  warnings.once(key, (names_stage ? "" : "[compile] ") + reason +
                         (reason.ends_with('.') ? "" : ".") + consequence);
}

void CompiledCore::State::learn_handles(const observe::Tape& tape,
                                        const observe::HostSnapshot& after) {
  bool is_new = false;
  for (const observe::HeldTensor& held : tape.held) {
    const auto same = [&](const observe::KnownHandle& known) {
      return known.handle == held.handle;
    };
    auto known = std::find_if(handles.begin(), handles.end(), same);
    is_new |= known == handles.end() || (held.is_used && !known->is_used);
    if (known == handles.end()) known = handles.insert(known, {held.handle});
    known->is_used |= held.is_used;
    if (tape.assigns(held.handle)) known->assigned = after;
  }
  if (!is_new) return;
  forget_programs();
  for (const auto& candidate : candidates) candidate->tapes.clear();
}

bool CompiledCore::State::learn_leaves(const observe::Tape& tape) {
  const size_t before = leaves.size();
  for (const observe::CapturedTensor& captured : tape.captured) {
    if (!captured.look.requires_grad || captured.grad_of != nullptr || captured.is_state) continue;
    const bool is_known = std::any_of(leaves.begin(), leaves.end(), [&](const auto& leaf) {
      return leaf._unsafe_get_target() == captured.tensor._unsafe_get_target();
    });
    if (!is_known) leaves.push_back(captured.tensor);
  }
  return leaves.size() != before;
}

CompiledCore::CompiledCore(Options options)
    : options_(checked(std::move(options))),
      kernel_counts_(std::make_shared<aot::KernelCounts>()),
      compilers_(with_checks(compilers_for(options_), options_, kernel_counts_)),
      traces_function_(false),
      state_(std::make_unique<State>()) {
  for (const auto& module : options_.watch) state_->modules.add(checked(module));
}

CompiledCore::CompiledCore(Options options, Compilers compilers)
    : options_(checked(std::move(options))),
      kernel_counts_(std::make_shared<aot::KernelCounts>()),
      compilers_(with_checks(std::move(compilers), options_, kernel_counts_)),
      traces_function_(!compilers_.observe),
      state_(std::make_unique<State>()) {
  for (const auto& module : options_.watch) state_->modules.add(checked(module));
}

CompiledCore::~CompiledCore() = default;

void CompiledCore::watch(const std::shared_ptr<torch::nn::Module>& module) {
  state_->modules.add_callable(checked(module));
}

CompileStats CompiledCore::stats() const {
  const uint64_t compilations = state_->compilations;
  return {.calls = state_->calls,
          .observed_calls = state_->observed_calls,
          .cache_hits = state_->cache_hits,
          .eager_calls = state_->eager_calls,
          .value_misses = state_->value_misses,
          .traces = state_->traces,
          .compilations = compilations,
          .recompiles = compilations == 0 ? 0 : compilations - 1,
          .guard_failures = state_->guard_failures,
          .trace_seconds = state_->trace_seconds,
          .compile_seconds = state_->compile_seconds,
          .backwards = count_backwards(*state_),
          .kernels = kernel_counts_->kernels,
          .kernels_compiled = kernel_counts_->compiled,
          .kernels_from_cache = kernel_counts_->from_cache,
          .kernels_failed = kernel_counts_->failed,
          .runs_before_kernels = kernel_counts_->early_runs};
}

std::vector<Program> CompiledCore::programs() const {
  std::vector<Program> programs;
  std::unordered_set<const void*> known;
  state_->for_each_entry([&](const std::shared_ptr<Entry>& entry) {
    // All entries of a program for many sizes have the same.
    const void* sized = entry->compiled.sized.get();
    if (sized != nullptr && !known.insert(sized).second) return;
    const std::vector<Program> of_entry =
        entry->split != nullptr ? entry->split->programs() : entry->compiled.programs();
    programs.insert(programs.end(), of_entry.begin(), of_entry.end());
  });
  return programs;
}

std::string CompiledCore::explain(const FlatTree& inputs) const {
  if (const auto reason = state_->eager_reason.load()) return "runs eagerly: " + *reason;
  const bool is_wrapped = has_wrappers(inputs.leaves);
  const FlatTree plain = is_wrapped ? with_plain_leaves(inputs) : inputs;
  const Situation now{plain, Ambient::current(), nullptr, is_wrapped ? &inputs.leaves : nullptr};
  const std::shared_ptr<const State::Entries> entries = state_->entries.load();
  if (entries->empty() && state_->sized_entries.empty()) return "nothing is compiled yet";
  std::string text;
  state_->for_each_sized(now, [&](const std::shared_ptr<Entry>& entry) {
    const bool fits = entry->fits(now, state_->modules, options_.depends_on);
    if (fits) text = "a program for many sizes fits";
    return fits;
  });
  if (!text.empty()) return text;
  if (options_.dynamic == Dynamic::Trusting && !state_->has_thrown) {
    const AgreedSizes::Call call{now, state_->modules, options_.depends_on};
    std::shared_ptr<const AgreedSizes::Agreement> agreement;
    {
      std::lock_guard<std::mutex> lock(state_->mutex);
      agreement = state_->agreed.find(call);
    }
    if (agreement != nullptr && make_trusted_entry(*agreement, call) != nullptr)
      return "a program for many sizes is trusted with these";
  }
  if (!state_->sized_entries.empty())
    text = "the program for many sizes was not seen with these sizes yet";
  for (size_t i = 0; i < entries->size(); ++i) {
    const Entry& entry = *(*entries)[i];
    const std::string reason = entry.reason(now, state_->modules, options_.depends_on);
    if (reason.empty()) {
      return entry.eager_reason.empty() ? "program " + std::to_string(i) + " fits"
                                        : "runs eagerly: " + entry.eager_reason;
    }
    text += (text.empty() ? "" : "; ") + ("program " + std::to_string(i) + ": ") + reason;
  }
  return text;
}

void CompiledCore::reset() {
  std::lock_guard<std::mutex> lock(state_->mutex);
  state_->forget_programs();
  state_->eager_reason.store(nullptr);
  state_->candidates.clear();
  state_->last_candidate.reset();
  state_->last_tape.reset();
  state_->handles.clear();
  state_->leaves.clear();
  state_->contradictions = 0;
  state_->has_thrown = false;
  state_->observed_in_a_row = 0;
  ++state_->generation;
}

}  // namespace ahead::detail
