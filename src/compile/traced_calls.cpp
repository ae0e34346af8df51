#include <algorithm>

#include "ahead/detail/compiled_core.h"
#include "ahead/errors.h"
#include "compile/core_state.h"
#include "compile/dump.h"
#include "runtime/call/call.h"

/// Calls of functions that are traced themselves: for compiler authors, who say what they trace.
namespace ahead::detail {
namespace {

/// Makes the entry for a call: a program, or the knowledge that there is none.
class TracedEntry {
 public:
  TracedEntry(const Options& options, const Compilers& compilers, CompiledCore::MakePrototype make)
      : options_(options), compilers_(compilers), prototype_(std::move(make)) {}

  std::shared_ptr<Entry> make(const Situation& now, const compiling::ModuleWatch& modules,
                              const aot::FlatFunction& function) {
    compiling::Compilation made;
    std::string refusal;
    const auto num_inputs = static_cast<int64_t>(now.inputs.leaves.size());
    const auto num_static = std::clamp<int64_t>(compilers_.num_params_buffers, 0, num_inputs);
    try {
      compiling::Subject subject{function, now.inputs.leaves,
                                 runtime::StaticArguments(static_cast<size_t>(num_static), true)};
      made = compiling::compile_function(subject, options_, compilers_);
      compiling::dump(made, options_);
      trace_seconds = made.trace_seconds;
      compile_seconds = made.compile_seconds;
    } catch (const Unsupported& error) {
      if (options_.fullgraph) throw;
      made.plan = std::make_shared<const runtime::CallPlan>();
      refusal = error.msg();
    }
    auto entry = std::make_shared<Entry>(
        CallKind(now, modules.read(), options_.depends_on ? options_.depends_on.value() : nullptr,
                 made.plan, now.inputs.leaves, made.with_offsets));
    entry->eager_reason = std::move(refusal);
    if (entry->eager_reason.empty()) entry->prototype = prototype_();
    entry->compiled = std::move(made);
    entry->count_owners();
    entry->count_owners_of_objects();
    return entry;
  }

  double trace_seconds = 0, compile_seconds = 0;

 private:
  const Options& options_;
  const Compilers& compilers_;
  const CompiledCore::MakePrototype prototype_;
};

}  // namespace

Served CompiledCore::serve_traced(const FlatTree& inputs, const aot::FlatFunction& function,
                                  const MakePrototype& prototype) {
  state_->calls.fetch_add(1, std::memory_order_relaxed);
  const Situation now{inputs, Ambient::current()};
  std::shared_ptr<Entry> entry;
  state_->for_each_fitting(now, options_, [&](const std::shared_ptr<Entry>& fitting) {
    entry = fitting;
    return true;
  });
  // Somebody let go of a captured tensor. If the function uses another one now, so must the
  // program.
  const bool is_stale = entry != nullptr && entry->lost_an_owner();
  if (entry == nullptr || is_stale) {
    std::unique_lock<std::mutex> lock(state_->mutex);
    const size_t count = state_->entries.load()->size();
    const uint64_t generation = state_->generation;
    lock.unlock();
    if (count != 0) state_->guard_failures.fetch_add(1);
    const auto limit = static_cast<size_t>(std::max<int64_t>(options_.recompile_limit, 0));
    if (!is_stale && count >= limit) {
      const std::string reason = "recompile_limit reached: " + std::to_string(count) +
                                 " programs do not fit this call (" + explain(inputs) +
                                 "). Raise Options::recompile_limit, or make the calls more alike.";
      if (options_.fullgraph) throw Unsupported("compile", reason);
      state_->say(reason, " Such calls run eagerly.");
      state_->eager_calls.fetch_add(1);
      return {};
    }
    state_->traces.fetch_add(1);
    TracedEntry maker(options_, compilers_, prototype);
    const std::shared_ptr<Entry> stale = is_stale ? entry : nullptr;
    entry = maker.make(now, state_->modules, function);
    if (!entry->eager_reason.empty()) state_->say(entry->eager_reason, " This call runs eagerly.");
    state_->trace_seconds.fetch_add(maker.trace_seconds);
    state_->compile_seconds.fetch_add(maker.compile_seconds);
    lock.lock();
    if (generation == state_->generation) {
      if (stale != nullptr) state_->remove(stale);
      state_->compilations.fetch_add(1);
      state_->add_alone(entry);
    }
  }
  if (!entry->eager_reason.empty()) {
    state_->eager_calls.fetch_add(1, std::memory_order_relaxed);
    return {};
  }
  state_->cache_hits.fetch_add(1, std::memory_order_relaxed);
  std::vector<at::Tensor> results = runtime::call(entry->kind.plan, inputs.leaves);
  return {std::move(entry), std::move(results)};
}

}  // namespace ahead::detail
