#include <map>
#include <thread>

#include "sizes/training.h"

/// Dynamic::Trusting: sizes that no call was observed with.
namespace ahead {
namespace trusting_test {

using at::Tensor;
using Tensors = std::vector<Tensor>;

const Options trusting{.fullgraph = true, .dynamic = Dynamic::Trusting};

/// A function and its compiled form, called side by side.
template <class F>
class SideBySide {
 public:
  explicit SideBySide(F function, Options options = trusting)
      : function_(function), compiled_(compile(function, std::move(options))) {}

  /// Calls both with a tensor of this size, and expects results and gradients to be the same.
  void call(const std::vector<int64_t>& sizes) {
    SCOPED_TRACE(torch::str("sizes ", sizes));
    torch::manual_seed(sizes[0]);
    const Tensor x = torch::randn(sizes).requires_grad_();
    const Tensor y = x.detach().clone().requires_grad_();
    const Tensors expected = function_(x), actual = compiled_(y);
    for (size_t i = 0; i < expected.size(); ++i) {
      expect_same({expected[i].detach()}, {actual[i].detach()});
      EXPECT_EQ(expected[i].is_alias_of(x), actual[i].is_alias_of(y));
    }
    gradient_of(expected);
    gradient_of(actual);
    expect_same({x.grad()}, {y.grad()});
  }

  /// Calls with sizes from 2 to 12, which is enough for others to be trusted.
  void learn(int64_t other = 3) {
    for (const int64_t size : rounds_of(2, 12, 3)) call({size, other});
  }

  /// How many of these calls are observed.
  uint64_t observed_among(const std::vector<int64_t>& sizes, int64_t other = 3) {
    const uint64_t before = compiled_.stats().observed_calls;
    for (const int64_t size : sizes) call({size, other});
    return compiled_.stats().observed_calls - before;
  }

  auto& compiled() { return compiled_; }

 private:
  static void gradient_of(const Tensors& results) {
    Tensor sum = torch::zeros({});
    for (const Tensor& result : results) {
      if (result.requires_grad()) sum = sum + result.pow(2).sum();
    }
    if (sum.requires_grad()) sum.backward();
  }

