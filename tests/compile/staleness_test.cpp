#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"

namespace ahead {
namespace {

at::Tensor default_generator_state() {
  return at::detail::getDefaultCPUGenerator().get_state();
}

at::Tensor leaf(at::IntArrayRef sizes) {
  return at::randn(sizes).set_requires_grad(true);
}

TEST(Staleness, CapturedTensorReplaced) {
  at::Tensor w = leaf({3});
  auto compiled = compile([&](const at::Tensor& x) { return x * w; }, {.fullgraph = true});
  for (int call = 0; call < 8; ++call) {
    if (call % 2 == 0) w = leaf({3});
    const at::Tensor x = at::randn({3});
    EXPECT_TRUE(at::equal(compiled(x), x * w)) << call;
  }
}

struct Scale : torch::nn::Module {
  Scale() : w(register_parameter("w", at::randn({3}))) {}
  at::Tensor forward(const at::Tensor& x) { return x * w; }
  at::Tensor w;
};

TEST(Staleness, ParameterOfAModuleReplaced) {
  auto module = std::make_shared<Scale>();
  auto compiled = compile(module, {.fullgraph = true});
  const at::Tensor x = at::randn({3});
  for (int call = 0; call < 3; ++call) EXPECT_TRUE(at::equal(compiled(x), x * module->w));
  module->w = at::randn({3});
  EXPECT_TRUE(at::equal(compiled(x), x * module->w));
  module->w.set_data(at::randn({3}, at::kDouble));
  EXPECT_TRUE(at::equal(compiled(x), x * module->w));
  module->to(at::kFloat);
  EXPECT_TRUE(at::equal(compiled(x), x * module->w));
}

TEST(Staleness, ParameterFrozenAndUnfrozen) {
  auto module = std::make_shared<Scale>();
  auto compiled = compile(module, {.fullgraph = true});
  const at::Tensor x = at::randn({3});
  for (bool flag : {true, false, true, true, false}) {
    module->w.set_requires_grad(flag);
    EXPECT_EQ(compiled(x).requires_grad(), flag);
  }
  EXPECT_LE(compiled.stats().traces, 4u);
}

TEST(Staleness, OtherBehaviourOnTheFirstRun) {
  bool initialised = false;
  const auto f = [&](const at::Tensor& x) {
    if (!initialised) {
      initialised = true;
      return x * 2;
    }
    return x * 3;
  };
  auto compiled = compile(f, {.fullgraph = true});
  const at::Tensor x = at::randn({3});
  EXPECT_TRUE(at::equal(compiled(x), x * 2));
  for (int call = 0; call < 3; ++call) EXPECT_TRUE(at::equal(compiled(x), x * 3)) << call;
}

TEST(Staleness, CountersRunEagerlyInTheEnd) {
  int counter = 0;
  const auto f = [&](const at::Tensor& x) { return x * ++counter; };
  auto compiled = compile(f);
  const at::Tensor x = at::ones({3});
  for (int call = 1; call <= 8; ++call) {
    EXPECT_TRUE(at::equal(compiled(x), x * call)) << call;
    EXPECT_EQ(counter, call) << "the function runs once in each call";
  }
  EXPECT_GT(compiled.stats().eager_calls, 0u);
}

struct Remembers {
  at::Tensor mean;
  at::Tensor operator()(const at::Tensor& x) {
    mean = x.mean();
    return x - mean;
  }
};

TEST(Staleness, EscapedTensorsRunEagerly) {
  auto state = std::make_shared<Remembers>();
  auto f = [state](const at::Tensor& x) { return (*state)(x); };
  auto compiled = compile(f);
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = at::randn({4});
    EXPECT_TRUE(at::equal(compiled(x), x - x.mean()));
    EXPECT_TRUE(at::equal(state->mean, x.mean()));
  }
  // The first time it might have been a cache, filled once and for all.
  EXPECT_EQ(compiled.stats().eager_calls, 2u);
  EXPECT_THROW(compile(f, {.fullgraph = true})(at::randn({4})), Unsupported);
}

/// Makes a tensor in its first call and keeps it.
struct Caches {
  at::Tensor scale, mask;
  at::Tensor operator()(const at::Tensor& x) {
    if (!scale.defined()) scale = x.detach().abs().mean().mul_(3);
    if (!mask.defined()) mask = at::rand_like(x).gt_(0.5);
    return x / scale * mask;
  }
};

TEST(Staleness, CachesAreFilledInTheFirstCall) {
  for (const bool requires_grad : {false, true}) {
    auto filled = std::make_shared<Caches>(), expected = std::make_shared<Caches>();
    auto compiled = compile([filled](const at::Tensor& x) { return (*filled)(x); });
    for (int call = 0; call < 4; ++call) {
      const at::Tensor x = at::randn({4}).set_requires_grad(requires_grad);
      torch::manual_seed(call);
      const at::Tensor wanted = (*expected)(x);
      const at::Tensor state = default_generator_state();
      torch::manual_seed(call);
      const at::Tensor got = compiled(x);
      EXPECT_TRUE(at::equal(got, wanted)) << "call " << call;
      EXPECT_TRUE(at::equal(state, default_generator_state()));
      if (!requires_grad) continue;
      EXPECT_TRUE(at::equal(torch::autograd::grad({got.sum()}, {x})[0],
                            torch::autograd::grad({wanted.sum()}, {x})[0]));
    }
    EXPECT_TRUE(at::equal(filled->scale, expected->scale));
    EXPECT_EQ(filled->scale._version(), expected->scale._version());
    EXPECT_TRUE(filled->scale.is_leaf());
    EXPECT_EQ(filled->scale.item<float>(), expected->scale.item<float>());
    EXPECT_EQ(compiled.stats().eager_calls, 0u);
    EXPECT_EQ(compiled.programs().empty(), false);
    // It is a tensor like any other: it can be written to, copied and differentiated.
    filled->scale.mul_(2).requires_grad_();
    (filled->scale * 3).backward();
    EXPECT_EQ(filled->scale.grad().item<float>(), 3);
  }
}

TEST(Staleness, StateOfAnOptimiserIsMadeInTheFirstCall) {
  const auto train = [](bool is_compiled) {
    torch::manual_seed(1);
    const at::Tensor weight = at::randn({3}).requires_grad_();
    torch::optim::Adam optimiser({weight}, /*lr=*/0.1);
    const auto step = [&](const at::Tensor& x) {
      optimiser.zero_grad();
      const at::Tensor loss = (weight * x).pow(2).sum();
      loss.backward();
      optimiser.step();
      return loss.detach();
    };
    auto compiled = compile(step);
    std::vector<float> losses;
    for (int call = 0; call < 6; ++call) {
      const at::Tensor x = at::ones({3});
      losses.push_back((is_compiled ? compiled(x) : step(x)).item<float>());
    }
    return std::make_pair(losses, weight.detach().clone());
  };
  const auto [expected_losses, expected] = train(false);
  const auto [losses, weight] = train(true);
  EXPECT_EQ(losses, expected_losses);
  EXPECT_TRUE(at::equal(weight, expected));
}

TEST(Staleness, CachesThatShareMemoryWithAResultAreRefused) {
  at::Tensor kept;
  const auto f = [&](const at::Tensor& x) {
    if (!kept.defined()) kept = x * 2;
    return kept.view({-1});
  };
  EXPECT_THROW(compile(f, {.fullgraph = true})(at::ones({2})), Unsupported);
}

/// Gradients taken inside depend on what the arguments were computed from outside.
TEST(Staleness, ArgumentsComputedFromEachOtherInLaterCalls) {
  auto f = [](const at::Tensor& x, const at::Tensor& y) {
    return torch::autograd::grad({(x * y).sum()}, {x}, {}, /*retain_graph=*/true,
                                 /*create_graph=*/true)[0];
  };
  for (const bool is_leaf : {false, true}) {
    auto compiled = compile(f);
    for (int call = 0; call < 6; ++call) {
      const at::Tensor leaf = at::randn({3}).set_requires_grad(true);
      const at::Tensor x = is_leaf ? leaf : leaf * 2;
      const at::Tensor y = call < 4 ? at::randn({3}).set_requires_grad(true) * 3 : x * 3;
      EXPECT_TRUE(at::equal(compiled(x, y), f(x, y))) << "call " << call;
    }
    EXPECT_EQ(compiled.stats().eager_calls, 2u);
  }
}

TEST(Staleness, KeptArgumentsRunEagerly) {
  at::Tensor last;
  auto f = [&](const at::Tensor& x) {
    last = x;
    return x.sin();
  };
  auto compiled = compile(f);
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = at::randn({4});
    EXPECT_TRUE(at::equal(compiled(x), x.sin()));
    EXPECT_TRUE(last.is_same(x));
  }
  EXPECT_EQ(compiled.stats().eager_calls, 3u);
}

}  // namespace
}  // namespace ahead
