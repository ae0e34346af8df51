#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/compiled_autograd.h"
#include "support/autograd_hooks.h"
#include "support/engine_check.h"

namespace ahead {
namespace accumulation_test {

using test::expect_as_eager;
using test::expect_error_as_eager;
using Tensors = std::vector<at::Tensor>;

at::Tensor channels_last(at::IntArrayRef sizes) {
  return torch::randn(sizes).contiguous(at::MemoryFormat::ChannelsLast).requires_grad_();
}

TEST(EngineAccumulation, EveryPairOfLayouts) {
  const std::vector<std::function<at::Tensor(const at::Tensor&)>> layouts = {
      [](const at::Tensor& t) { return t.contiguous(); },
      [](const at::Tensor& t) { return t.contiguous(at::MemoryFormat::ChannelsLast); },
      [](const at::Tensor& t) { return t.transpose(2, 3).contiguous().transpose(2, 3); },
      [](const at::Tensor& t) {
        return torch::cat({t, t}, 3).slice(3, 0, 4);
      }};
  for (size_t of_leaf = 0; of_leaf < layouts.size(); ++of_leaf) {
    for (size_t of_grad = 0; of_grad < layouts.size(); ++of_grad) {
      SCOPED_TRACE(std::to_string(of_leaf) + " " + std::to_string(of_grad));
      expect_as_eager([&] {
        const at::Tensor x = layouts[of_leaf](torch::randn({2, 3, 4, 4})).detach().requires_grad_();
        x.backward(layouts[of_grad](torch::randn({2, 3, 4, 4})));
        const at::Tensor first = x.grad().clone(at::MemoryFormat::Preserve);
        x.backward(layouts[of_grad](torch::randn({2, 3, 4, 4})));
        return Tensors{first, x.grad()};
      });
    }
  }
}

TEST(EngineAccumulation, ConvolutionInChannelsLast) {
  expect_as_eager([] {
    const at::Tensor image = channels_last({2, 3, 6, 6}), filter = channels_last({4, 3, 3, 3});
    for (int i = 0; i < 2; ++i) torch::conv2d(image, filter).relu().mean().backward();
    return Tensors{image.grad(), filter.grad()};
  });
}

TEST(EngineAccumulation, ExpandedGradIsReplacedOrAddedTo) {
  expect_as_eager([] {
    const at::Tensor x = leaf({3});
    x.sum().backward();
    const at::Tensor strides = torch::tensor(x.grad().strides());
    x.sum().backward();
    return Tensors{x.grad(), strides};
  });
}

TEST(EngineAccumulation, GradThatSomebodyElseHoldsIsAddedToInPlace) {
  expect_as_eager([] {
    const at::Tensor x = leaf({3});
    x.exp().sum().backward();
    const at::Tensor held = x.grad();
    x.sin().sum().backward();
    return Tensors{x.grad(), held, torch::tensor(held.is_same(x.grad()))};
  });
}

TEST(EngineAccumulation, GradIsAViewOfOneBuffer) {
  const auto stats = expect_as_eager([] {
    const at::Tensor flat = torch::zeros({10}), x = leaf({4}), y = leaf({2, 3});
    x.mutable_grad() = flat.narrow(0, 0, 4);
    y.mutable_grad() = flat.narrow(0, 4, 6).view({2, 3});
    for (int i = 0; i < 2; ++i) (x.exp().sum() * y.sin()).sum().backward();
    return Tensors{flat};
  });
  EXPECT_EQ(stats.captures, 1u);
}

TEST(EngineAccumulation, GradSharedByTwoLeaves) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4}), y = leaf({4}), grad = torch::zeros({4});
    x.mutable_grad() = grad;
    y.mutable_grad() = grad;
    (x.exp() * y).sum().backward();
    return Tensors{grad};
  });
}

TEST(EngineAccumulation, LeavesThatAreViewsOfEachOther) {
  expect_as_eager([] {
    const at::Tensor flat = torch::randn({6});
    const at::Tensor x = flat.narrow(0, 0, 4).detach().requires_grad_();
    const at::Tensor y = flat.narrow(0, 2, 4).detach().requires_grad_();
    (x * y).sum().backward();
    return Tensors{x.grad(), y.grad()};
  });
}

TEST(EngineAccumulation, LowPrecisionAndMixedDtypes) {
  expect_as_eager([] {
    const at::Tensor x = torch::randn({8}, at::kBFloat16).requires_grad_();
    const at::Tensor y = torch::randn({8}, at::kHalf).requires_grad_();
    const at::Tensor z = torch::randn({8}, at::kDouble).requires_grad_();
    for (int i = 0; i < 3; ++i) {
      (x.to(at::kFloat).exp() * y.to(at::kFloat) + z.to(at::kFloat) * x).sum().backward();
    }
    return Tensors{x.grad(), y.grad(), z.grad()};
  });
}

