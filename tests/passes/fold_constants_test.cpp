#include <gtest/gtest.h>

#include "passes/pass_test.h"
#include "support/halves.h"

namespace ahead {
namespace {

constexpr auto pass = passes::fold_constants;

TEST(FoldConstants, UsesNumbersInsteadOfTensorsFullOfThem) {
  expect_rewritten(pass, R"(
graph(%x: f32[2, 2] Primal 0):
  %a: f32[2, 2] = aten.full([2, 2], 0.5, dtype.f32, none, none, none)
  %b: f32[2, 2] = aten.mul.Tensor(%a, %x)
  %c: f32[] = aten.scalar_tensor(3, dtype.f32, none, none, none)
  %d: f32[2, 2]{0, 0} = aten.expand(%c, [2, 2], false)
  %e: f32[2, 2] = aten.sub.Tensor(%b, %d, 1)
  %f: f32[2, 2] = aten.div.Tensor(%e, %d)
  return (%f Output 0)
)",
                   R"(graph(%0: f32[2, 2] Primal 0):
  %1: f32[2, 2] = aten.full([2, 2], 0.5, dtype.f32, none, none, none)
  %2: f32[2, 2] = aten.mul.Tensor(%0, 0.5)
  %3: f32[] = aten.scalar_tensor(3, dtype.f32, none, none, none)
  %4: f32[2, 2]{0, 0} = aten.expand(%3, [2, 2], false)
  %5: f32[2, 2] = aten.sub.Tensor(%2, 3.0, 1)
  %6: f32[2, 2] = aten.div.Tensor(%5, 3.0)
  return (%6 Output 0)
)",
                   3);
}

TEST(FoldConstants, KeepsWhatWouldRoundOrPromoteDifferently) {
  expect_unchanged(pass, R"(
graph(%x: bf16[2] Primal 0, %y: f32[] Primal 1, %z: i64[2] Primal 2, %w: f32[2, 1] Primal 3):
  %a: bf16[2] = aten.full([2], 0.1, dtype.bf16, none, none, none)
  %b: bf16[2] = aten.mul.Tensor(%x, %a)
  %c: f32[] = aten.full([], 0.5, dtype.f32, none, none, none)
  %d: f32[] = aten.mul.Tensor(%y, %c)
  %e: f32[2] = aten.ones([2], dtype.f32, none, none, none)
  %f: f32[2] = aten.mul.Tensor(%z, %e)
  %g: f32[2, 2] = aten.mul.Tensor(%w, %e)
  %h: f32[2] = aten.add.Tensor(%f, %e, 2)
  return (%b Output 0, %d Output 1, %f Output 2, %g Output 3, %h Output 4)
)");
}

TEST(FoldConstants, KeepsWhatWouldLieDifferently) {
  expect_unchanged(pass, R"(
graph(%x: f32[0, 1] Primal 0, %y: f32[2, 1, 2]{1, 8, 2} Primal 1):
  %a: f32[0, 1] = aten.zeros_like(%x, none, none, none, none, none)
  %b: f32[0, 1] = aten.mul.Tensor(%x, %a)
  %c: f32[2, 1, 2]{1, 8, 2} = aten.zeros_like(%y, none, none, none, none, none)
  %d: f32[2, 1, 2]{1, 8, 2} = aten.mul.Tensor(%y, %c)
  return (%b Output 0, %d Output 1)
)");
}

TEST(FoldConstants, UsesNumbersForTensorsThatLieByColumns) {
  expect_rewritten(pass, R"(
graph(%x: f32[2, 3]{1, 2} Primal 0):
  %a: f32[2, 3]{1, 2} = aten.zeros_like(%x, none, none, none, none, none)
  %b: f32[2, 3]{1, 2} = aten.mul.Tensor(%x, %a)
  return (%b Output 0)
)",
                   R"(graph(%0: f32[2, 3]{1, 2} Primal 0):
  %1: f32[2, 3]{1, 2} = aten.zeros_like(%0, none, none, none, none, none)
  %2: f32[2, 3]{1, 2} = aten.mul.Tensor(%0, 0.0)
  return (%2 Output 0)
)",
                   1);
}

TEST(FoldConstants, DropsArithmeticThatChangesNothing) {
  expect_rewritten(pass, R"(
graph(%x: f32[2] Primal 0, %n: i64[2] Primal 1):
  %a: f32[2] = aten.ones_like(%x, none, none, none, none, none)
  %b: f32[2] = aten.mul.Tensor(%x, %a)
  %c: f32[2] = aten.div.Tensor(%b, 1)
  %d: f32[2] = aten.sub.Tensor(%c, 0.0, 1)
  %e: f32[2] = aten.neg(%d)
  %f: i64[2] = aten.add.Tensor(%n, 0, 1)
  %g: i64[2] = aten.neg(%f)
  return (%e Output 0, %g Output 1)
)",
                   R"(graph(%0: f32[2] Primal 0, %1: i64[2] Primal 1):
  %2: f32[2] = aten.ones_like(%0, none, none, none, none, none)
  %3: f32[2] = aten.neg(%0)
  %4: i64[2] = aten.neg(%1)
  return (%3 Output 0, %4 Output 1)
)",
                   5);
}

TEST(FoldConstants, KeepsArithmeticThatChangesSignsOrMakesNewMemory) {
  expect_unchanged(pass, R"(
graph(%x: f32[2] Primal 0):
  %a: f32[2] = aten.add.Tensor(%x, 0.0, 1)
  %b: f32[2] = aten.sub.Tensor(%a, -0.0, 1)
  %c: f32[2] = aten.mul.Tensor(%x, 1)
  return (%b Output 0, %c Output 1)
)");
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
      pass(after);
      EXPECT_EQ(results_difference(before, after, inputs), "") << dtype << " " << number;
    }
  }
}

}  // namespace
}  // namespace ahead
