#include "passes/pass_test.h"

namespace ahead {
namespace {

const PassFunction reinplace = passes::reinplace_mutations;

TEST(Reinplace, WritesInPlaceWhatWouldBeCopied) {
  expect_rewritten(reinplace, R"(
graph(%x: f32[2] Primal 0, %y: f32[2] Primal 1):
  %a: f32[2] = aten.mul.Tensor(%x, %y)
  %s: f32[2] = aten.sin(%a)
  _, %w: f32[2] = aten.copy_(%x, %s, false) !effect
  %z: f32[2] = aten.cos(%y)
  return (none MutatedInput 0, %z Output 0)
)",
                   R"(graph(%0: f32[2] Primal 0, %1: f32[2] Primal 1):
  _, %2: f32[2] = aten.mul_.Tensor(%0, %1) !effect
  _, %3: f32[2] = aten.sin_(%2) !effect
  %4: f32[2] = aten.cos(%1)
  return (none MutatedInput 0, %4 Output 0)
)",
                   1);
}

TEST(Reinplace, CopiesStraightFromTheSource) {
  expect_rewritten(reinplace, R"(
graph(%x: f32[2] Primal 0, %y: f32[2] Primal 1):
  %a: f32[2] = aten.copy(%x, %y)
  _, %w: f32[2] = aten.copy_(%x, %a, false) !effect
  return (none MutatedInput 0)
)",
                   R"(graph(%0: f32[2] Primal 0, %1: f32[2] Primal 1):
  _, %2: f32[2] = aten.copy_(%0, %1, false) !effect
  return (none MutatedInput 0)
)",
                   1);
}

TEST(Reinplace, TheSameTensorMayBeReadTwice) {
  expect_rewritten(reinplace, R"(
graph(%x: f32[2] Primal 0):
  %a: f32[2] = aten.mul.Tensor(%x, %x)
  _, %w: f32[2] = aten.copy_(%x, %a, false) !effect
  return (none MutatedInput 0)
)",
                   R"(graph(%0: f32[2] Primal 0):
  _, %1: f32[2] = aten.mul_.Tensor(%0, %0) !effect
  return (none MutatedInput 0)
)",
                   1);
}

TEST(Reinplace, LeavesAlone) {
  const std::string nodes[] = {// Read afterwards.
                               R"(  %a: f32[2, 2] = aten.sin(%x)
  %z: f32[2, 2] = aten.cos(%x)
)",
                               // Another view of what is written is read at the same time.
                               R"(  %t: f32[2, 2]{1, 2} = aten.t(%x)
  %a: f32[2, 2] = aten.add.Tensor(%x, %t)
  %z: f32[2, 2] = aten.cos(%y)
)",
                               // Not element by element.
                               R"(  %a: f32[2, 2] = aten.cumsum(%x, 0)
  %z: f32[2, 2] = aten.cos(%y)
)",
                               // Needed elsewhere, too.
                               R"(  %a: f32[2, 2] = aten.sin(%x)
  %z: f32[2, 2] = aten.cos(%a)
)",
                               // Of another layout.
                               R"(  %t: f32[2, 2]{1, 2} = aten.t(%x)
  %a: f32[2, 2]{1, 2} = aten.sin(%t)
  %z: f32[2, 2] = aten.cos(%y)
)",
                               // Not made from the input.
                               R"(  %a: f32[2, 2] = aten.sin(%y)
  %z: f32[2, 2] = aten.cos(%y)
)",
                               // Random.
                               R"(  %a: f32[2, 2] = aten.bernoulli(%x) !random
  %z: f32[2, 2] = aten.cos(%y)
)"};
  for (const std::string& body : nodes) {
    expect_unchanged(reinplace, R"(
graph(%x: f32[2, 2] Primal 0, %y: f32[2, 2] Primal 1):
)" + body + R"(  _, %w: f32[2, 2] = aten.copy_(%x, %a, false) !effect
  return (none MutatedInput 0, %z Output 0)
)");
  }
}

TEST(Reinplace, LeavesAloneWhatIsReturnedAsItWas) {
  expect_unchanged(reinplace, R"(
graph(%x: f32[2] Primal 0):
  %v: f32[2, 1] = aten.unsqueeze(%x, 1)
  %a: f32[2] = aten.sin(%x)
  _, %w: f32[2] = aten.copy_(%x, %a, false) !effect
  return (none MutatedInput 0, %v Output 0)
)");
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
  EXPECT_TRUE(a.equal(b));
  EXPECT_FALSE(a.equal(x));
}

}  // namespace
}  // namespace ahead
