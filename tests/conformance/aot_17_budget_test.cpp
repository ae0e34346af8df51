#include <array>

#include "ahead/budget.h"
#include "conformance/aot_support.h"
#include "partition/cost.h"
#include "partition/knapsack.h"

namespace ahead::conformance {
namespace aot_17_budget_test {

PartitionedGraphs within(const JointGraph& joint, double budget) {
  return partition_min_cut(joint, {.memory_budget = budget});
}

/// Cosines of independent products, each of which the backward needs. The budget decides which of
/// the products are saved.
JointGraph products(const std::vector<std::array<int64_t, 3>>& sizes) {
  Tensors inputs;
  for (const auto& [rows, inner, columns] : sizes) {
    inputs.push_back(leaf({rows, inner}));
    inputs.push_back(leaf({inner, columns}));
  }
  return trace_joint(
      [](const Tensors& in) -> Tensors {
        at::Tensor sum = in[0].mm(in[1]).cos().sum();
        for (size_t i = 2; i < in.size(); i += 2) sum = sum + in[i].mm(in[i + 1]).cos().sum();
        return {sum};
      },
      inputs);
}

/// What saving each product of the forward takes and spares.
std::vector<partition::Knapsack::Item> items_of(const JointGraph& joint) {
  std::vector<partition::Knapsack::Item> items;
  for (const Node& node : joint.nodes()) {
    if (node.phase != Phase::Forward || node.op().name() != "aten.mm") continue;
    items.push_back({partition::storage_bytes(node.result()->meta), partition::runtime(node, {})});
  }
  return items;
}

int64_t saved_bytes(const std::vector<partition::Knapsack::Item>& items,
                    const std::vector<bool>& saved) {
  int64_t bytes = 0;
  for (size_t i = 0; i < items.size(); ++i) bytes += saved[i] ? items[i].size : 0;
  return bytes;
}

TEST(AotBudget, test_matmul_uneven_chain) {
  // Products of one depth are worth as much as they are large, so each sum of sizes is reached.
  for (const std::vector<int64_t>& widths :
       std::vector<std::vector<int64_t>>{{11, 3, 4, 2}, {18, 9, 5, 4}, {17, 8, 6, 1}}) {
    std::vector<std::array<int64_t, 3>> sizes;
    for (const int64_t width : widths) sizes.push_back({16, 512, 16 * width});
    const auto items = items_of(products(sizes));
    ASSERT_EQ(items.size(), widths.size());
    const partition::Knapsack knapsack(items);
    for (size_t choice = 0; choice < (size_t{1} << items.size()); ++choice) {
      int64_t sum = 0;
      for (size_t i = 0; i < items.size(); ++i) sum += ((choice >> i) & 1) != 0 ? items[i].size : 0;
      EXPECT_EQ(saved_bytes(items, knapsack.best(sum)), sum) << choice;
    }
  }
}

TEST(AotBudget, test_prioritize_cheaper_matmul2) {
  // The first product is larger, the second takes more time. If one fits, the second is saved.
  const auto items = items_of(products({{64, 4, 64}, {32, 512, 32}}));
  ASSERT_EQ(items.size(), 2u);
  const int64_t large = items[0].size, slow = items[1].size;
  ASSERT_GT(large, slow);
  ASSERT_GT(items[1].worth, items[0].worth);
  const partition::Knapsack knapsack(items);
  EXPECT_EQ(knapsack.best(large + slow), std::vector<bool>({true, true}));
  EXPECT_EQ(knapsack.best(large), std::vector<bool>({false, true}));
  EXPECT_EQ(knapsack.best(slow), std::vector<bool>({false, true}));
  EXPECT_EQ(knapsack.best(slow - 1), std::vector<bool>({false, false}));
}

/// Three products of different costs.
JointGraph three_products() {
  return products({{16, 8, 16}, {16, 64, 16}, {32, 8, 32}});
}

double total_runtime(const Graph& graph) {
  double total = 0;
  for (const Node& node : graph.nodes()) total += partition::runtime(node, {});
  return total;
}

TEST(AotBudget, test_evaluate_knapsack_output_not_accounting_for_backward_pass) {
  const JointGraph joint = three_products();
  const PartitionedGraphs all = partition_default(joint), none = within(joint, 0);
  EXPECT_EQ(partition_cost(joint, all).saved_bytes, all.saved_bytes());
  EXPECT_EQ(partition_cost(joint, all).recomputed, 0);
  EXPECT_EQ(partition_cost(joint, none).saved_bytes, none.saved_bytes());
  // All three products and nothing else with a price run again.
  const double once = total_runtime(joint);
  const double twice = total_runtime(none.forward) + total_runtime(none.backward);
  EXPECT_NEAR(partition_cost(joint, none).recomputed, (twice - once) / once, 1e-12);
  EXPECT_EQ(count(none.backward, "aten.mm"), count(all.backward, "aten.mm") + 3);
}

TEST(AotBudget, test_evaluate_knapsack_output_accounting_for_backward_pass) {
  const JointGraph joint = three_products();
  for (const double budget : {1.0, 0.5, 0.0}) {
    const PartitionedGraphs halves = within(joint, budget);
    const PartitionCost cost = partition_cost(joint, halves);
    EXPECT_EQ(cost.peak_bytes, halves.peak_bytes());
    EXPECT_GE(cost.peak_bytes, peak_bytes(halves.forward));
  }
}

TEST(AotBudget, test_evaluate_knapsack_output_with_wrong_sized_values) {
  const JointGraph joint = three_products(), other = products({{4, 4, 4}});
  EXPECT_THROW(partition_cost(other, partition_default(joint)), UserError);
  EXPECT_THROW(partition_cost(joint, partition_default(other)), UserError);
}

TEST(AotBudget, test_evaluate_distribution_of_results_for_knapsack_algo) {
  const JointGraph joint = three_products();
  const std::vector<BudgetPoint> curve = budget_curve(joint, 5);
  ASSERT_EQ(curve.size(), 5u);
  for (size_t i = 0; i < curve.size(); ++i) {
    EXPECT_EQ(curve[i].budget, 1 - 0.25 * static_cast<double>(i));
    const PartitionedGraphs halves = within(joint, curve[i].budget);
    EXPECT_EQ(curve[i].cost.saved_bytes, halves.saved_bytes());
    EXPECT_EQ(curve[i].cost.peak_bytes, halves.peak_bytes());
    if (i == 0) continue;
    EXPECT_LE(curve[i].cost.saved_bytes, curve[i - 1].cost.saved_bytes);
    EXPECT_GE(curve[i].cost.recomputed, curve[i - 1].cost.recomputed);
  }
  EXPECT_THROW(budget_curve(joint, 1), UserError);
}

TEST(AotBudget, test_get_knee_point_memory_budget) {
  const auto point = [](double budget, int64_t peak, double recomputed) {
    return BudgetPoint{budget, {peak, peak, recomputed}};
  };
  // Down to one half memory costs little time, from there on much.
  EXPECT_EQ(knee_budget({point(1, 100, 0), point(0.75, 70, 0.02), point(0.5, 40, 0.05),
                         point(0.25, 30, 0.5), point(0, 20, 1)}),
            0.5);
  EXPECT_EQ(knee_budget({point(1, 100, 0), point(0.5, 95, 0.9), point(0, 90, 1)}), 1);
  EXPECT_EQ(knee_budget({point(1, 100, 0), point(0.5, 10, 0), point(0, 10, 0)}), 0.5);
  EXPECT_EQ(knee_budget({point(0.3, 8, 0)}), 0.3);
  EXPECT_THROW(knee_budget({}), UserError);
}

}  // namespace aot_17_budget_test
}  // namespace ahead::conformance
