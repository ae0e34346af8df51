#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "eager/harness.h"

/// Hooks that functions register, and hooks of what they use.
namespace ahead::test {
namespace hooks_test {

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
    expect_hits(outcome);
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
  expect_hits(outcome);
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
  expect_hits(outcome);
}

TEST(Hooks, ThatReadValues) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
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
  expect_hits(outcome);
}

/// Grad-CAM: the gradient of a feature map is looked at after the backward.
TEST(Hooks, GradientsAreRetained) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
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
  expect_hits(outcome);
}

TEST(Hooks, RetainedGradientsOfAResult) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
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
  expect_hits(outcome);
}

/// Whoever captures a number by value captures another one in each call.
TEST(Hooks, ThatCaptureANumberThatChanges) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor weight = leaf({3});
    double strength = 0;
    auto scaled = wrap([&](const at::Tensor& x) {
      const at::Tensor hidden = x * weight;
      hidden.register_hook([strength](const at::Tensor& gradient) { return gradient * strength; });
      return hidden.tanh().sum();
    });
    for (int call = 0; call < 20; ++call) {
      strength = 0.1 * call;
      scaled(at::randn({2, 3})).backward();
      log("weight", weight);
    }
  });
  expect_eager(outcome);
}

/// A closure too large to lie in a std::function.
TEST(Hooks, ThatCaptureALot) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor weight = leaf({3}), scale = at::rand({3});
    double low = -1, high = 1;
    int count = 0;
    auto clipped = wrap([&](const at::Tensor& x) {
      const at::Tensor hidden = x * weight;
      hidden.register_hook([&low, &high, &count, scale](const at::Tensor& gradient) {
        ++count;
        return gradient.clamp(low, high) * scale;
      });
      return hidden.exp().sum();
    });
    for (int call = 0; call < 20; ++call) {
      low = -0.1 * call;
      clipped(at::randn({2, 3})).backward();
      log("weight", weight);
      log("count", count);
    }
  });
  expect_hits(outcome);
}

/// What the hook needs of the forward is another tensor in each call: a mask, the input, a result.
TEST(Hooks, ThatCaptureWhatTheCallComputed) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor weight = leaf({3}), offset = at::rand({3});
    double strength = 1;
    auto masked = wrap([&](const at::Tensor& x) {
      const at::Tensor hidden = x * weight, late = hidden.cos();
      const at::Tensor mask = (x > 0).to(at::kFloat);
      hidden.register_hook([mask, x, offset, &strength](const at::Tensor& gradient) {
        return gradient * mask * strength + x + offset;
      });
      return (hidden.exp() + late).sum();
    });
    std::vector<at::Tensor> losses;
    for (int call = 0; call < 24; ++call) {
      losses.push_back(masked(at::randn({2, 3})));
      if (call % 2 == 1) (losses[static_cast<size_t>(call) - 1] + losses.back()).backward();
      log.close("weight", weight);
      strength *= 0.9;
    }
  });
  expect_hits(outcome);
}

/// A hook on an argument that needs what is computed later.
TEST(Hooks, OnAnArgumentThatCaptureAResult) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto layer = wrap([&](const at::Tensor& x) {
      at::Tensor result = x.exp();
      x.register_hook([scale = result.detach()](const at::Tensor& g) { return g / scale; });
      return result;
    });
    for (int call = 0; call < 20; ++call) {
      const at::Tensor start = leaf({3});
      layer(call % 2 == 0 ? start : start * 2).pow(2).sum().backward();
      log("start", start);
    }
  });
  expect_hits(outcome);
}

/// The mask is kept by a member, too.
TEST(Hooks, ThatCaptureWhatIsStored) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor weight = leaf({3});
    at::Tensor mask;
    auto masked = wrap([&](const at::Tensor& x) {
      const at::Tensor hidden = x * weight;
      mask = (x > 0).to(at::kFloat);
      hidden.register_hook([mask = mask](const at::Tensor& gradient) { return gradient * mask; });
      return hidden.exp().sum();
    });
    for (int call = 0; call < 24; ++call) {
      masked(at::randn({2, 3})).backward();
      log("weight", weight);
      log("mask", mask);
    }
  });
  expect_settled(outcome);
}

/// A pruned layer: the hook masks with what the forward uses, too.
TEST(Hooks, ThatCaptureWhatTheFunctionUses) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor weight = leaf({3}), mask = (at::rand({3}) > 0.5).to(at::kFloat);
    auto pruned = wrap([&](const at::Tensor& x) {
      const at::Tensor hidden = x * weight * mask;
      hidden.register_hook([mask](const at::Tensor& gradient) { return gradient * mask; });
      return hidden.exp().sum();
    });
    for (int call = 0; call < 24; ++call) {
      pruned(at::randn({2, 3})).backward();
      log("weight", weight);
    }
  });
  expect_hits(outcome);
}

