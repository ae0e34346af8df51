#include "ir/sizes/size_expression.h"

#include <gtest/gtest.h>

#include <bit>
#include <random>

#include "ahead/errors.h"
#include "ahead/graph.h"
#include "ir/sizes/expression_node.h"
#include "ir/sizes/graph_numbers.h"
#include "ir/sizes/sized_constants.h"
#include "support/round_trip.h"

namespace ahead {
namespace size_expression_test {

const SizeExpression s0 = SizeExpression::symbol(0), s1 = SizeExpression::symbol(1);

TEST(SizeExpressions, HaveOneTextForEqualPolynomials) {
  EXPECT_EQ((s0 * 8 + s1).str(), (s1 + s0 * 4 + s0 * 4).str());
  EXPECT_EQ(((s0 + 1) * (s0 - 1)).str(), (s0 * s0 - 1).str());
  EXPECT_EQ((s0 - s0).constant(), 0);
  EXPECT_EQ((s0 * s1).str(), (s1 * s0).str());
  EXPECT_NE(s0.str(), s1.str());
}

TEST(SizeExpressions, DivideExactlyWhereTheyCan) {
  EXPECT_EQ((s0 * 8 + 16).floor_divided_by(8).str(), (s0 + 2).str());
  EXPECT_EQ((s0 * 8).modulo(4).constant(), 0);
  EXPECT_EQ(s0.floor_divided_by(4).str(), "floordiv(s0, 4)");
  EXPECT_EQ(SizeExpression(-7).floor_divided_by(2).constant(), -4);
  EXPECT_EQ(SizeExpression(-7).modulo(2).constant(), 1);
}

TEST(SizeExpressions, HaveNoValueWhereIntegersHaveNone) {
  EXPECT_EQ(s0.floor_divided_by(s1).evaluate({6, 0}), std::nullopt);
  EXPECT_EQ((s0 * s0).evaluate({INT64_MAX}), std::nullopt);
  EXPECT_EQ((s0 + s1).evaluate({INT64_MAX, 1}), std::nullopt);
  EXPECT_EQ(s1.evaluate({3}), std::nullopt);
  EXPECT_EQ(s0.floor_divided_by(s1).evaluate({7, 2}), 3);
}

TEST(SizeExpressions, ReadNothingButWhatTheyPrint) {
  for (const char* text : {"", "s", "s0 +", "s0+1", "t0", "floordiv(s0)", "min(s0, 1", "8*", "1 2"})
    EXPECT_FALSE(SizeExpression::parse(text)) << text;
}

/// An expression with the value that integers give.
struct Random {
  std::mt19937 engine;
  std::vector<int64_t> sizes;

  int64_t number(int64_t from, int64_t to) {
    return std::uniform_int_distribution<int64_t>(from, to)(engine);
  }

  std::pair<SizeExpression, int64_t> make(int depth) {
    if (depth == 0 && number(0, 1) == 0) {
      const int64_t constant = number(-3, 9);
      return {constant, constant};
    }
    if (depth == 0) {
      const auto symbol = static_cast<uint32_t>(number(0, static_cast<int64_t>(sizes.size()) - 1));
      return {SizeExpression::symbol(symbol), sizes[symbol]};
    }
    const auto [a, x] = make(depth - 1);
    const auto [b, y] = make(depth - 1);
    switch (number(0, 7)) {
      case 0:
        return {a - b, x - y};
      case 1:
      case 2:
        return {a * b, x * y};
      case 3:
        return {a.min(b), std::min(x, y)};
      case 4:
        return {a.max(b), std::max(x, y)};
      case 5:
        if (y <= 0) return {a, x};
        return {a.floor_divided_by(b), (x - ((x % y + y) % y)) / y};
      case 6:
        if (y <= 0) return {b, y};
        return {a.modulo(b), (x % y + y) % y};
      default:
        return {a + b, x + y};
    }
  }
};

TEST(SizeExpressions, ComputeWhatIntegersDoAndReadBack) {
  for (uint32_t seed = 0; seed < 500; ++seed) {
    Random random{std::mt19937(seed), {2, 3, 7}};
    const auto [expression, value] = random.make(3);
    EXPECT_EQ(expression.evaluate(random.sizes), value) << expression.str();
    const auto parsed = SizeExpression::parse(expression.str());
    ASSERT_TRUE(parsed) << expression.str();
    EXPECT_EQ(parsed->str(), expression.str());
    EXPECT_EQ(parsed->evaluate(random.sizes), value);
  }
}

TEST(SizeExpressions, AreTheSameOverOtherSizes) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    Random random{std::mt19937(seed), {2, 3, 7}};
    std::vector<SizeExpression> stand_for;
    std::vector<int64_t> values;
    for (int i = 0; i < 3; ++i) {
      const auto [expression, value] = random.make(1);
      stand_for.push_back(expression);
      values.push_back(value);
    }
    Random of_these{std::mt19937(seed + 1000), values};
    const auto [expression, value] = of_these.make(2);
    EXPECT_EQ(expression.with_sizes(stand_for).evaluate(random.sizes), value) << expression.str();
  }
  EXPECT_EQ((s0 * 8 + s1).with_sizes({5, s0}).str(), (s0 + 40).str());
}

