#include <gtest/gtest.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/torch.h>

#include "ahead/compiled_autograd.h"
#include "support/autograd_hooks.h"
#include "support/eager.h"
#include "support/engine_check.h"

namespace ahead {
namespace unruly_hooks_test {

using test::AccumulatedHook;
using test::EventLog;
using test::expect_as_eager;
using test::expect_error_as_eager;
using test::PostHook;
using test::PreHook;
using test::scaled;
using torch::autograd::variable_list;
using Tensors = std::vector<at::Tensor>;

[[noreturn]] void fail() {
  throw std::domain_error("from a hook");
}

TEST(EngineUnrulyHooks, EveryKindMayThrow) {
  using Adding = std::function<void(const at::Tensor& x, const at::Tensor& h)>;
  const std::vector<Adding> kinds = {
      [](const at::Tensor&, const at::Tensor& h) {
        h.register_hook([](const at::Tensor&) { fail(); });
      },
      [](const at::Tensor&, const at::Tensor& h) {
        h.grad_fn()->add_pre_hook(
            std::make_unique<PreHook>([](const variable_list&) -> variable_list { fail(); }));
      },
      [](const at::Tensor&, const at::Tensor& h) {
        h.grad_fn()->add_post_hook(std::make_unique<PostHook>(
            [](const variable_list&, const variable_list&) -> variable_list { fail(); }));
      },
      [](const at::Tensor& x, const at::Tensor&) {
        torch::autograd::impl::set_post_acc_grad_hooks(
            x, std::make_unique<AccumulatedHook>([](const at::Tensor&) { fail(); }));
      }};
  for (const Adding& add : kinds) {
    expect_error_as_eager([&add] {
      const at::Tensor x = leaf({4});
      const at::Tensor h = x.exp();
      add(x, h);
      (h.sin() * h).sum().backward();
      return Tensors{};
    });
  }
}

TEST(EngineUnrulyHooks, WhatWasDoneBeforeTheErrorStays) {
  expect_as_eager([] {
    const EventLog log;
    const at::Tensor x = leaf({4}), y = leaf({4}), z = leaf({4});
    const at::Tensor h = x.exp();
    h.register_hook([](const at::Tensor&) { fail(); });
    z.register_hook([log](const at::Tensor&) { log.add(1); });
    x.register_hook([log](const at::Tensor&) { log.add(2); });
    EXPECT_THROW(((h * z).sin() * y).sum().backward(), std::domain_error);
    return Tensors{x.grad(), y.grad(), z.grad(), log.tensor()};
  });
}

TEST(EngineUnrulyHooks, RetainedGraphRunsAfterAnError) {
  const auto stats = expect_as_eager([] {
    auto is_failing = std::make_shared<bool>(true);
    const at::Tensor x = leaf({4}), y = leaf({4});
    const at::Tensor h = x.exp() * y;
    h.register_hook([is_failing](const at::Tensor&) {
      if (*is_failing) fail();
    });
    const at::Tensor loss = (h.sin() * y).sum();
    EXPECT_THROW(loss.backward({}, /*keep_graph=*/true), std::domain_error);
    *is_failing = false;
    loss.backward();
    return Tensors{x.grad(), y.grad()};
  });
  // The one that throws does not come to the part behind the hook.
  EXPECT_EQ(stats.captures, 2u);
}

TEST(EngineUnrulyHooks, ErrorWhileAPartIsCapturedTheFirstTime) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4});
    const at::Tensor h = x.exp();
    h.register_hook([](const at::Tensor&) { fail(); });
    const at::Tensor loss = (h.sin() * h).sum();
    EXPECT_THROW(loss.backward(), std::domain_error);
    return Tensors{x.grad()};
  });
}

TEST(EngineUnrulyHooks, GradientOfAWrongShapeThrowsAsEager) {
  expect_error_as_eager([] {
    const at::Tensor x = leaf({4});
    const at::Tensor h = x.exp();
    h.register_hook([](const at::Tensor& grad) { return grad.narrow(0, 0, 2); });
    h.sin().sum().backward();
    return Tensors{};
  });
}

TEST(EngineUnrulyHooks, GradientOfAnotherDtypeThrowsAsEager) {
  expect_error_as_eager([] {
    const at::Tensor x = leaf({4});
    const at::Tensor h = x.exp();
    h.register_hook([](const at::Tensor& grad) { return grad.to(at::kDouble); });
    h.sin().sum().backward();
    return Tensors{};
  });
}

TEST(EngineUnrulyHooks, PostHookReturnsGradientsOfAnotherKind) {
  for (int kind : {0, 1, 2}) {
    expect_as_eager([kind] {
      const at::Tensor x = leaf({4, 4});
      const at::Tensor h = x.exp().sin();
      h.grad_fn()->add_post_hook(std::make_unique<PostHook>(
          [kind](const variable_list& outputs, const variable_list&) -> variable_list {
            if (kind == 0) return {outputs[0].to_sparse()};
            if (kind == 1) return {outputs[0].t()};
            return {at::Tensor()};
          }));
      (h * h).sum().backward();
      return Tensors{x.grad()};
    });
  }
}

