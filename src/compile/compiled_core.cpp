#include "ahead/detail/compiled_core.h"

#include <algorithm>
#include <chrono>

#include "ahead/errors.h"
#include "base/log.h"
#include "compile/dump.h"
#include "compile/entry.h"
#include "runtime/backends.h"
#include "runtime/call.h"
#include "runtime/custom_op_check.h"
#include "trace/escapes.h"
#include "trace/tracer.h"

namespace ahead::detail {

using runtime::AmbientState;
using runtime::CallGuard;
using runtime::CallPlan;

namespace {

/// How often a function may turn out to do something else before it runs eagerly for good.
constexpr int64_t most_disagreements = 3;

Compilers compilers_for(const Options& options) {
  const aot::GraphCompiler compiler = runtime::find_backend(options.backend);
  return {compiler, compiler, compiler};
}

void warn_eager(const std::string& reason) {
  warn_once(reason + " This call runs eagerly.");
}

Compilers with_checks(Compilers compilers, const Options& options) {
  for (aot::GraphCompiler* compiler :
       {&compilers.forward, &compilers.backward, &compilers.inference}) {
    *compiler = runtime::with_custom_op_check(std::move(*compiler), options.custom_op_aliasing);
  }
  return compilers;
}

}  // namespace

bool is_tracing() {
  return tracing::Tracer::current() != nullptr;
}

const void* prototype_of(const Entry& entry) {
  return entry.prototype.get();
}

/// A call, as far as it decides which program is right.
struct CompiledCore::Situation {
  const FlatTree& inputs;
  AmbientState ambient;
  std::vector<bool> training;
};

struct CompiledCore::State {
  std::vector<std::shared_ptr<torch::nn::Module>> modules;
  std::atomic<std::shared_ptr<const Entries>> entries{std::make_shared<const Entries>()};
  /// Held while compiling.
  std::mutex mutex;
  int64_t disagreements = 0;
  /// The last trace stored tensors outside the function: a cache, most likely. Where the next one
  /// does so too, it is no cache.
  bool has_escaped = false;
  std::atomic<uint64_t> traces{0}, recompiles{0}, guard_failures{0}, eager_calls{0}, cache_hits{0};
  std::atomic<double> trace_seconds{0}, compile_seconds{0};

