#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/compiled_autograd.h"
#include "support/eager.h"
#include "support/engine_check.h"

namespace ahead {
namespace views_test {

using test::expect_as_eager;
using test::expect_error_as_eager;
using test::expect_one_graph;
using Tensors = std::vector<at::Tensor>;

TEST(EngineViews, ChainOfViewsOfALeaf) {
  expect_one_graph([] {
    const at::Tensor x = leaf({2, 3, 4});
    x.permute({2, 0, 1}).reshape({4, 6}).t().view({6, 4}).select(1, 2).exp().sum().backward();
    return Tensors{x.grad()};
  });
}

TEST(EngineViews, SlicesOfOneLeafAddUp) {
  expect_one_graph([] {
    const at::Tensor x = leaf({8});
    (x.narrow(0, 0, 4) * x.narrow(0, 2, 4) + x.slice(0, 0, 8, 2).sin()).sum().backward();
    return Tensors{x.grad()};
  });
}

TEST(EngineViews, ExpandedGradientBecomesDense) {
  expect_one_graph([] {
    const at::Tensor x = leaf({3, 4}), y = leaf({3, 4});
    (x.sum() + y.t().sum()).backward();
    return Tensors{x.grad(), y.grad()};
  });
}

TEST(EngineViews, ExpandedLeafIsReduced) {
  expect_one_graph([] {
    const at::Tensor x = leaf({1, 4}), y = leaf({});
    (x.expand({5, 4}) * y.expand({5, 4}) * torch::randn({5, 4})).sum().backward();
    return Tensors{x.grad(), y.grad()};
  });
}

TEST(EngineViews, OverlappingStrides) {
  expect_one_graph([] {
    const at::Tensor x = leaf({6});
    (x.as_strided({4, 3}, {1, 1}) * torch::randn({4, 3})).sum().backward();
    return Tensors{x.grad()};
  });
}

TEST(EngineViews, WindowsAndDiagonals) {
  expect_one_graph([] {
    const at::Tensor x = leaf({5, 5});
    (x.unfold(0, 3, 1).exp().sum() + x.diagonal(1).pow(3).sum()).backward();
    return Tensors{x.grad()};
  });
}

TEST(EngineViews, SomeResultsOfASplitAreUsed) {
  expect_one_graph([] {
    const at::Tensor x = leaf({7, 2});
    const Tensors pieces = x.exp().split(3);
    (pieces[0].sin().sum() + pieces[2].sum()).backward();
    return Tensors{x.grad()};
  });
}

TEST(EngineViews, UnbindAndStack) {
  expect_one_graph([] {
    const at::Tensor x = leaf({3, 4});
    const Tensors rows = x.unbind();
    (torch::stack({rows[2], rows[0], rows[2]}) * torch::randn({3, 4})).sum().backward();
    return Tensors{x.grad()};
  });
}

TEST(EngineViews, ComplexAsPairsOfNumbers) {
  expect_as_eager([] {
    const at::Tensor x = leaf({3, 2});
    const at::Tensor z = torch::view_as_complex(x * 2);
    torch::view_as_real(z * z.conj() + z).pow(2).sum().backward();
    return Tensors{x.grad()};
  });
}

TEST(EngineViews, GradientsOfAnotherLayoutThanTheirTensor) {
  const auto stats = expect_as_eager([] {
    const at::Tensor x = leaf({3, 4});
    const at::Tensor y = x.exp();
    y.backward(torch::randn({4, 3}).t());
    return Tensors{x.grad()};
  });
  EXPECT_EQ(stats.captures, 1u);
}

TEST(EngineViews, ExpandedGradientOfTheRoot) {
  expect_as_eager([] {
    const at::Tensor x = leaf({3, 4}), given = torch::randn({1}).expand({3, 4});
    x.exp().backward(given);
    x.backward(given);
    return Tensors{x.grad(), given};
  });
}

TEST(EngineViews, RootsOfDifferentLayoutsAreDifferentParts) {
  bool is_transposed = false;
  const auto program = [&] {
    const at::Tensor x = leaf({3, 3});
    const at::Tensor given = torch::randn({3, 3});
    (x.exp() * 2).backward(is_transposed ? given.t() : given);
    return Tensors{x.grad()};
  };
  EXPECT_EQ(expect_as_eager(program).compiles, 1u);
  compiled_autograd::Enable on;
  is_transposed = true;
  program();
  EXPECT_EQ(compiled_autograd::stats().captures, 2u);
  EXPECT_EQ(compiled_autograd::stats().compiles, 2u);
  is_transposed = false;
  program();
  EXPECT_EQ(compiled_autograd::stats().compiles, 2u);
}

TEST(EngineViews, OffsetsOfSavedTensorsDoNotMatter) {
  compiled_autograd::reset();
  const at::Tensor all = torch::randn({4, 5});
  for (int64_t row = 0; row < 4; ++row) {
    const at::Tensor x = torch::ones({5}, torch::requires_grad());
    compiled_autograd::Enable on;
    (x * all[row]).sum().backward();
    EXPECT_TRUE(same_values(x.grad(), all[row]));
  }
  EXPECT_EQ(compiled_autograd::stats().captures, 1u);
  EXPECT_EQ(compiled_autograd::stats().compiles, 1u);
}

TEST(EngineViews, OffsetsOfStridedGradientsDo) {
  const at::Tensor all = torch::randn({4, 5});
  for (int64_t row = 0; row < 4; ++row) {
    const auto program = [&] {
      const at::Tensor x = leaf({9});
      x.as_strided({5}, {2}, 0).backward(all[row]);
      return Tensors{x.grad()};
    };
    expect_as_eager(program);
  }
}

TEST(EngineViews, ViewOfALeafIsWrittenUnderNoGrad) {
  expect_error_as_eager([] {
    const at::Tensor w = leaf({4});
    const at::Tensor loss = (w * w).sum();
    {
      at::NoGradGuard no_grad;
      w.narrow(0, 0, 2).mul_(2);
    }
    loss.backward();
    return Tensors{w.grad()};
  });
}

}  // namespace views_test
}  // namespace ahead
