#include <gtest/gtest.h>

#include "support/like_eager.h"

/// Programs that the fuzzer found to differ from eager mode, made small.
namespace {

using at::Tensor;
using Tensors = std::vector<at::Tensor>;

Tensor computed(at::IntArrayRef sizes) {
  return (at::randn(sizes, at::make_generator<at::CPUGeneratorImpl>(5)).requires_grad_() * 1);
}

}  // namespace

TEST(TraceRegressions, GradientByCapturedTensorThatIsNoLeaf) {
  expect_like_eager([] {
    const Tensor x = computed({3});
    const auto function = [x](const Tensors&) -> Tensors {
      const Tensor y = (x * x * x).sum();
      return torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true);
    };
    return Scene{function, {}, {x}, {}};
  });
}

TEST(TraceRegressions, GradientByLeafThatCapturedTensorWasMadeFrom) {
  const Tensor leaf = at::full({3}, 2.0).requires_grad_();
  const Tensor x = leaf * 3;
  const auto function = [=](const Tensors&) -> Tensors {
    return torch::autograd::grad({(x * x).sum()}, {leaf}, {}, /*retain_graph=*/true);
  };
  const ahead::Graph graph = ahead::trace(function, {});
  const Tensors results = ahead::interpret(graph, {});
  EXPECT_TRUE(at::equal(results[0], at::full({3}, 36.0)));
}

TEST(TraceRegressions, RefusesToWriteToTensorsThatOverlapThemselves) {
  const auto function = [](const Tensors& in) -> Tensors { return {in[0].tril_()}; };
  EXPECT_THROW(ahead::trace(function, {at::zeros({1, 2}).expand({2, 2})}), ahead::Unsupported);
  const auto windows = [](const Tensors& in) -> Tensors {
    in[0].unfold(0, 2, 1).mul_(2);
    return {};
  };
  EXPECT_THROW(ahead::trace(windows, {at::zeros({4})}), ahead::Unsupported);
}

TEST(TraceRegressions, KernelsThatAskForRequiresGrad) {
  expect_like_eager([] {
    const Tensor leaf = at::arange(4.0).view({2, 2}).t().clone().requires_grad_();
    const auto function = [](const Tensors& in) -> Tensors {
      in[0].fill_diagonal_(3);
      return {};
    };
    return Scene{function, {as_non_leaf(leaf)}, {}, {leaf}};
  });
}
