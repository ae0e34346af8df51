#include <gtest/gtest.h>
#include <torch/csrc/autograd/cpp_hook.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>
#include <torch/torch.h>

#include "ahead/compiled_autograd.h"
#include "support/eager.h"
#include "support/engine_check.h"

namespace ahead {
namespace hooks_test {

using test::expect_as_eager;
using torch::autograd::FunctionPostHook;
using torch::autograd::FunctionPreHook;
using torch::autograd::PostAccumulateGradHook;
using torch::autograd::variable_list;

/// What hooks were called, in order, as numbers that can be compared with eager's.
struct Log {
  void add(int64_t event) { events.push_back(event); }
  at::Tensor tensor() const { return torch::tensor(events, at::kLong); }
  std::vector<int64_t> events;
};

struct PreHook : FunctionPreHook {
  PreHook(std::shared_ptr<Log> log, int64_t event, double factor)
      : log(std::move(log)), event(event), factor(factor) {}
  variable_list operator()(const variable_list& grads) override {
    log->add(event);
    variable_list results;
    for (const at::Tensor& grad : grads) results.push_back(grad.defined() ? grad * factor : grad);
    return results;
  }
  std::shared_ptr<Log> log;
  int64_t event;
  double factor;
};

struct PostHook : FunctionPostHook {
  PostHook(std::shared_ptr<Log> log, int64_t event, double factor)
      : log(std::move(log)), event(event), factor(factor) {}
  variable_list operator()(const variable_list& outputs, const variable_list&) override {
    log->add(event);
    variable_list results;
    for (const at::Tensor& out : outputs) results.push_back(out.defined() ? out * factor : out);
    return results;
  }
  std::shared_ptr<Log> log;
  int64_t event;
  double factor;
};

struct PostAccumulate : PostAccumulateGradHook {
  PostAccumulate(std::shared_ptr<Log> log, int64_t event) : log(std::move(log)), event(event) {}
  void operator()(const at::Tensor& tensor) override {
    log->add(event);
    at::NoGradGuard no_grad;
    tensor.mutable_grad().add_(3);
  }
  std::shared_ptr<Log> log;
  int64_t event;
};

TEST(EngineHooks, TensorHookOnIntermediate) {
  const auto stats = expect_as_eager([] {
    auto log = std::make_shared<Log>();
    const at::Tensor x = leaf({4});
    const at::Tensor h = x * 2;
    h.register_hook([log](const at::Tensor& grad) {
      log->add(1);
      return grad * 3;
    });
    (h.sin() * h).sum().backward();
    return std::vector<at::Tensor>{x.grad(), log->tensor()};
  });
  EXPECT_EQ(stats.captures, 1u);
  EXPECT_EQ(stats.compiles, 2u);  // the pieces before and after the hook
  EXPECT_EQ(stats.cuts, 0u);
  EXPECT_EQ(stats.eager_fallbacks, 0u);
}

TEST(EngineHooks, HooksBetweenManyNodesCutTheGraph) {
  const auto stats = expect_as_eager([] {
    const at::Tensor x = leaf({4});
    const at::Tensor h = x.exp() * x;
    h.register_hook([](const at::Tensor& grad) { return grad + 1; });
    (h.sin() * h).cos().sum().backward();
    return std::vector<at::Tensor>{x.grad()};
  });
  EXPECT_EQ(stats.captures, 1u);
  EXPECT_EQ(stats.compiles, 2u);
  EXPECT_EQ(stats.cache_hits, 2u);
}

TEST(EngineHooks, SeveralTensorHooksRunInOrder) {
  expect_as_eager([] {
    auto log = std::make_shared<Log>();
    const at::Tensor x = leaf({4});
    for (int i = 0; i < 3; ++i) {
      x.register_hook([log, i](const at::Tensor& grad) {
        log->add(i);
        return grad * (i + 2) + 1;
      });
    }
    (x * x).sum().backward();
    return std::vector<at::Tensor>{x.grad(), log->tensor()};
  });
}

TEST(EngineHooks, HookThatReturnsNothing) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4});
    at::Tensor seen;
    const at::Tensor h = x.exp();
    h.register_hook([&seen](const at::Tensor& grad) { seen = grad.clone(); });
    (h * h).sum().backward();
    return std::vector<at::Tensor>{x.grad(), seen};
  });
}