  F function_;
  decltype(compile(std::declval<F>(), Options())) compiled_;
};

TEST(Trusting, ServesSizesThatNoCallWasObservedWith) {
  const Tensor w = torch::randn({3, 4});
  SideBySide calls([&](const Tensor& x) { return Tensors{x.matmul(w).tanh()}; });
  calls.learn();
  const std::vector<int64_t> others = shuffled(13, 112);
  EXPECT_EQ(calls.compiled().explain(torch::randn({50, 3}).requires_grad_()),
            "a program for many sizes is trusted with these");
  EXPECT_LE(calls.observed_among(others), 2U) << "when time has come to look again";
  EXPECT_LE(calls.observed_among(others), 2U);
  const CompileStats stats = calls.compiled().stats();
  EXPECT_EQ(stats.eager_calls, 0U);
  EXPECT_LE(stats.compilations, 2U);
  EXPECT_EQ(stats.calls, stats.observed_calls + stats.cache_hits);
}

TEST(Trusting, ObservesEachSizeOtherwise) {
  const auto f = [](const Tensor& x) { return Tensors{x.sin() * 2}; };
  SideBySide automatic(f, {.fullgraph = true});
  automatic.learn();
  EXPECT_EQ(automatic.observed_among(shuffled(13, 50)), 38U);
  SideBySide strict(
      f, {.fullgraph = true, .dynamic = Dynamic::Trusting, .confirm = Confirm::EveryCall});
  strict.learn();
  EXPECT_EQ(strict.observed_among(shuffled(13, 50)), 38U);
}

TEST(Trusting, ViewsWritesAndSizesThatFollowFromSizes) {
  const Tensor kernel = torch::randn({2, 1, 3});
  SideBySide calls([&](const Tensor& x) {
    const Tensor y = torch::conv1d(x.t().unsqueeze(1), kernel);
    return Tensors{x.t(), x.view({-1}).slice(0, 3), y, y.transpose(1, 2).sum(0).t(),
                   torch::ones({x.size(0), x.size(0)}).tril() * 2};
  });
  for (const int64_t size : rounds_of(5, 15, 3)) calls.call({size, 3});
  EXPECT_LE(calls.observed_among(shuffled(16, 60)), 2U);
  EXPECT_EQ(calls.compiled().stats().eager_calls, 0U);
}

TEST(Trusting, TwoSizesAtOnce) {
  SideBySide calls([](const Tensor& x) {
    return Tensors{x.reshape({-1}).cumsum(0), x.t().contiguous().softmax(0)};
  });
  // As long as the second was the same in all calls, another one is observed.
  calls.learn();
  EXPECT_EQ(calls.observed_among({20, 21, 22}, 5), 3U);
  for (const int64_t size : shuffled(2, 20)) calls.call({size, 2 + size * 7 % 11});
  const uint64_t before = calls.compiled().stats().observed_calls;
  for (const int64_t size : shuffled(21, 60)) calls.call({size, 2 + size * 5 % 23});
  EXPECT_LE(calls.compiled().stats().observed_calls - before, 2U);
}

TEST(Trusting, NotForNumbersWithoutAFit) {
  const std::map<int64_t, double> table{{5, 0.5}, {9, 3.0}, {30, -1.0}};
  const auto check = [](auto function) {
    SideBySide calls(function);
    calls.learn();
    EXPECT_EQ(calls.observed_among(shuffled(13, 40)), 28U);
  };
  check(
      [](const Tensor& x) { return Tensors{x.slice(0, 0, std::min<int64_t>(x.size(0), 7)) * 2}; });
  check([](const Tensor& x) { return Tensors{x * static_cast<double>(x.size(0) % 2 + 1)}; });
  check([&](const Tensor& x) {
    const auto known = table.find(x.size(0));
    return Tensors{x * (known == table.end() ? 7.0 : known->second)};
  });
  check([](const Tensor& x) {
    return Tensors{x + torch::tensor(std::vector<float>(3, static_cast<float>(x.size(0) % 4)))};
  });
}

TEST(Trusting, NotForFreeNumbersAndNumbersThatAreReturned) {
  auto rates = compile([](const Tensor& x, double rate) { return (x * rate).sin(); }, trusting);
  auto counts =
      compile([](const Tensor& x) { return std::make_pair(x * 2, x.size(0) / 4); }, trusting);
  const auto call = [&](int64_t size) {
    const Tensor x = torch::randn({size, 3});
    const double rate = 0.3 + 0.01 * static_cast<double>(size);
    expect_same({(x * rate).sin()}, {rates(x, rate)});
    EXPECT_EQ(counts(x).second, size / 4);
  };
  for (const int64_t size : rounds_of(2, 12, 3)) call(size);
  const uint64_t before = rates.stats().observed_calls;
  for (const int64_t size : shuffled(13, 50)) call(size);
  EXPECT_EQ(rates.stats().observed_calls - before, 38U);
}

TEST(Trusting, SizesOfZeroAndOneAreObserved) {
  SideBySide calls([](const Tensor& x) { return Tensors{x.squeeze(0).sin().unsqueeze(0)}; });
  calls.learn();
  EXPECT_EQ(calls.observed_among({1, 0}), 2U);
  EXPECT_LE(calls.observed_among(shuffled(13, 50)), 1U) << "these do not count for others";
}

TEST(Trusting, WhereOtherSizesWereSeenToDoSomethingElseNoneIsTrusted) {
  SideBySide calls([](const Tensor& x) { return Tensors{x.size(0) == 5 ? x.sin() : x.exp() * x}; },
                   {.dynamic = Dynamic::Trusting});
  calls.learn();
  EXPECT_EQ(calls.observed_among(shuffled(13, 40)), 28U);
}

TEST(Trusting, ClampsAndSignsThatOtherSizesBringAboutAreNoticed) {
  SideBySide clamped([](const Tensor& x) { return Tensors{x.slice(0, 0, 14) * 2}; });
  clamped.learn();
  EXPECT_LE(clamped.observed_among({13, 14}), 1U);
  clamped.observed_among(shuffled(15, 30));
  SideBySide from_the_end([](const Tensor& x) { return Tensors{x.slice(0, x.size(0) - 6).sin()}; });
  for (const int64_t size : rounds_of(8, 18, 3)) from_the_end.call({size, 3});
  from_the_end.observed_among({7, 6, 5, 4, 3, 2, 20});
}

TEST(Trusting, TrustThatWasWrongEnds) {
  const auto f = [](const Tensor& x) { return Tensors{x * (x.size(0) > 40 ? 3 : 2)}; };
  auto compiled = compile(f, trusting);
  for (const int64_t size : rounds_of(2, 12, 3)) compiled(torch::randn({size}));
  bool was_noticed = false;
  testing::internal::CaptureStderr();
  for (const int64_t size : rounds_of(41, 60, 8)) {
    const Tensor x = torch::randn({size});
    const bool is_right = torch::equal(compiled(x)[0], f(x)[0]);
    EXPECT_TRUE(is_right || !was_noticed) << size;
    was_noticed |= is_right;
  }
  EXPECT_TRUE(was_noticed);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("Results of these may be wrong"),
            std::string::npos);
}

TEST(Trusting, CapturedTensorsAndNumbersThatAreReplaced) {
  Tensor weight = torch::randn({3});
  SideBySide calls([&weight](const Tensor& x) { return Tensors{x * weight}; });
  calls.learn();
  EXPECT_LE(calls.observed_among(shuffled(13, 30)), 1U);
  weight = torch::randn({3});
  calls.observed_among(shuffled(31, 60));
  double factor = 2;
  SideBySide numbers([factor](const Tensor& x) mutable { return Tensors{x * factor}; });
  numbers.learn();
  EXPECT_LE(numbers.observed_among(shuffled(13, 30)), 1U);
}

TEST(Trusting, StatesAreObservedForEachSize) {
  struct NetImpl : torch::nn::Module {
    Tensor forward(const Tensor& x) { return last = x.sum(0) + last; }
    Tensor last = torch::zeros({3});
  };
  const auto eager = std::make_shared<NetImpl>(), model = std::make_shared<NetImpl>();
  auto compiled = compile(model, trusting);
  for (const int64_t size : rounds_of(2, 40, 2)) {
    const Tensor x = torch::randn({size, 3});
    expect_same({eager->forward(x)}, {compiled(x)});
    expect_same({eager->last}, {model->last});
  }
}

TEST(Trusting, SeveralThreads) {
  const Tensor w = torch::randn({3, 4});
  const auto f = [&](const Tensor& x) { return x.matmul(w).tanh(); };
  auto compiled = compile(f, trusting);
  std::atomic<int> wrong{0};
  const auto work = [&](unsigned seed) {
    for (const int64_t size : shuffled(2, 150, seed)) {
      const Tensor x = torch::randn({size, 3});
      if (!torch::equal(compiled(x), f(x))) ++wrong;
    }
  };
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) threads.emplace_back(work, seed);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(compiled.stats().cache_hits, 300U);
}

}  // namespace trusting_test
}  // namespace ahead
