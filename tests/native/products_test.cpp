#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/interpret.h"
#include "native/products/choose_products.h"
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

}  // namespace
}  // namespace ahead::native
