#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "eager/harness.h"

/// Functions that depend on something beside tensors: it is noticed in the very call where bytes of
/// the closure or of the module show it, else when the function is observed the next time.
namespace ahead::test {
namespace host_state_test {

struct Scaled : torch::nn::Module {
  Scaled() : weight(register_parameter("weight", at::randn({3}))) {}
  at::Tensor forward(const at::Tensor& x) { return x * weight * scale; }
  at::Tensor weight;
  double scale = 1;
};

TEST(HostState, MemberChangedOutside) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = std::make_shared<Scaled>();
    auto forward = wrap(net);
    for (int call = 0; call < 40; ++call) {
      if (call % 13 == 12) net->scale *= 0.5;
      const at::Tensor result = forward(at::randn({3}));
      result.sum().backward();
      log("result", result);
    }
    log("net", *net);
  });
  EXPECT_GE(outcome.cache_hits, 6u) << outcome.str();
}

TEST(HostState, MemberChangedBackAndForth) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = std::make_shared<Scaled>();
    auto forward = wrap(net);
    for (int call = 0; call < 100; ++call) {
      net->scale = call % 2 == 0 ? 1 : 2;
      log("result", forward(at::randn({3})));
    }
  });
  expect_settled(outcome);
}

struct Counting : torch::nn::Module {
  Counting() : weight(register_parameter("weight", at::randn({3}))) {}
  at::Tensor forward(const at::Tensor& x) {
    ++steps;
    return steps > 10 ? x * weight : x;
  }
  at::Tensor weight;
  int64_t steps = 0;
};

TEST(HostState, MemberCountsCalls) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = std::make_shared<Counting>();
    auto forward = wrap(net);
    for (int call = 0; call < 24; ++call) {
      log("result", forward(at::randn({3})) + 0);
      log("steps", static_cast<double>(net->steps));
    }
  });
  expect_eager(outcome);
}

TEST(HostState, CopiedValueChangedInside) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto decaying = wrap([rate = 1.0](const at::Tensor& x) mutable {
      rate *= 0.9;
      return x * rate;
    });
    for (int call = 0; call < 24; ++call) log("result", decaying(at::randn({3})));
  });
  expect_eager(outcome);
}

/// Warm-up in a function object that is copied into the compiled one.
struct WarmingUp {
  at::Tensor operator()(const at::Tensor& x) {
    if (step < 12) ++step;
    return x * (static_cast<double>(step) / 12);
  }
  int step = 0;
};

TEST(HostState, CounterThatStops) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto warming_up = wrap(WarmingUp());
    for (int call = 0; call < 24; ++call) log("result", warming_up(at::randn({3})));
  });
  EXPECT_EQ(outcome.calls, 24u);
}

TEST(HostState, WeightsSwappedForAverages) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = std::make_shared<Scaled>();
    at::Tensor average = net->weight.detach().clone();
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    auto forward = wrap(net);
    for (int call = 0; call < 30; ++call) {
      const at::Tensor loss =
          train_step(optimizer, [&] { return forward(at::randn({3})).pow(2).sum(); });
      log("loss", loss);
      average.mul_(0.9).add_(net->weight.detach(), 0.1);
      if (call % 10 != 9) continue;
      std::swap(net->weight, average);
      for (int i = 0; i < 3; ++i) log("evaluated", forward(at::randn({3})));
      std::swap(net->weight, average);
    }
    log("weights", {net->weight, average});
  });
  EXPECT_GT(outcome.cache_hits, 0u) << outcome.str();
}

TEST(HostState, ParameterReplaced) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = std::make_shared<Scaled>();
    auto forward = wrap(net);
    for (int call = 0; call < 30; ++call) {
      if (call == 13 || call == 22) net->weight = leaf({3});
      forward(at::randn({3})).sum().backward();
      log("weight", net->weight);
    }
  });
  EXPECT_GE(outcome.cache_hits, 6u) << outcome.str();
}

struct Holding : torch::nn::Module {
  Holding()
      : fc(register_module("fc", torch::nn::Linear(3, 3))),
        inner(register_module("inner", std::make_shared<Scaled>())) {}
  at::Tensor forward(const at::Tensor& x) { return inner->forward(fc->forward(x)); }
  torch::nn::Linear fc;
  std::shared_ptr<Scaled> inner;
};

