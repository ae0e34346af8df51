#include <gtest/gtest.h>

#include "passes/pass_test.h"

namespace ahead {
namespace {

constexpr auto pass = passes::clean_views;

TEST(CleanViews, DropsViewsThatChangeNothing) {
  expect_rewritten(pass, R"(
graph(%x: f32[2, 3] Primal 0):
  %a: f32[2, 3] = aten.view(%x, [2, 3])
  %b: f32[2, 3] = aten.expand(%a, [2, 3], false)
  %c: f32[3, 2]{1, 3} = aten.transpose.int(%b, 0, 1)
  %d: f32[2, 3] = aten.t(%c)
  %e: f32[2, 3] = aten.permute(%d, [0, 1])
  %f: f32[2, 3] = aten.detach(%e)
  %g: f32[2, 3] = aten.slice.Tensor(%f, 0, 0, 9, 1)
  %h: f32[2, 3] = aten.neg(%g)
  return (%h Output 0)
)",
                   R"(graph(%0: f32[2, 3] Primal 0):
  %1: f32[3, 2]{1, 3} = aten.transpose.int(%0, 0, 1)
  %2: f32[2, 3] = aten.neg(%0)
  return (%2 Output 0)
)",
                   6);
}

TEST(CleanViews, ShortensChains) {
  expect_rewritten(pass, R"(
graph(%x: f32[2, 6] Primal 0):
  %a: f32[12] = aten.view(%x, [12])
  %b: f32[3, 4] = aten.view(%a, [3, 4])
  %c: f32[3, 4] = aten.neg(%b)
  return (%c Output 0)
)",
                   R"(graph(%0: f32[2, 6] Primal 0):
  %1: f32[12] = aten.view(%0, [12])
  %2: f32[3, 4] = aten.view(%0, [3, 4])
  %3: f32[3, 4] = aten.neg(%2)
  return (%3 Output 0)
)",
                   1);
}

TEST(CleanViews, MakesEqualViewsOnce) {
  expect_rewritten(pass, R"(
graph(%x: f32[2, 3] Primal 0):
  %a: f32[3, 2]{1, 3} = aten.t(%x)
  %b: f32[3, 2]{1, 3} = aten.permute(%x, [1, 0])
  %c: f32[3, 2]{1, 3} = aten.add.Tensor(%a, %b, 1)
  return (%c Output 0)
)",
                   R"(graph(%0: f32[2, 3] Primal 0):
  %1: f32[3, 2]{1, 3} = aten.t(%0)
  %2: f32[3, 2]{1, 3} = aten.add.Tensor(%1, %1, 1)
  return (%2 Output 0)
)",
                   1);
}

TEST(CleanViews, TellsLayoutsApart) {
  expect_unchanged(pass, R"(
graph(%x: f32[2, 2] Primal 0, %o: f32[2, 2]{0, 1} Primal 1):
  %a: f32[2, 2]{1, 2} = aten.t(%x)
  %b: f32[2] = aten.select.int(%x, 0, 0)
  %c: f32[2]+2 = aten.select.int(%x, 0, 1)
  %d: f32[2] = aten.select.int(%o, 0, 0)
  %e: f32[2] = aten.select.int(%o, 0, 1)
  %f: f32[2, 2] = aten.mul.Tensor(%a, %b)
  %g: f32[2, 2] = aten.mul.Tensor(%f, %c)
  %h: f32[2, 2] = aten.mul.Tensor(%g, %d)
  %i: f32[2, 2] = aten.mul.Tensor(%h, %e)
  return (%i Output 0)
)");
}

TEST(CleanViews, KeepsOutputsTensorsOfTheirOwn) {
  expect_unchanged(pass, R"(
graph(%x: f32[2] Primal 0):
  %a: f32[2] = aten.detach(%x)
  %b: f32[2] = aten.neg(%x)
  %c: f32[2] = aten.alias(%b)
  return (%a Output 0, %b Output 1, %c Output 2)
)");
}

TEST(CleanViews, MayReturnTheOriginalOfAView) {
  expect_rewritten(pass, R"(
graph(%x: f32[2] Primal 0):
  %a: f32[2] = aten.neg(%x)
  %b: f32[2] = aten.detach(%a)
  return (%b Output 0)
)",
                   R"(graph(%0: f32[2] Primal 0):
  %1: f32[2] = aten.neg(%0)
  return (%1 Output 0)
)",
                   1);
}

TEST(CleanViews, DropsCopiesNobodySees) {
  expect_rewritten(pass, R"(
graph(%x: f32[2] Primal 0):
  %a: f32[2] = aten.clone(%x, none)
  %b: f32[2] = aten._to_copy(%a, dtype.f32, none, none, none, false, none)
  %c: f32[2] = aten.neg(%b)
  %d: f32[2] = aten.clone(%c, none)
  return (%d Output 0)
)",
                   R"(graph(%0: f32[2] Primal 0):
  %1: f32[2] = aten.neg(%0)
  return (%1 Output 0)
)",
                   3);
}

TEST(CleanViews, KeepsCopiesThatAreReturnedMutatedOrOfAnotherLayout) {
  expect_unchanged(pass, R"(
graph(%x: f32[2, 2] Primal 0, %m: f32[2, 2] Primal 1, %o: f32[2, 2]+4 Primal 2):
  %a: f32[2, 2] = aten.clone(%x, none)
  %b: f32[2, 2] = aten.neg(%x)
  %c: f32[2, 2] = aten.clone(%b, none)
  %d: f32[2, 2] = aten.clone(%m, none)
  %e: f32[2, 2] = aten.clone(%o, none)
  %f: f32[2, 2] = aten.mul.Tensor(%d, %e)
  return (%f MutatedInput 1, %a Output 0, %b Output 1, %c Output 2)
)");
}

TEST(CleanViews, KeepsCopiesThatAreWrittenTo) {
  expect_unchanged(pass, R"(
graph(%x: f32[2] Primal 0):
  %a: f32[2] = aten.neg(%x)
  %b: f32[2] = aten.clone(%a, none)
  %c: f32[2], %d: f32[2] = aten.neg_(%b) !effect
  %e: f32[2] = aten.add.Tensor(%a, %d, 1)
  return (%e Output 0)
)");
}

}  // namespace
}  // namespace ahead