TEST(Hooks, UnderAutocast) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor weight = leaf({3, 3});
    auto layer = wrap([&](const at::Tensor& x) {
      const Autocast autocast;
      const at::Tensor hidden = at::mm(x, weight);
      hidden.register_hook([](const at::Tensor& gradient) { return gradient * 2; });
      return hidden.to(at::kFloat).pow(2).sum();
    });
    for (int call = 0; call < 24; ++call) {
      const at::Tensor loss = layer(at::randn({2, 3}));
      loss.backward();
      log("loss", loss);
      log("weight", weight);
    }
  });
  expect_settled(outcome);
}

/// Several hooks, writes between them, and what they are on goes on being used and written to.
TEST(Hooks, BetweenWrites) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor weight = leaf({3});
    double first = 2, second = 3;
    auto layers = wrap([&](const at::Tensor& x) {
      at::Tensor hidden = x * weight;
      hidden.register_hook([&](const at::Tensor& gradient) { return gradient * first; });
      hidden.mul_(x.cos());
      const at::Tensor view = hidden.view({3, 2});
      hidden.register_hook([&](const at::Tensor& gradient) { return gradient + second; });
      view.register_hook([&](const at::Tensor& gradient) { return gradient * second; });
      hidden.mul_(1.5);
      return std::vector<at::Tensor>{view.sin(), hidden};
    });
    for (int call = 0; call < 20; ++call) {
      first += 0.25;
      second -= 0.125;
      const std::vector<at::Tensor> results = layers(at::randn({2, 3}));
      (results[0].sum() + results[1].pow(2).sum()).backward();
      log("weight", weight);
      log("result", results[1]);
    }
  });
  expect_hits(outcome);
}

/// What the backward needs was computed from a running scale that is written to behind the hook.
TEST(Hooks, BeforeARunningScaleIsUpdated) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor weight = leaf({3});
    const at::Tensor scale = at::full({3}, 2.0);
    auto layer = wrap([&](const at::Tensor& x, const at::Tensor& scale) {
      const at::Tensor mean = at::zeros({3});
      at::Tensor hidden =
          at::batch_norm(x, weight, {}, mean, scale.square(), false, 0.1, 1e-5, false);
      hidden.register_hook([](const at::Tensor& gradient) { return gradient * 2; });
      const at::Tensor result = hidden.tanh();
      at::NoGradGuard no_grad;
      scale.mul_(0.9).add_(hidden.pow(2).mean(0), 0.1);
      return result;
    });
    for (int call = 0; call < 20; ++call) {
      layer(at::randn({2, 3}), scale).sum().backward();
      log("weight", weight);
      log("scale", scale);
    }
  });
  expect_hits(outcome);
}

/// Two results, of which the loss needs one: the hook of what it does not need is not called.
TEST(Hooks, OnWhatALossDoesNotReach) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor weight = leaf({3}), other = leaf({3});
    int left = 0, right = 0;
    auto heads = wrap([&](const at::Tensor& x) {
      const at::Tensor a = x * weight, b = x * other;
      a.register_hook([&](const at::Tensor& gradient) { left += gradient.defined() ? 1 : 100; });
      b.register_hook([&](const at::Tensor& gradient) { right += gradient.defined() ? 1 : 100; });
      return std::vector<at::Tensor>{a.tanh(), b.sigmoid()};
    });
    for (int call = 0; call < 24; ++call) {
      const std::vector<at::Tensor> results = heads(at::randn({2, 3}));
      if (call % 3 != 0) results[0].sum().backward();
      if (call % 3 != 1) results[1].sum().backward();
      log("left", left);
      log("right", right);
    }
    log("weight", weight);
    log("other", other);
  });
  expect_hits(outcome);
}

/// A penalty on the gradient goes through the hook, too.
TEST(Hooks, WithSecondDerivatives) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor weight = leaf({3});
    auto layer = wrap([&](const at::Tensor& x) {
      const at::Tensor hidden = x * weight;
      hidden.register_hook([](const at::Tensor& gradient) { return gradient.sin(); });
      return hidden.pow(3).sum();
    });
    for (int call = 0; call < 20; ++call) {
      const at::Tensor x = leaf({2, 3});
      const at::Tensor gradient =
          torch::autograd::grad({layer(x)}, {x}, {}, true, /*create_graph=*/true)[0];
      gradient.pow(2).sum().backward();
      log.close("weight", weight);
    }
  });
  expect_hits(outcome);
}

