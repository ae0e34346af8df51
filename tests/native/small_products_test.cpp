#include <gtest/gtest.h>
#include <torch/torch.h>

#include "native/like_eager.h"

namespace ahead::native {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using test::expect_like_eager;

/// A matrix that lies by rows, by columns, or with gaps.
enum class Lies { ByRows, ByColumns, WithGaps };

Tensor matrix(int64_t rows, int64_t columns, Lies how, at::ScalarType dtype) {
  const Tensor dense = torch::randn(
      {how == Lies::WithGaps ? 2 * rows : rows, how == Lies::WithGaps ? columns + 3 : columns},
      at::kDouble);
  const Tensor own = dense.to(dtype);
  if (how == Lies::ByColumns) return own.t().contiguous().t();
  return how == Lies::WithGaps ? own.slice(0, 0, 2 * rows, 2).slice(1, 2, columns + 2) : own;
}

struct ProductSizes {
  int64_t rows, inner, columns;
};

class SmallProducts : public testing::TestWithParam<ProductSizes> {};

/// In kernels, with what is done before and after, and the gradients of both operands.
TEST_P(SmallProducts, LikeEager) {
  const auto [rows, inner, columns] = GetParam();
  for (const auto& [left, right] : {std::pair{Lies::ByRows, Lies::ByRows},
                                    {Lies::ByRows, Lies::ByColumns},
                                    {Lies::ByColumns, Lies::WithGaps}}) {
    SCOPED_TRACE(static_cast<int>(left) * 10 + static_cast<int>(right));
    torch::manual_seed(3);
    const std::string graphs = expect_like_eager(
        [](const Tensors& in) {
          const Tensor product = torch::mm(torch::tanh(in[0]) * 2, in[1]);
          return Tensors{torch::relu(product) * 3, torch::mm(in[0], in[1])};
        },
        [&, rows = rows, inner = inner, columns = columns, left = left, right = right] {
          return Tensors{matrix(rows, inner, left, at::kFloat),
                         matrix(inner, columns, right, at::kFloat)};
        });
    EXPECT_EQ(graphs.find("left aten.mm"), std::string::npos) << graphs;
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, SmallProducts,
                         testing::Values(ProductSizes{33, 2, 48}, ProductSizes{33, 48, 2},
                                         ProductSizes{3, 48, 33}, ProductSizes{40, 1, 7},
                                         ProductSizes{40, 7, 1}, ProductSizes{1, 40, 7},
                                         ProductSizes{1, 19, 1}, ProductSizes{4, 4, 4},
                                         ProductSizes{1, 1, 1}, ProductSizes{2, 3, 17},
                                         ProductSizes{3, 80, 64}, ProductSizes{64, 80, 3}),
                         [](const auto& info) {
                           const ProductSizes& sizes = info.param;
                           return "R" + std::to_string(sizes.rows) + "I" +
                                  std::to_string(sizes.inner) + "C" + std::to_string(sizes.columns);
                         });

TEST(SmallProductsOf, OtherDtypes) {
  for (const at::ScalarType dtype : {at::kDouble, at::kBFloat16, at::kHalf}) {
    SCOPED_TRACE(c10::toString(dtype));
    for (const auto& [rows, inner, columns] :
         {ProductSizes{9, 3, 20}, ProductSizes{9, 20, 3}, ProductSizes{2, 20, 9}}) {
      torch::manual_seed(4);
      expect_like_eager(
          [](const Tensors& in) {
            return Tensors{torch::mm(in[0], in[1]) * 2, torch::tanh(torch::mm(in[0], in[1]))};
          },
          [&, rows = rows, inner = inner, columns = columns] {
            return Tensors{matrix(rows, inner, Lies::ByRows, dtype),
                           matrix(inner, columns, Lies::ByRows, dtype)};
          });
    }
  }
}

/// Whole numbers are ATen's, as are factors.
TEST(SmallProductsOf, SumsWithABias) {
  for (const std::vector<int64_t>& bias :
       {std::vector<int64_t>{5}, {1}, {12, 1}, {12, 5}}) {
    SCOPED_TRACE(bias);
    for (const int64_t inner : {3, 30}) {
      torch::manual_seed(5);
      expect_like_eager(
          [](const Tensors& in) {
            const Tensor few = torch::addmm(in[2].slice(-1, 0, 1), in[0], in[1].slice(1, 0, 1));
            return Tensors{torch::tanh(torch::addmm(in[2], in[0], in[1])) * 2, few * 3,
                           torch::addmm(in[2], in[0], in[1], 0.5, 2) * 3};
          },
          [&] {
            return Tensors{torch::randn({12, inner}), torch::randn({inner, 5}), torch::randn(bias)};
          });
    }
  }
}

/// A result that is written place by place is read when all are there.
TEST(SmallProductsOf, ResultsInPartsAreReadAsViews) {
  torch::manual_seed(6);
  expect_like_eager(
      [](const Tensors& in) {
        const Tensor y = torch::mm(torch::tanh(in[0]), in[1]);  // two columns
        const Tensor x = torch::mm(in[2], torch::tanh(in[0]));  // three rows
        return Tensors{y.select(1, 0) * 2 + y.select(1, 1), y.t() * 3, x[1] * 2,
                       (x.view({3, 2, 12}) * 2).sum(1)};
      },
      [] {
        return Tensors{torch::randn({30, 24}), torch::randn({24, 2}), torch::randn({3, 30})};
      });
}

/// The short operand is copied anew behind a write.
TEST(SmallProductsOf, OperandsThatChange) {
  torch::manual_seed(7);
  expect_like_eager(
      [](const Tensors& in) {
        const Tensor w = in[1] * 1.5;
        const Tensor before = torch::mm(in[0].detach(), w.t());
        w.mul_(2);
        return Tensors{torch::tanh(before), torch::tanh(torch::mm(in[0].detach(), w.t()))};
      },
      [] { return Tensors{torch::randn({30, 2}), torch::randn({24, 2})}; });
}

/// The heat equation's network: a product with two inputs, one with one output, and all their
/// gradients are in kernels.
TEST(SmallProductsOf, ANetworkWithTwoInputsAndOneOutput) {
  torch::manual_seed(8);
  const std::string graphs = expect_like_eager(
      [](const Tensors& in) {
        const Tensor hidden = torch::tanh(torch::linear(in[0], in[1], in[2]));
        return Tensors{torch::linear(hidden, in[3], in[4]).pow(2).mean()};
      },
      [] {
        return Tensors{torch::randn({200, 2}), torch::randn({32, 2}), torch::randn({32}),
                       torch::randn({1, 32}), torch::randn({1})};
      });
  EXPECT_EQ(graphs.find("left aten.mm"), std::string::npos) << graphs;
  EXPECT_EQ(graphs.find("left aten.addmm"), std::string::npos) << graphs;
}

/// A gradient begins with a tensor of ones, which kernels know: nobody makes it, nor what it was made
/// like.
TEST(SmallProductsOf, WhatIsFullOfANumberIsPartOfTheFormula) {
  torch::manual_seed(9);
  auto step = ahead::compile(
      [](const Tensor& x, const Tensor& w) {
        const Tensor y = torch::mm(torch::tanh(x), w);
        const Tensor dx = torch::autograd::grad({y.sum()}, {x}, {}, true, true)[0];
        return (dx * x).sum();
      },
      {.backend = "native", .fullgraph = true});
  const Tensor w = torch::randn({6, 3}).requires_grad_();
  for (int call = 0; call < 4; ++call) {
    const Tensor x = torch::randn({20, 6}).requires_grad_();
    const Tensor expected = (w.sum(1) * (1 - torch::tanh(x).square()) * x).sum();
    const Tensor actual = step(x, w);
    EXPECT_TRUE(torch::allclose(actual, expected, 1e-4, 1e-5));
    const Tensor expected_gradient = torch::autograd::grad({expected}, {w})[0];
    const Tensor gradient = torch::autograd::grad({actual}, {w})[0];
    EXPECT_TRUE(torch::allclose(gradient, expected_gradient, 1e-4, 1e-5));
  }
  EXPECT_EQ(step.stats().eager_calls, 0u);
  EXPECT_GT(step.stats().cache_hits, 0u);
  std::string forward;
  for (const Program& program : step.programs())
    if (program.name == "backend.forward") forward = program.str();
  EXPECT_EQ(forward.find("aten.ones_like"), std::string::npos) << forward;
}

}  // namespace
}  // namespace ahead::native
