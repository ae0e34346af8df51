#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <iostream>
#include <sstream>

#include <thread>

#include "ahead/compiled_autograd.h"
#include "ahead/errors.h"
#include "ahead/interpret.h"
#include "support/eager.h"
#include "support/engine_check.h"
#include "support/trace_check.h"

namespace ahead {
namespace scopes_test {

using compiled_autograd::Disable;
using compiled_autograd::Enable;
using compiled_autograd::stats;
using test::expect_as_eager;

at::Tensor gradient() {
  const at::Tensor x = leaf({3});
  (x * x).sum().backward();
  return x.grad();
}

TEST(EngineScopes, OnlyInsideEnable) {
  compiled_autograd::reset();
  gradient();
  EXPECT_EQ(stats().captures, 0u);
  {
    Enable on;
    gradient();
    EXPECT_EQ(stats().captures, 1u);
    {
      Disable off;
      gradient();
      {
        Enable again;
        gradient();
      }
    }
  }
  gradient();
  EXPECT_EQ(stats().captures, 1u);
  EXPECT_EQ(stats().cache_hits, 1u);
  EXPECT_EQ(stats().eager_fallbacks, 0u);
}

TEST(EngineScopes, MustEndInOrder) {
  auto outer = std::make_unique<Enable>();
  auto inner = std::make_unique<Disable>();
  try {
    delete outer.release();
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_NE(error.msg().find("Nested Compiled Autograd Contexts must return before their parent"),
              std::string::npos);
  }
  EXPECT_THROW(delete inner.release(), UserError);
}

TEST(EngineScopes, UnknownBackend) {
  EXPECT_THROW(Enable({.backend = "none of this name"}), UserError);
}

TEST(EngineScopes, ResetForgets) {
  {
    Enable on;
    gradient();
  }
  compiled_autograd::reset();
  EXPECT_EQ(stats().captures, 0u);
  EXPECT_TRUE(compiled_autograd::graphs().empty());
  EXPECT_TRUE(compiled_autograd::reasons().empty());
}

TEST(EngineScopes, FullgraphThrowsInstead) {
  Enable on({.fullgraph = true});
  const at::Tensor x = leaf({3});
  gradient();
  torch::autograd::DetectAnomalyGuard anomaly;
  EXPECT_THROW(torch::autograd::grad({x.pow(4).sum()}, {x}), Unsupported);
}

/// Its gradient is a function of the user's that must not be traced.
struct Doubled : torch::autograd::Function<Doubled> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return x * 2;
  }
  static std::vector<at::Tensor> backward(torch::autograd::AutogradContext*,
                                          std::vector<at::Tensor> gradients) {
    return {gradients[0] * 2};
  }
};

TEST(EngineScopes, FullgraphNamesTheCut) {
  Enable on({.fullgraph = true});
  const at::Tensor x = leaf({3});
  try {
    x.exp().cumprod(0).sin().sum().backward();
    FAIL() << "it is cut";
  } catch (const Unsupported& error) {
    EXPECT_NE(error.msg().find("CumprodBackward0"), std::string::npos) << error.msg();
    EXPECT_NE(error.msg().find("(step 3)"), std::string::npos) << error.msg();
    EXPECT_NE(error.msg().find("reads values"), std::string::npos) << error.msg();
  }
  EXPECT_FALSE(x.grad().defined());
  x.backward(torch::ones({3}));
  EXPECT_TRUE(x.grad().defined());
}

TEST(EngineScopes, EveryEagerNodeAndCutIsCounted) {
  const auto counted = expect_as_eager([] {
    const at::Tensor x = leaf({3});
    const at::Tensor g = x.exp().cumprod(0).cumprod(0);
    (g * g).sum().backward();
    return std::vector<at::Tensor>{x.grad()};
  });
  EXPECT_EQ(counted.eager_nodes, 6u);
  EXPECT_EQ(counted.cuts, 3u);  // the two stand side by side
  EXPECT_EQ(counted.captures, 1u);
  EXPECT_EQ(counted.cache_hits, 2u);
  EXPECT_NE(test::all_reasons().find("reads values"), std::string::npos) << test::all_reasons();
}

TEST(EngineScopes, UserCodeIsCalledAndNoCut) {
  const auto counted = expect_as_eager(
      [] {
        const at::Tensor x = leaf({3});
        const at::Tensor g = Doubled::apply(Doubled::apply(x.exp()));
        (g * g).sum().backward();
        return std::vector<at::Tensor>{x.grad()};
      },
      3, {.fullgraph = true});
  EXPECT_EQ(counted.eager_nodes + counted.cuts, 0u) << test::all_reasons();
  EXPECT_EQ(counted.calls, 6u);
  EXPECT_EQ(counted.captures, 1u);
  EXPECT_EQ(counted.cache_hits, 2u);
  EXPECT_NE(test::all_reasons().find("does not say is_traceable"), std::string::npos)
      << test::all_reasons();
  ASSERT_EQ(compiled_autograd::graphs().size(), 1u);
  EXPECT_EQ(count(*compiled_autograd::graphs()[0], "ahead.call_hook"), 2u)
      << compiled_autograd::graphs()[0]->str();
}

