#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "support/compiled_check.h"
#include "support/hits.h"

/// Writes to results, to arguments that share memory, and to views of leaves.
namespace ahead {
namespace writes_test {

using Tensors = std::vector<at::Tensor>;

TEST(Writes, ResultThatWasWrittenToAndIsSaved) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        at::Tensor y = in[0] * in[0];
        return {at::elu_(y)};
      },
      {leaf({3})});
}

/// Makes tensors of another shape where memory was freed just now.
void take_freed_memory(const at::Tensor& like) {
  const at::Tensor other = like.new_ones({7, 7, 7});
  const at::Tensor another = other * 2;
}

TEST(Writes, SizesThatAreReferredToAfterAWrite) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        const at::Tensor y = in[0] * 1;
        const at::IntArrayRef sizes = y.sizes();
        y.add_(1);
        take_freed_memory(y);
        return {y.view(sizes) * 2};
      },
      {at::randn({2, 3, 4})});
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        const at::Tensor y = in[0] * 1, view = y.view({6, 4});
        const at::IntArrayRef sizes = y.sizes(), sizes_of_view = view.sizes();
        y[0].add_(1);
        take_freed_memory(y);
        take_freed_memory(view);
        return {y * at::ones(sizes), view * at::ones(sizes_of_view)};
      },
      {at::randn({2, 3, 4})});
  // LibTorch's own gradients do so, too.
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors { return {at::fft_irfft(at::fft_rfft(in[0]))}; },
      {leaf({2, 3, 4})});
}

TEST(Writes, WithoutGradModeToAViewOfALeaf) {
  const auto f = [](const Tensors& in) -> Tensors {
    at::NoGradGuard no_grad;
    in[0].mul_(2);
    return {};
  };
  expect_compiled_like_eager(f, [] {
    const at::Tensor x = at::randn({3}).requires_grad_();
    return CallInputs{{x.view({3})}, {x}};
  });
}

TEST(Writes, ViewsOfAnExpandedArgumentBesideWrites) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    const at::Tensor y = in[1] * 3 + in[0].transpose(-1, 1) + in[3];
    in[2].fill_(0);
    return {y};
  };
  auto compiled = compile(f, {.confirm = 0});
  const at::Tensor tangent = at::randn({2, 2, 1});
  const auto gradient = [&](auto& function) {
    const at::Tensor x = at::ones({1, 1, 2}).expand({2, 1, 2}).detach().requires_grad_();
    const at::Tensor written = at::ones({}, at::kLong);
    const Tensors results = function(Tensors{x, x.transpose(-1, 1), written, written.detach()});
    (results[0] * tangent).sum().backward();
    return x.grad();
  };
  for (int call = 0; call < 3; ++call)
    EXPECT_TRUE(at::equal(gradient(f), gradient(compiled))) << call;
  expect_runs_eagerly(compiled);
}

TEST(Writes, OneTensorTwiceBesideOthersThatShareMemory) {
  const auto f = [](const Tensors& in) -> Tensors {
    in[1].unsqueeze_(0);
    in[3].add_(1);
    return {in[0].permute({2, 1, 0}) * 2};
  };
  expect_compiled_like_eager(f, [] {
    const at::Tensor x = at::randn({2, 3}), y = at::randn({2});
    return CallInputs{{x, x, y, y.detach()}, {}};
  });
}

TEST(Writes, ArgumentWhoseHistoryGrowsWithEveryCallRunsEagerly) {
  const auto f = [](const at::Tensor& written, const at::Tensor& y) {
    written.tanh_();
    return y * y;
  };
  const at::Tensor written = leaf({3}) * 1, y = leaf({3});
  auto compiled = compile(f);
  for (int call = 0; call < 6; ++call) compiled(written, y).sum().backward();
  EXPECT_TRUE(at::allclose(y.grad(), 12 * y.detach()));
  EXPECT_EQ(compiled.stats().cache_hits, 0u);
}

}  // namespace writes_test
}  // namespace ahead
