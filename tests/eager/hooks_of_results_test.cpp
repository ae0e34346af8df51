#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "eager/harness.h"

/// Hooks that are put on results outside, after the call.
namespace ahead::test {
namespace hooks_of_results_test {

using Two = std::tuple<at::Tensor, at::Tensor>;

/// A compiled function that hits from its second call on, after that call.
template <class F>
auto warm(F function, const at::Tensor& x) {
  Options options;
  options.confirm = Confirm::Never;
  auto compiled = compile(std::move(function), options);
  compiled(x);
  return compiled;
}

Two features_and_score(const at::Tensor& x) {
  const at::Tensor features = x.exp();
  return {features, (features * features).sum()};
}

/// What a backward that shows the gradient of a result to somebody says.
template <class Backward>
void expect_refused(const Backward& backward) {
  try {
    backward();
    FAIL() << "a hook was shown a part of its gradient";
  } catch (const UserError& error) {
    EXPECT_NE(error.msg().find("Call it inside of the function"), std::string::npos) << error.msg();
  }
}

TEST(HooksOfResults, ThatNothingElseWasComputedFrom) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = torch::nn::Linear(3, 2);
    auto both = wrap([&](const at::Tensor& x) {
      const at::Tensor hidden = net->forward(x);
      return Two(hidden.sin(), hidden.cos());
    });
    for (int call = 0; call < 24; ++call) {
      auto [first, second] = both(at::randn({4, 3}));
      first.retain_grad();
      second.register_hook([](const at::Tensor& gradient) { return gradient * 2; });
      (first * second).sum().backward();
      log("first", first.grad());
      log("net", *net);
    }
  });
  expect_hits(outcome);
}

TEST(HooksOfResults, ThatOthersWereComputedFrom) {
  const at::Tensor x = leaf({2, 3});
  auto both = warm(features_and_score, x);
  {
    auto [features, score] = both(x);
    features.retain_grad();
    expect_refused([&] { score.backward(); });
  }
  {
    auto [features, score] = both(x);
    features.register_hook([](const at::Tensor& gradient) { return gradient * 2; });
    expect_refused([&] { (features.sum() + score).backward(); });
  }
  EXPECT_FALSE(x.grad().defined());
  EXPECT_EQ(both.stats().cache_hits, 2u);
}

/// Nothing is hidden from these.
TEST(HooksOfResults, ThatAreRightAllTheSame) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto both = wrap(features_and_score);
    for (int call = 0; call < 24; ++call) {
      const at::Tensor x = leaf({2, 3});
      auto [features, score] = both(x);
      if (call % 3 == 0)
        score.register_hook([](const at::Tensor& gradient) { return gradient * 2; });
      if (call % 3 == 1) features.remove_hook(features.register_hook([](const at::Tensor&) {}));
      if (call % 3 == 2) features.retain_grad();
      (call % 3 == 2 ? features.sin().sum() : score).backward();
      if (call % 3 == 2) log("features", features.grad());
      log("x", x);
    }
  });
  expect_hits(outcome);
}

TEST(HooksOfResults, ThatAreViewsOfWhatOthersWereComputedFrom) {
  const at::Tensor x = leaf({2, 3});
  auto both = warm(
      [](const at::Tensor& input) {
        const at::Tensor features = input.exp().view({6});
        return Two(features, (features * features).sum());
      },
      x);
  auto [features, score] = both(x);
  features.retain_grad();
  expect_refused([&] { score.backward(); });
}

TEST(HooksOfResults, OfArgumentsThatWereWrittenTo) {
  const at::Tensor x = leaf({2, 3});
  auto score_of = warm(
      [](at::Tensor input) {
        input.mul_(2);
        return (input * input).sum();
      },
      x.exp());
  const at::Tensor written = x.exp();
  const at::Tensor score = score_of(written);
  written.retain_grad();
  expect_refused([&] { score.backward(); });
}

/// With hooks of leaves that not all results lead to, results have nodes of their own.
TEST(HooksOfResults, BesideHooksOfLeaves) {
  const at::Tensor x = leaf({2, 3});
  at::Tensor scale = leaf({3});
  scale.register_hook([](const at::Tensor&) {});
  auto both = warm(
      [scale](const at::Tensor& input) {
        const at::Tensor features = input.exp();
        return Two(features, (features * scale).sum());
      },
      x);
  auto [features, score] = both(x);
  EXPECT_EQ(both.stats().cache_hits, 1u);
  features.retain_grad();
  expect_refused([&] { score.backward(); });
}

}  // namespace hooks_of_results_test
}  // namespace ahead::test