TEST(HostState, SubmoduleReplaced) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = std::make_shared<Holding>();
    auto forward = wrap(net);
    for (int call = 0; call < 30; ++call) {
      if (call == 13) net->fc = net->replace_module("fc", torch::nn::Linear(3, 3));
      const at::Tensor result = forward(at::randn({3}));
      result.sum().backward();
      log("result", result);
      log("net", *net);
    }
  });
  EXPECT_GE(outcome.cache_hits, 6u) << outcome.str();
}

TEST(HostState, LayersFrozenAndUnfrozen) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = std::make_shared<Holding>();
    auto forward = wrap(net);
    for (int call = 0; call < 40; ++call) {
      for (const at::Tensor& p : net->fc->parameters()) p.set_requires_grad(call / 10 % 2 == 0);
      forward(at::randn({3})).sum().backward();
      log("net", *net);
    }
  });
  EXPECT_GE(outcome.cache_hits, 6u) << outcome.str();
}

/// As the two players of a game are trained.
TEST(HostState, LayersFrozenInTurns) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = std::make_shared<Holding>();
    auto forward = wrap(net);
    for (int call = 0; call < 30; ++call) {
      for (const at::Tensor& p : net->fc->parameters()) p.set_requires_grad(call % 2 == 0);
      forward(at::randn({3})).sum().backward();
      log("net", *net);
    }
    forward.explain(at::randn({3}));
  });
  expect_hits(outcome);
}

TEST(HostState, ModuleConvertedToDouble) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = std::make_shared<Holding>();
    auto forward = wrap(net);
    for (int call = 0; call < 30; ++call) {
      if (call == 13) net->to(at::kDouble);
      log("result", forward(at::randn({3}, net->inner->weight.options().requires_grad(false))));
    }
  });
  EXPECT_GE(outcome.cache_hits, 6u) << outcome.str();
}

/// A rate behind a reference that changes once, before call 6. Calls 6 and 7 may be stale.
constexpr int changing_call = 6, noticing_call = 8;
template <class Wrap>
void rate_by_reference(Wrap& wrap, Log& log, bool is_trusting) {
  double rate = 1;
  auto scaled = wrap([&rate](const at::Tensor& x) { return x * rate; });
  for (int call = 1; call <= 30; ++call) {
    if (call == changing_call) rate = 0.5;
    const at::Tensor result = scaled(at::randn({3}));
    if (!is_trusting || call < changing_call || call >= noticing_call) log("result", result);
  }
}

TEST(HostState, RateByReferenceIsNoticedWhenObserved) {
  const Outcome outcome =
      like_eager([](auto& wrap, Log& log) { rate_by_reference(wrap, log, /*is_trusting=*/true); },
                 Confirm::Doubling);
  EXPECT_GT(outcome.cache_hits, 0u) << outcome.str();
}

TEST(HostState, RateByReferenceIsNoticedAtOnceIfEveryCallIsObserved) {
  const Outcome outcome =
      like_eager([](auto& wrap, Log& log) { rate_by_reference(wrap, log, /*is_trusting=*/false); },
                 Confirm::EveryCall);
  EXPECT_EQ(outcome.cache_hits, 0u);
}

TEST(HostState, RateThatChangesInEachCall) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    double rate = 1;
    auto scaled = wrap([&](const at::Tensor& x) { return x * rate; });
    for (int call = 0; call < 24; ++call) {
      log("result", scaled(at::randn({3})));
      rate *= 0.9;
    }
    scaled.explain(at::randn({3}));
  });
  expect_eager(outcome);
  EXPECT_NE(outcome.explanation.find("depends_on"), std::string::npos) << outcome.explanation;
}

TEST(HostState, StepBehindAPointer) {
  const Outcome outcome = like_eager(
      [](auto& wrap, Log& log) {
        auto step = std::make_shared<int>(0);
        auto late = wrap([step](const at::Tensor& x) { return *step > 10 ? x * 2 : x + 1; });
        for (; *step < 40; ++*step) {
          const at::Tensor result = late(at::randn({3}));
          // Step 10 is call 11, and call 16 is observed.
          if (*step <= 10 || *step >= 15) log("result", result);
        }
      },
      Confirm::Doubling);
  EXPECT_GT(outcome.cache_hits, 0u) << outcome.str();
}

