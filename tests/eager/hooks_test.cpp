#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "eager/harness.h"

/// Hooks that functions register, and hooks of what they use.
namespace ahead::test {
namespace {

at::Tensor twice(const at::Tensor& gradient) {
  return gradient * 2;
}

/// Calls a function that registers a hook on its argument, with leaves or with what is no leaf.
template <class F>
void expect_hook_of_argument(const F& function) {
  for (const bool is_leaf : {true, false}) {
    SCOPED_TRACE(is_leaf ? "leaf" : "no leaf");
    const Outcome outcome = like_eager([&](auto& wrap, Log& log) {
      auto compiled = wrap(function);
      for (int call = 0; call < 12; ++call) {
        const at::Tensor source = leaf({2, 3});
        const at::Tensor x = is_leaf ? source : source.exp();
        (compiled(x) * at::randn({2, 3})).sum().backward();
        log("source", source);
      }
    });
    expect_settled(outcome);
  }
}

TEST(Hooks, OnAnArgumentThatIsReturned) {
  expect_hook_of_argument([](const at::Tensor& x) {
    x.register_hook(twice);
    return x;
  });
}

TEST(Hooks, OnAnArgumentThatIsViewed) {
  expect_hook_of_argument([](const at::Tensor& x) {
    x.register_hook(twice);
    return x.view({3, 2}).view({2, 3});
  });
}

TEST(Hooks, OnAnArgumentThatIsUsed) {
  expect_hook_of_argument([](const at::Tensor& x) {
    x.register_hook(twice);
    return torch::sin(x);
  });
}

TEST(Hooks, OnAnArgumentAndRemoved) {
  expect_hook_of_argument([](const at::Tensor& x) {
    const auto hook = x.register_hook(twice);
    const at::Tensor result = torch::sin(x);
    x.remove_hook(hook);
    return result;
  });
}

TEST(Hooks, OnAnIntermediateResult) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor weight = leaf({3});
    auto clipped = wrap([&](const at::Tensor& x) {
      const at::Tensor hidden = x * weight;
      hidden.register_hook([](const at::Tensor& gradient) { return gradient.clamp(-1, 1); });
      return hidden.exp().sum();
    });
    for (int call = 0; call < 20; ++call) {
      clipped(at::randn({2, 3})).backward();
      log("weight", weight);
    }
  });
  expect_settled(outcome);
}

/// Gradient reversal with a strength that a schedule changes.
TEST(Hooks, ThatReadAMember) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor weight = leaf({3});
    double strength = 0;
    auto reversed = wrap([&](const at::Tensor& x) {
      const at::Tensor hidden = x * weight;
      hidden.register_hook([&](const at::Tensor& gradient) { return gradient * -strength; });
      return hidden.tanh().sum();
    });
    for (int call = 0; call < 20; ++call) {
      strength = 0.1 * call;
      reversed(at::randn({2, 3})).backward();
      log("weight", weight);
    }
  });
  expect_settled(outcome);
}

TEST(Hooks, ThatReadValues) {
  like_eager([](auto& wrap, Log& log) {
    const at::Tensor weight = leaf({3});
    std::vector<double> norms;
    auto watched = wrap([&](const at::Tensor& x) {
      const at::Tensor hidden = x * weight;
      hidden.register_hook(
          [&](const at::Tensor& gradient) { norms.push_back(gradient.norm().item<double>()); });
      return hidden.exp().sum();
    });
    for (int call = 0; call < 20; ++call) watched(at::randn({2, 3})).backward();
    for (const double norm : norms) log("norm", norm);
    log("weight", weight);
  });
}

/// Grad-CAM: the gradient of a feature map is looked at after the backward.
TEST(Hooks, GradientsAreRetained) {
  like_eager([](auto& wrap, Log& log) {
    auto conv = torch::nn::Conv2d(1, 2, 3);
    at::Tensor features;
    auto score = wrap([&](const at::Tensor& x) {
      features = conv->forward(x).relu();
      features.retain_grad();
      return features.mean({2, 3}).max();
    });
    for (int call = 0; call < 20; ++call) {
      score(at::randn({1, 1, 5, 5})).backward();
      log("gradient", features.grad());
      log("features", features);
    }
  });
}

TEST(Hooks, RetainedGradientsOfAResult) {
  like_eager([](auto& wrap, Log& log) {
    const at::Tensor weight = leaf({3});
    auto hidden_of = wrap([&](const at::Tensor& x) {
      at::Tensor hidden = x * weight;
      hidden.retain_grad();
      return hidden;
    });
    for (int call = 0; call < 20; ++call) {
      const at::Tensor hidden = hidden_of(at::randn({2, 3}));
      hidden.exp().sum().backward();
      log("hidden", hidden);
    }
    log("weight", weight);
  });
}

TEST(Hooks, OfParametersRegisteredOutside) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = torch::nn::Linear(3, 2);
    int count = 0;
    net->weight.register_hook([&](const at::Tensor& gradient) {
      ++count;
      return gradient.clamp(-0.1, 0.1);
    });
    auto forward = wrap(net);
    for (int call = 0; call < 24; ++call) {
      forward(at::randn({2, 3})).sum().backward();
      log("count", count);
      log("net", *net);
    }
  });
  expect_hits(outcome);
}

TEST(Hooks, OfParametersRegisteredLate) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = torch::nn::Linear(3, 2);
    auto forward = wrap(net);
    for (int call = 0; call < 24; ++call) {
      if (call == 10) net->weight.register_hook(twice);
      forward(at::randn({2, 3})).sum().backward();
      log("net", *net);
    }
  });
  expect_some_hits(outcome);
}

}  // namespace
}  // namespace ahead::test