TEST(EngineUnrulyHooks, GradientsAreWrittenInPlace) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4}), y = leaf({4});
    const at::Tensor h = x.exp() + y.sin();
    h.register_hook([](const at::Tensor& grad) {
      grad.mul_(3);
      return grad;
    });
    h.tanh().sum().backward();
    return Tensors{x.grad(), y.grad()};
  });
}

TEST(EngineUnrulyHooks, GradientSharedByTwoNodesIsWrittenByOne) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4}), y = leaf({4});
    const at::Tensor a = x.exp(), b = y.exp();
    a.register_hook([](const at::Tensor& grad) { grad.mul_(3); });
    ((a + b) * 2).sum().backward(torch::ones({}), /*keep_graph=*/true);
    return Tensors{x.grad(), y.grad()};
  });
}

TEST(EngineUnrulyHooks, GradientOfTheRootIsWritten) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4}), given = torch::randn({4});
    const at::Tensor h = x.exp();
    h.register_hook([](const at::Tensor& grad) { grad.mul_(3); });
    h.backward(given);
    return Tensors{x.grad(), given};
  });
}

TEST(EngineUnrulyHooks, HookRemovesItself) {
  const auto stats = expect_as_eager([] {
    const EventLog log;
    const at::Tensor x = leaf({4});
    const at::Tensor h = x.exp();
    auto position = std::make_shared<unsigned>(0);
    const at::TensorBase handle = h;
    *position = h.register_hook([log, position, handle](const at::Tensor& grad) {
      log.add(1);
      handle.remove_hook(*position);
      return grad * 2;
    });
    h.register_hook([log](const at::Tensor& grad) {
      log.add(2);
      return grad + 1;
    });
    const at::Tensor loss = (h.sin() * h).sum();
    loss.backward({}, /*keep_graph=*/true);
    loss.backward();
    return Tensors{x.grad(), log.tensor()};
  });
  EXPECT_EQ(stats.captures, 2u);  // without and with a `.grad`
}

TEST(EngineUnrulyHooks, HookRemovesAnother) {
  expect_as_eager([] {
    const EventLog log;
    const at::Tensor x = leaf({4});
    const at::Tensor h = x.exp();
    const at::Tensor k = h.sin();
    const unsigned position = h.register_hook([log](const at::Tensor& grad) {
      log.add(1);
      return grad * 2;
    });
    k.register_hook([log, h, position](const at::Tensor&) {
      log.add(2);
      h.remove_hook(position);
    });
    (k * k).sum().backward();
    return Tensors{x.grad(), log.tensor()};
  });
}

TEST(EngineUnrulyHooks, HookAddsAnotherToANodeThatIsStillToRun) {
  using Adding = std::function<void(const at::Tensor& x, const at::Tensor& h, const EventLog& log)>;
  const std::vector<Adding> kinds = {
      [](const at::Tensor&, const at::Tensor& h, const EventLog& log) {
        h.register_hook([log](const at::Tensor& grad) {
          log.add(1);
          return grad * 3;
        });
      },
      [](const at::Tensor& x, const at::Tensor&, const EventLog& log) {
        x.register_hook([log](const at::Tensor& grad) {
          log.add(2);
          return grad * 3;
        });
      },
      [](const at::Tensor&, const at::Tensor& h, const EventLog& log) {
        h.grad_fn()->add_post_hook(
            std::make_unique<PostHook>([log](const variable_list& outputs, const variable_list&) {
              log.add(3);
              return scaled(outputs, 3);
            }));
      },
      [](const at::Tensor& x, const at::Tensor&, const EventLog& log) {
        torch::autograd::impl::set_post_acc_grad_hooks(
            x, std::make_unique<AccumulatedHook>([log](const at::Tensor& leaf) {
              log.add(4);
              leaf.mutable_grad().mul_(3);
            }));
      },
      [](const at::Tensor&, const at::Tensor& h, const EventLog&) { h.retain_grad(); }};
  for (size_t kind = 0; kind < kinds.size(); ++kind) {
    SCOPED_TRACE(kind);
    expect_as_eager([add = kinds[kind]] {
      const EventLog log;
      const at::Tensor x = leaf({4});
      const at::Tensor h = x.exp();
      const at::Tensor k = h.sin();
      k.register_hook([=](const at::Tensor&) { add(x, h, log); });
      (k * k).sum().backward();
      return Tensors{x.grad(), h.grad(), log.tensor()};
    });
  }
}

TEST(EngineUnrulyHooks, UndefinedInsteadOfAGradient) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4}), y = leaf({4});
    const at::Tensor h = x.exp() * y;
    h.grad_fn()->add_pre_hook(std::make_unique<PreHook>(
        [](const variable_list&) { return variable_list{at::Tensor()}; }));
    (h.sin() + y).sum().backward();
    return Tensors{x.grad(), y.grad()};
  });
}