TEST(HostState, MemberOfASubmodule) {
  const Outcome outcome = like_eager(
      [](auto& wrap, Log& log) {
        auto net = std::make_shared<Holding>();
        auto forward = wrap(net);
        for (int call = 1; call <= 30; ++call) {
          if (call == changing_call) net->inner->scale = 3;
          const at::Tensor result = forward(at::randn({3}));
          if (call < changing_call || call >= noticing_call) log("result", result);
        }
      },
      Confirm::Doubling);
  EXPECT_GT(outcome.cache_hits, 0u) << outcome.str();
}

TEST(HostState, NamedDependenceIsNeverStale) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    double rate = 1;
    bool is_cold = false;
    auto scaled = wrap([&](const at::Tensor& x) { return is_cold ? x + rate : x * rate; },
                       {.depends_on = [&] { return std::make_tuple(rate, is_cold); }});
    for (int call = 0; call < 40; ++call) {
      rate = call % 7 < 3 ? 0.5 : 2;
      is_cold = call % 11 == 10;
      log("result", scaled(at::randn({3})));
    }
  });
  expect_hits(outcome);
}

TEST(HostState, LearningRateOfAnOptimizerInsideAsDependence) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = torch::nn::Linear(3, 2);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    auto& options = static_cast<torch::optim::SGDOptions&>(optimizer.param_groups()[0].options());
    auto step = wrap(
        [&](const at::Tensor& x) {
          const at::Tensor loss =
              train_step(optimizer, [&] { return net->forward(x).pow(2).mean(); });
          return loss.detach();
        },
        {.depends_on = [&] { return options.lr(); }});
    for (int call = 0; call < 40; ++call) {
      if (call % 14 == 13) options.lr(options.lr() * 0.5);
      log("loss", step(at::randn({2, 3})));
      log("net", *net);
    }
  });
  expect_hits(outcome);
}

TEST(HostState, LearningRateThatFallsWithEachStep) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor weight = leaf({3});
    torch::optim::SGD optimizer({weight}, 0.1);
    auto& options = static_cast<torch::optim::SGDOptions&>(optimizer.param_groups()[0].options());
    auto step = wrap(
        [&](const at::Tensor& x) { train_step(optimizer, [&] { return (weight * x).sum(); }); });
    for (int call = 0; call < 24; ++call) {
      step(at::randn({3}));
      log("weight", weight);
      options.lr(options.lr() * 0.9);
    }
  });
  expect_eager(outcome);
}

struct Dropping : torch::nn::Module {
  Dropping()
      : fc(register_module("fc", torch::nn::Linear(6, 6))),
        drop(register_module("drop", torch::nn::Dropout(0.5))) {}
  at::Tensor forward(const at::Tensor& x) { return drop->forward(fc->forward(x)); }
  torch::nn::Linear fc;
  torch::nn::Dropout drop;
};

TEST(HostState, DropoutProbabilityIsAGuard) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = std::make_shared<Dropping>();
    auto forward = wrap(net);
    for (int call = 0; call < 40; ++call) {
      net->drop->options.p(call / 10 % 2 == 0 ? 0.5 : 0.1);
      log("result", forward(at::randn({2, 6})));
    }
  });
  expect_hits(outcome);
}

TEST(HostState, TrainingAndEvaluation) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = std::make_shared<Dropping>();
    auto forward = wrap(net);
    for (int call = 0; call < 40; ++call) {
      net->train(call % 5 != 4);
      log("result", forward(at::randn({2, 6})));
    }
  });
  expect_hits(outcome);
}

TEST(HostState, TrainingAndEvaluationOfWatchedModules) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = std::make_shared<Dropping>();
    auto forward = wrap([&](const at::Tensor& x) { return net->forward(x) * 2; }, {.watch = {net}});
    for (int call = 0; call < 40; ++call) {
      net->train(call % 5 != 4);
      log("result", forward(at::randn({2, 6})));
    }
  });
  expect_hits(outcome);
}

TEST(HostState, NumbersAndFlagsAsArguments) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto scaled = wrap([](const at::Tensor& x, double rate, bool is_cold) {
      return is_cold ? x + rate : x * rate;
    });
    for (int call = 0; call < 40; ++call)
      log("result", scaled(at::randn({3}), call % 7 < 3 ? 0.5 : 2.0, call % 5 == 4));
  });
  expect_hits(outcome);
}

}  // namespace host_state_test
}  // namespace ahead::test
