#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "eager/reach.h"

/// Backwards of one result after the other: what they release, and what the next one says to it.
namespace ahead::test {
namespace reach_release_test {

TEST(Reach, OneAfterTheOtherWithARetainedGraph) {
  const auto watch = [](const TwoHeads& net, HookCalls& hooks) {
    watch_heads(net, hooks);
    hooks.watch("trunk", net.trunk->bias);
  };
  expect_heads(24, watch, [](const HeadsCall& call) {
    call.l.sum().backward({}, /*retain_graph=*/true);
    call.hooks.show(call.log);
    (call.l * call.r).sum().backward({}, /*retain_graph=*/true);
    call.hooks.show(call.log);
    call.r.exp().sum().backward();
  });
}

TEST(Reach, ASecondBackwardThrows) {
  const auto watch_one = [](const TwoHeads& net, HookCalls& hooks) {
    hooks.watch("right", *net.right);
  };
  expect_heads(24, watch_one, [](const HeadsCall& call) {
    const at::Tensor loss = call.r.sum();
    loss.backward();
    call.hooks.show(call.log);
    EXPECT_THROW(loss.backward(), c10::Error);
  });
}

/// Two losses of one function, that are differentiated one after the other: a discriminator's and a
/// generator's.
TEST(Reach, OneAfterTheOther) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto left = torch::nn::Linear(3, 2), right = torch::nn::Linear(3, 2);
    auto losses = wrap([&](const at::Tensor& x) {
      return std::make_tuple(left->forward(x).tanh().pow(2).sum(),
                             right->forward(x).sigmoid().log().sum());
    });
    for (int call = 0; call < 24; ++call) {
      const auto [first, second] = losses(at::randn({5, 3}));
      if (call % 3 != 0) first.backward();
      second.backward();
      if (call % 3 == 0) first.backward();
      for (const at::Tensor& loss : {first, second})
        log("again", error_of([&] { loss.backward(); }));
      log("left", *left);
      log("right", *right);
    }
  });
  expect_hits(outcome);
}

/// Of three results two share what they are made of.
TEST(Reach, OneAfterTheOtherOfThree) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor a = leaf({3}), b = leaf({3});
    int count = 0;
    a.register_hook([&](const at::Tensor&) { ++count; });
    auto three = wrap([=](const at::Tensor& x) {
      const at::Tensor shared = (a * x).exp();
      return std::vector<at::Tensor>{shared.sin(), (b * x).tanh(), shared.cos()};
    });
    for (int call = 0; call < 24; ++call) {
      const std::vector<at::Tensor> results = three(at::randn({3}));
      for (int k = 0; k < 3; ++k) {
        const at::Tensor& result = results[static_cast<size_t>((call + k) % 3)];
        log("error", error_of([&] { result.sum().backward(); }));
      }
      log("a", a);
      log("b", b);
      log("count", count);
    }
  });
  expect_hits(outcome);
}

/// A loss and what it is made of: the backward of one lets go of all, as in eager.
TEST(Reach, ALossAndItsLogits) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = torch::nn::Linear(3, 4);
    auto both = wrap([&](const at::Tensor& x, const at::Tensor& target) {
      const at::Tensor logits = net->forward(x).tanh();
      return std::make_tuple(torch::cross_entropy_loss(logits, target), logits);
    });
    for (int call = 0; call < 24; ++call) {
      const at::Tensor x = at::randn({5, 3});
      const auto [loss, logits] = both(x, at::randint(4, {5}));
      const size_t before = x.use_count();
      loss.backward();
      log("owners let go", static_cast<double>(before - x.use_count()));
      log("error", error_of([&] { logits.sum().backward(); }));
      log("net", *net);
    }
  });
  expect_hits(outcome);
}

/// Results are held by their history only while they are needed.
TEST(Reach, NothingOutlivesTheResults) {
  const at::Tensor a = leaf({3}), b = leaf({3});
  a.register_hook([](const at::Tensor&) {});
  b.register_hook([](const at::Tensor&) {});
  Options options;
  options.confirm = Confirm::Never;
  auto two = compile(
      [a, b](const at::Tensor& x) {
        const at::Tensor first = (a * x).exp();
        return std::make_tuple(first, (first * b).sigmoid());
      },
      options);
  two(at::randn({3}));
  const at::Tensor x = at::randn({3});
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> memory;
  for (int backward = 0; backward < 3; ++backward) {
    const auto [first, second] = two(x);
    EXPECT_EQ(first.grad_fn()->name(), "CompiledFunctionBackward");
    for (const at::Tensor& result : {first, second})
      memory.emplace_back(c10::intrusive_ptr<c10::StorageImpl>::unsafe_reclaim_from_nonowning(
          result.storage().unsafeGetStorageImpl()));
    if (backward == 1) second.sum().backward();
    if (backward == 2) first.sum().backward({}, /*retain_graph=*/true);
  }
  EXPECT_EQ(x.use_count(), 1u);
  for (const auto& storage : memory) EXPECT_TRUE(storage.expired());
  EXPECT_EQ(two.stats().eager_calls, 0u);
  EXPECT_EQ(two.stats().cache_hits, 3u);
}

}  // namespace reach_release_test
}  // namespace ahead::test
