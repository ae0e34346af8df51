#include "trace/trace_counts.h"

#include <mutex>

namespace ahead {
namespace {

struct StatsTable {
  std::mutex mutex;
  TraceStats total;
};

StatsTable& stats_table() {
  static auto* table = new StatsTable;  // static destructors may trace
  return *table;
}

}  // namespace

void tracing::count_trace(const Tracer& tracer, double seconds) {
  StatsTable& table = stats_table();
  const auto& counts = tracer.writer().counts;
  std::lock_guard<std::mutex> lock(table.mutex);
  ++table.total.traces;
  table.total.nodes += counts.nodes;
  table.total.rule_calls += counts.rule_calls;
  table.total.meta_calls += counts.meta_calls;
  table.total.real_kernel_calls += counts.real_kernel_calls;
  table.total.seconds += seconds;
}

TraceStats trace_stats() {
  StatsTable& table = stats_table();
  std::lock_guard<std::mutex> lock(table.mutex);
  return table.total;
}

}  // namespace ahead