TEST(EngineAccumulation, ComplexLeavesAndLazyConjugates) {
  expect_as_eager([] {
    const auto complex = torch::dtype(at::kComplexDouble);
    const at::Tensor x = torch::randn({4}, complex).requires_grad_();
    const at::Tensor y = torch::randn({4}, complex).requires_grad_();
    x.backward(torch::randn({4}, complex).conj());
    (x.conj() * y).backward(torch::randn({4}, complex).conj());
    at::real(x * x.conj() + y.exp()).sum().backward();
    return Tensors{x.grad().resolve_conj(), y.grad().resolve_conj()};
  });
}

TEST(EngineAccumulation, RealLeafOfComplexComputations) {
  expect_as_eager([] {
    const at::Tensor x = leaf({5});
    const at::Tensor spectrum = torch::fft::rfft(x * 2);
    (torch::fft::irfft(spectrum * spectrum.conj(), 5) * x).sum().backward();
    return Tensors{x.grad()};
  });
}

TEST(EngineAccumulation, ImaginaryPartsGiveNegatedViews) {
  expect_as_eager([] {
    const at::Tensor x = torch::randn({4}, at::kComplexFloat).requires_grad_();
    (at::imag(x.conj()) * at::real(x)).sum().backward();
    return Tensors{x.grad().resolve_conj().resolve_neg()};
  });
}

TEST(EngineAccumulation, SparseGradientsOfTwoTables) {
  expect_as_eager([] {
    torch::nn::Embedding a(torch::nn::EmbeddingOptions(6, 3).sparse(true));
    torch::nn::Embedding b(torch::nn::EmbeddingOptions(5, 3));
    for (int i = 0; i < 3; ++i) {
      const at::Tensor rows = torch::randint(0, 5, {4});
      (a->forward(rows) * b->forward(rows)).sin().sum().backward();
    }
    return Tensors{a->weight.grad(), b->weight.grad()};
  });
}

TEST(EngineAccumulation, SparseGradReplacedByDenseAndBack) {
  expect_as_eager([] {
    const at::Tensor table = leaf({6, 3});
    const at::Tensor rows = torch::tensor({1, 4, 1});
    table.exp().sum().backward();
    torch::embedding(table, rows, -1, false, /*sparse=*/true).sum().backward();
    const at::Tensor mixed = table.grad().clone();
    table.mutable_grad().reset();
    torch::embedding(table, rows, -1, false, /*sparse=*/true).sum().backward();
    return Tensors{mixed, table.grad()};
  });
}

TEST(EngineAccumulation, SparseMatrixTimesDense) {
  expect_as_eager([] {
    const at::Tensor sparse = torch::eye(4).to_sparse().requires_grad_();
    const at::Tensor dense = leaf({4, 2});
    at::_sparse_sum(sparse * 2).backward();
    sparse.mm(dense.exp()).sum().backward();
    return Tensors{sparse.grad().to_dense(), dense.grad()};
  });
}

TEST(EngineAccumulation, SharedLayersOfANet) {
  const auto stats = expect_as_eager([] {
    torch::nn::Linear shared(4, 4), last(4, 1);
    at::Tensor h = torch::randn({3, 4});
    for (int i = 0; i < 5; ++i) h = shared->forward(h).tanh();
    last->forward(h).sum().backward();
    Tensors grads = test::grads_of(*shared);
    for (const at::Tensor& grad : test::grads_of(*last)) grads.push_back(grad);
    return grads;
  });
  EXPECT_EQ(stats.captures, 1u);
  EXPECT_EQ(stats.compiles, 1u);
}

TEST(EngineAccumulation, WrongSizeOfAnExistingGradThrowsAsEager) {
  expect_error_as_eager([] {
    const at::Tensor x = leaf({4});
    (x * x).sum().backward();
    at::NoGradGuard no_grad;
    x.mutable_grad().resize_({2});
    at::AutoGradMode on(true);
    (x * x).sum().backward();
    return Tensors{x.grad()};
  });
}

TEST(EngineAccumulation, ExistingGradThatRequiresGrad) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4});
    const at::Tensor first =
        torch::autograd::grad({x.pow(3).sum()}, {x}, {}, true, /*create_graph=*/true)[0];
    x.mutable_grad() = first;
    x.exp().sum().backward();
    return Tensors{x.grad().detach()};
  });
}

TEST(EngineAccumulation, EmptyTensors) {
  expect_as_eager([] {
    const at::Tensor x = leaf({0, 3}), w = leaf({3, 2}), s = leaf({});
    (x.mm(w).sum() + s * s).backward();
    return Tensors{x.grad(), w.grad(), s.grad()};
  });
}

TEST(EngineAccumulation, ParametersFrozenInTurn) {
  const auto stats = expect_as_eager([] {
    torch::nn::Linear a(3, 3), b(3, 3);
    for (int i = 0; i < 4; ++i) {
      for (at::Tensor& p : a->parameters()) p.requires_grad_(i % 2 == 0);
      b->forward(a->forward(torch::randn({2, 3})).relu()).sum().backward();
    }
    Tensors grads = test::grads_of(*a);
    for (const at::Tensor& grad : test::grads_of(*b)) grads.push_back(grad);
    return grads;
  });
  EXPECT_EQ(stats.captures, 3u);
}

}  // namespace accumulation_test
}  // namespace ahead
