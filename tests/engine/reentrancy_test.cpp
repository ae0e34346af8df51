#include <gtest/gtest.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/torch.h>

#include "ahead/checkpoint.h"
#include "ahead/compile.h"
#include "ahead/compiled_autograd.h"
#include "ahead/errors.h"
#include "support/autograd_hooks.h"
#include "support/engine_check.h"
#include "support/hits.h"

namespace ahead {
namespace reentrancy_test {

using test::EventLog;
using test::expect_as_eager;
using test::expect_error_as_eager;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;
using Tensors = std::vector<at::Tensor>;

TEST(EngineReentrancy, HookAccumulatesIntoALeafOfTheOuterBackward) {
  const auto stats = expect_as_eager([] {
    const at::Tensor x = leaf({3}), w = leaf({3});
    const at::Tensor h = x.exp() * w;
    h.register_hook([w](const at::Tensor&) {
      at::AutoGradMode on(true);
      w.pow(3).sum().backward();
    });
    h.sin().sum().backward();
    return Tensors{x.grad(), w.grad()};
  });
  EXPECT_EQ(stats.captures, 1u);
  EXPECT_EQ(stats.eager_fallbacks, 0u);
}

TEST(EngineReentrancy, SecondDerivativeInsideAHook) {
  expect_as_eager([] {
    const at::Tensor x = leaf({3});
    const at::Tensor h = x.exp();
    h.register_hook([x](const at::Tensor& grad) {
      at::AutoGradMode on(true);
      const at::Tensor v = x.detach().requires_grad_();
      const at::Tensor first = torch::autograd::grad({v.pow(4).sum()}, {v}, {}, true, true)[0];
      return grad * torch::autograd::grad({first.sum()}, {v})[0];
    });
    (h.sin() * h).sum().backward();
    return Tensors{x.grad()};
  });
}

/// Differentiates in its backward, `depth` times over.
struct Nested : Function<Nested> {
  static inline int calls = 0;
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, int64_t depth) {
    context->save_for_backward({x});
    context->saved_data["depth"] = depth;
    return x * x;
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    ++calls;
    const int64_t depth = context->saved_data["depth"].toInt();
    at::AutoGradMode on(true);
    const at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_();
    const at::Tensor y = depth == 0 ? x * x : apply(x.sin(), depth - 1);
    y.sum().backward();
    return {grads[0] * x.grad(), at::Tensor()};
  }
};

TEST(EngineReentrancy, BackwardsInsideBackwards) {
  Nested::calls = 0;
  const auto stats = expect_as_eager([] {
    const at::Tensor x = leaf({3});
    Nested::apply(x.exp(), 3).sin().sum().backward();
    return Tensors{x.grad()};
  });
  EXPECT_EQ(stats.captures, 1u);
  EXPECT_EQ(Nested::calls, 16);
}

TEST(EngineReentrancy, DeeperThanTheEngineStaysOnOneThread) {
  expect_as_eager(
      [] {
        const at::Tensor x = leaf({3});
        Nested::apply(x * 0.5, 100).sum().backward();
        return Tensors{x.grad()};
      },
      2);
}

struct InnerFails : Function<InnerFails> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x * 2; }
  static variable_list backward(AutogradContext*, const variable_list& grads) {
    at::AutoGradMode on(true);
    const at::Tensor v = torch::ones({3}, torch::requires_grad());
    const at::Tensor loss = v.exp().sum();
    loss.backward();
    loss.backward();
    return {grads[0]};
  }
};

TEST(EngineReentrancy, ErrorOfAnInnerBackward) {
  expect_error_as_eager([] {
    const at::Tensor x = leaf({3});
    InnerFails::apply(x.exp()).sum().backward();
    return Tensors{};
  });
}

TEST(EngineReentrancy, CaughtErrorOfAnInnerBackwardEndsIt) {
  expect_as_eager([] {
    const at::Tensor x = leaf({3});
    const at::Tensor h = x.exp();
    int64_t caught = 0;
    h.register_hook([&caught](const at::Tensor& grad) {
      try {
        InnerFails::backward(nullptr, {grad});
      } catch (const std::exception&) {
        ++caught;
      }
    });
    h.sin().sum().backward();
    return Tensors{x.grad(), torch::tensor(caught)};
  });
}

TEST(EngineReentrancy, ScopeOpenedInsideAHookChangesNothing) {
  const auto stats = expect_as_eager([] {
    const at::Tensor x = leaf({3}), w = leaf({3});
    const at::Tensor h = x.exp();
    h.register_hook([w](const at::Tensor&) {
      at::AutoGradMode on(true);
      const compiled_autograd::Enable again;
      (w * w).sum().backward();
    });
    h.sum().backward();
    return Tensors{x.grad(), w.grad()};
  });
  EXPECT_EQ(stats.captures, 1u);
}

TEST(EngineReentrancy, ResetInsideAHookIsRefused) {
  compiled_autograd::reset();
  const at::Tensor x = leaf({3});
  const at::Tensor h = x.exp();
  h.register_hook([](const at::Tensor&) { compiled_autograd::reset(); });
  compiled_autograd::Enable on;
  EXPECT_THROW(h.sum().backward(), UserError);
  EXPECT_EQ(compiled_autograd::stats().captures, 1u);
}

