#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/errors.h"
#include "ahead/interpret.h"
#include "support/eager.h"
#include "support/round_trip.h"

namespace ahead {
namespace size_reads_test {

/// What is wrong with a graph; empty if nothing is.
std::string problem_of(const std::string& text) {
  const std::string said = error_of([&] { Graph::parse(text).verify(); });
  return said.substr(0, said.find('\n'));
}

// The first size is given, the others are read.
constexpr const char* three_sizes = R"(
graph(%s: i64[1] Sizes 0, %x: f32[s0, 4] Primal 0, %n: i32[1] Primal 1):
  ahead.local_scalar_dense(%n, size("s1")) !effect
  ahead.expect_relation(size("s1"), "<", size("s0")) !effect
  %a: f32[s1, 4] = aten.slice.Tensor(%x, 0, 0, size("s1"), 1)
  %b: i32[1] = aten.add.Scalar(%n, 1)
  ahead.local_scalar_dense(%b, size("s2")) !effect
  %c: f32[s2, s1, 4]{0, 4, 1} = aten.expand(%a, [size("s2"), size("s1"), 4])
  %d: f32[s2, s1, 4] = aten.mul.Tensor(%c, size("s0 + s1 + s2"))
  return (%d Output 0)
)";

TEST(SizeReads, AreKnownFromWhereTheyAreRead) {
  const Graph graph = Graph::parse(three_sizes);
  expect_round_trip(graph);
  const Interpreter run(graph);
  for (const auto& [rows, n] : {std::pair<int64_t, int>{5, 2}, {5, 0}, {2, 1}}) {
    const at::Tensor x = torch::randn({rows, 4});
    const at::Tensor made =
        run({torch::tensor({rows}), x, torch::tensor({n}, torch::kInt)}).at(0);
    EXPECT_TRUE(made.equal(x.slice(0, 0, n).expand({n + 1, n, 4}) * (rows + 2 * n + 1)));
  }
  const at::Tensor x = torch::randn({5, 4}), rows = torch::tensor({int64_t{5}});
  EXPECT_EQ(error_of([&] { run({rows, x, torch::tensor({5}, torch::kInt)}); }).substr(0, 54),
            "[interpret] ahead.expect_relation: 5 < 5 does not hold");
  EXPECT_THROW(run({torch::tensor({5, 5}), x, torch::tensor({2}, torch::kInt)}), UserError);
}

TEST(SizeReads, AreVerified) {
  const std::string head = "graph(%n: i64[] Primal 0, %x: f32[3] Primal 1):\n";
  const std::string read = "  ahead.local_scalar_dense(%n, size(\"s0\")) !effect\n";
  const std::string made = "  %a: f32[s0] = aten.zeros([size(\"s0\")])\n";
  const std::string end = "  return (none Output 0)\n";
  EXPECT_EQ(problem_of(head + read + made + end), "");
  EXPECT_EQ(problem_of(head + made + read + end),
            "[verify] aten.zeros: it takes the size s0, but 0 are known here.");
  EXPECT_EQ(problem_of(head + "  %a: f32[s0] = aten.sin(%x)\n" + read + end),
            "[verify] aten.sin: it takes the size s0, but 0 are known here.");
  EXPECT_EQ(problem_of(head + read + read + end),
            "[verify] ahead.local_scalar_dense: it reads the size s0, but the next one is s1.");
  EXPECT_EQ(problem_of(head + "  ahead.local_scalar_dense(%x, size(\"s0\")) !effect\n" + end),
            "[verify] ahead.local_scalar_dense: it reads a size from f32[3], which is not an "
            "integer.");
  EXPECT_EQ(problem_of(head + "  ahead.local_scalar_dense(%n, 3) !effect\n" + end),
            "[sizes] ahead.local_scalar_dense: it has to name the size that it reads, such as "
            "size(\"s0\").");
  EXPECT_EQ(
      problem_of(head + "  ahead.call(graph(%n: i64[] Primal 0): {\n" + read +
                 "    return ()\n  }, %n)\n" + end),
      "[verify] sub-graph of node 0, ahead.local_scalar_dense: a sub-graph cannot read sizes.");
}

}  // namespace size_reads_test
}  // namespace ahead
