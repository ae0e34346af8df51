#include "ahead/trace.h"

#include <chrono>
#include <mutex>

#include "ahead/errors.h"
#include "trace/guards.h"
#include "trace/session.h"

namespace ahead {
namespace {

class StatsTable {
 public:
  void add(const tracing::Tracer& tracer, size_t nodes, double seconds) {
    std::lock_guard<std::mutex> lock(mutex_);
    ++total_.traces;
    total_.nodes += nodes;
    total_.rule_calls += tracer.counts.rule_calls;
    total_.meta_calls += tracer.counts.meta_calls;
    total_.real_kernel_calls += tracer.counts.real_kernel_calls;
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
  static StatsTable table;
  return table;
}

std::string names_of(const std::vector<const Operator*>& operators) {
  std::string text;
  for (size_t i = 0; i < operators.size() && i < 3; ++i) {
    text += (i == 0 ? "" : ", ") + operators[i]->name();
  }
  return operators.size() > 3 ? text + ", …" : text;
}

}  // namespace

namespace detail {

Graph trace_flat(const aot::FlatFunction& function, const std::vector<at::Tensor>& inputs,
                 TraceOptions options, bool joint) {
  const auto start = std::chrono::steady_clock::now();
  auto tracer = c10::make_intrusive<tracing::Tracer>(options);
  Graph graph = tracing::Session(*tracer, joint).run(function, inputs);
  const std::vector<const Operator*> escaped = tracer->escaped();
  if (!escaped.empty() && !options.allow_escapes) {
    throw Unsupported(
        "trace", names_of(escaped) +
                     ": a traced tensor outlives the trace without being a result (stored in a "
                     "member, a global or a container). Return it from the function instead.");
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  stats_table().add(*tracer, graph.num_nodes(), taken.count());
  return graph;
}

}  // namespace detail

TraceStats trace_stats() {
  return stats_table().get();
}

}  // namespace ahead