  void add(std::shared_ptr<Entry> entry) {
    auto changed = std::make_shared<Entries>(*entries.load());
    changed->push_back(std::move(entry));
    entries.store(std::move(changed));
  }
  void remove(const std::shared_ptr<Entry>& entry) {
    auto changed = std::make_shared<Entries>(*entries.load());
    changed->erase(std::remove(changed->begin(), changed->end(), entry), changed->end());
    entries.store(std::move(changed));
  }
};

CompiledCore::CompiledCore(Options options) : CompiledCore(options, compilers_for(options)) {}

CompiledCore::CompiledCore(Options options, Compilers compilers)
    : options_(std::move(options)),
      compilers_(with_checks(std::move(compilers), options_)),
      state_(std::make_unique<State>()) {
  for (const auto& module : options_.watch) watch(module);
}

CompiledCore::~CompiledCore() = default;

void CompiledCore::watch(std::shared_ptr<torch::nn::Module> module) {
  for (auto& part : module->modules()) state_->modules.push_back(std::move(part));
}

CompiledCore::Situation CompiledCore::situation(const FlatTree& inputs) const {
  Situation now{inputs, AmbientState::current(), {}};
  now.training.reserve(state_->modules.size());
  for (const auto& module : state_->modules) now.training.push_back(module->is_training());
  return now;
}

std::shared_ptr<Entry> CompiledCore::find(const Situation& now) const {
  const std::shared_ptr<const Entries> entries = state_->entries.load();
  for (const std::shared_ptr<Entry>& entry : *entries) {
    if (entry->ambient == now.ambient && entry->training == now.training &&
        entry->guard.holds(*entry->plan, now.inputs.leaves) && entry->spec == now.inputs.spec) {
      return entry;
    }
  }
  return nullptr;
}

Prepared CompiledCore::prepare(const FlatTree& inputs, const aot::FlatFunction& function,
                               const MakePrototype& prototype) {
  const Situation now = situation(inputs);
  std::shared_ptr<Entry> entry = find(now);
  if (entry == nullptr) {
    entry = compile(now, function, prototype);
  } else {
    state_->cache_hits.fetch_add(1, std::memory_order_relaxed);
    if (entry->lost_an_owner()) {
      entry = replace(entry, now, function, prototype);
    } else if (entry->unconfirmed.load(std::memory_order_relaxed) > 0) {
      entry = confirm(entry, now, function, prototype);
    }
  }
  if (entry != nullptr && entry->eager_reason.empty()) return {std::move(entry)};
  state_->eager_calls.fetch_add(1, std::memory_order_relaxed);
  return {nullptr, entry != nullptr && entry->is_doubtful ? std::move(entry) : nullptr};
}

void CompiledCore::keep_eager(const Prepared& prepared) {
  if (prepared.doubtful == nullptr) return;
  std::lock_guard<std::mutex> lock(state_->mutex);
  prepared.doubtful->is_doubtful = false;
  state_->add(prepared.doubtful);
  warn_eager(prepared.doubtful->eager_reason);
}

std::shared_ptr<Entry> CompiledCore::compile(const Situation& now,
                                             const aot::FlatFunction& function,
                                             const MakePrototype& prototype) {
  std::lock_guard<std::mutex> lock(state_->mutex);
  if (std::shared_ptr<Entry> made_meanwhile = find(now)) return made_meanwhile;
  const size_t count = state_->entries.load()->size();
  if (count != 0) state_->guard_failures.fetch_add(1);
  if (count >= static_cast<size_t>(std::max<int64_t>(options_.recompile_limit, 0))) {
    refuse("recompile_limit reached: " + std::to_string(count) +
           " programs do not fit this call (" + explain(now.inputs) +
           "). Raise Options::recompile_limit, or make the calls more alike.");
    return nullptr;
  }
  std::shared_ptr<Entry> entry = make_entry(now, function, prototype);
  if (entry->is_doubtful || !entry->escapes.empty()) return entry;
  if (count != 0) state_->recompiles.fetch_add(1);
  state_->add(entry);
  return entry;
}

std::shared_ptr<Entry> CompiledCore::make_entry(const Situation& now,
                                                const aot::FlatFunction& function,
                                                const MakePrototype& prototype) {
  const std::vector<at::Tensor>& leaves = now.inputs.leaves;
  state_->traces.fetch_add(1);
  try {
    compiling::Compilation made = compiling::compile_function(
        function, leaves, options_, compilers_, !options_.fullgraph && !state_->has_escaped);
    state_->has_escaped = !made.escapes.empty();
    state_->trace_seconds.fetch_add(made.trace_seconds);
    state_->compile_seconds.fetch_add(made.compile_seconds);
    compiling::dump(made, options_);
    CallGuard guard(*made.plan, leaves, made.with_offsets);
    auto entry = std::make_shared<Entry>(now.inputs.spec, now.ambient, now.training,
                                         std::move(guard), std::move(made.plan), prototype(),
                                         std::move(made.programs), made.fingerprint);
    entry->escapes = std::move(made.escapes);
    entry->unconfirmed = options_.confirm;
    entry->count_owners();
    return entry;
  } catch (const Unsupported& error) {
    if (options_.fullgraph) throw;
    const bool is_doubtful = dynamic_cast<const compiling::DoubtfulTrace*>(&error) != nullptr;
    if (!is_doubtful) warn_eager(error.msg());
    std::shared_ptr<Entry> entry = make_eager_entry(now, error.msg());
    entry->is_doubtful = is_doubtful;
    return entry;
  }
}

std::shared_ptr<Entry> CompiledCore::make_eager_entry(const Situation& now, std::string reason) {
  auto nothing = std::make_shared<const CallPlan>();
  CallGuard guard(*nothing, now.inputs.leaves, /*with_offsets=*/false);
  return std::make_shared<Entry>(now.inputs.spec, now.ambient, now.training, std::move(guard),
                                 std::move(nothing), nullptr, std::vector<Program>(), 0,
                                 std::move(reason));
}

/// Somebody let go of a captured tensor. If the function uses another one now, so must the program.
std::shared_ptr<Entry> CompiledCore::replace(const std::shared_ptr<Entry>& entry,
                                             const Situation& now,
                                             const aot::FlatFunction& function,
                                             const MakePrototype& prototype) {
  std::lock_guard<std::mutex> lock(state_->mutex);
  if (!entry->is_stale() && does_the_same(*entry, now, function)) {
    entry->count_owners();
    return entry;
  }
  state_->remove(entry);
  std::shared_ptr<Entry> newer = make_entry(now, function, prototype);
  if (!newer->is_doubtful && newer->escapes.empty()) state_->add(newer);
  return newer;
}

bool CompiledCore::does_the_same(const Entry& entry, const Situation& now,
                                 const aot::FlatFunction& function) {
  state_->traces.fetch_add(1);
  try {
    return compiling::fingerprint_of(function, now.inputs.leaves, options_) == entry.fingerprint;
  } catch (const Unsupported&) {
    return false;
  }
}

/// Traces a function once more. If it does something else this time, the newer program counts.
std::shared_ptr<Entry> CompiledCore::confirm(const std::shared_ptr<Entry>& entry,
                                             const Situation& now,
                                             const aot::FlatFunction& function,
                                             const MakePrototype& prototype) {
  std::lock_guard<std::mutex> lock(state_->mutex);
  if (entry->unconfirmed.load() <= 0) return find(now);
  std::shared_ptr<Entry> again = make_entry(now, function, prototype);
  if (again->eager_reason.empty() && again->fingerprint == entry->fingerprint) {
    entry->unconfirmed.fetch_sub(1);
    return entry;
  }
  state_->remove(entry);
  if (!again->escapes.empty()) return again;
  const bool is_program = again->eager_reason.empty();
  if (is_program && ++state_->disagreements >= most_disagreements) {
    const std::string reason =
        "the function does something else every time it is traced, so it cannot be compiled. Make "
        "what changes an argument.";
    refuse("[compile] " + reason);
    // This call has had its run of the function, and the newer program is right for it.
    state_->add(make_eager_entry(now, reason));
  } else if (!again->is_doubtful) {
    state_->add(again);
  }
  return again;
}

/// Calls run eagerly, which the user should know; or must not.
void CompiledCore::refuse(const std::string& reason) const {
  if (options_.fullgraph) throw Unsupported("compile", reason);
  warn_eager(reason);
}

std::vector<at::Tensor> CompiledCore::run(const Entry& entry,
                                          const std::vector<at::Tensor>& leaves) {
  std::vector<at::Tensor> results = runtime::call(entry.plan, leaves);
  const size_t num_results = results.size() - entry.escapes.size();
  for (size_t i = 0; i < entry.escapes.size(); ++i)
    tracing::settle_escape(entry.escapes[i], results[num_results + i]);
  results.resize(num_results);
  return results;
}

CompileStats CompiledCore::stats() const {
  return {state_->traces,     state_->recompiles,    state_->guard_failures, state_->eager_calls,
          state_->cache_hits, state_->trace_seconds, state_->compile_seconds};
}

std::vector<Program> CompiledCore::programs() const {
  std::vector<Program> programs;
  for (const auto& entry : *state_->entries.load()) {
    programs.insert(programs.end(), entry->programs.begin(), entry->programs.end());
  }
  return programs;
}

std::string CompiledCore::explain(const FlatTree& inputs) const {
  const Situation now = situation(inputs);
  const std::shared_ptr<const Entries> entries = state_->entries.load();
  if (entries->empty()) return "nothing is compiled yet";
  std::string text;
  for (size_t i = 0; i < entries->size(); ++i) {
    const Entry& entry = *(*entries)[i];
    std::string reason;
    if (entry.spec != now.inputs.spec) {
      reason = "made for " + entry.spec.str() + ", not for " + now.inputs.spec.str();
    } else if (entry.ambient != now.ambient) {
      reason = entry.ambient.difference(now.ambient);
    } else if (entry.training != now.training) {
      reason = "a module was switched between train() and eval()";
    } else {
      reason = entry.guard.reason(*entry.plan, now.inputs.leaves);
    }
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
  state_->entries.store(std::make_shared<const Entries>());
  state_->disagreements = 0;
}

}  // namespace ahead::detail
