#include <algorithm>
#include <map>

#include "ahead/budget.h"
#include "ahead/errors.h"
#include "partition/cost.h"

namespace ahead {
namespace {

/// How often each operator is called.
std::map<const Operator*, int64_t> calls(const Graph& graph) {
  std::map<const Operator*, int64_t> counts;
  for (const Node& node : graph.nodes()) ++counts[&node.op()];
  return counts;
}

/// Throws if the halves do not come from this joint graph. They may lack dead nodes, but call no
/// operator more often than it does.
void check_halves(const JointGraph& joint, const PartitionedGraphs& halves) {
  const auto in_joint = calls(joint), in_forward = calls(halves.forward);
  const size_t outputs =
      halves.forward.outputs().size() + halves.backward.outputs().size() - halves.saved.size();
  bool fits = outputs == joint.outputs().size();
  for (const auto& half : {in_forward, calls(halves.backward)}) {
    for (const auto& [op, count] : half) {
      const auto known = in_joint.find(op);
      const bool is_copy = op->name() == "aten.clone";
      fits &= is_copy || (known != in_joint.end() && count <= known->second);
    }
  }
  if (fits) return;
  throw UserError("partition_cost",
                  "these halves were not made of this joint graph: they have other outputs, or "
                  "operators that it does not call. Pass the graph that was partitioned.");
}

double total_runtime(const Graph& graph, const RuntimeEstimator& runtime) {
  double total = 0;
  for (const Node& node : graph.nodes())
    total += partition::runtime(node, runtime, graph.example_sizes());
  return total;
}

/// The smallest and the largest value of a curve. share() maps them to 0 and 1.
struct Range {
  double low = 0, high = 0;
  void add(double value, bool is_first) {
    low = is_first ? value : std::min(low, value);
    high = is_first ? value : std::max(high, value);
  }
  double share(double value) const { return high > low ? (value - low) / (high - low) : 0; }
};

}  // namespace

PartitionCost partition_cost(const JointGraph& joint, const PartitionedGraphs& halves,
                             const RuntimeEstimator& runtime) {
  check_halves(joint, halves);
  PartitionCost cost{halves.saved_bytes(), halves.peak_bytes(), 0};
  const double once = total_runtime(joint, runtime);
  const double both =
      total_runtime(halves.forward, runtime) + total_runtime(halves.backward, runtime);
  if (once > 0) cost.recomputed = std::max(0.0, both / once - 1);
  return cost;
}

std::vector<BudgetPoint> budget_curve(const JointGraph& joint, int32_t num_budgets,
                                      const PartitionOptions& options) {
  if (num_budgets < 2) throw UserError("budget_curve", "it takes two budgets to make a curve.");
  std::vector<BudgetPoint> curve;
  for (int32_t i = num_budgets; i-- > 0;) {
    PartitionOptions within = options;
    within.memory_budget = static_cast<double>(i) / (num_budgets - 1);
    const PartitionedGraphs halves = partition_min_cut(joint, within);
    curve.push_back({within.memory_budget, partition_cost(joint, halves, options.runtime)});
  }
  return curve;
}

double knee_budget(const std::vector<BudgetPoint>& curve) {
  if (curve.empty()) throw UserError("knee_budget", "the curve has no points.");
  Range memory, time;
  for (const BudgetPoint& point : curve) {
    const bool is_first = &point == &curve.front();
    memory.add(static_cast<double>(point.cost.peak_bytes), is_first);
    time.add(point.cost.recomputed, is_first);
  }
  const auto distance = [&](const BudgetPoint& point) {
    const double x = memory.share(static_cast<double>(point.cost.peak_bytes));
    const double y = time.share(point.cost.recomputed);
    return x * x + y * y;
  };
  return std::min_element(curve.begin(), curve.end(),
                          [&](const BudgetPoint& a, const BudgetPoint& b) {
                            const double by = distance(a) - distance(b);
                            return by != 0 ? by < 0 : a.budget > b.budget;
                          })
      ->budget;
}

}  // namespace ahead
