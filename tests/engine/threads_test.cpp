#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <thread>

#include "ahead/compile.h"
#include "ahead/compiled_autograd.h"
#include "support/engine_check.h"
#include "support/hits.h"

namespace ahead {
namespace threads_test {

using compiled_autograd::Enable;
using compiled_autograd::stats;
using Tensors = std::vector<at::Tensor>;

/// Runs it on several threads at once, each with its number.
void on_threads(int count, const std::function<void(int)>& work) {
  std::vector<std::thread> threads;
  for (int number = 0; number < count; ++number) threads.emplace_back(work, number);
  for (std::thread& thread : threads) thread.join();
}

TEST(EngineThreads, ManyShapesAreCapturedAtOnce) {
  compiled_autograd::reset();
  std::atomic<int> wrong = 0;
  const auto gradient = [](int64_t size) {
    const at::Tensor x = torch::arange(1, size + 1).to(at::kFloat).requires_grad_();
    (x.log() * x).sum().backward();
    return x.grad();
  };
  on_threads(4, [&](int number) {
    for (int64_t i = 0; i < 12; ++i) {
      const int64_t size = 2 + (i + number * 3) % 12;
      const at::Tensor expected = gradient(size);
      Enable on;
      wrong += !same_values(gradient(size), expected);
    }
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(stats().cache_hits + stats().cache_misses, 48u);
}

TEST(EngineThreads, GraphOfOneThreadIsWalkedByAnother) {
  const at::Tensor x = leaf({4}), y = leaf({4});
  const at::Tensor loss = (x.exp() * y).sum();
  compiled_autograd::reset();
  std::thread other([&loss] {
    Enable on;
    loss.backward();
  });
  other.join();
  EXPECT_TRUE(same_values(y.grad(), x.exp()));
  EXPECT_EQ(stats().captures, 1u);
}

TEST(EngineThreads, SharedParametersAddUp) {
  for (bool compiled : {false, true}) {
    const at::Tensor w = torch::ones({16}, torch::requires_grad());
    on_threads(4, [&](int) {
      std::optional<Enable> on;
      if (compiled) on.emplace();
      for (int i = 0; i < 25; ++i) (w * 2).sum().backward();
    });
    EXPECT_TRUE(same_values(w.grad(), torch::full({16}, 200.0)));
  }
}

TEST(EngineThreads, OneGraphIsRunByAllOfThem) {
  const at::Tensor x = torch::randn({8}, torch::requires_grad());
  const at::Tensor trunk = x.exp().sin() * x;
  const at::Tensor loss = (trunk * trunk).tanh().sum();
  const at::Tensor expected = torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true)[0];
  std::atomic<int> wrong = 0;
  for (int round = 0; round < 10; ++round) {
    compiled_autograd::reset();
    on_threads(4, [&](int) {
      Enable on;
      for (int i = 0; i < 10; ++i) {
        const auto grads = torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true);
        wrong += !same_values(grads[0], expected);
      }
    });
  }
  EXPECT_EQ(wrong, 0);
}

TEST(EngineThreads, EagerAndCompiledRunOneGraphTogether) {
  const at::Tensor x = torch::randn({8}, torch::requires_grad());
  const at::Tensor loss = (x.exp().sin() * x).tanh().sum();
  const at::Tensor expected = torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true)[0];
  std::atomic<int> wrong = 0;
  for (int round = 0; round < 10; ++round) {
    compiled_autograd::reset();
    on_threads(4, [&](int number) {
      std::optional<Enable> on;
      if (number % 2 == 0) on.emplace();
      for (int i = 0; i < 10; ++i) {
        const auto grads = torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true);
        wrong += !same_values(grads[0], expected);
      }
    });
  }
  EXPECT_EQ(wrong, 0);
}

TEST(EngineThreads, HooksRunOnTheThreadThatAsked) {
  Enable on;
  const at::Tensor x = leaf({4});
  const at::Tensor h = x.exp();
  std::thread::id seen;
  h.register_hook([&seen](const at::Tensor&) { seen = std::this_thread::get_id(); });
  (h * h).sum().backward();
  EXPECT_EQ(seen, std::this_thread::get_id());
}

TEST(EngineThreads, HookStartsAThreadWithABackwardOfItsOwn) {
  test::expect_as_eager([] {
    const at::Tensor x = leaf({4}), w = leaf({4});
    const at::Tensor h = x.exp();
    h.register_hook([w](const at::Tensor& grad) {
      std::thread other([w] {
        Enable on;
        (w * w).sum().backward();
      });
      other.join();
      return grad + w.grad();
    });
    (h * h).sum().backward();
    return Tensors{x.grad(), w.grad()};
  });
}

TEST(EngineThreads, SettingsOfAThreadStayItsOwn) {
  compiled_autograd::reset();
  const auto gradient = [] {
    const at::Tensor x = torch::ones({4, 4}, torch::requires_grad());
    x.mm(x).sum().backward();
    return x.grad();
  };
  on_threads(2, [&](int number) {
    Enable on;
    at::autocast::set_autocast_enabled(at::kCPU, number == 1);
    for (int i = 0; i < 5; ++i) {
      EXPECT_TRUE(same_values(gradient(), torch::full({4, 4}, 8.0)));
    }
    at::autocast::set_autocast_enabled(at::kCPU, false);
  });
  EXPECT_EQ(stats().cache_hits + stats().cache_misses, 10u);
}

TEST(EngineThreads, CompiledForwardsOnManyThreads) {
  auto f = ahead::compile([](const at::Tensor& x, const at::Tensor& w) { return x.mm(w).tanh(); },
                          {.confirm = 0});
  const at::Tensor x = torch::randn({4, 4}), w = torch::randn({4, 4});
  const auto gradient = [&] {
    const at::Tensor v = w.detach().requires_grad_();
    f(f(x, v), v).sum().backward();
    return v.grad();
  };
  const at::Tensor expected = gradient();
  std::atomic<int> wrong = 0;
  compiled_autograd::reset();
  on_threads(4, [&](int) {
    Enable on;
    for (int i = 0; i < 20; ++i) wrong += !same_values(gradient(), expected);
  });
  EXPECT_EQ(wrong, 0);
  // Without and with a history, x is of two kinds.
  expect_hits(f, 2);
  EXPECT_EQ(f.stats().cache_hits, 4u * 20 * 2);
}

TEST(EngineThreads, CacheIsForgottenWhileOthersRun) {
  std::atomic<int> wrong = 0;
  on_threads(3, [&](int number) {
    for (int i = 0; i < 40; ++i) {
      if (number == 0) {
        compiled_autograd::reset();
        compiled_autograd::graphs();
        continue;
      }
      Enable on;
      const at::Tensor x = torch::full({3}, 2.0).requires_grad_();
      const at::Tensor h = x * x;
      h.register_hook([](const at::Tensor& grad) { return grad * 2; });
      (h * h).sum().backward();
      wrong += !same_values(x.grad(), torch::full({3}, 64.0));
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST(EngineThreads, ManySmallBackwardsStartAtOnce) {
  std::atomic<int> wrong = 0;
  on_threads(8, [&](int number) {
    const at::Tensor x = torch::full({3}, 1.0 + number).requires_grad_();
    for (int i = 0; i < 200; ++i) {
      std::optional<Enable> on;
      if (number % 2 == 0) on.emplace();
      x.mutable_grad() = at::Tensor();
      (x * x).sum().backward();
      wrong += !same_values(x.grad(), x.detach() * 2);
    }
  });
  EXPECT_EQ(wrong, 0);
}

}  // namespace threads_test
}  // namespace ahead