/// A training loop with a hidden layer whose gradient is watched and clipped.
TEST(Hooks, InATrainingLoop) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto first = torch::nn::Linear(4, 8), second = torch::nn::Linear(8, 2);
    std::vector<at::Tensor> parameters = first->parameters();
    for (const at::Tensor& parameter : second->parameters()) parameters.push_back(parameter);
    torch::optim::SGD sgd(parameters, torch::optim::SGDOptions(0.1).momentum(0.9));
    double norm = 0, bound = 1;
    auto loss_of = wrap([&](const at::Tensor& x, const at::Tensor& target) {
      const at::Tensor hidden = first->forward(x).relu();
      hidden.register_hook([&](const at::Tensor& gradient) {
        norm += gradient.norm().item<double>();
        return gradient.clamp(-bound, bound);
      });
      return torch::mse_loss(torch::dropout(second->forward(hidden), 0.2, true), target);
    });
    for (int call = 0; call < 24; ++call) {
      const at::Tensor loss = train_step(sgd, [&] {
        return loss_of(at::randn({3, 4}), at::randn({3, 2}));
      });
      bound *= 0.9;
      log("loss", loss);
      log("norm", norm);
      log("first", *first);
    }
  });
  expect_hits(outcome);
}

/// The whole step inside: nobody can call the hook when it is over.
TEST(Hooks, WithTheBackwardInside) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = torch::nn::Linear(3, 3);
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto step = wrap([&](const at::Tensor& x) {
      sgd.zero_grad();
      const at::Tensor hidden = net->forward(x);
      hidden.register_hook([](const at::Tensor& gradient) { return gradient * 0.5; });
      const at::Tensor loss = hidden.pow(2).sum();
      loss.backward();
      sgd.step();
      return loss.detach();
    });
    for (int call = 0; call < 20; ++call) {
      log("loss", step(at::randn({2, 3})));
      log("net", *net);
    }
  });
  expect_hits(outcome);
}

/// A hook that comes, changes and goes, while the function takes the gradients itself.
TEST(Hooks, OfParametersRegisteredLateWithTheBackwardInside) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = torch::nn::Linear(3, 2);
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto step = wrap([&](const at::Tensor& x) {
      train_step(sgd, [&] { return net->forward(x).pow(2).sum(); });
    });
    unsigned hook = 0;
    for (int call = 0; call < 32; ++call) {
      if (call == 10) hook = net->weight.register_hook(twice);
      if (call == 21) net->weight.remove_hook(hook);
      step(at::randn({2, 3}));
      log("net", *net);
    }
  });
  expect_some_hits(outcome);
}

/// A step that returns nothing, with hooks that stay and hooks that it removes.
TEST(Hooks, InAStepThatReturnsNothing) {
  for (const bool removes : {true, false}) {
    const Outcome outcome = like_eager([&](auto& wrap, Log& log) {
      const at::Tensor weight = leaf({3}), watched = leaf({3});
      int count = 0;
      auto step = wrap([&](const at::Tensor& x) {
        const unsigned hook = watched.register_hook([&](const at::Tensor&) { ++count; });
        const at::NoGradGuard no_grad;
        weight.mul_(x.cos());
        if (removes) watched.remove_hook(hook);
      });
      for (int call = 0; call < 20; ++call) {
        step(at::randn({3}));
        log("weight", weight);
        watched.sum().backward();
        log("count", count);
      }
    });
    expect_hits(outcome);
  }
}

/// Two branches, of which one does not use a parameter that both reset.
TEST(Hooks, GradientsThatABranchOnlyResets) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto first = torch::nn::Linear(3, 2), second = torch::nn::Linear(3, 2);
    std::vector<at::Tensor> parameters = first->parameters();
    for (const at::Tensor& parameter : second->parameters()) parameters.push_back(parameter);
    torch::optim::SGD sgd(parameters, 0.1);
    auto step = wrap([&](const at::Tensor& x) {
      sgd.zero_grad();
      const bool is_first = (x.sum() > 0).item<bool>();
      (is_first ? first : second)->forward(x).pow(2).sum().backward();
      sgd.step();
    });
    for (int call = 0; call < 40; ++call) {
      step(at::randn({2, 3}));
      log("first", *first);
      log("second", *second);
    }
  });
  expect_some_hits(outcome);
}

/// Gradients of several feature maps are kept, in a vector that is filled anew.
TEST(Hooks, GradientsOfSeveralLayersAreRetained) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto first = torch::nn::Linear(3, 4), second = torch::nn::Linear(4, 2);
    at::Tensor early, late;
    auto score = wrap([&](const at::Tensor& x) {
      early = first->forward(x).tanh();
      early.retain_grad();
      late = second->forward(early).sigmoid();
      late.retain_grad();
      return late.pow(2).sum();
    });
    for (int call = 0; call < 20; ++call) {
      score(at::randn({2, 3})).backward();
      log("early", early);
      log("late", late);
      log("first", *first);
    }
  });
  expect_hits(outcome);
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

}  // namespace hooks_test
}  // namespace ahead::test
