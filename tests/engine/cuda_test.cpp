#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/compiled_autograd.h"
#include "support/eager.h"
#include "support/engine_check.h"

namespace ahead {
namespace cuda_test {

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

/// While it lives, work goes to a stream of its own, which begins when the other one is done with
/// what it has; that one goes on when this is done.
class SideStream {
 public:
  SideStream()
      : guard_(at::kCUDA), side_(guard_.getNewStream(guard_.getDevice())), other_(join(side_)) {}
  ~SideStream() { join(other_); }

 private:
  c10::Stream join(c10::Stream next) const {
    c10::Event event(at::kCUDA);
    event.record(guard_.getStream(guard_.getDevice()));
    event.block(next);
    return guard_.exchangeStream(next);
  }

  c10::impl::VirtualGuardImpl guard_;
  c10::Stream side_;
  c10::Stream other_;
};

TEST_F(EngineCuda, SeveralStreamsAreLeftToTheEagerEngine) {
  const auto stats = test::compare_with_eager([] {
    const at::Tensor x = random({512, 512}).requires_grad_();
    at::Tensor h = x.mm(x).tanh();
    {
      const SideStream side;
      h = h.mm(x).sin();
    }
    h.pow(2).mean().backward();
    return std::vector<at::Tensor>{x.grad()};
  });
  EXPECT_EQ(stats.captures, 0u);
  EXPECT_EQ(stats.eager_fallbacks, 3u);
  EXPECT_NE(test::all_reasons().find("several streams"), std::string::npos);
}

TEST_F(EngineCuda, OneStreamOfTheUsersIsCaptured) {
  const auto stats = expect_as_eager([] {
    const SideStream side;
    const at::Tensor x = random({64, 64}).requires_grad_();
    x.mm(x).tanh().pow(2).mean().backward();
    return std::vector<at::Tensor>{x.grad()};
  });
  EXPECT_EQ(stats.captures, 1u);
  EXPECT_EQ(stats.eager_fallbacks, 0u);
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
    EXPECT_TRUE(same_values(expected, gradient()));
  }
  EXPECT_EQ(compiled_autograd::stats().captures, 2u);
}

}  // namespace cuda_test
}  // namespace ahead
