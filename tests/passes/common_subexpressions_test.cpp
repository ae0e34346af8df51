#include <gtest/gtest.h>

#include <random>

#include "passes/pass_test.h"
#include "support/halves.h"

namespace ahead {
namespace {

constexpr auto pass = passes::eliminate_common_subexpressions;

TEST(CommonSubexpressions, AreComputedOnce) {
  expect_rewritten(pass, R"(
graph(%x: f32[2] Primal 0):
  %a: f32[2] = aten.cos(%x)
  %b: f32[2] = aten.cos(%x)
  %c: f32[2] = aten.sin(%a)
  %d: f32[2] = aten.sin(%b)
  %e: f32[4] = aten.cat([%c, %d], 0)
  %f: f32[4] = aten.cat([%d, %c], 0)
  %g: f32[4] = aten.mul.Tensor(%e, %f)
  return (%g Output 0)
)",
                   R"(graph(%0: f32[2] Primal 0):
  %1: f32[2] = aten.cos(%0)
  %2: f32[2] = aten.sin(%1)
  %3: f32[4] = aten.cat([%2, %2], 0)
  %4: f32[4] = aten.mul.Tensor(%3, %3)
  return (%4 Output 0)
)",
                   3);
}

TEST(CommonSubexpressions, TellNumbersOfDifferentTypesApart) {
  expect_unchanged(pass, R"(
graph(%x: f32[2] Primal 0):
  %a: f32[2] = aten.sub.Tensor(%x, 1, 1)
  %b: f32[2] = aten.sub.Tensor(%x, 1.0, 1)
  %c: f32[2] = aten.mul.Tensor(%x, 0.0)
  %d: f32[2] = aten.mul.Tensor(%x, -0.0)
  %e: f32[8] = aten.cat([%a, %b, %c, %d], 0)
  return (%e Output 0)
)");
}

TEST(CommonSubexpressions, KnowDefaults) {
  expect_rewritten(pass, R"(
graph(%x: f32[2, 2] Primal 0):
  %a: f32[2] = aten.sum.dim_IntList(%x, [0])
  %b: f32[2] = aten.sum.dim_IntList(%x, [0], false, none)
  %c: f32[1, 2] = aten.sum.dim_IntList(%x, [0], true)
  %d: f32[2] = aten.add.Tensor(%a, %b)
  %e: f32[1, 2] = aten.add.Tensor(%d, %c)
  return (%e Output 0)
)",
                   R"(graph(%0: f32[2, 2] Primal 0):
  %1: f32[2] = aten.sum.dim_IntList(%0, [0], false, none)
  %2: f32[1, 2] = aten.sum.dim_IntList(%0, [0], true, none)
  %3: f32[2] = aten.add.Tensor(%1, %1, 1)
  %4: f32[1, 2] = aten.add.Tensor(%3, %2, 1)
  return (%4 Output 0)
)",
                   1);
}

TEST(CommonSubexpressions, LeaveRandomNumbersEffectsAndGarbageAlone) {
  expect_unchanged(pass, R"(
graph(%x: f32[2] Primal 0, %c: bool[] Primal 1):
  %a: f32[2] = aten.rand_like(%x)
  %b: f32[2] = aten.rand_like(%x)
  %d: f32[2] = aten.empty_like(%x)
  %e: f32[2] = aten.empty_like(%x)
  aten._assert_async.msg(%c, "no")
  aten._assert_async.msg(%c, "no")
  %f: f32[8] = aten.cat([%a, %b, %d, %e], 0)
  return (%f Output 0)
)");
}

TEST(CommonSubexpressions, KeepOutputsApart) {
  expect_unchanged(pass, R"(
graph(%x: f32[2] Primal 0):
  %a: f32[2] = aten.add.Tensor(%x, 1)
  %b: f32[2] = aten.add.Tensor(%x, 1)
  %c: f32[2] = aten.add.Tensor(%x, 1)
  %v: f32[1, 2] = aten.unsqueeze(%c, 0)
  return (%a MutatedInput 0, %b Output 0, %v Output 1)
)");
}

