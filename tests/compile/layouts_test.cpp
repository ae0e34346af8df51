#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "support/compiled_check.h"
#include "support/hits.h"

/// Results and gradients lie in memory as eager's do, whichever way kernels read them.
namespace ahead {
namespace layouts_test {

using Tensors = std::vector<at::Tensor>;

TEST(Layouts, ProductsWithZerosWhoseStridesNoElementFollows) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    const at::Tensor product = in[0] * at::zeros_like(in[0]);
    in[0].mul_(at::zeros_like(in[0]));
    return {product};
  };
  expect_compiled_like_eager(f, {at::randn({0, 1})});
  expect_compiled_like_eager(f, {at::empty_strided({2, 1, 2}, {1, 8, 2}).fill_(3)});
}

TEST(Layouts, MaxPool1dIsContiguousWhereNoGradientIsAskedFor) {
  const auto pool = [](const Tensors& in) -> Tensors { return {at::max_pool1d(in[0], 2, 1)}; };
  expect_compiled_like_eager(pool, {at::randn({2, 4, 5}).transpose(1, 2)});
  expect_compiled_like_eager(pool, {leaf({2, 4, 5}).transpose(1, 2)});
}

/// LibTorch chooses the product for a gradient by strides.
TEST(Layouts, ExpandedNumberHasNoStride) {
  const auto f = [](const Tensors& in) -> Tensors {
    const at::Tensor row = in[0].expand({1});
    return {row, row * 2, row.matmul(in[1].t())};
  };
  expect_compiled_like_eager(f, {leaf({}), at::randn({2, 1})});
  auto compiled = compiled_by_call(aot::FlatFunction(f), {.fullgraph = true},
                                   Tensors{leaf({}), at::randn({2, 1})});
  const Tensors results = compiled(Tensors{leaf({}), at::randn({2, 1})});
  expect_hits(compiled);
  EXPECT_EQ(results[0].strides(), at::IntArrayRef({0}));
}

TEST(Layouts, GradientsThatLieOtherwiseWhereOneOutputIsDifferentiated) {
  // Both read the memory of the gradient, which lies by columns if it stems from one output only.
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        const at::Tensor y = at::group_norm(in[0], 2, in[1], in[2]);
        return {y, in[3] * y.transpose(1, 2)};
      },
      {leaf({2, 4, 3}), leaf({4}), leaf({4}), at::randn({2, 3, 4})});
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        const at::Tensor y = at::_weight_norm(in[0], in[1], 0);
        return {y, in[2] * y.t()};
      },
      {leaf({4, 3}), leaf({4, 1}), at::randn({3, 4})});
}

TEST(Layouts, GradientsThatComeInExpanded) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        return {at::batch_norm(in[0], in[1], {}, {}, {}, /*training=*/true, 0.1, 1e-5, false),
                at::linear(in[0].flatten(1), in[2]).t()};
      },
      {leaf({4, 3, 5}), leaf({3}), leaf({7, 15})});
}

TEST(Layouts, ExpandedGradientsForKernelsThatReadTheirMemory) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        return {at::group_norm(in[0], 2, in[1]), at::group_norm(in[2], 2, in[1]),
                at::_weight_norm(in[3], in[4], 0)};
      },
      {leaf({2, 4, 3}), leaf({4}),
       at::randn({2, 4, 3, 3}).to(at::MemoryFormat::ChannelsLast).requires_grad_(), leaf({4, 3}),
       leaf({4, 1})});
}

TEST(Layouts, GradientOfAnotherLayoutWhereNumbersAreAdded) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        return {at::addcdiv(in[1], in[1], at::square(in[0]) + 1, 2)};
      },
      {at::randn({1, 4, 4}).permute({2, 1, 0}), leaf({})});
}

TEST(Layouts, TransposedGradientThatIsReachedByWhereItLies) {
  const auto f = [](const Tensors& in) -> Tensors {
    return {in[0].as_strided({3, 2}, {2, 1}) * 1};
  };
  auto compiled =
      compiled_by_call(aot::FlatFunction(f), {.fullgraph = true}, Tensors{leaf({2, 3})});
  const at::Tensor x = leaf({2, 3}), gradient = at::randn({2, 3}).t();
  compiled(Tensors{x})[0].backward(gradient);
  expect_hits(compiled);
  EXPECT_TRUE(at::equal(x.grad(), gradient.reshape({2, 3})));
}

}  // namespace layouts_test
}  // namespace ahead
