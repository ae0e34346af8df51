#include <ATen/FunctionalTensorWrapper.h>
#include <gtest/gtest.h>

#include <thread>

#include "ahead/ahead.h"

namespace threads_test {

using at::Tensor;
using Tensors = std::vector<at::Tensor>;

/// Eight different programs that share parameters.
ahead::aot::FlatFunction program(int number, const Tensor& shared) {
  return [number, shared](const Tensors& in) {
    Tensor y = in[0];
    for (int i = 0; i <= number; ++i) {
      y = torch::tanh(y.matmul(shared)) + i;
      y.select(0, i % 3).mul_(2);
      if (i % 2 == 1) y = y + torch::dropout(y, 0.5, true) + torch::ones_like(y);
    }
    return Tensors{y.sum(), torch::autograd::grad({y.pow(2).sum()}, {in[0]}, {}, true, true)[0]};
  };
}

TEST(Threads, EightTracesAtOnceGiveTheGraphsOfOneAfterAnother) {
  constexpr int kThreads = 8, kRounds = 5;
  Tensor shared = torch::randn({3, 3}).requires_grad_();
  Tensor x = torch::randn({3, 3}).requires_grad_();
  std::vector<std::string> expected;
  for (int t = 0; t < kThreads; ++t)
    expected.push_back(ahead::trace_joint(program(t, shared), {x}).str());
  std::vector<std::string> actual(kThreads);
  std::atomic<int> different = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < kRounds; ++round) {
        actual[static_cast<size_t>(t)] = ahead::trace_joint(program(t, shared), {x}).str();
        different += actual[static_cast<size_t>(t)] == expected[static_cast<size_t>(t)] ? 0 : 1;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(different, 0);
  EXPECT_EQ(actual, expected);
}

TEST(Threads, CodeThatDoesNotTraceIsUntouchedMeanwhile) {
  std::atomic<bool> stop = false;
  std::atomic<int> wrong = 0;
  std::thread eager([&] {
    Tensor x = torch::ones({4}).requires_grad_();
    while (!stop) {
      Tensor y = (x * 3).sum();
      wrong += torch::autograd::grad({y}, {x})[0].equal(torch::full({4}, 3.0)) ? 0 : 1;
    }
  });
  Tensor shared = torch::randn({3, 3}).requires_grad_();
  Tensor x = torch::randn({3, 3}).requires_grad_();
  for (int i = 0; i < 30; ++i) ahead::trace_joint(program(3, shared), {x});
  stop = true;
  eager.join();
  EXPECT_EQ(wrong, 0);
}

TEST(State, IsWhatItWasAfterATraceAndAfterAnError) {
  auto keys = [] { return c10::impl::tls_local_dispatch_key_set(); };
  const auto before = keys();
  Tensor x = torch::randn({3}).requires_grad_();
  ahead::trace_joint([](const Tensors& in) { return Tensors{in[0].sin()}; }, {x});
  EXPECT_EQ(keys().included_, before.included_);
  EXPECT_EQ(keys().excluded_, before.excluded_);
  EXPECT_ANY_THROW(ahead::trace_joint(
      [](const Tensors& in) -> Tensors {
        torch::NoGradGuard no_grad;
        Tensor y = in[0].sin();
        throw std::runtime_error("stop");
      },
      {x}));
  EXPECT_EQ(keys().included_, before.included_);
  EXPECT_EQ(keys().excluded_, before.excluded_);
  EXPECT_TRUE(at::GradMode::is_enabled());
  EXPECT_FALSE(at::functionalization::impl::getFunctionalizationReapplyViewsTLS());
  EXPECT_EQ(x.use_count(), 1u);
}

TEST(State, GradsAreRestoredAfterAnErrorInsideBackward) {
  Tensor w = torch::randn({3}).requires_grad_();
  EXPECT_ANY_THROW(ahead::trace(
      [w](const Tensors& in) -> Tensors {
        (in[0] * w).sum().backward();
        throw std::runtime_error("stop");
      },
      {torch::ones({3})}));
  EXPECT_FALSE(w.grad().defined());
}

TEST(State, TracesDoNotKeepTensorsAlive) {
  Tensor w = torch::randn({3}).requires_grad_();
  {
    auto graph = ahead::trace_joint([w](const Tensors& in) { return Tensors{in[0] * w}; },
                                    {torch::ones({3})});
    EXPECT_GT(w.use_count(), 1u);
  }
  EXPECT_EQ(w.use_count(), 1u);
}

}  // namespace threads_test