TEST(CommonSubexpressions, MergeWhatIsNotReturnedIntoWhatIs) {
  expect_rewritten(pass, R"(
graph(%x: f32[2] Primal 0):
  %a: f32[2] = aten.add.Tensor(%x, 1, 1)
  %b: f32[2] = aten.add.Tensor(%x, 1, 1)
  %c: f32[2] = aten.add.Tensor(%x, 1, 1)
  %d: f32[2] = aten.neg(%a)
  %e: f32[2] = aten.neg(%c)
  return (%d Output 0, %b Output 1, %e Output 2)
)",
                   R"(graph(%0: f32[2] Primal 0):
  %1: f32[2] = aten.add.Tensor(%0, 1, 1)
  %2: f32[2] = aten.neg(%1)
  %3: f32[2] = aten.neg(%1)
  return (%2 Output 0, %1 Output 1, %3 Output 2)
)",
                   2);
}

TEST(CommonSubexpressions, MergeViewsUnlessBothAreReturned) {
  expect_rewritten(pass, R"(
graph(%x: f32[2, 3] Primal 0):
  %a: f32[3, 2]{1, 3} = aten.t(%x)
  %b: f32[3, 2]{1, 3} = aten.t(%x)
  %c: f32[3, 2]{1, 3} = aten.t(%x)
  %d: f32[3, 2]{1, 3} = aten.neg(%c)
  return (%a Output 0, %b Output 1, %d Output 2)
)",
                   R"(graph(%0: f32[2, 3] Primal 0):
  %1: f32[3, 2]{1, 3} = aten.t(%0)
  %2: f32[3, 2]{1, 3} = aten.t(%0)
  %3: f32[3, 2]{1, 3} = aten.neg(%1)
  return (%1 Output 0, %2 Output 1, %3 Output 2)
)",
                   1);
}

TEST(CommonSubexpressions, MergeTheBackwardIntoTheForwardOnly) {
  expect_rewritten(pass, R"(
graph(%x: f32[2] Primal 0 requires_grad, %t: f32[2] Tangent 0):
  %early: f32[2] = aten.exp(%x) !backward
  %a: f32[2] = aten.exp(%x)
  %y: f32[2] = aten.sin(%a)
  %b: f32[2] = aten.exp(%x) !backward !no_grad
  %g: f32[2] = aten.mul.Tensor(%t, %b) !backward
  %h: f32[2] = aten.mul.Tensor(%g, %early) !backward
  return (%y Output 0 requires_grad, %h GradOf 0)
)",
                   R"(graph(%0: f32[2] Primal 0 requires_grad, %1: f32[2] Tangent 0):
  %2: f32[2] = aten.exp(%0) !backward
  %3: f32[2] = aten.exp(%0)
  %4: f32[2] = aten.sin(%3)
  %5: f32[2] = aten.mul.Tensor(%1, %2) !backward
  %6: f32[2] = aten.mul.Tensor(%5, %2) !backward
  return (%4 Output 0 requires_grad, %6 GradOf 0)
)",
                   1);
}

TEST(CommonSubexpressions, RespectTags) {
  expect_unchanged(pass, R"(
graph(%x: f32[2] Primal 0):
  %a: f32[2] = aten.cos(%x)
  %b: f32[2] = aten.cos(%x) !no_grad
  %c: f32[2] = aten.cos(%x) !must_recompute
  %d: f32[6] = aten.cat([%a, %b, %c], 0)
  return (%d Output 0)
)");
  expect_rewritten(pass, R"(
graph(%x: f32[2] Primal 0):
  %a: f32[2] = aten.cos(%x)
  %b: f32[2] = aten.cos(%x) !autocast
  %c: f32[4] = aten.cat([%a, %b], 0)
  return (%c Output 0)
)",
                   R"(graph(%0: f32[2] Primal 0):
  %1: f32[2] = aten.cos(%0)
  %2: f32[4] = aten.cat([%1, %1], 0)
  return (%2 Output 0)
)",
                   1);
}

TEST(CommonSubexpressions, KeepWhatIsWrittenToApart) {
  // The operator writes to its own clone; the other clone must not change with it.
  const std::string text = R"(
graph(%x: f32[2] Primal 0):
  %a: f32[2] = aten.clone(%x, none)
  %b: f32[2] = aten.clone(%x, none)
  %c: f32[2], %d: f32[2] = aten.neg_(%a) !effect
  %e: f32[2] = aten.add.Tensor(%b, %c, 1)
  return (%e Output 0)
)";
  expect_unchanged(pass, text);
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
    pass(after);
    EXPECT_LT(after.num_nodes(), before.num_nodes());
    EXPECT_EQ(pass(after), 0U);
    EXPECT_EQ(results_difference(before, after, inputs), "");
  }
}

}  // namespace
}  // namespace ahead