TEST(EngineScopes, FirstRunIsNoHitEvenIfNothingIsTraced) {
  const auto counted = expect_as_eager([] {
    const at::Tensor x = leaf({3});
    Doubled::apply(x).backward(torch::ones({3}));
    return std::vector<at::Tensor>{x.grad()};
  });
  EXPECT_EQ(counted.compiles, 0u);
  EXPECT_EQ(counted.captures, 1u);
  EXPECT_EQ(counted.cache_hits, 2u);
}

TEST(EngineScopes, VerbosePrintsReasons) {
  compiled_autograd::reset();
  std::ostringstream printed;
  std::streambuf* const before = std::clog.rdbuf(printed.rdbuf());
  {
    Enable on({.verbose = true});
    gradient();
    torch::autograd::DetectAnomalyGuard anomaly;
    gradient();
  }
  std::clog.rdbuf(before);
  for (const std::string& reason : compiled_autograd::reasons())
    EXPECT_NE(printed.str().find("[ahead compiled autograd] " + reason), std::string::npos);
  EXPECT_NE(printed.str().find("anomaly mode is on"), std::string::npos) << printed.str();
}

TEST(EngineScopes, AnomalyModeIsEagers) {
  test::expect_error_as_eager([] {
    torch::autograd::DetectAnomalyGuard anomaly(/*check_nan=*/true);
    const at::Tensor x = torch::zeros({3}, torch::requires_grad());
    (x.sqrt() * 0).sum().backward();
    return std::vector<at::Tensor>{x.grad()};
  });
}

TEST(EngineScopes, BackwardInsideAHookIsEager) {
  const auto counted = expect_as_eager([] {
    const at::Tensor x = leaf({3}), y = leaf({3});
    const at::Tensor h = x * 2;
    h.register_hook([y](const at::Tensor& grad) {
      at::AutoGradMode on(true);
      (y * y).sum().backward();
      return grad + y.grad();
    });
    h.sin().sum().backward();
    return std::vector<at::Tensor>{x.grad(), y.grad()};
  });
  EXPECT_EQ(counted.captures, 1u);
}

TEST(EngineScopes, VerboseAndBounded) {
  compiled_autograd::reset();
  Enable on({.dynamic = false, .cache_limit = 2});
  for (int64_t size : {2, 3, 4, 2, 3, 4}) {
    const at::Tensor x = leaf({size});
    (x * x).sum().backward();
  }
  // The third one comes no more often than those that are kept.
  EXPECT_EQ(stats().captures, 4u);
  EXPECT_EQ(compiled_autograd::graphs().size(), 2u);
  const auto reasons = compiled_autograd::reasons();
  EXPECT_NE(reasons[0].find("no backward was captured before"), std::string::npos) << reasons[0];
  EXPECT_NE(reasons[1].find("changed tensor sizes"), std::string::npos) << reasons[1];
}

TEST(EngineScopes, MissNamesTheNode) {
  compiled_autograd::reset();
  Enable on;
  const at::Tensor x = leaf({3});
  x.sin().sum().backward();
  x.cos().sum().backward();
  EXPECT_NE(compiled_autograd::reasons().back().find("CosBackward0 (NodeCall 2)"),
            std::string::npos)
      << compiled_autograd::reasons().back();
}

TEST(EngineScopes, OtherSurroundingsAreOtherPrograms) {
  compiled_autograd::reset();
  Enable on;
  at::Context& context = at::globalContext();
  for (int round = 0; round < 2; ++round) {
    gradient();
    context.setDeterministicAlgorithms(true, /*warn_only=*/true);
    gradient();
    context.setDeterministicAlgorithms(true, /*warn_only=*/false);
    gradient();
    context.setDeterministicAlgorithms(false, false);
    at::autocast::set_autocast_cache_enabled(false);
    gradient();
    at::autocast::set_autocast_cache_enabled(true);
  }
  EXPECT_EQ(stats().captures, 4u);
  EXPECT_EQ(stats().cache_hits, 4u);
}

TEST(EngineScopes, ScopesBelongToTheirThread) {
  compiled_autograd::reset();
  Enable on;
  std::thread other([] { gradient(); });
  other.join();
  EXPECT_EQ(stats().captures, 0u);
}

TEST(EngineScopes, SeveralThreadsAtOnce) {
  compiled_autograd::reset();
  torch::manual_seed(0);
  const at::Tensor x = torch::randn({4, 4}), w = torch::randn({4, 4});
  const auto compute = [&] {
    const at::Tensor v = w.detach().requires_grad_();
    v.register_hook([](const at::Tensor& grad) { return grad * 2; });
    x.mm(v).tanh().mm(v).sum().backward();
    return v.grad();
  };
  const at::Tensor expected = compute();
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      Enable on;
      for (int i = 0; i < 25; ++i) wrong += !same_values(compute(), expected);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(stats().cache_hits + stats().cache_misses, 100u);
}

}  // namespace scopes_test
}  // namespace ahead
