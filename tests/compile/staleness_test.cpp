#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"

namespace ahead {
namespace {

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
  // A trace and an eager run of the same call both count.
  for (int call = 0; call < 8; ++call) {
    const at::Tensor y = compiled(x);
    EXPECT_TRUE(at::equal(y, x * counter)) << call;
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
  EXPECT_EQ(compiled.stats().eager_calls, 3u);
  EXPECT_THROW(compile(f, {.fullgraph = true})(at::randn({4})), Unsupported);
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
