#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/interpret.h"
#include "native/products/choose_products.h"
#include "native/products/merge_products.h"
#include "native/products/multiply.h"

namespace ahead::native {
namespace {

using at::Tensor;

bool has_one_dnn() {
  return at::globalContext().userEnabledMkldnn() &&
         Operator::find("mkldnn._linear_pointwise") != nullptr;
}

/// A batch of matrices that lie by rows or by columns.
Tensor batch(int64_t rows, int64_t columns, bool by_columns) {
  return by_columns ? torch::randn({3, columns, rows}).transpose(1, 2)
                    : torch::randn({3, rows, columns});
}

TEST(Products, BatchesAreMultipliedHoweverTheyLie) {
  if (!has_one_dnn()) GTEST_SKIP() << "this LibTorch was built without oneDNN";
  torch::manual_seed(0);
  ASSERT_GE(192 * 128 * 96, fewest_in_batches);
  for (const bool left_by_columns : {false, true}) {
    for (const bool right_by_columns : {false, true}) {
      const Tensor left = batch(192, 128, left_by_columns),
                   right = batch(128, 96, right_by_columns);
      const Tensor expected = torch::bmm(left, right);
      for (const Multiplier multiplier : {Multiplier::ATen, Multiplier::OneDnn}) {
        const Tensor whole = torch::full({5, 192, 96}, 7.0);
        multiply_batches(whole.narrow(0, 1, 3), left, right, multiplier);
        EXPECT_TRUE(torch::allclose(whole.narrow(0, 1, 3), expected, 1e-4, 1e-4));
        EXPECT_TRUE(torch::equal(whole[0], torch::full({192, 96}, 7.0)));
        EXPECT_TRUE(torch::equal(whole[4], torch::full({192, 96}, 7.0)));
      }
    }
  }
}

size_t count(const Graph& graph, const char* name) {
  size_t found = 0;
  for (const Node& node : graph.nodes()) found += node.op().name() == name ? 1 : 0;
  return found;
}

TEST(Products, ABatchOfOneMatrixIsAMatrix) {
  if (!has_one_dnn()) GTEST_SKIP() << "this LibTorch was built without oneDNN";
  torch::manual_seed(0);
  const Graph graph = Graph::parse(R"(
graph(%0: f32[1, 256, 64] Primal 0, %1: f32[1, 64, 256]{16384, 1, 64} Primal 1, %2: f32[1, 64, 8] Primal 2):
  %3: f32[1, 256, 256] = aten.bmm(%0, %1)
  %4: f32[1, 256, 8] = aten.bmm(%0, %2)
  return (%3 Output 0, %4 Output 1)
)");
  Graph chosen(graph);
  EXPECT_EQ(choose_products(chosen, Multiplier::OneDnn), 1u);
  chosen.verify();
  EXPECT_EQ(count(chosen, "mkldnn._linear_pointwise"), 1u);
  EXPECT_EQ(count(chosen, "aten.bmm"), 1u);  // the small one
  const std::vector<Tensor> arguments = {torch::randn({1, 256, 64}),
                                         torch::randn({1, 256, 64}).transpose(1, 2),
                                         torch::randn({1, 64, 8})};
  const std::vector<Tensor> expected = interpret(graph, arguments),
                            actual = interpret(chosen, arguments);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(actual[i].strides(), expected[i].strides());
    EXPECT_TRUE(torch::allclose(actual[i], expected[i], 1e-4, 1e-4));
  }
}

/// The gradients of two weights of a loop over time, as a backward adds them up, the last time
/// first, or in the order of time.
std::string gradients_of_a_loop(bool goes_back) {
  std::string inputs = "graph(%0: f32[4, 2, 16] Primal 0", nodes;
  int next = 9;
  for (int i = 1; i < 9; ++i)
    inputs += ", %" + std::to_string(i) + ": f32[2, 16] Primal " + std::to_string(i);
  const auto name = [](int value) { return "%" + std::to_string(value); };
  const auto node = [&](const std::string& meta, const std::string& call) {
    nodes += "  " + name(next) + ": " + meta + " = " + call + "\n";
    return next++;
  };
  int sums[2] = {-1, -1};
  for (int step = 0; step < 4; ++step) {
    const int time = goes_back ? 3 - step : step;
    const std::string offset = time == 0 ? "" : "+" + std::to_string(32 * time);
    const int x =
        node("f32[2, 16]" + offset, "aten.select.int(%0, 0, " + std::to_string(time) + ")");
    for (int weight = 0; weight < 2; ++weight) {
      const std::string left = name(weight == 0 ? x : 1 + time);
      const int turned = node("f32[16, 2]{1, 16}" + (weight == 0 ? offset : ""),
                              "aten.t(" + left + ")");
      const int product =
          node("f32[16, 16]", "aten.mm(" + name(turned) + ", " + name(5 + time) + ")");
      int& sum = sums[weight];
      sum = sum < 0 ? product
                    : node("f32[16, 16]",
                           "aten.add.Tensor(" + name(sum) + ", " + name(product) + ", 1)");
    }
  }
  return inputs + "):\n" + nodes + "  return (" + name(sums[0]) + " Output 0, " + name(sums[1]) +
         " Output 1)\n";
}

/// What lies one below the other in one tensor is not copied, and what two products share is copied
/// once.
TEST(Products, MergedProductsOfALoopCopyLittle) {
  torch::manual_seed(0);
  for (const bool goes_back : {true, false}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      std::string text = gradients_of_a_loop(goes_back);
      for (size_t at = 0; dtype == at::kDouble && (at = text.find("f32", at)) != text.npos; ++at)
        text.replace(at, 3, "f64");
      const Graph graph = Graph::parse(text);
      Graph merged(graph);
      EXPECT_EQ(merge_products(merged), 6u);
      merged.verify();
      EXPECT_EQ(count(merged, "aten.mm"), 2u);
      EXPECT_EQ(count(merged, "aten.cat"), 2u) << merged.str();
      std::vector<Tensor> arguments = {torch::randn({4, 2, 16}, dtype)};
      for (int i = 0; i < 8; ++i) arguments.push_back(torch::randn({2, 16}, dtype));
      const std::vector<Tensor> expected = interpret(graph, arguments),
                                actual = interpret(merged, arguments);
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_TRUE(torch::allclose(actual[i], expected[i], 1e-5, 1e-5));
    }
  }
}

}  // namespace
}  // namespace ahead::native