TEST(EngineHooks, GradHeldByHookIsCopied) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4});
    at::Tensor held;
    x.register_hook([&held](const at::Tensor& grad) { held = grad; });
    (x * x * 3).sum().backward();
    const bool is_shared = held.is_alias_of(x.grad());
    return std::vector<at::Tensor>{x.grad(), held, torch::tensor(is_shared)};
  });
}

TEST(EngineHooks, HookThatChangesTheLayout) {
  const auto stats = expect_as_eager([] {
    const at::Tensor x = leaf({4, 3});
    const at::Tensor h = x.exp();
    h.register_hook([](const at::Tensor& grad) { return grad.t().contiguous().t(); });
    h.relu().mm(torch::ones({3, 2})).sum().backward();
    return std::vector<at::Tensor>{x.grad()};
  });
  EXPECT_EQ(stats.captures, 1u);
}

TEST(EngineHooks, HookWhoseResultDiffersEachTime) {
  int calls = 0;
  const auto program = [&] {
    const at::Tensor x = leaf({4, 3});
    const at::Tensor h = x.exp() * 2;
    h.register_hook([&](const at::Tensor& grad) {
      return calls % 2 == 0 ? grad * 2 : grad.t().contiguous().t() * 5;
    });
    (h * h).sum().backward();
    return x.grad();
  };
  for (int i = 0; i < 6; ++i) {
    calls = i;
    torch::manual_seed(1);
    const at::Tensor expected = program();
    compiled_autograd::Enable on;
    torch::manual_seed(1);
    const at::Tensor got = program();
    EXPECT_TRUE(same_values(got, expected));
    EXPECT_EQ(got.strides(), expected.strides());
  }
}

TEST(EngineHooks, NodeHooksOfAllKinds) {
  const auto stats = expect_as_eager([] {
    auto log = std::make_shared<Log>();
    const at::Tensor x = leaf({4}), y = leaf({4});
    const at::Tensor h = x * y;
    const auto node = h.grad_fn();
    node->add_pre_hook(std::make_unique<PreHook>(log, 1, 5));
    node->add_pre_hook(std::make_unique<PreHook>(log, 2, 0.3));
    node->add_post_hook(std::make_unique<PostHook>(log, 3, 0.5));
    node->add_post_hook(std::make_unique<PostHook>(log, 4, 7));
    h.register_hook([log](const at::Tensor& grad) {
      log->add(5);
      return grad - 2;
    });
    (h.exp() + h.tanh()).sum().backward();
    return std::vector<at::Tensor>{x.grad(), y.grad(), log->tensor()};
  });
  EXPECT_EQ(stats.captures, 1u);
}

TEST(EngineHooks, AllHooksOfAParameterInEagersOrder) {
  expect_as_eager([] {
    auto log = std::make_shared<Log>();
    torch::nn::Sequential net(torch::nn::Linear(4, 4), torch::nn::Tanh(), torch::nn::Linear(4, 4));
    int64_t event = 0;
    std::vector<decltype(torch::autograd::Edge::function)> keep;
    for (const at::Tensor& p : net->parameters()) {
      p.register_hook([log, event](const at::Tensor& grad) {
        log->add(event);
        return grad - 2;
      });
      auto accumulator = torch::autograd::impl::grad_accumulator(p);
      accumulator->add_pre_hook(std::make_unique<PreHook>(log, event + 1, 0.2));
      torch::autograd::impl::set_post_acc_grad_hooks(
          p, std::make_unique<PostAccumulate>(log, event + 2));
      accumulator->add_post_hook(std::make_unique<PostHook>(log, event + 3, 0.5));
      keep.push_back(accumulator);
      event += 10;
    }
    net->forward(torch::randn({2, 4})).sum().backward();
    std::vector<at::Tensor> results{log->tensor()};
    for (const at::Tensor& p : net->parameters()) results.push_back(p.grad());
    return results;
  });
}

