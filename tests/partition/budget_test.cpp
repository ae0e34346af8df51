#include <gtest/gtest.h>

#include "ahead/budget.h"
#include "ahead/errors.h"
#include "models/models.h"
#include "partition/cost.h"
#include "partition/joint_text.h"
#include "support/halves.h"

namespace ahead {
namespace budget_test {

using at::Tensor;
using Tensors = std::vector<at::Tensor>;

PartitionedGraphs within(double budget, const JointGraph& joint) {
  PartitionOptions options;
  options.memory_budget = budget;
  return partition_min_cut(joint, options);
}

double flops_of(const Graph& graph) {
  double flops = 0;
  for (const Node& node : graph.nodes()) flops += partition::flops(node);
  return flops;
}

Tensor random(at::IntArrayRef sizes) {
  torch::manual_seed(sizes[0]);
  return torch::randn(sizes);
}

/// A chain of products through layers of these widths; the batch is as wide as the first.
JointGraph chain(const std::vector<int64_t>& widths) {
  Tensors inputs{random({4, widths[0]}).requires_grad_()};
  for (size_t i = 1; i < widths.size(); ++i)
    inputs.push_back(random({widths[i - 1], widths[i]}).requires_grad_());
  return trace_joint(
      [](const Tensors& in) -> Tensors {
        Tensor x = in[0];
        for (size_t i = 1; i < in.size(); ++i) x = x.matmul(in[i]);
        return {x.sin()};
      },
      inputs);
}

TEST(PeakBytes, CountsWhatIsAliveTogether) {
  const auto peak = [](const std::string& text) { return peak_bytes(Graph::parse(text)); };
  EXPECT_EQ(peak(R"(
graph(%x: f32[4] Primal 0):
  %a: f32[4] = aten.sin(%x)
  %b: f32[4] = aten.sin(%a)
  %c: f32[4] = aten.sin(%b)
  return (%c Output 0)
)"),
            32);
  EXPECT_EQ(peak(R"(
graph(%x: f32[4] Primal 0):
  %a: f32[4] = aten.sin(%x)
  %v: f32[2, 2] = aten.view(%a, [2, 2])
  %b: f32[4] = aten.cos(%x)
  %w: f32[4] = aten.view(%v, [4])
  %c: f32[4] = aten.add.Tensor(%b, %w)
  return (%c Output 0)
)"),
            48);
  EXPECT_EQ(peak(R"(
graph(%s: f32[4] Saved 0, %t: f32[4] Tangent 0):
  %a: f32[4] = aten.mul.Tensor(%s, %t) !backward
  %b: f32[4] = aten.sin(%a) !backward
  return (%b GradOf 0)
)"),
            48);
  EXPECT_EQ(peak(R"(
graph(%x: f32[4, 4]{0, 0} Tangent 0):
  %m: f32[4], %i: i64[4] = aten.max.dim(%x, 0)
  return (%m GradOf 0)
)"),
            52);
}

TEST(Budget, RecomputesWhatIsCheapFirst) {
  // The cosine goes before any product does.
  const JointGraph joint = trace_joint(
      [](const Tensors& in) -> Tensors { return {in[0].matmul(in[1]).cos().matmul(in[2])}; },
      Tensors{random({64, 64}).requires_grad_(), random({64, 64}).requires_grad_(),
              random({64, 64}).requires_grad_()});
  const double flops = flops_of(partition_default(joint).backward);
  EXPECT_EQ(flops_of(within(1.0, joint).backward), flops);
  EXPECT_GT(flops_of(within(0.0, joint).backward), flops);
}

TEST(Budget, BelievesTheCallersRuntimes) {
  // There is room for the widest product, or for the two others.
  const JointGraph joint = chain({16, 32, 64, 128, 8});
  const auto all = static_cast<double>(partition_default(joint).saved_bytes());
  const int64_t room = within(0.0, joint).saved_bytes() + 4 * 128 * 4;
  const auto width = [](const Node& node) {
    return node.op().name() == "aten.mm" ? node.result()->meta.sizes[1].fixed() : 0;
  };
  const auto runs_again = [&](int64_t slow, int64_t product) {
    const auto runtime = [&](const Node& node) { return width(node) == slow ? 1e6 : 1.0; };
    const PartitionedGraphs halves = partition_min_cut(
        joint, {.memory_budget = static_cast<double>(room) / all + 1e-9, .runtime = runtime});
    for (const Node& node : halves.backward.nodes()) {
      if (node.phase == Phase::Forward && width(node) == product) return true;
    }
    return false;
  };
  EXPECT_FALSE(runs_again(128, 128));
  EXPECT_TRUE(runs_again(128, 32));
  EXPECT_FALSE(runs_again(32, 32));
  EXPECT_TRUE(runs_again(32, 128));
}

TEST(Budget, CostsAreInTheCallersRuntimes) {
  const JointGraph joint = chain({16, 32, 64, 128, 8});
  const PartitionedGraphs halves = within(0.0, joint);
  const auto only_products = [](const Node& node) {
    return node.op().name() == "aten.mm" ? 1.0 : 0.0;
  };
  double again = 0, once = 0;
  for (const Node& node : joint.nodes()) once += only_products(node);
  for (const Node& node : halves.backward.nodes())
    again += node.phase == Phase::Forward ? only_products(node) : 0;
  EXPECT_GT(again, 0);
  EXPECT_DOUBLE_EQ(partition_cost(joint, halves, only_products).recomputed, again / once);
}

TEST(Budget, RefusesRuntimesThatAreNone) {
  const JointGraph joint = chain({16, 32, 64, 128, 8});
  for (const double time : {-1.0, std::nan("")}) {
    const auto runtime = [time](const Node&) { return time; };
    EXPECT_THROW(partition_min_cut(joint, {.memory_budget = 0.5, .runtime = runtime}), UserError);
  }
}

TEST(Budget, IsMetExactlyWhereItCanBe) {
  // Each product of the chain is saved on its own, so every sum of their sizes can be reached.
  const JointGraph joint = chain({16, 32, 64, 128, 8});
  const int64_t all = partition_default(joint).saved_bytes();
  const int64_t inputs = within(0.0, joint).saved_bytes();
  for (int64_t kept = 0; kept <= 7; ++kept) {
    const int64_t expected = inputs + kept * 4 * 32 * 4;
    const double budget = static_cast<double>(expected) / static_cast<double>(all) + 1e-9;
    EXPECT_LE(within(budget, joint).saved_bytes(), expected) << kept;
    EXPECT_GE(within(budget, joint).saved_bytes(), expected - 4 * 32 * 4) << kept;
  }
}

TEST(Budget, NeverGivesMoreForLess) {
  std::vector<JointGraph> joints{chain({16, 32, 64, 128, 8}), chain({8, 512, 8, 512, 8, 64, 8})};
  for (const models::Workload& workload : models::workloads())
    joints.emplace_back(trace_joint(workload.loss, workload.inputs));
  for (const JointGraph& joint : joints) {
    const PartitionedGraphs all = partition_default(joint);
    int64_t saved = all.saved_bytes(), peak = all.peak_bytes();
    for (double budget : {1.0, 0.9, 0.75, 0.5, 0.3, 0.1, 0.0}) {
      const PartitionedGraphs halves = within(budget, joint);
      EXPECT_LE(halves.saved_bytes(), saved) << budget;
      EXPECT_LE(halves.peak_bytes(), peak) << budget;
      saved = halves.saved_bytes();
      peak = halves.peak_bytes();
    }
  }
}

TEST(Budget, LowersThePeakOfALongRowOfBlocks) {
  const models::Workload workload =
      models::gpt_workload({.layers = 6, .width = 128, .heads = 4, .context = 256});
  const JointGraph joint = trace_joint(workload.loss, workload.inputs);
  const auto peak = [&](double budget) {
    return static_cast<double>(within(budget, joint).peak_bytes());
  };
  const double all = peak(1);
  EXPECT_LE(peak(0.5), 0.75 * all);
  EXPECT_LE(peak(0.2), 0.4 * all);
}

TEST(Budget, KeepsTheResultsOfEveryModel) {
  for (const models::Workload& workload : models::workloads()) {
    const JointGraph joint = trace_joint(workload.loss, workload.inputs);
    const Tensors args = with_captured(joint, models::joint_arguments(workload));
    for (double budget : {0.6, 0.0})
      EXPECT_EQ(halves_problem(joint, within(budget, joint), args), "") << workload.name;
  }
}

}  // namespace budget_test
}  // namespace ahead
