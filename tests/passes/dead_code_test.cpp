#include <gtest/gtest.h>

#include "passes/pass_test.h"

namespace ahead {
namespace {

TEST(DeadCode, RemovesChainsThatLeadNowhere) {
  expect_rewritten(passes::eliminate_dead_code, R"(
graph(%x: f32[2] Primal 0):
  %a: f32[2] = aten.sin(%x)
  %b: f32[2] = aten.cos(%a)
  %c: f32[2], %d: i64[2] = aten.sort(%x, 0, false)
  %e: f32[2] = aten.exp(%b)
  return (%c Output 0)
)",
                   R"(graph(%0: f32[2] Primal 0):
  %1: f32[2], %2: i64[2] = aten.sort(%0, 0, false)
  return (%1 Output 0)
)",
                   3);
}

TEST(DeadCode, KeepsRandomNumbersAndEffects) {
  expect_unchanged(passes::eliminate_dead_code, R"(
graph(%x: f32[2] Primal 0, %c: bool[] Primal 1):
  %a: f32[2] = aten.rand_like(%x)
  %b: f32[2] = aten.bernoulli(%a, none)
  %s: f32[2], %m: bool[2] = aten.native_dropout(%x, 0.5, true)
  aten._assert_async.msg(%c, "no")
  return (%x Output 0)
)");
}

TEST(DeadCode, RemovesDropoutThatIsOff) {
  expect_rewritten(passes::eliminate_dead_code, R"(
graph(%x: f32[2] Primal 0):
  %s: f32[2], %m: bool[2] = aten.native_dropout(%x, 0.5, false)
  return (%x Output 0)
)",
                   R"(graph(%0: f32[2] Primal 0):
  return (%0 Output 0)
)",
                   1);
}

TEST(DeadCode, LooksIntoSubGraphs) {
  const std::string call = R"(
graph(%x: f32[2] Primal 0):
  %y: f32[2] = ahead.call(graph(%0: f32[2] Primal 0): {
    %1: f32[2] = aten.OP(%0)
    return (%1 Output 0)
  }, %x)
  return (%x Output 0)
)";
  const auto with = [&](const std::string& op) {
    std::string text = call;
    return Graph::parse(text.replace(text.find("OP"), 2, op));
  };
  Graph pure = with("relu"), random = with("rand_like");
  EXPECT_EQ(passes::eliminate_dead_code(pure), 1U);
  EXPECT_EQ(passes::eliminate_dead_code(random), 0U);
}

}  // namespace
}  // namespace ahead
