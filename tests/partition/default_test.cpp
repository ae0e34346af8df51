#include <gtest/gtest.h>

#include "models/models.h"
#include "partition/joint_text.h"
#include "support/halves.h"

namespace ahead {
namespace default_test {

using at::Tensor;
using Tensors = std::vector<at::Tensor>;

PartitionedGraphs expect_halves(const JointGraph& joint) {
  PartitionedGraphs halves = partition_default(joint);
  expect_right(joint, halves);
  return halves;
}

std::string error_of(const JointGraph& joint) {
  try {
    partition_default(joint);
  } catch (const Unsupported& error) {
    return error.what_without_backtrace();
  }
  return "";
}

TEST(DefaultPartition, CutsWhereThePhasesMeet) {
  const auto halves = expect_halves(parse_joint(R"(
graph(%x: f32[2, 3] Primal 0 requires_grad, %w: f32[3] Captured 0 requires_grad, %t: f32[2, 3] Tangent 0):
  %a: f32[2, 3] = aten.mul.Tensor(%x, %w)
  %y: f32[2, 3] = aten.tanh(%a)
  %b: f32[2, 3] = aten.tanh_backward(%t, %y) !backward
  %gx: f32[2, 3] = aten.mul.Tensor(%b, %w) !backward
  %c: f32[2, 3] = aten.mul.Tensor(%b, %x) !backward
  %gw: f32[3] = aten.sum.dim_IntList(%c, [0], false, none) !backward
  return (%y Output 0 requires_grad, %gx GradOf 0, %gw GradOf 1)
)"));
  EXPECT_EQ(halves.forward.str(),
            R"(graph(%0: f32[2, 3] Primal 0 requires_grad, %1: f32[3] Captured 0 requires_grad):
  %2: f32[2, 3] = aten.mul.Tensor(%0, %1)
  %3: f32[2, 3] = aten.tanh(%2)
  return (%3 Output 0 requires_grad, %0 Saved 0, %1 Saved 1, %3 Saved 2)
)");
  EXPECT_EQ(halves.backward.str(), R"(graph(
    %0: f32[2, 3] Saved 0 requires_grad,
    %1: f32[3] Saved 1 requires_grad,
    %2: f32[2, 3] Saved 2,
    %3: f32[2, 3] Tangent 0):
  %4: f32[2, 3] = aten.tanh_backward(%3, %2) !backward
  %5: f32[2, 3] = aten.mul.Tensor(%4, %1) !backward
  %6: f32[2, 3] = aten.mul.Tensor(%4, %0) !backward
  %7: f32[3] = aten.sum.dim_IntList(%6, [0], false, none) !backward
  return (%5 GradOf 0, %7 GradOf 1)
)");
  ASSERT_EQ(halves.saved.size(), 3U);
  EXPECT_EQ(halves.saved[0].input, 0);
  EXPECT_EQ(halves.saved[1].bytes, 0);
  EXPECT_EQ(halves.saved[2].input, -1);
  EXPECT_EQ(halves.saved[2].output, 0);
  for (const SavedValue& saved : halves.saved) EXPECT_FALSE(saved.owned);
  EXPECT_EQ(halves.saved_bytes(), 48);
  EXPECT_EQ(halves.explain(),
            "saved      24 bytes  %4: f32[2, 3] = aten.tanh(%3)\n"
            "           the caller gets it, and the backward reads what it holds then\n");
}

TEST(DefaultPartition, MakesViewsAgainJustBeforeTheirUse) {
  const auto halves = expect_halves(parse_joint(R"(
graph(%x: f32[2, 3] Primal 0 requires_grad, %w: f32[4, 3] Captured 0 requires_grad, %t: f32[2, 4] Tangent 0):
  %a: f32[2, 3] = aten.relu(%x)
  %v: f32[3, 2]{1, 3} = aten.t(%a)
  %wt: f32[3, 4]{1, 3} = aten.t(%w)
  %y: f32[2, 4] = aten.mm(%a, %wt)
  %gw: f32[3, 4] = aten.mm(%v, %t) !backward
  %gt: f32[4, 3]{1, 4} = aten.t(%gw) !backward
  return (%y Output 0 requires_grad, none GradOf 0, %gt GradOf 1)
)"));
  EXPECT_EQ(halves.backward.str(), R"(graph(%0: f32[2, 3] Saved 0, %1: f32[2, 4] Tangent 0):
  %2: f32[3, 2]{1, 3} = aten.t(%0)
  %3: f32[3, 4] = aten.mm(%2, %1) !backward
  %4: f32[4, 3]{1, 4} = aten.t(%3) !backward
  return (none GradOf 0, %4 GradOf 1)
)");
}

TEST(DefaultPartition, CopiesWhatIsOverwrittenAfterTheForward) {
  const auto halves = expect_halves(parse_joint(R"(
graph(%x: f32[4] Primal 0, %w: f32[2] Captured 0 requires_grad, %t: f32[4] Tangent 0):
  %v: f32[2] = aten.slice.Tensor(%x, 0, 0, 2, 1)
  %a: f32[2] = aten.mul.Tensor(%v, %w)
  %y: f32[4] = aten.slice_scatter(%x, %a, 0, 0, 2, 1)
  %s: f32[2] = aten.slice.Tensor(%t, 0, 0, 2, 1) !backward
  %g: f32[2] = aten.mul.Tensor(%s, %v) !backward
  return (%y MutatedInput 0 requires_grad, %g GradOf 1)
)"));
  ASSERT_EQ(halves.saved.size(), 1U);
  EXPECT_TRUE(halves.saved[0].copied);
  EXPECT_EQ(halves.saved[0].input, -1);
  EXPECT_TRUE(halves.saved[0].owned);
  EXPECT_EQ(halves.saved[0].bytes, 16);
  EXPECT_EQ(halves.forward.last()->op().name(), "aten.clone");
}

TEST(DefaultPartition, CopiesKeepGapsBetweenElements) {
  const JointGraph joint = parse_joint(R"(
graph(%x: f32[3, 2]{4, 1} Primal 0, %w: f32[3, 2] Captured 0 requires_grad, %t: f32[3, 2]{4, 1} Tangent 0):
  %y: f32[3, 2]{4, 1} = aten.mul.Tensor(%x, %w)
  %g: f32[3, 2]{4, 1} = aten.mul.Tensor(%t, %x) !backward
  return (%y MutatedInput 0 requires_grad, %g GradOf 1)
)");
  const auto halves = expect_halves(joint);
  const Graph::Output& saved = halves.forward.outputs().back();
  EXPECT_EQ(saved.value->meta.str(), "f32[3, 2]{4, 1}");
  Tensors args = random_args(halves.forward);
  const Tensor copy = interpret(halves.forward, args).back();
  EXPECT_EQ(copy.strides(), args[0].strides());
  EXPECT_FALSE(copy.is_alias_of(args[0]));
  EXPECT_TRUE(copy.equal(args[0]));
}

TEST(DefaultPartition, CopiesWhatReachesIntoAnOverwrittenStorage) {
  const auto halves = expect_halves(parse_joint(R"(
graph(%x: f32[6] Primal 0, %w: f32[2, 2] Captured 0 requires_grad, %t: f32[2, 2] Tangent 1):
  %v: f32[2]+3 = aten.slice.Tensor(%x, 0, 3, 5, 1)
  %s: f32[2, 2]{1, 1}+1 = aten.as_strided(%v, [2, 2], [1, 1], 1)
  %y: f32[2, 2] = aten.mul.Tensor(%s, %w)
  %z: f32[6] = aten.neg(%x)
  %g: f32[2, 2] = aten.mul.Tensor(%t, %s) !backward
  return (%z MutatedInput 0, %y Output 0 requires_grad, %g GradOf 1)
)"));
  ASSERT_EQ(halves.saved.size(), 1U);
  EXPECT_TRUE(halves.saved[0].copied);
  EXPECT_EQ(halves.backward.num_nodes(), 1U);
}

TEST(DefaultPartition, FollowsInputsPastTangents) {
  const auto halves = expect_halves(parse_joint(R"(
graph(%x: f32[2] Primal 0 requires_grad, %t: f32[2] Tangent 1, %c: f32[2] Captured 0 requires_grad):
  %m: f32[2] = aten.neg(%c)
  %y: f32[2] = aten.mul.Tensor(%x, %m)
  %g: f32[2] = aten.mul.Tensor(%t, %m) !backward
  %a: f32[2] = aten.detach(%m) !backward
  return (%m MutatedInput 2, %y Output 0 requires_grad, %g GradOf 0, %t GradOf 2, %a AccumulatedGrad 2)
)"));
  EXPECT_EQ(halves.forward.str(),
            R"(graph(%0: f32[2] Primal 0 requires_grad, %1: f32[2] Captured 0 requires_grad):
  %2: f32[2] = aten.neg(%1)
  %3: f32[2] = aten.mul.Tensor(%0, %2)
  %4: f32[2] = aten.detach(%2)
  return (%2 MutatedInput 1, %3 Output 0 requires_grad, %4 AccumulatedGrad 1, %2 Saved 0)
)");
  EXPECT_EQ(halves.backward.str(), R"(graph(%0: f32[2] Saved 0, %1: f32[2] Tangent 1):
  %2: f32[2] = aten.mul.Tensor(%1, %0) !backward
  return (%2 GradOf 0, %1 GradOf 1)
)");
}

TEST(DefaultPartition, KeepsRandomNodesInOrder) {
  const auto halves = expect_halves(parse_joint(R"(
graph(%x: f32[8] Primal 0 requires_grad, %t: f32[8] Tangent 0):
  %dead: f32[8] = aten.rand_like(%x) !random
  %r: f32[8] = aten.rand_like(%x) !random
  %y: f32[8] = aten.mul.Tensor(%x, %r)
  %late: f32[8] = aten.rand_like(%x) !backward !random
  %g: f32[8] = aten.mul.Tensor(%t, %r) !backward
  %h: f32[8] = aten.mul.Tensor(%g, %late) !backward
  return (%y Output 0 requires_grad, %h GradOf 0)
)"));
  EXPECT_EQ(halves.forward.num_nodes(), 3U);
  EXPECT_EQ(halves.saved.size(), 2U);
}

TEST(DefaultPartition, PullsEarlierRandomNodesIntoTheForward) {
  const auto halves = expect_halves(parse_joint(R"(
graph(%x: f32[8] Primal 0 requires_grad, %t: f32[8] Tangent 0):
  %y: f32[8] = aten.neg(%x)
  %a: f32[8] = aten.rand_like(%x) !backward !random
  %b: f32[8] = aten.rand_like(%x) !backward !random
  %g: f32[8] = aten.mul.Tensor(%t, %a) !backward
  return (%y Output 0 requires_grad, %b Output 1, %g GradOf 0)
)"));
  EXPECT_EQ(halves.forward.num_nodes(), 3U);
}

TEST(DefaultPartition, HonoursTags) {
  const auto halves = expect_halves(parse_joint(R"(
graph(%x: f32[8] Primal 0 requires_grad, %t: f32[8] Tangent 0):
  %a: f32[8] = aten.sin(%x) !must_recompute
  %b: f32[8] = aten.exp(%a) !must_recompute
  %y: f32[8] = aten.mul.Tensor(%a, %b)
  %c: f32[8] = aten.cos(%x) !backward !must_be_in_forward
  %d: f32[8] = aten.neg(%x) !must_be_in_backward
  %g: f32[8] = aten.mul.Tensor(%t, %b) !backward
  %h: f32[8] = aten.mul.Tensor(%g, %c) !backward
  %i: f32[8] = aten.mul.Tensor(%h, %d) !backward
  return (%y Output 0 requires_grad, %i GradOf 0)
)"));
  EXPECT_EQ(operators(halves.backward),
            (std::vector<std::string>{"aten.sin", "aten.exp", "aten.mul.Tensor", "aten.mul.Tensor",
                                      "aten.neg", "aten.mul.Tensor"}));
  EXPECT_EQ(halves.saved.size(), 2U);
}

TEST(DefaultPartition, LeavesDeadNodesOut) {
  const auto halves = expect_halves(parse_joint(R"(
graph(%x: f32[8] Primal 0 requires_grad, %t: f32[8] Tangent 0):
  %dead: f32[8] = aten.sin(%x)
  %y: f32[8] = aten.neg(%x)
  %late: f32[8] = aten.neg(%t) !backward
  %g: f32[8] = aten.neg(%t) !backward
  return (%y Output 0 requires_grad, %g GradOf 0)
)"));
  EXPECT_EQ(halves.forward.num_nodes(), 1U);
  EXPECT_EQ(halves.backward.num_nodes(), 1U);
  EXPECT_TRUE(halves.saved.empty());
}

TEST(DefaultPartition, RefusesForwardOutputsThatNeedTheBackward) {
  EXPECT_EQ(error_of(parse_joint(R"(
graph(%x: f32[8] Primal 0 requires_grad, %t: f32[8] Tangent 0):
  %y: f32[8] = aten.neg(%x)
  %g: f32[8] = aten.neg(%t) !backward
  return (%y Output 0 requires_grad, %g GradOf 0, %g AccumulatedGrad 0)
)")),
            "[partition] aten.neg: the forward needs this node, but it depends on a tangent or is "
            "tagged must_be_in_backward. A result, a mutated input or a `.grad` cannot come from "
            "the backward.");
  EXPECT_EQ(error_of(parse_joint(R"(
graph(%x: f32[8] Primal 0 requires_grad, %t: f32[8] Tangent 0):
  %y: f32[8] = aten.neg(%x)
  return (%y Output 0 requires_grad, %t GradOf 0, %t AccumulatedGrad 0)
)")),
            "[partition] AccumulatedGrad 0: this output is a tangent, so the forward cannot return "
            "it. Return a clone of it from the backward.");
}

TEST(DefaultPartition, GivesTheResultsOfEveryModel) {
  for (const models::Workload& workload : models::workloads()) {
    const JointGraph joint = trace_joint(workload.loss, workload.inputs);
    const PartitionedGraphs halves = partition_default(joint);
    const Tensors args = with_captured(joint, models::joint_arguments(workload));
    EXPECT_EQ(halves_problem(joint, halves, args), "") << workload.name;
  }
}

}  // namespace default_test
}  // namespace ahead