TEST(SizeGuards, HoldForSizesOfWhichTheSameIsTrue) {
  SizeGuards guards({3, 24});
  EXPECT_TRUE(guards.decide(SizeGuards::Relation::Equal, s0 * 8, s1));
  EXPECT_FALSE(guards.decide(SizeGuards::Relation::Equal, s0, 1));
  EXPECT_TRUE(guards.decide(SizeGuards::Relation::Less, s0, 16));
  EXPECT_TRUE(guards.decide(SizeGuards::Relation::Equal, s0 * 8 - s1, 0));
  EXPECT_EQ(guards.count(), 3u);
  EXPECT_TRUE(guards.hold({5, 40}));
  EXPECT_FALSE(guards.hold({5, 41}));
  EXPECT_FALSE(guards.hold({1, 8}));
  EXPECT_FALSE(guards.hold({16, 128}));
  EXPECT_FALSE(guards.hold({5}));
  EXPECT_TRUE(guards.pinned().empty());
  EXPECT_EQ(guards.pin(s0, "somebody asked"), 3);
  EXPECT_EQ(guards.pinned(), "somebody asked");
  EXPECT_FALSE(guards.hold({5, 40}));
}

TEST(SizeNodes, NoteWhatLibTorchDecidesByThem) {
  const auto guards = std::make_shared<SizeGuards>(std::vector<int64_t>{3});
  const c10::SymInt size = SizeNode::make(s0, guards);
  EXPECT_TRUE(size * 2 == 2 * size);
  EXPECT_EQ(guards->count(), 0u);
  EXPECT_TRUE(size >= 2 && size != 1 && size.min(8) < 4);
  EXPECT_EQ(guards->count(), 3u);
  EXPECT_EQ(peek(size * size + 1), 10);
  EXPECT_TRUE(guards->pinned().empty());
  EXPECT_EQ((size * 2).guard_int(__FILE__, 7), 6);
  EXPECT_NE(guards->pinned().find("size_expression_test.cpp:7"), std::string::npos);
}

TEST(SizeConstants, StandOverOtherSizes) {
  const Graph graph = Graph::parse(
      "graph(%0: f32[s0, 8] Primal 0, %1: i64[3] Sizes 0):\n"
      "  %2: f32[8*s0] = aten.view(%0, [size(\"8*s0\")])\n"
      "  %3: f32[8*s0] = aten.div.Tensor(%2, size(\"s1\"))\n"
      "  %4: f32[8*s0] = aten.mul.Tensor(%3, real(\"div(f2, float(s0))\"))\n"
      "  return (%4 Output 0)\n");
  // A size below -2^62: the bits of a negative number.
  const int64_t bits = std::bit_cast<int64_t>(-1.5);
  const Graph over = over_sizes(graph, {SizeExpression::symbol(4), 3, bits});
  over.verify();
  EXPECT_EQ(over.inputs().size(), 1u);
  const std::string text = over.str();
  EXPECT_NE(text.find("aten.view(%0, [size(\"8*s4\")])"), std::string::npos) << text;
  EXPECT_NE(text.find("aten.div.Tensor(%1, 3)"), std::string::npos) << text;
  EXPECT_NE(text.find("real(\"div(-1.5, float(s4))\")"), std::string::npos) << text;
  EXPECT_EQ(over_sizes(graph, {2, 3, bits}).str(), at_sizes(graph, {2, 3, bits}).str());
}

TEST(SizeConstants, AreReadBackAndCounted) {
  const char* text =
      "graph(%0: f32[3, 8] Primal 0, %1: i64[1] Sizes 0):\n"
      "  %2: f32[24] = aten.view(%0, [size(\"8*s0\")])\n"
      "  %3: f32[24] = aten.div.Tensor(%2, size(\"s0\"))\n"
      "  return (%3 Output 0)\n";
  const Graph graph = Graph::parse(text);
  graph.verify();
  expect_round_trip(graph);
  EXPECT_NE(graph.str().find("[size(\"8*s0\")]"), std::string::npos);
  EXPECT_THROW(Graph::parse("graph(%0: f32[3] Primal 0):\n"
                            "  %1: f32[3] = aten.view(%0, [size(\"t0\")])\n"
                            "  return (%1 Output 0)\n"),
               UserError);
}

}  // namespace size_expression_test
}  // namespace ahead
