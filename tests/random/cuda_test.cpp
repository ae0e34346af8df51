#include <ATen/Context.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "support/eager.h"

/// Random numbers on a CUDA device, whose generator counts: states are a seed and an offset.
namespace ahead {
namespace cuda_test {

at::Generator generator() {
  return at::globalContext().defaultGenerator(at::Device(at::kCUDA, 0));
}

/// Expects gradients and the generator's position as in eager, from graphs, in both modes.
template <class F>
void expect_like_eager(const F& f) {
  for (const bool functional : {false, true}) {
    SCOPED_TRACE(functional ? "with functionalize_rng" : "without functionalize_rng");
    auto compiled =
        compile(f, {.fullgraph = true, .confirm = Confirm::Never, .functionalize_rng = functional});
    for (int call = 0; call < 4; ++call) {
      std::vector<at::Tensor> shown[2];
      for (const bool is_eager : {true, false}) {
        torch::manual_seed(call);
        torch::cuda::manual_seed(call);
        const at::Tensor x = at::randn({64, 50}, at::kCUDA).requires_grad_();
        const at::Tensor y = is_eager ? f(x) : compiled(x);
        const at::Tensor between = at::rand({3}, at::kCUDA);
        y.sum().backward();
        shown[is_eager ? 0 : 1] = {y.detach(), between, x.grad(), generator().get_state()};
      }
      expect_same(shown[0], shown[1]);
    }
    EXPECT_EQ(compiled.stats().cache_hits, 3u);
    EXPECT_EQ(compiled.stats().eager_calls, 0u);
  }
}

TEST(CudaRandom, DropoutAndNoise) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "this machine has no CUDA device";
  expect_like_eager([](const at::Tensor& x) {
    const at::Tensor noise = at::randn_like(x) + at::rand({64, 1}, x.options());
    return at::dropout(x.sin() * noise, 0.3, true).tanh();
  });
}

TEST(CudaRandom, NumbersOfBothDevices) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "this machine has no CUDA device";
  expect_like_eager([](const at::Tensor& x) {
    return x * at::rand({50}).cuda() + at::rand({50}, at::kCUDA) * at::randint(5, {50}).cuda();
  });
}

TEST(CudaRandom, CheckpointsDrawAgain) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "this machine has no CUDA device";
  expect_like_eager([](const at::Tensor& x) {
    return checkpoint(
        CheckpointPolicy::recompute_everything(),
        [](const at::Tensor& y) { return at::dropout(y.sin(), 0.5, true).mul(2).tanh(); }, x);
  });
}

TEST(CudaRandom, SeveralForwardsBeforeABackward) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "this machine has no CUDA device";
  const auto f = [](const at::Tensor& x) {
    return checkpoint(
        CheckpointPolicy::recompute_everything(),
        [](const at::Tensor& y) { return at::dropout(y.sin(), 0.5, true).mul(2).tanh(); }, x);
  };
  for (const bool functional : {false, true}) {
    auto compiled =
        compile(f, {.fullgraph = true, .confirm = Confirm::Never, .functionalize_rng = functional});
    compiled(at::ones({64, 50}, at::kCUDA).requires_grad_());
    std::vector<at::Tensor> shown[2];
    for (const bool is_eager : {true, false}) {
      torch::cuda::manual_seed(3);
      std::vector<at::Tensor> xs, ys, &seen = shown[is_eager ? 0 : 1];
      for (int i = 0; i < 3; ++i) {
        xs.push_back(at::randn({64, 50}, at::kCUDA).requires_grad_());
        ys.push_back(is_eager ? f(xs.back()) : compiled(xs.back()));
      }
      for (const size_t i : {1, 2, 1, 0}) {
        ys[i].sum().backward({}, /*retain_graph=*/true);
        seen.insert(seen.end(), {ys[i].detach(), xs[i].grad().clone(), generator().get_state()});
      }
    }
    expect_same(shown[0], shown[1]);
    EXPECT_EQ(compiled.stats().eager_calls, 0u);
    EXPECT_EQ(compiled.stats().cache_hits, 3u);
  }
}

TEST(CudaRandom, StatesThatAreSetAgain) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "this machine has no CUDA device";
  expect_like_eager([](const at::Tensor& x) {
    const at::Tensor state = generator().get_state();
    const at::Tensor first = at::rand({50}, at::kCUDA);
    generator().set_state(state);
    return x * first + x.sin() * at::rand({50}, at::kCUDA) * at::rand({1}, at::kCUDA);
  });
}

}  // namespace cuda_test
}  // namespace ahead
