#include <gtest/gtest.h>

#include "ahead/errors.h"
#include "partition/joint_text.h"

namespace ahead {
namespace sizes_test {

using Tensors = std::vector<at::Tensor>;

/// sin(x w) * s0 and its gradients.
const std::string layer = R"(
graph(%x: f32[s0, 4] Primal 0 requires_grad, %w: f32[4, 8] Primal 1 requires_grad,
      %t: f32[s0, 8] Tangent 0, %s: i64[1] Sizes 0 like [64]):
  %a: f32[s0, 8] = aten.mm(%x, %w)
  %b: f32[s0, 8] = aten.sin(%a)
  %c: f32[s0, 8] = aten.mul.Tensor(%b, size("s0"))
  %d: f32[s0, 8] = aten.mul.Tensor(%t, size("s0")) !backward
  %e: f32[s0, 8] = aten.cos(%a) !backward
  %f: f32[s0, 8] = aten.mul.Tensor(%d, %e) !backward
  %g: f32[8, 4]{1, 8} = aten.t(%w) !backward
  %gx: f32[s0, 4] = aten.mm(%f, %g) !backward
  %h: f32[4, s0]{1, 4} = aten.t(%x) !backward
  %gw: f32[4, 8] = aten.mm(%h, %f) !backward
  return (%c Output 0 requires_grad, %gx GradOf 0, %gw GradOf 1)
)";

/// What the halves give for the joint graph's arguments x, w, t and sizes.
Tensors run(const PartitionedGraphs& halves, const Tensors& args) {
  Tensors results = interpret(halves.forward, {args[0], args[1], args[3]});
  Tensors saved(results.end() - static_cast<std::ptrdiff_t>(halves.saved.size()), results.end());
  results.resize(results.size() - saved.size());
  saved.push_back(args[2]);
  saved.push_back(args[3]);
  for (at::Tensor& gradient : interpret(halves.backward, saved))
    results.push_back(std::move(gradient));
  return results;
}

void expect_right_for_all_sizes(const JointGraph& joint, PartitionedGraphs halves) {
  for (Graph* half : {&halves.forward, &halves.backward}) {
    half->verify();
    EXPECT_EQ(half->example_sizes(), joint.example_sizes());
    for (const passes::Pass& pass : passes::all()) pass.run(*half);
    half->verify();
  }
  for (int64_t n : {64, 2, 5}) {
    const Tensors args{at::randn({n, 4}), at::randn({4, 8}), at::randn({n, 8}),
                       at::tensor({n}, at::kLong)};
    const Tensors expected = interpret(joint, args), actual = run(halves, args);
    ASSERT_EQ(expected.size(), actual.size());
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_TRUE(at::equal(expected[i], actual[i])) << n << ", result " << i;
  }
}

TEST(PartitionOfSizes, CutsForAllOfThemAtOnce) {
  const JointGraph joint = parse_joint(layer);
  expect_right_for_all_sizes(joint, partition_default(joint));
  for (double budget : {1.0, 0.5, 0.0})
    expect_right_for_all_sizes(joint, partition_min_cut(joint, {.memory_budget = budget}));
}

TEST(PartitionOfSizes, CountsBytesForTheExample) {
  const PartitionedGraphs halves = partition_default(parse_joint(layer));
  EXPECT_EQ(halves.saved_bytes(), 4 * (64 * 8 + 4 * 8 + 64 * 4));
  EXPECT_GT(peak_bytes(halves.backward), 4 * 64 * 8);
}

TEST(PartitionOfSizes, WantsAnExample) {
  std::string text = layer;
  text.erase(text.find(" like [64]"), std::string(" like [64]").size());
  EXPECT_THROW(partition_min_cut(parse_joint(text)), UserError);
}

}  // namespace sizes_test
}  // namespace ahead