TEST(EngineReentrancy, HookCallsACompiledFunctionAndItsBackward) {
  auto square = ahead::compile([](const at::Tensor& v) { return (v * v).sin(); }, {.confirm = 0});
  const auto program = [&square] {
    const at::Tensor x = leaf({3});
    const at::Tensor h = x.exp();
    h.register_hook([&square](const at::Tensor& grad) {
      at::AutoGradMode on(true);
      const at::Tensor v = grad.detach().requires_grad_();
      square(v).sum().backward();
      return grad + v.grad();
    });
    (h * h).sum().backward();
    return Tensors{x.grad()};
  };
  program();
  EXPECT_EQ(expect_as_eager(program).captures, 1u);
  expect_hits(square);
}

TEST(EngineReentrancy, FirstCallOfACompiledFunctionIsInAHook) {
  const auto stats = expect_as_eager([] {
    auto square = ahead::compile([](const at::Tensor& v) { return (v * v).sin(); }, {.confirm = 0});
    const at::Tensor x = leaf({3});
    const at::Tensor h = x.exp();
    h.register_hook([&square](const at::Tensor& grad) {
      square(grad.clone());
      return grad + square(grad);
    });
    (h * h).sum().backward();
    expect_hits(square);
    return Tensors{x.grad()};
  });
  EXPECT_EQ(stats.captures, 1u);
}

TEST(EngineReentrancy, BackwardInsideACompiledFunctionIsPartOfIt) {
  auto f = ahead::compile(
      [](const at::Tensor& x) {
        return torch::autograd::grad({x.pow(3).sum()}, {x}, {}, true, /*create_graph=*/true)[0];
      },
      {.confirm = 0});
  const auto program = [&f] {
    const at::Tensor x = leaf({3});
    f(x).sin().sum().backward();
    return Tensors{x.grad()};
  };
  program();
  const auto stats = expect_as_eager(program);
  EXPECT_EQ(stats.captures, 1u);
  EXPECT_EQ(stats.eager_fallbacks, 0u);
  expect_hits(f);
}

TEST(EngineReentrancy, CompiledOnlyInTheMiddle) {
  auto middle = ahead::compile([](const at::Tensor& x, const at::Tensor& w) { return x.mm(w); },
                               {.confirm = 0});
  const auto program = [&middle] {
    const at::Tensor x = leaf({3, 3}), w = leaf({3, 3});
    middle(middle(x.exp(), w).relu(), w).tanh().sum().backward();
    return Tensors{x.grad(), w.grad()};
  };
  program();
  const auto stats = expect_as_eager(program);
  EXPECT_EQ(stats.captures, 1u);
  EXPECT_EQ(stats.compiles, 1u);
  expect_hits(middle);
}

TEST(EngineReentrancy, CheckpointedRegionsRecompute) {
  int runs = 0;
  const auto block = [&runs](const at::Tensor& x, const at::Tensor& w) {
    ++runs;
    return torch::dropout(x.mm(w).tanh(), 0.3, /*train=*/true).sin();
  };
  const auto program = [&] {
    const at::Tensor x = leaf({3, 3}), w = leaf({3, 3});
    at::Tensor h = x * 2;
    for (int i = 0; i < 2; ++i) h = ahead::checkpoint(Saving::MustRecompute, block, h, w);
    h.exp().sum().backward();
    return Tensors{x.grad(), w.grad()};
  };
  expect_as_eager(program);
  EXPECT_EQ(runs, 4 * 4);
}

TEST(EngineReentrancy, CheckpointedRegionInsideACheckpointedRegion) {
  expect_as_eager([] {
    const at::Tensor x = leaf({3});
    const auto inner = [](const at::Tensor& v) { return v.exp().sin(); };
    const auto outer = [&inner](const at::Tensor& v) {
      return ahead::checkpoint(Saving::MustRecompute, inner, v * 2).tanh() * v;
    };
    ahead::checkpoint(Saving::MustRecompute, outer, x.cos()).sum().backward();
    return Tensors{x.grad()};
  });
}

TEST(EngineReentrancy, HooksLearnOfTheBackwardTheyAreIn) {
  for (bool keep : {false, true}) {
    expect_as_eager([keep] {
      const EventLog log;
      const at::Tensor x = leaf({3});
      const at::Tensor h = x.exp();
      const auto note = [log] {
        log.add(torch::autograd::get_current_graph_task_id() != -1);
        log.add(torch::autograd::get_current_graph_task_keep_graph());
        log.add(at::GradMode::is_enabled());
      };
      h.register_hook([note](const at::Tensor&) { note(); });
      h.grad_fn()->add_post_hook(std::make_unique<test::PostHook>(
          [note](const variable_list& outputs, const variable_list&) {
            note();
            return outputs;
          }));
      h.sin().sum().backward({}, keep);
      return Tensors{x.grad(), log.tensor()};
    });
  }
}

TEST(EngineReentrancy, HookUnderAutocastAndItsOwnGradMode) {
  expect_as_eager([] {
    const at::Tensor x = leaf({3, 3});
    const at::Tensor h = x.exp();
    h.register_hook([](const at::Tensor& grad) {
      at::AutoGradMode on(true);
      return grad.mm(torch::eye(3)).detach();
    });
    h.mm(h).sum().backward();
    return Tensors{x.grad()};
  });
}

}  // namespace reentrancy_test
}  // namespace ahead