TEST(EngineUnrulyHooks, GradientBecomesTheLeafItself) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4}), other = torch::ones({4});
    x.register_hook([other](const at::Tensor&) { return other; });
    x.exp().sum().backward();
    x.exp().sum().backward();
    return Tensors{x.grad(), other, torch::tensor(x.grad().is_alias_of(other))};
  });
}

TEST(EngineUnrulyHooks, GradientThatRequiresGrad) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4}), y = leaf({4});
    const at::Tensor h = x.exp();
    h.register_hook([y](const at::Tensor& grad) {
      at::AutoGradMode on(true);
      return grad * y;
    });
    (h.sin() * h).sum().backward();
    return Tensors{x.grad().detach(), y.grad()};
  });
}

TEST(EngineUnrulyHooks, GradIsClearedByAHookOfAnotherLeaf) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4}), y = leaf({4});
    x.mutable_grad() = torch::ones({4});
    y.register_hook([x](const at::Tensor&) { x.mutable_grad().reset(); });
    (x.exp() * y).sum().backward();
    return Tensors{x.grad(), y.grad()};
  });
}

TEST(EngineUnrulyHooks, LeafStopsRequiringGradOnTheWay) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4}), y = leaf({4});
    const at::Tensor h = x.exp() * y;
    h.register_hook([x](const at::Tensor&) { x.requires_grad_(false); });
    h.sin().sum().backward();
    return Tensors{x.grad(), y.grad()};
  });
}

TEST(EngineUnrulyHooks, HookReplacesTheDataOfALeafThatIsSaved) {
  for (bool is_transposed : {false, true}) {
    expect_as_eager([is_transposed] {
      const at::Tensor x = leaf({3, 3}), w = leaf({3, 3});
      const at::Tensor h = x.mm(w);
      const at::Tensor k = h.sin();
      k.register_hook([w, is_transposed](const at::Tensor&) {
        const at::Tensor other = torch::arange(9).view({3, 3}).to(at::kFloat);
        w.set_data(is_transposed ? other.t() : other);
      });
      (k * k).sum().backward();
      return Tensors{x.grad(), w.grad()};
    });
  }
}

TEST(EngineUnrulyHooks, CallbackThatThrows) {
  expect_error_as_eager([] {
    const at::Tensor x = leaf({4});
    const at::Tensor h = x.exp();
    h.register_hook([](const at::Tensor&) {
      torch::autograd::Engine::get_default_engine().queue_callback([] { fail(); });
    });
    h.sum().backward();
    return Tensors{};
  });
}

TEST(EngineUnrulyHooks, CallbackSeesAllGradientsAndRunsABackward) {
  expect_as_eager([] {
    const EventLog log;
    const at::Tensor x = leaf({4}), y = leaf({4});
    const at::Tensor h = x.exp();
    h.register_hook([log, x, y](const at::Tensor&) {
      torch::autograd::Engine::get_default_engine().queue_callback([log, x, y] {
        log.add(x.grad().defined());
        at::AutoGradMode on(true);
        (y * y).sum().backward();
      });
    });
    (h * h).sum().backward();
    return Tensors{x.grad(), y.grad(), log.tensor()};
  });
}

TEST(EngineUnrulyHooks, OneHookOnSeveralLeavesCountsInEagersOrder) {
  expect_as_eager([] {
    const EventLog log;
    torch::nn::Sequential net(torch::nn::Linear(3, 5), torch::nn::ReLU(), torch::nn::Linear(5, 3));
    int64_t number = 0;
    for (const at::Tensor& p : net->parameters()) {
      p.register_hook([log, number](const at::Tensor& grad) {
        log.add(number);
        return grad / (static_cast<double>(number) + 2);
      });
      ++number;
    }
    for (int i = 0; i < 2; ++i) net->forward(torch::randn({2, 3})).exp().sum().backward();
    Tensors all = test::grads_of(*net);
    all.push_back(log.tensor());
    return all;
  });
}

TEST(EngineUnrulyHooks, VariantsBeyondTheLimitRunAsInEager) {
  auto calls = std::make_shared<int64_t>(0);
  compiled_autograd::reset();
  for (int64_t i = 0; i < 24; ++i) {
    const auto program = [calls, i] {
      *calls = i;
      const at::Tensor x = torch::ones({24}).requires_grad_();
      const at::Tensor h = x.exp().sin();
      h.register_hook([calls](const at::Tensor& grad) {
        return at::empty_strided({24}, {*calls % 12 + 1}).copy_(grad * 2);
      });
      (h * h).sum().backward();
      return x.grad();
    };
    const at::Tensor expected = program();
    compiled_autograd::Enable on;
    const at::Tensor got = program();
    EXPECT_TRUE(same_values(got, expected));
    EXPECT_EQ(got.strides(), expected.strides());
  }
  EXPECT_EQ(compiled_autograd::stats().captures, 9u);  // 8 of the node with the hook, 1 behind it
  EXPECT_LT(compiled_autograd::stats().compiles, 12u);
}

}  // namespace unruly_hooks_test
}  // namespace ahead
