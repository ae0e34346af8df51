#include <atomic>
#include <thread>

#include "sizes/training.h"

/// What comes between calls of changing sizes: exceptions, hooks, other threads.
namespace ahead {
namespace interrupted_test {

using at::Tensor;

/// Whether a call throws, and what it returns if not.
template <class F>
std::pair<bool, Tensor> outcome_of(F& function, const Tensor& x) {
  try {
    return {false, function(x)};
  } catch (const std::exception&) {
    return {true, Tensor()};
  }
}

TEST(Interrupted, ExceptionsOfUserCodeForSomeSizes) {
  const Tensor w = torch::randn({3}).requires_grad_();
  const auto f = [&](const Tensor& x) {
    const Tensor y = (x * w).sin();
    if (x.size(0) % 5 == 0) throw std::runtime_error("no batch may be a multiple of five");
    return y * 2;
  };
  for (const Dynamic dynamic : {Dynamic::Automatic, Dynamic::Trusting, Dynamic::Static}) {
    auto compiled = compile(f, {.dynamic = dynamic, .recompile_limit = 64});
    for (const int64_t size : rounds_of(2, 30, 4)) {
      SCOPED_TRACE(size);
      const Tensor x = torch::randn({size, 3});
      const auto expected = outcome_of(f, x), actual = outcome_of(compiled, x);
      EXPECT_EQ(expected.first, actual.first);
      if (!expected.first) expect_same({expected.second.detach()}, {actual.second.detach()});
    }
    const bool is_shared = dynamic != Dynamic::Static;
    EXPECT_TRUE(compiled.stats().cache_hits > 40U || !is_shared);
  }
}

TEST(Interrupted, ExceptionsOfLibTorchForSomeSizes) {
  const Tensor w = torch::randn({6, 2});
  const auto f = [&](const Tensor& x) { return x.reshape({-1, 6}).matmul(w).relu(); };
  for (const Dynamic dynamic : {Dynamic::Automatic, Dynamic::Trusting}) {
    auto compiled = compile(f, {.dynamic = dynamic});
    for (const int64_t size : rounds_of(2, 40, 3)) {
      SCOPED_TRACE(size);
      const Tensor x = torch::randn({size, 3});
      EXPECT_EQ(size % 2 != 0, outcome_of(compiled, x).first);
      if (size % 2 == 0) expect_same({f(x)}, {compiled(x)});
    }
    EXPECT_GT(compiled.stats().cache_hits, 20U);
  }
}

TEST(Interrupted, HooksInsideAndOutside) {
  const Tensor w = torch::randn({3}).requires_grad_(), v = torch::randn({3}).requires_grad_();
  int calls = 0;
  const auto inside = [&](const Tensor& x) {
    const Tensor y = (x * w).tanh();
    if (y.requires_grad())
      y.register_hook([&calls](const Tensor& gradient) {
        ++calls;
        return gradient * 2;
      });
    return (y * v).sum();
  };
  const auto outside = [&](const Tensor& x) { return (x * w).tanh() * v; };
  auto compiled_inside = compile(inside, {.recompile_limit = 64});
  auto compiled_outside = compile(outside);
  const auto gradients = [&](auto& function, const Tensor& x, bool has_hook) {
    w.mutable_grad() = v.mutable_grad() = Tensor();
    const Tensor result = function(x);
    if (has_hook) result.register_hook([](const Tensor& gradient) { return gradient.sin(); });
    result.sum().backward();
    return std::vector<Tensor>{result.detach(), w.grad(), v.grad()};
  };
  for (const int64_t size : rounds_of(2, 12, 4)) {
    SCOPED_TRACE(size);
    const Tensor x = torch::randn({size, 3});
    calls = 0;
    expect_same(gradients(inside, x, false), gradients(compiled_inside, x, false));
    EXPECT_EQ(calls, 2);
    expect_same(gradients(outside, x, true), gradients(compiled_outside, x, true));
  }
  EXPECT_EQ(compiled_inside.stats().eager_calls, 0U);
  EXPECT_LE(compiled_outside.stats().compilations, 2U);
  EXPECT_GT(compiled_outside.stats().cache_hits, 25U);
}

TEST(Interrupted, ThreadsWithSizesOfTheirOwn) {
  const Tensor w = torch::randn({3, 4}).requires_grad_();
  const auto f = [&](const Tensor& x) { return x.matmul(w).tanh().pow(2).sum(0); };
  for (const Dynamic dynamic : {Dynamic::Automatic, Dynamic::Trusting}) {
    auto compiled = compile(f, {.dynamic = dynamic});
    std::atomic<int> wrong{0};
    const auto work = [&](unsigned seed) {
      for (const int64_t size : rounds_of(2, 30, 2 + seed)) {
        const Tensor x = torch::randn({size, 3});
        const Tensor expected = torch::autograd::grad({f(x).sum()}, {w})[0];
        const Tensor actual = torch::autograd::grad({compiled(x).sum()}, {w})[0];
        if (!torch::equal(expected, actual)) ++wrong;
      }
    };
    std::vector<std::thread> threads;
    for (unsigned seed = 0; seed < 4; ++seed) threads.emplace_back(work, seed);
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_GT(compiled.stats().cache_hits, 100U);
  }
}

}  // namespace interrupted_test
}  // namespace ahead
