#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "support/eager.h"
#include "support/hits.h"

namespace ahead {
namespace staleness_test {

TEST(Staleness, CapturedTensorReplaced) {
  at::Tensor w = leaf({3});
  auto compiled =
      compile([&](const at::Tensor& x) { return x * w; }, {.fullgraph = true, .confirm = 0});
  for (int call = 0; call < 8; ++call) {
    if (call % 2 == 0) w = leaf({3});
    const at::Tensor x = at::randn({3});
    EXPECT_TRUE(at::equal(compiled(x), x * w)) << call;
    EXPECT_EQ(compiled.stats().cache_hits, static_cast<uint64_t>(call + 1) / 2);
  }
}

struct Scale : torch::nn::Module {
  Scale() : w(register_parameter("w", at::randn({3}))) {}
  at::Tensor forward(const at::Tensor& x) { return x * w; }
  at::Tensor w;
};

TEST(Staleness, ParameterOfAModuleReplaced) {
  auto module = std::make_shared<Scale>();
  auto compiled = compile(module, {.fullgraph = true, .confirm = 0});
  const at::Tensor x = at::randn({3});
  uint64_t num_hits = 0;
  const auto expect_two_hits = [&] {
    for (int call = 0; call < 3; ++call) EXPECT_TRUE(at::equal(compiled(x), x * module->w));
    num_hits += 2;
    EXPECT_EQ(compiled.stats().cache_hits, num_hits);
  };
  expect_two_hits();
  module->w = at::randn({3});
  expect_two_hits();
  module->w.set_data(at::randn({3}, at::kDouble));
  expect_two_hits();
  module->to(at::kFloat);
  for (int call = 0; call < 3; ++call) EXPECT_TRUE(at::equal(compiled(x), x * module->w));
  EXPECT_GE(compiled.stats().cache_hits, num_hits + 2);
}

TEST(Staleness, ParameterFrozenAndUnfrozen) {
  auto module = std::make_shared<Scale>();
  auto compiled = compile(module, {.fullgraph = true, .confirm = 0});
  const at::Tensor x = at::randn({3});
  for (bool flag : {true, false, true, true, false}) {
    module->w.set_requires_grad(flag);
    EXPECT_EQ(compiled(x).requires_grad(), flag);
  }
  expect_hits(compiled, 2);
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
  for (int call = 0; call < 8; ++call) EXPECT_TRUE(at::equal(compiled(x), x * 3)) << call;
  EXPECT_GT(compiled.stats().cache_hits, 0u);
  EXPECT_EQ(compiled.stats().traces, 1u);
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
  EXPECT_EQ(compiled.stats().cache_hits, 0u);
}

struct Remembers {
  at::Tensor mean;
  at::Tensor operator()(const at::Tensor& x) {
    mean = x.mean();
    return x - mean;
  }
};

TEST(Staleness, StoredTensorsAreEagers) {
  for (const bool requires_grad : {false, true}) {
    auto state = std::make_shared<Remembers>();
    auto compiled =
        compile([state](const at::Tensor& x) { return (*state)(x); }, {.fullgraph = true});
    Remembers eager;
    std::vector<at::Tensor> held, expected_held;
    for (int call = 0; call < 12; ++call) {
      const at::Tensor x = at::randn({4}).set_requires_grad(requires_grad);
      EXPECT_TRUE(at::equal(compiled(x), eager(x))) << call;
      EXPECT_TRUE(at::equal(state->mean, eager.mean)) << call;
      EXPECT_EQ(state->mean._version(), eager.mean._version()) << call;
      EXPECT_EQ(state->mean.requires_grad(), requires_grad) << call;
      if (requires_grad) {
        EXPECT_TRUE(at::equal(torch::autograd::grad({state->mean.exp()}, {x})[0],
                              torch::autograd::grad({eager.mean.exp()}, {x})[0]));
      }
      // What somebody else has stays what it is.
      if (call < 8) continue;
      held.push_back(state->mean);
      expected_held.push_back(eager.mean);
      for (size_t i = 0; i < held.size(); ++i)
        EXPECT_TRUE(at::equal(held[i], expected_held[i])) << call;
    }
    EXPECT_GE(compiled.stats().cache_hits, 4u);
    EXPECT_EQ(compiled.stats().eager_calls, 0u);
  }
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
    for (int call = 0; call < 8; ++call) {
      const at::Tensor x = at::randn({4}).set_requires_grad(requires_grad);
      torch::manual_seed(call);
      const at::Tensor wanted = (*expected)(x);
      const at::Tensor state = random_state();
      torch::manual_seed(call);
      const at::Tensor got = compiled(x);
      EXPECT_TRUE(at::equal(got, wanted)) << "call " << call;
      EXPECT_TRUE(at::equal(state, random_state()));
      if (!requires_grad) continue;
      EXPECT_TRUE(at::equal(torch::autograd::grad({got.sum()}, {x})[0],
                            torch::autograd::grad({wanted.sum()}, {x})[0]));
    }
    EXPECT_TRUE(at::equal(filled->scale, expected->scale));
    EXPECT_EQ(filled->scale._version(), expected->scale._version());
    EXPECT_TRUE(filled->scale.is_leaf());
    EXPECT_EQ(filled->scale.item<float>(), expected->scale.item<float>());
    EXPECT_EQ(compiled.stats().eager_calls, 0u);
    EXPECT_GE(compiled.stats().cache_hits, 3u);
    EXPECT_EQ(compiled.stats().traces, 1u);
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
    for (int call = 0; call < 10; ++call) {
      const at::Tensor x = at::ones({3});
      losses.push_back((is_compiled ? compiled(x) : step(x)).item<float>());
    }
    // It counts its steps on the host.
    EXPECT_EQ(compiled.stats().cache_hits, 0u);
    EXPECT_EQ(compiled.stats().eager_calls != 0, is_compiled);
    return std::make_pair(losses, weight.detach().clone());
  };
  const auto [expected_losses, expected] = train(false);
  const auto [losses, weight] = train(true);
  EXPECT_EQ(losses, expected_losses);
  EXPECT_TRUE(at::equal(weight, expected));
}

TEST(Staleness, CachesThatShareMemoryWithAResult) {
  at::Tensor kept;
  auto compiled = compile(
      [&](const at::Tensor& x) {
        if (!kept.defined()) kept = x * 2;
        return kept.view({-1});
      },
      {.fullgraph = true});
  for (int call = 0; call < 8; ++call) {
    const at::Tensor result = compiled(at::full({2, 1}, call + 1.0));
    EXPECT_TRUE(at::equal(result, at::full({2}, 2.0 + call)));
    EXPECT_TRUE(result.is_alias_of(kept));
    result.add_(1);
    EXPECT_TRUE(at::equal(kept, at::full({2, 1}, 3.0 + call)));
  }
  EXPECT_GT(compiled.stats().cache_hits, 0u);
}

/// Gradients taken inside depend on what the arguments were computed from outside.
TEST(Staleness, ArgumentsComputedFromEachOtherInLaterCalls) {
  auto f = [](const at::Tensor& x, const at::Tensor& y) {
    return torch::autograd::grad({(x * y).sum()}, {x}, {}, /*retain_graph=*/true,
                                 /*create_graph=*/true)[0];
  };
  for (const bool is_leaf : {false, true}) {
    auto compiled = compile(f, {.confirm = 0});
    for (int call = 0; call < 8; ++call) {
      const at::Tensor leaf = at::randn({3}).set_requires_grad(true);
      const at::Tensor x = is_leaf ? leaf : leaf * 2;
      const at::Tensor y = call < 4 ? at::randn({3}).set_requires_grad(true) * 3 : x * 3;
      EXPECT_TRUE(at::equal(compiled(x, y), f(x, y))) << "call " << call;
    }
    EXPECT_EQ(compiled.stats().cache_hits, 3u);
    EXPECT_GT(compiled.stats().eager_calls, 0u);
  }
}

/// A checkpoint copies what it may call again, and a tensor with it, until the backward has run.
TEST(Staleness, TensorThatACheckpointOwnsForAWhileIsReplaced) {
  at::Tensor w = leaf({3, 3});
  const auto function = [&w](const at::Tensor& x) {
    const auto block = [w](const at::Tensor& in) { return at::tanh(in.mm(w)); };
    return checkpoint(CheckpointPolicy::recompute_everything(), block, x).sum();
  };
  auto compiled = compile(function, {.fullgraph = true});
  for (int call = 0; call < 32; ++call) {
    if (call == 20) w = leaf({3, 3});
    const at::Tensor x = at::randn({4, 3}), loss = compiled(x), expected = function(x);
    EXPECT_TRUE(at::equal(loss, expected)) << call;
    EXPECT_TRUE(
        at::equal(torch::autograd::grad({loss}, {w})[0], torch::autograd::grad({expected}, {w})[0]))
        << call;
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0u);
  EXPECT_GE(compiled.stats().cache_hits, 20u);
}

TEST(Staleness, KeptArgumentsRunEagerly) {
  at::Tensor last;
  auto f = [&](const at::Tensor& x) {
    last = x;
    return x.sin();
  };
  auto compiled = compile(f);
  for (int call = 0; call < 6; ++call) {
    const at::Tensor x = at::randn({4});
    EXPECT_TRUE(at::equal(compiled(x), x.sin()));
    EXPECT_TRUE(last.is_same(x)) << call;
  }
  EXPECT_EQ(compiled.stats().cache_hits, 0u);
  EXPECT_GT(compiled.stats().eager_calls, 0u);
}

}  // namespace staleness_test
}  // namespace ahead
