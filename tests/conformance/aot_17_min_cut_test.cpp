#include <algorithm>

#include "conformance/aot_support.h"
#include "partition/knapsack.h"

namespace ahead::conformance {
namespace aot_17_min_cut_test {

PartitionedGraphs min_cut(const aot::FlatFunction& f, const Tensors& inputs, double budget = 1.0) {
  PartitionOptions options;
  options.memory_budget = budget;
  return partition_min_cut(trace_joint(f, inputs), options);
}

std::string arities(const PartitionedGraphs& graphs) {
  const auto arity = [](const Graph& graph) {
    return "(" + std::to_string(graph.inputs().size()) + ", " +
           std::to_string(graph.outputs().size()) + ")";
  };
  return arity(graphs.forward) + " " + arity(graphs.backward);
}

size_t matrix_products(const PartitionedGraphs& graphs) {
  return count(graphs.forward, "aten.mm") + count(graphs.backward, "aten.mm");
}

TEST(AotPartitioners, test_min_cut_partitioner) {
  EXPECT_EQ(arities(min_cut([](const Tensors& in) -> Tensors { return {in[0].cos().cos().cos()}; },
                            {leaf({3})})),
            "(1, 2) (2, 1)");
  EXPECT_EQ(arities(min_cut(
                [](const Tensors& in) -> Tensors {
                  return {(in[0] + in[1] + in[2] + in[3]).cos().cos()};
                },
                {leaf({3}), leaf({3}), leaf({3}), leaf({3})})),
            "(4, 2) (2, 4)");
}

TEST(AotPartitioners, test_min_cut_partitioner_raise_getitems) {
  // The parts are taken again from the argument, which is all that is saved.
  const PartitionedGraphs graphs = min_cut(
      [](const Tensors& in) -> Tensors {
        const Tensors parts = in[0].split(2);
        return {parts[0].sin().cos() * parts[1].cos().sin()};
      },
      {leaf({4})});
  ASSERT_EQ(graphs.saved.size(), 1u);
  EXPECT_EQ(graphs.saved[0].input, 0);
  EXPECT_EQ(
      count(graphs.backward, "aten.split.Tensor") + count(graphs.backward, "aten.split_with_sizes"),
      1u);
}

TEST(AotPartitioners, test_min_cut_partitioner_save_shape) {
  // Sizes are part of the graph, so nothing has to be saved for them.
  EXPECT_TRUE(min_cut(
                  [](const Tensors& in) -> Tensors {
                    return {in[0].sum(at::IntArrayRef({0, 1}))};
                  },
                  {leaf({3, 4})})
                  .saved.empty());
  EXPECT_TRUE(min_cut(
                  [](const Tensors& in) -> Tensors {
                    const at::Tensor joined = at::cat({in[0], in[1]});
                    return {in[2].expand(joined.sizes()) + joined};
                  },
                  {leaf({2, 4}), leaf({3, 4}), leaf({1, 4})})
                  .saved.empty());
}

TEST(AotPartitioners, test_rematerializes_cheap) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors { return {in[0].cos().mm(in[1])}; };
  const Tensors inputs = {leaf({64, 64}), leaf({64, 64})};
  const PartitionedGraphs all = min_cut(f, inputs), half = min_cut(f, inputs, 0.5);
  const size_t eager_products = matrix_products(partition_default(trace_joint(f, inputs)));
  EXPECT_EQ(matrix_products(all), eager_products);
  EXPECT_EQ(matrix_products(half), eager_products);
  EXPECT_EQ(count(half.backward, "aten.cos"), 1u);
  for (const SavedValue& saved : half.saved) EXPECT_GE(saved.input, 0) << saved.reason;
}

TEST(AotPartitioners, test_manual_ac) {
  // What is to be computed again is, whatever it costs.
  JointGraph joint = trace_joint(
      [](const Tensors& in) -> Tensors { return {in[0].mm(in[1]).cos().mm(in[1]).cos()}; },
      Tensors{leaf({8, 8}), leaf({8, 8})});
  size_t products = 0;
  for (Node& node : joint.nodes()) {
    const bool is_first =
        node.phase == Phase::Forward && node.op().name() == "aten.mm" && products++ == 0;
    if (is_first) node.set(Tag::MustRecompute);
  }
  const PartitionedGraphs graphs = partition_min_cut(joint);
  const size_t eager_products = matrix_products(partition_default(trace_joint(
      [](const Tensors& in) -> Tensors { return {in[0].mm(in[1]).cos().mm(in[1]).cos()}; },
      Tensors{leaf({8, 8}), leaf({8, 8})})));
  EXPECT_EQ(matrix_products(graphs), eager_products + 1);
}

using Items = std::vector<partition::Knapsack::Item>;

double worth_of(const Items& items, const std::vector<bool>& taken, int64_t capacity) {
  double worth = 0;
  int64_t size = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!taken[i]) continue;
    worth += items[i].worth;
    size += items[i].size;
  }
  return size <= capacity ? worth : -1;
}

double best_worth(const Items& items, int64_t capacity) {
  double best = 0;
  for (size_t choice = 0; choice < (size_t{1} << items.size()); ++choice) {
    std::vector<bool> taken;
    for (size_t i = 0; i < items.size(); ++i) taken.push_back(((choice >> i) & 1) != 0);
    best = std::max(best, worth_of(items, taken, capacity));
  }
  return best;
}

TEST(AotPartitioners, test_dp_knapsack) {
  const std::vector<Items> cases = {
      {{1, 60}, {2, 100}, {3, 120}},
      {{10, 5}, {20, 5}, {30, 5}},
      {{5, 1}, {4, 3}, {6, 5}, {3, 2}, {7, 7}},
      {{0, 4}, {3, 1}, {9, 2}},
      {},
  };
  for (const Items& items : cases) {
    const partition::Knapsack knapsack(items);
    for (int64_t capacity = 0; capacity <= 30; ++capacity) {
      EXPECT_EQ(worth_of(items, knapsack.best(capacity), capacity), best_worth(items, capacity))
          << items.size() << " items, capacity " << capacity;
    }
  }
}

}  // namespace aot_17_min_cut_test
}  // namespace ahead::conformance
