#include <gtest/gtest.h>

#include <random>

#include "ahead/ahead.h"
#include "models/models.h"
#include "support/eager.h"
#include "support/halves.h"

/// What the text of a graph does not show: that graphs give the same results after a pass.
namespace ahead {
namespace results_test {

using at::Tensor;
using Tensors = std::vector<at::Tensor>;

TEST(Passes, AreFoundByName) {
  Graph graph = Graph::parse(R"(
graph(%x: f32[2] Primal 0):
  %y: f32[2] = aten.sin(%x)
  return (%x Output 0)
)");
  EXPECT_EQ(passes::run_pass("eliminate_dead_code", graph), 1U);
  for (const passes::Pass& pass : passes::all()) {
    EXPECT_EQ(passes::run_pass(pass.name, graph), 0U) << pass.name;
    EXPECT_FALSE(pass.description.empty()) << pass.name;
  }
  try {
    passes::run_pass("inline", graph);
    FAIL();
  } catch (const UserError& error) {
    const std::string start = "[passes] \"inline\": there is no such pass. Use one of ";
    EXPECT_EQ(std::string(error.what_without_backtrace()).substr(0, start.size()), start);
  }
}

TEST(Passes, KeepTheResultsOfEveryModel) {
  for (const models::Workload& workload : models::workloads()) {
    const JointGraph joint = trace_joint(workload.loss, workload.inputs);
    const auto args = with_captured(joint, models::joint_arguments(workload));
    Graph after_all = joint;
    for (const passes::Pass& pass : passes::all()) {
      Graph graph = joint;
      pass.run(graph);
      EXPECT_EQ(results_difference(joint, graph, args), "") << pass.name << ", " << workload.name;
      EXPECT_EQ(pass.run(graph), 0U) << pass.name << ", " << workload.name;
      pass.run(after_all);
    }
    EXPECT_EQ(results_difference(joint, after_all, args), "") << workload.name;
    EXPECT_LE(after_all.num_nodes(), joint.num_nodes());
  }
}

TEST(CommonSubexpressions, KeepTheValuesOfRandomChains) {
  const std::vector<Tensor (*)(const Tensor&)> steps = {
      [](const Tensor& x) { return x.clone(); }, [](const Tensor& x) { return x.cos(); },
      [](const Tensor& x) { return x.tanh(); }, [](const Tensor& x) { return at::gelu(x); }};
  for (uint64_t seed = 0; seed < 30; ++seed) {
    std::mt19937_64 random(seed);
    const auto function = [&](const Tensors& in) -> Tensors {
      Tensors values = in;
      for (int i = 0; i < 100; ++i)
        values.push_back(steps[random() % steps.size()](values[random() % values.size()]));
      return {values.back()};
    };
    const Tensors inputs{torch::randn({5})};
    const Graph before = trace(function, inputs);
    Graph after = before;
    passes::eliminate_common_subexpressions(after);
    EXPECT_LT(after.num_nodes(), before.num_nodes());
    EXPECT_EQ(passes::eliminate_common_subexpressions(after), 0U);
    EXPECT_EQ(results_difference(before, after, inputs), "");
  }
}

TEST(FoldConstants, GivesTheSameBits) {
  for (at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong}) {
    for (double number : {0.0, 1.0, -3.0, 0.5, 1e-3, 65000.0}) {
      const auto function = [&](const Tensors& in) -> Tensors {
        const Tensor& x = in[0];
        const Tensor full = at::full_like(x, number);
        return {x * full, full + x, x - full, x / full};
      };
      Tensor x = torch::randn({257}) * 100;
      const Tensors inputs{x.to(dtype)};
      const Graph before = trace(function, inputs);
      Graph after = before;
      passes::fold_constants(after);
      EXPECT_EQ(results_difference(before, after, inputs), "") << dtype << " " << number;
    }
  }
}

TEST(Reinplace, KeepsResults) {
  const Graph before = Graph::parse(R"(
graph(%x: f32[64] Primal 0, %y: f32[64] Primal 1):
  %a: f32[64] = aten.mul.Tensor(%x, %y)
  %b: f32[64] = aten.add.Tensor(%a, %y, 2)
  %s: f32[64] = aten.exp(%b)
  _, %w: f32[64] = aten.copy_(%x, %s, false) !effect
  return (none MutatedInput 0)
)");
  Graph after = before;
  EXPECT_EQ(passes::reinplace_mutations(after), 1U);
  EXPECT_EQ(after.num_nodes(), 3U);
  const Tensor x = at::randn({64}), y = at::randn({64});
  const Tensor a = x.clone(), b = x.clone();
  interpret(before, {a, y});
  interpret(after, {b, y});
  EXPECT_EQ(tensor_difference(a, b), "");
  EXPECT_FALSE(a.equal(x));
}

}  // namespace results_test
}  // namespace ahead
