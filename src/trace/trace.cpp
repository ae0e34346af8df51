#include "ahead/trace.h"

#include <chrono>
#include <mutex>

#include "ahead/errors.h"
#include "tensors/below_tracing.h"
#include "trace/joint_trace.h"
#include "trace/session.h"

namespace ahead {
namespace {

class StatsTable {
 public:
  void add(const tracing::Tracer& tracer, double seconds) {
    std::lock_guard<std::mutex> lock(mutex_);
    ++total_.traces;
    total_.nodes += tracer.writer().counts.nodes;
    total_.rule_calls += tracer.writer().counts.rule_calls;
    total_.meta_calls += tracer.writer().counts.meta_calls;
    total_.real_kernel_calls += tracer.writer().counts.real_kernel_calls;
    total_.seconds += seconds;
  }
  TraceStats get() {
    std::lock_guard<std::mutex> lock(mutex_);
    return total_;
  }

 private:
  std::mutex mutex_;
  TraceStats total_;
};

StatsTable& stats_table() {
  static auto* table = new StatsTable;
  return *table;
}

/// Arguments are only named where nothing else is left: what was computed from them keeps them.
std::string names_of(const std::vector<const Value*>& values) {
  std::string text;
  size_t count = 0;
  for (const Value* value : values) {
    if (value->producer() == nullptr) continue;
    if (++count > 3) return text + ", …";
    text += (count == 1 ? "" : ", ") + value->producer()->op().name();
  }
  return count == 0 ? "an argument" : text;
}

[[noreturn]] void throw_escaped(const std::vector<const Value*>& escaped) {
  throw Unsupported("trace",
                    names_of(escaped) +
                        ": a traced tensor outlives the trace without being a result (stored in a "
                        "member, a global or a container). Return it from the function instead.");
}

using Prepare = std::function<void(tracing::Tracer&)>;

/// Runs one trace and counts it.
template <class Result>
Result counted_trace(const TraceOptions& options, bool joint,
                     Result (tracing::Session::*run)(const aot::FlatFunction&,
                                                     const std::vector<at::Tensor>&),
                     const aot::FlatFunction& function, const std::vector<at::Tensor>& inputs,
                     std::vector<const Value*>& escaped, const Prepare& prepare = nullptr,
                     const std::optional<AutocastState>& backward_autocast = {}) {
  const auto start = std::chrono::steady_clock::now();
  const auto tracer = c10::make_intrusive<tracing::Tracer>(options);
  if (prepare) prepare(*tracer);
  Result result = (tracing::Session(*tracer, joint, backward_autocast).*run)(function, inputs);
  escaped = tracer->live_tensors().escaped();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  stats_table().add(*tracer, taken.count());
  return result;
}

}  // namespace

namespace detail {

Graph trace_flat(const aot::FlatFunction& function, const std::vector<at::Tensor>& inputs,
                 TraceOptions options, bool joint) {
  std::vector<const Value*> escaped;
  Graph graph =
      counted_trace<Graph>(options, joint, &tracing::Session::run, function, inputs, escaped);
  if (!escaped.empty() && !options.allow_escapes) throw_escaped(escaped);
  return graph;
}

}  // namespace detail

namespace tracing {

JointTrace trace_with_facts(const aot::FlatFunction& function,
                            const std::vector<at::Tensor>& inputs,
                            const std::optional<AutocastState>& backward_autocast) {
  // Even where grad mode is off: the function may switch it on.
  constexpr bool joint = true;
  std::vector<const Value*> escaped;
  JointTrace result = counted_trace<JointTrace>({}, joint, &Session::trace_with_facts, function,
                                                inputs, escaped, nullptr, backward_autocast);
  if (!escaped.empty()) throw_escaped(escaped);
  return result;
}

Graph trace_symbolic(const aot::FlatFunction& function, const std::vector<at::Tensor>& inputs,
                     const std::vector<std::optional<SymbolicLayout>>& layouts) {
  std::vector<const Value*> escaped;
  Graph graph = counted_trace<Graph>({}, /*joint=*/false, &Session::run, function, inputs, escaped,
                                     [&](Tracer& tracer) {
                                       if (!layouts.empty()) tracer.outside().let_sizes_change();
                                       for (size_t i = 0; i < layouts.size(); ++i)
                                         if (layouts[i])
                                           tracer.outside().set_layout(inputs[i], *layouts[i]);
                                     });
  if (!escaped.empty()) throw_escaped(escaped);
  return graph;
}

}  // namespace tracing

TraceStats trace_stats() {
  return stats_table().get();
}

}  // namespace ahead
