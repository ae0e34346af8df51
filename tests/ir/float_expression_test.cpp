#include "ir/sizes/float_expression.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "ahead/errors.h"
#include "ahead/graph.h"
#include "ahead/interpret.h"
#include "ir/sizes/expression_node.h"
#include "ir/sizes/size_guards.h"
#include "support/round_trip.h"

namespace ahead {
namespace float_expression_test {

int64_t bits_of(double number) {
  int64_t bits;
  std::memcpy(&bits, &number, sizeof(bits));
  return bits;
}

const SizeExpression s0 = SizeExpression::symbol(0);
const FloatExpression f1 = FloatExpression::symbol(1);

TEST(FloatExpressions, RoundStepByStep) {
  const FloatExpression third = FloatExpression(1) / FloatExpression::of(s0 * 3);
  const FloatExpression sum = third + third + third - f1 * third;
  const double x = 1.0 / 21.0;
  EXPECT_EQ(sum.evaluate({7, bits_of(0.1)}), x + x + x - 0.1 * x);
  EXPECT_EQ(sum.evaluate({7}), std::nullopt);
  EXPECT_EQ((FloatExpression(1) / FloatExpression::of(s0)).evaluate({0}),
            std::numeric_limits<double>::infinity());
}

TEST(FloatExpressions, AreConstantsWhereNothingChanges) {
  EXPECT_EQ((FloatExpression(3) - FloatExpression::of(1)).constant(), 2.0);
  EXPECT_FALSE((FloatExpression(3) - f1).constant());
}

TEST(FloatExpressions, ReadWhatTheyPrint) {
  const FloatExpression expression =
      FloatExpression(2) / (FloatExpression::of(s0 * s0.floor_divided_by(4)) - f1) * 0.1 + -1e-300;
  const auto read = FloatExpression::parse(expression.str());
  ASSERT_TRUE(read) << expression.str();
  EXPECT_EQ(read->str(), expression.str());
  EXPECT_EQ(read->evaluate({9, bits_of(0.3)}), expression.evaluate({9, bits_of(0.3)}));
  for (const char* text : {"", "f", "g1", "float(s0", "float(t0)", "add(f1)", "add(f1, 2", "2 3"})
    EXPECT_FALSE(FloatExpression::parse(text)) << text;
}

TEST(FloatExpressions, NameTheSizesTheyAreMadeOf) {
  std::vector<uint32_t> symbols;
  (FloatExpression::of(s0) * f1).add_symbols(symbols);
  EXPECT_EQ(symbols, (std::vector<uint32_t>{0, 1}));
}

TEST(FloatNodes, NoteWhatIsDecided) {
  const auto guards = std::make_shared<SizeGuards>(std::vector<int64_t>{5, bits_of(2.5)});
  const c10::SymFloat size = FloatNode::make(FloatExpression::of(s0), guards);
  const c10::SymFloat number = FloatNode::make(f1, guards);
  EXPECT_TRUE(size > number);
  EXPECT_TRUE((size / 2.0).sym_le(number).guard_bool(__FILE__, __LINE__));
  EXPECT_TRUE(guards->pinned().empty());
  EXPECT_TRUE(guards->hold({3, bits_of(1.5)}));
  EXPECT_FALSE(guards->hold({3, bits_of(3.5)}));
  EXPECT_FALSE(guards->hold({3, bits_of(1.0)})) << "the half was equal";
  EXPECT_FALSE(guards->hold({3, bits_of(std::nan(""))}));
}

TEST(FloatNodes, PinTheSizesOfWhatIsAskedFor) {
  const auto guards = std::make_shared<SizeGuards>(std::vector<int64_t>{5, bits_of(0.0)});
  const c10::SymFloat number = FloatNode::make(f1, guards);
  EXPECT_EQ(number.guard_float(__FILE__, __LINE__), 0.0);
  EXPECT_TRUE(guards->hold({7, bits_of(0.0)}));
  EXPECT_FALSE(guards->hold({7, bits_of(-0.0)}));
  EXPECT_TRUE(guards->is_of_use({4, bits_of(1.0)})) << "the other size may change";
  guards->pin(s0, "a test");
  EXPECT_FALSE(guards->is_of_use({4, bits_of(1.0)}));
}

TEST(FloatNodes, AreConstantsOfGraphs) {
  const Graph graph = Graph::parse(
      "graph(%0: f32[24] Primal 0, %1: i64[2] Sizes 0):\n"
      "  %2: f32[24] = aten.mul.Tensor(%0, real(\"div(2, sub(float(8*s0), f1))\"))\n"
      "  return (%2 Output 0)\n");
  graph.verify();
  expect_round_trip(graph);
  const at::Tensor x = torch::randn({24}), sizes = torch::tensor({int64_t{3}, bits_of(0.5)});
  EXPECT_TRUE(at::equal(interpret(graph, {x, sizes})[0], x * (2 / (24 - 0.5))));
  EXPECT_THROW(Graph::parse("graph(%0: f32[3] Primal 0):\n"
                            "  %1: f32[3] = aten.mul.Tensor(%0, real(\"g0\"))\n"
                            "  return (%1 Output 0)\n"),
               UserError);
}

}  // namespace float_expression_test
}  // namespace ahead
