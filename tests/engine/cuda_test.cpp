#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/compiled_autograd.h"
#include "support/engine_check.h"

namespace ahead {
namespace {

using test::expect_as_eager;
using test::grads_of;

class EngineCuda : public testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "there is no CUDA device";
  }

  static at::Tensor random(at::IntArrayRef sizes) { return torch::randn(sizes, at::kCUDA); }
};

TEST_F(EngineCuda, AnMlpStepsAsInEager) {
  const auto stats = expect_as_eager([] {
    torch::nn::Sequential net(torch::nn::Linear(8, 16), torch::nn::GELU(),
                              torch::nn::Linear(16, 4));
    net->to(at::kCUDA);
    net->forward(random({5, 8})).pow(2).mean().backward();
    return grads_of(*net);
  });
  EXPECT_EQ(stats.captures, 1u);
  EXPECT_EQ(stats.eager_fallbacks, 0u);
}

TEST_F(EngineCuda, CrossesDevices) {
  expect_as_eager([] {
    const at::Tensor x = torch::randn({4}).requires_grad_();
    const at::Tensor y = random({4}).requires_grad_();
    ((x.to(at::kCUDA) * y).sin().to(at::kCPU) * x).sum().backward();
    return std::vector<at::Tensor>{x.grad(), y.grad()};
  });
}

TEST_F(EngineCuda, CallsHooksInOrder) {
  expect_as_eager([] {
    const at::Tensor x = random({4}).requires_grad_();
    const at::Tensor h = x.sin();
    h.register_hook([](const at::Tensor& gradient) { return gradient * 3; });
    x.register_hook([](const at::Tensor& gradient) { return gradient + 1; });
    (h * h).sum().backward();
    return std::vector<at::Tensor>{x.grad()};
  });
}

TEST_F(EngineCuda, LiftsChangingSizes) {
  compiled_autograd::reset();
  const at::Tensor w = random({8, 4}).requires_grad_();
  for (int64_t n : {2, 3, 4, 5, 6}) {
    const at::Tensor x = random({n, 8});
    const auto gradient = [&] {
      return torch::autograd::grad({x.mm(w).tanh().pow(2).mean()}, {w})[0];
    };
    const at::Tensor expected = gradient();
    compiled_autograd::Enable on;
    EXPECT_TRUE(at::equal(expected, gradient()));
  }
  EXPECT_EQ(compiled_autograd::stats().captures, 2u);
}

}  // namespace
}  // namespace ahead
