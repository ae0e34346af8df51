#include <gtest/gtest.h>

#include "models/models.h"
#include "partition/joint_text.h"
#include "support/eager.h"
#include "support/halves.h"

namespace ahead {
namespace min_cut_test {

using at::Tensor;
using Tensors = std::vector<at::Tensor>;
using Names = std::vector<std::string>;

PartitionedGraphs expect_cut(const JointGraph& joint, const PartitionOptions& options = {}) {
  PartitionedGraphs halves = partition_min_cut(joint, options);
  expect_right(joint, halves);
  const PartitionedGraphs all = partition_default(joint);
  EXPECT_LE(halves.saved_bytes(), all.saved_bytes());
  EXPECT_LE(halves.peak_bytes(), all.peak_bytes());
  return halves;
}

JointGraph trace_on(const aot::FlatFunction& function, const Tensors& inputs) {
  return trace_joint(function, inputs);
}

TEST(MinCut, ViewsOfACopyBeginWhereTheCopyDoes) {
  const PartitionedGraphs halves = partition_min_cut(parse_joint(R"(
graph(%x: f32[8]+32 Primal 0 requires_grad, %u: f32[8] Tangent 0, %t: f32[8] Tangent 1):
  %v: f32[2, 4]+32 = aten.view(%x, [2, 4])
  %c: f32[2, 4] = aten.sin(%v) !must_recompute
  %m: f32[8] = aten.mul.Scalar(%x, 0.5)
  %y: f32[8] = aten.mul.Scalar(%x, 1)
  %f: f32[8] = aten.view(%c, [8]) !backward
  %a: f32[8] = aten.mul.Tensor(%t, %f) !backward
  %g: f32[8] = aten.add.Tensor(%u, %a, 1) !backward
  return (%m MutatedInput 0 requires_grad, %y Output 0 requires_grad, %g GradOf 0)
)"));
  bool has_view = false;
  for (const Node& node : halves.backward.nodes()) {
    if (node.op().name() != "aten.view") continue;
    EXPECT_EQ(node.result()->meta.offset, node.args()[0].value()->meta.offset);
    has_view = true;
  }
  EXPECT_TRUE(has_view) << halves.backward.str();
  EXPECT_TRUE(halves.saved[0].copied);
}

TEST(MinCut, SavesTheInputOfAChain) {
  const auto halves = expect_cut(trace_on(
      [](const Tensors& in) -> Tensors { return {in[0].cos().cos().cos()}; }, {leaf({8})}));
  EXPECT_EQ(halves.forward.inputs().size(), 1U);
  EXPECT_EQ(halves.forward.outputs().size(), 2U);
  EXPECT_EQ(halves.backward.inputs().size(), 2U);
  EXPECT_EQ(halves.backward.outputs().size(), 1U);
  EXPECT_EQ(halves.saved[0].input, 0);
}

TEST(MinCut, SavesASumRatherThanItsTerms) {
  const Tensors inputs{leaf({8}), leaf({8}), leaf({8}), leaf({8})};
  const auto function = [](const Tensors& in) -> Tensors {
    return {(in[0] + in[1] + in[2] + in[3]).cos().cos()};
  };
  const auto halves = expect_cut(trace_on(function, inputs));
  EXPECT_EQ(halves.forward.outputs().size(), 2U);
  EXPECT_EQ(halves.backward.inputs().size(), 2U);
  EXPECT_EQ(halves.backward.outputs().size(), 4U);
}

TEST(MinCut, SavesStaticInputsForFree) {
  const Tensors inputs{leaf({8}), leaf({8})};
  const auto function = [](const Tensors& in) -> Tensors { return {(in[0] + in[1]).cos().cos()}; };
  PartitionOptions options;
  options.static_inputs = {0, 1};
  const auto halves = expect_cut(trace_on(function, inputs), options);
  ASSERT_EQ(halves.saved.size(), 2U);
  EXPECT_EQ(halves.saved[0].input, 0);
  EXPECT_EQ(halves.saved[1].input, 1);
  EXPECT_EQ(halves.saved_bytes(), 0);
}

TEST(MinCut, SplitsAgainFromTheInput) {
  const auto function = [](const Tensors& in) -> Tensors {
    const Tensors parts = in[0].split(2);
    return {parts[0].sin() * parts[1]};
  };
  const auto halves = expect_cut(trace_on(function, {leaf({4})}));
  ASSERT_EQ(halves.saved.size(), 1U);
  EXPECT_EQ(halves.saved[0].input, 0);
  EXPECT_EQ(halves.backward.first()->op().name(), "aten.split.Tensor");
}

TEST(MinCut, KeepsProductsAndRecomputesWhatFollows) {
  const auto halves = expect_cut(parse_joint(R"(
graph(%x: f32[8, 8] Primal 0 requires_grad, %w: f32[8, 8] Captured 0 requires_grad, %t: f32[8, 8] Tangent 0):
  %a: f32[8, 8] = aten.mm(%x, %w)
  %b: f32[8, 8] = aten.sin(%a)
  %c: f32[8, 8] = aten.exp(%b)
  %y: f32[8, 8] = aten.mul.Tensor(%a, %c)
  %g: f32[8, 8] = aten.mul.Tensor(%t, %c) !backward
  %h: f32[8, 8] = aten.mul.Tensor(%g, %a) !backward
  return (%y Output 0 requires_grad, %h GradOf 0)
)"));
  EXPECT_EQ(operators(halves.backward),
            (Names{"aten.sin", "aten.exp", "aten.mul.Tensor", "aten.mul.Tensor"}));
  EXPECT_EQ(halves.explain(),
            "saved      256 bytes  %3: f32[8, 8] = aten.mm(%0, %1)\n"
            "           bound by arithmetic\n"
            "recomputed 256 bytes  %4: f32[8, 8] = aten.sin(%3)\n"
            "           pointwise: fuses into its users\n"
            "recomputed 256 bytes  %5: f32[8, 8] = aten.exp(%4)\n"
            "           pointwise: fuses into its users\n");
}

TEST(MinCut, SaysWhyItSavesWhatItCouldRecompute) {
  const auto halves = expect_cut(parse_joint(R"(
graph(%x: f32[8] Primal 0 requires_grad, %z: f32[8] Primal 1, %t: f32[8] Tangent 0):
  %a: f32[8] = aten.add.Tensor(%x, %z)
  %y: f32[8] = aten.sin(%a)
  %g: f32[8] = aten.mul.Tensor(%t, %a) !backward
  return (%y Output 0 requires_grad, %g GradOf 0)
)"));
  EXPECT_EQ(halves.explain(),
            "saved      32 bytes  %3: f32[8] = aten.add.Tensor(%0, %1, 1)\n"
            "           what it is made from takes more memory\n");
}

TEST(MinCut, NeverDrawsRandomNumbersTwice) {
  const auto halves = expect_cut(parse_joint(R"(
graph(%x: f32[8] Primal 0 requires_grad, %t: f32[8] Tangent 0):
  %r: f32[8] = aten.rand_like(%x) !random
  %m: f32[8] = aten.sin(%r)
  %y: f32[8] = aten.mul.Tensor(%x, %m)
  %g: f32[8] = aten.mul.Tensor(%t, %m) !backward
  return (%y Output 0 requires_grad, %g GradOf 0)
)"));
  EXPECT_EQ(operators(halves.backward), (Names{"aten.mul.Tensor"}));
}

TEST(MinCut, RefusesToRunAgain) {
  struct Row {
    std::string node, reason;
  };
  const std::vector<Row> rows = {
      {"aten.empty_like(%x)", "memory that nobody wrote: a second piece of it has other contents"},
      {"aten.sin(%x) !must_save", "tagged must_save"},
      {"aten.sin(%x) !must_be_in_forward", "tagged must_be_in_forward"},
      {"aten.sin(%x) !effect", "has an effect that must happen once"},
      {"aten.bernoulli(%x)", "random: a second run would draw other numbers"},
      {"aten.cumsum(%x, 0)", "a scan: one dependent step per element"},
  };
  for (const Row& row : rows) {
    const auto halves = partition_min_cut(parse_joint(R"(
graph(%x: f32[8] Primal 0 requires_grad, %t: f32[8] Tangent 0):
  %a: f32[8] = )" + row.node + R"(
  %y: f32[8] = aten.mul.Tensor(%x, %a)
  %g: f32[8] = aten.mul.Tensor(%t, %a) !backward
  %h: f32[8] = aten.mul.Tensor(%g, %x) !backward
  return (%y Output 0 requires_grad, %h GradOf 0)
)"));
    ASSERT_EQ(halves.decisions.size(), 1U) << row.node;
    EXPECT_TRUE(halves.decisions[0].saved) << row.node;
    EXPECT_EQ(halves.decisions[0].reason, row.reason);
  }
}

TEST(MinCut, HonoursMustRecompute) {
  const auto halves = partition_min_cut(parse_joint(R"(
graph(%x: f32[8, 8] Primal 0 requires_grad, %w: f32[8, 8] Captured 0, %t: f32[] Tangent 0):
  %a: f32[8, 8] = aten.mm(%x, %w) !must_recompute
  %s: f32[] = aten.sum(%a) !must_recompute
  %y: f32[] = aten.sin(%s)
  %g: f32[] = aten.mul.Tensor(%t, %s) !backward
  %e: f32[8, 8]{0, 0} = aten.expand(%g, [8, 8]) !backward
  return (%y Output 0 requires_grad, %e GradOf 0)
)"));
  EXPECT_EQ(operators(halves.backward),
            (Names{"aten.mm", "aten.sum", "aten.mul.Tensor", "aten.expand"}));
}

TEST(MinCut, HonoursPreferences) {
  const auto joint = [](const std::string& tag) {
    return parse_joint(R"(
graph(%x: f32[8, 8] Primal 0 requires_grad, %w: f32[8, 8] Captured 0, %t: f32[8, 8] Tangent 0):
  %a: f32[8, 8] = aten.mm(%x, %w) )" +
                       tag + R"(
  %b: f32[8, 8] = aten.sin(%a) )" +
                       tag + R"(
  %y: f32[8, 8] = aten.mul.Tensor(%b, %x)
  %g: f32[8, 8] = aten.mul.Tensor(%t, %b) !backward
  %h: f32[8, 8] = aten.mul.Tensor(%g, %x) !backward
  return (%y Output 0 requires_grad, %h GradOf 0)
)");
  };
  const Names saved{"aten.mul.Tensor", "aten.mul.Tensor"};
  const Names recomputed{"aten.mm", "aten.sin", "aten.mul.Tensor", "aten.mul.Tensor"};
  const auto prefer_save = joint("!prefer_save"), prefer_recompute = joint("!prefer_recompute");
  EXPECT_EQ(operators(partition_min_cut(prefer_save).backward), saved);
  EXPECT_EQ(operators(partition_default(prefer_save).backward), saved);
  EXPECT_EQ(operators(partition_min_cut(prefer_save, {.memory_budget = 0}).backward), recomputed);
  EXPECT_EQ(operators(partition_min_cut(prefer_recompute).backward), recomputed);
  EXPECT_EQ(operators(partition_default(prefer_recompute).backward), recomputed);
  EXPECT_NE(partition_min_cut(prefer_recompute).explain().find("tagged prefer_recompute"),
            std::string::npos);
  EXPECT_NE(partition_min_cut(prefer_save).explain().find("tagged prefer_save"), std::string::npos);
}

TEST(MinCut, ComputesAMaskInTheForwardWhereThatIsSmaller) {
  const auto halves = expect_cut(parse_joint(R"(
graph(%x: f32[8, 8] Primal 0 requires_grad, %w: f32[8, 8] Captured 0, %t: f32[8, 8] Tangent 0):
  %a: f32[8, 8] = aten.mm(%x, %w)
  %y: f32[8, 8] = aten.relu(%a)
  %m: bool[8, 8] = aten.gt.Scalar(%a, 0) !backward
  %g: f32[8, 8] = aten.mul.Tensor(%t, %m) !backward
  return (%y Output 0 requires_grad, %g GradOf 0)
)"));
  ASSERT_EQ(halves.saved.size(), 1U);
  EXPECT_EQ(halves.saved_bytes(), 64);
}

TEST(MinCut, PrefersAnOldCopyToANewOne) {
  const auto halves = expect_cut(parse_joint(R"(
graph(%x: f32[8] Primal 0, %w: f32[8] Captured 0 requires_grad, %t: f32[8] Tangent 0):
  %c: f32[8] = aten.clone(%x, none)
  %y: f32[8] = aten.mul.Tensor(%c, %w)
  %g: f32[8] = aten.mul.Tensor(%t, %c) !backward
  return (%y MutatedInput 0 requires_grad, %g GradOf 1)
)"));
  EXPECT_EQ(operators(halves.forward), (Names{"aten.clone", "aten.mul.Tensor"}));
  EXPECT_FALSE(halves.saved[0].copied);
}

TEST(MinCut, MakesWhatTheBackwardWritesToInTheBackward) {
  const auto joint = parse_joint(R"(
graph(%x: f32[8] Primal 0 requires_grad, %t: f32[8] Tangent 0):
  %y: f32[8] = aten.sin(%x)
  %c: f32[8] = aten.clone(%x, none)
  %n: f32[8], %d: f32[8] = aten.neg_(%c) !backward !effect
  %g: f32[8] = aten.mul.Tensor(%t, %d) !backward
  return (%y Output 0 requires_grad, %g GradOf 0)
)");
  for (const auto& halves : {partition_default(joint), partition_min_cut(joint)}) {
    expect_right(joint, halves);
    EXPECT_EQ(halves.saved[0].input, 0);
    EXPECT_EQ(halves.backward.first()->op().name(), "aten.clone");
  }
}

TEST(MinCut, BreaksLongChains) {
  const auto function = [](const Tensors& in) -> Tensors {
    Tensor x = in[0];
    for (int i = 0; i < 30; ++i) x = x.sin();
    return {x};
  };
  const JointGraph joint = trace_on(function, {leaf({8})});
  EXPECT_EQ(expect_cut(joint).saved.size(), 1U);
  PartitionOptions options;
  options.longest_chain = 10;
  EXPECT_EQ(expect_cut(joint, options).saved.size(), 3U);
  options.longest_chain = 0;
  EXPECT_EQ(expect_cut(joint, options).saved.size(), 1U);
}

TEST(MinCut, OptionsSayWhatIsCheap) {
  const JointGraph joint = parse_joint(R"(
graph(%x: f32[8, 8] Primal 0 requires_grad, %w: f32[8, 8] Captured 0, %t: f32[8, 1] Tangent 0):
  %a: f32[8, 8] = aten.mm(%x, %w)
  %m: f32[8, 1] = aten.amax(%a, [1], true)
  %y: f32[8, 1] = aten.sin(%m)
  %g: f32[8, 1] = aten.mul.Tensor(%t, %m) !backward
  %h: f32[8, 8] = aten.mul.Tensor(%g, %a) !backward
  return (%y Output 0 requires_grad, %h GradOf 0)
)");
  const Names saved{"aten.mul.Tensor", "aten.mul.Tensor"};
  EXPECT_EQ(operators(expect_cut(joint).backward), saved);
  EXPECT_EQ(operators(expect_cut(joint, {.recompute_reductions = true}).backward),
            (Names{"aten.amax", "aten.mul.Tensor", "aten.mul.Tensor"}));
}

TEST(MinCut, AggressivenessRunsProductsAgain) {
  const JointGraph joint = parse_joint(R"(
graph(%x: f32[8, 8] Primal 0 requires_grad, %w: f32[8, 8] Captured 0, %t: f32[8, 8] Tangent 0):
  %a: f32[8, 8] = aten.mm(%x, %w)
  %b: f32[8, 8] = aten.sin(%a)
  %y: f32[8, 8] = aten.mul.Tensor(%b, %x)
  %g: f32[8, 8] = aten.mul.Tensor(%t, %b) !backward
  %h: f32[8, 8] = aten.mul.Tensor(%g, %x) !backward
  return (%y Output 0 requires_grad, %h GradOf 0)
)");
  EXPECT_EQ(operators(expect_cut(joint).backward), (Names{"aten.mul.Tensor", "aten.mul.Tensor"}));
  EXPECT_EQ(operators(expect_cut(joint, {.aggressive_recomputation = true}).backward),
            (Names{"aten.mm", "aten.sin", "aten.mul.Tensor", "aten.mul.Tensor"}));
}

TORCH_LIBRARY(ahead_partition_test, m) {
  m.def("half(Tensor x) -> Tensor", {at::Tag::pt2_compliant_tag});
}
TORCH_LIBRARY_IMPL(ahead_partition_test, CPU, m) {
  m.impl("half", [](const Tensor& x) { return x / 2; });
}

TEST(MinCut, RunsCustomOperatorsAgainOnRequest) {
  const JointGraph joint = parse_joint(R"(
graph(%x: f32[8] Primal 0 requires_grad, %t: f32[8] Tangent 0):
  %a: f32[8] = ahead_partition_test.half(%x)
  %y: f32[8] = aten.mul.Tensor(%x, %a)
  %g: f32[8] = aten.mul.Tensor(%t, %a) !backward
  %h: f32[8] = aten.mul.Tensor(%g, %x) !backward
  return (%y Output 0 requires_grad, %h GradOf 0)
)");
  const Names products{"aten.mul.Tensor", "aten.mul.Tensor"};
  const PartitionOptions all{.recompute_custom_operators = true, .aggressive_recomputation = true};
  EXPECT_EQ(operators(expect_cut(joint).backward), products);
  EXPECT_EQ(operators(expect_cut(joint, all).backward),
            (Names{"ahead_partition_test.half", "aten.mul.Tensor", "aten.mul.Tensor"}));
}

TEST(MinCut, AggressivenessHasLimits) {
  const auto halves = partition_min_cut(parse_joint(R"(
graph(%x: f32[8] Primal 0 requires_grad, %t: f32[8] Tangent 0):
  %r: f32[8] = aten.rand_like(%x) !random
  %s: f32[8] = aten.sin(%x) !must_save
  %y: f32[8] = aten.mul.Tensor(%r, %s)
  %g: f32[8] = aten.mul.Tensor(%t, %r) !backward
  %h: f32[8] = aten.mul.Tensor(%g, %s) !backward
  return (%y Output 0 requires_grad, %h GradOf 0)
)"),
                                        {.aggressive_recomputation = true});
  EXPECT_EQ(operators(halves.backward), (Names{"aten.mul.Tensor", "aten.mul.Tensor"}));
}

TEST(MinCut, RefusesBudgetsOutsideOfZeroToOne) {
  for (double budget : {-0.1, 1.1, std::nan("")}) {
    PartitionOptions options;
    options.memory_budget = budget;
    EXPECT_THROW(partition_min_cut({}, options), UserError) << budget;
  }
}

TEST(MinCut, RefusesStaticInputsThatAreNotThere) {
  PartitionOptions options;
  options.static_inputs = {0};
  EXPECT_THROW(partition_min_cut({}, options), UserError);
}

TEST(MinCut, GivesTheResultsOfEveryModel) {
  for (const models::Workload& workload : models::workloads()) {
    const JointGraph joint = trace_joint(workload.loss, workload.inputs);
    const PartitionedGraphs all = partition_default(joint);
    const PartitionedGraphs halves = partition_min_cut(joint);
    const Tensors args = with_captured(joint, models::joint_arguments(workload));
    EXPECT_EQ(halves_problem(joint, halves, args), "") << workload.name;
    EXPECT_LE(halves.saved_bytes(), all.saved_bytes()) << workload.name;
    EXPECT_LE(halves.peak_bytes(), all.peak_bytes()) << workload.name;
  }
}

}  // namespace min_cut_test
}  // namespace ahead