TEST(EngineHooks, RetainGradOfIntermediates) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4});
    const at::Tensor h = x * 2;
    const at::Tensor k = h.sin();
    h.retain_grad();
    k.retain_grad();
    k.register_hook([](const at::Tensor& grad) { return grad * 2; });
    (k * h).sum().backward();
    return std::vector<at::Tensor>{x.grad(), h.grad(), k.grad()};
  });
}

TEST(EngineHooks, HooksOnWhatGradReturns) {
  expect_as_eager([] {
    auto log = std::make_shared<Log>();
    const at::Tensor x = leaf({4});
    const at::Tensor h = x.exp();
    const at::Tensor k = h * h;
    int64_t event = 0;
    for (const at::Tensor& t : {x, h, k}) {
      ++event;
      t.register_hook([log, event](const at::Tensor& grad) {
        log->add(event);
        return grad * 2;
      });
    }
    variable_list grads = torch::autograd::grad({k.sum()}, {x, h, k});
    grads.push_back(log->tensor());
    return grads;
  });
}

TEST(EngineHooks, PostAccumulateHookThatUpdatesTheParameter) {
  expect_as_eager([] {
    struct Update : PostAccumulateGradHook {
      void operator()(const at::Tensor& tensor) override {
        at::NoGradGuard no_grad;
        tensor.sub_(tensor.grad(), 0.1);
        tensor.mutable_grad().reset();
      }
    };
    const at::Tensor w = leaf({3, 3}), b = leaf({3});
    for (const at::Tensor& p : {w, b}) {
      torch::autograd::impl::set_post_acc_grad_hooks(p, std::make_unique<Update>());
    }
    (torch::randn({2, 3}).mm(w) + b).tanh().sum().backward();
    return std::vector<at::Tensor>{w, b, w.grad(), b.grad()};
  });
}

TEST(EngineHooks, HookThatWritesToASavedTensorThrowsAsEager) {
  test::expect_error_as_eager([] {
    const at::Tensor x = leaf({3});
    const at::Tensor w = torch::randn({3});
    const at::Tensor h = x * w;
    const at::Tensor k = h * 2;
    k.register_hook([w](const at::Tensor& grad) {
      w.add_(1);
      return grad;
    });
    k.sum().backward();
    return std::vector<at::Tensor>{x.grad()};
  });
}

TEST(EngineHooks, FinalCallbacksRunOnceAfterEverything) {
  expect_as_eager([] {
    auto log = std::make_shared<Log>();
    const at::Tensor x = leaf({4});
    const at::Tensor h = x * 2;
    h.register_hook([log](const at::Tensor& grad) {
      log->add(1);
      torch::autograd::Engine::get_default_engine().queue_callback([log] {
        log->add(2);
        torch::autograd::Engine::get_default_engine().queue_callback([log] { log->add(3); });
      });
      return grad;
    });
    x.register_hook([log](const at::Tensor& grad) {
      log->add(4);
      return grad;
    });
    h.sum().backward();
    return std::vector<at::Tensor>{x.grad(), log->tensor()};
  });
}

TEST(EngineHooks, ThrowingHookLeavesNothingBehind) {
  compiled_autograd::Enable on;
  const at::Tensor x = leaf({4});
  const at::Tensor h = x * 2;
  h.register_hook([](const at::Tensor& grad) -> at::Tensor {
    if (grad.defined()) throw std::runtime_error("from the hook");
    return grad;
  });
  const at::Tensor loss = h.exp().sum();
  EXPECT_THROW(loss.backward(), std::runtime_error);
  EXPECT_FALSE(x.grad().defined());
  expect_as_eager([] {
    const at::Tensor y = leaf({4});
    (y * y).sum().backward();
    return std::vector<at::Tensor>{y.grad()};
  });
}

}  // namespace hooks_test
}  // namespace ahead
