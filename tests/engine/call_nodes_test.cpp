#include <gtest/gtest.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/torch.h>

#include "ahead/compiled_autograd.h"
#include "ahead/errors.h"
#include "ahead/interpret.h"
#include "ahead/traceable_hook.h"
#include "models/models.h"
#include "support/autograd_hooks.h"
#include "support/eager.h"
#include "support/engine_check.h"
#include "support/trace_check.h"

namespace ahead {
namespace call_nodes_test {

using compiled_autograd::Enable;
using compiled_autograd::Stats;
using test::expect_as_eager;
using Tensors = std::vector<at::Tensor>;

/// The only graph there is.
std::shared_ptr<const Graph> only_graph() {
  const auto graphs = compiled_autograd::graphs();
  EXPECT_EQ(graphs.size(), 1u);
  return graphs.at(0);
}

/// The same as eager with fullgraph, so that nothing runs eagerly; returns what was counted.
Stats expect_whole(const test::BackwardProgram& program) {
  const Stats stats = expect_as_eager(program, 3, {.fullgraph = true});
  EXPECT_EQ(stats.eager_nodes + stats.cuts + stats.eager_fallbacks, 0u) << test::all_reasons();
  EXPECT_EQ(stats.captures, 1u) << test::all_reasons();
  return stats;
}

void after_accumulation(const at::Tensor& leaf, std::function<void(const at::Tensor&)> function) {
  torch::autograd::impl::set_post_acc_grad_hooks(
      leaf, std::make_unique<test::AccumulatedHook>(std::move(function)));
}

TEST(EngineCalls, HookOnEveryParameterIsOneGraph) {
  constexpr size_t runs = 3, parameters = 6;
  const Stats stats = expect_whole([] {
    torch::manual_seed(0);
    models::Mlp model(8, 16, 4);
    auto order = std::make_shared<std::vector<int64_t>>();
    int64_t number = 0;
    for (const at::Tensor& parameter : model->parameters()) {
      parameter.register_hook([order, number](const at::Tensor& gradient) {
        order->push_back(number);
        return gradient.clamp(-0.01, 0.01);
      });
      ++number;
    }
    model->forward(torch::randn({5, 8}), torch::tensor({0, 1, 2, 3, 0})).backward();
    Tensors seen = test::grads_of(*model);
    seen.push_back(torch::tensor(*order));
    return seen;
  });
  EXPECT_EQ(stats.calls, runs * parameters);
  EXPECT_EQ(stats.cache_hits, runs - 1);
  const auto graph = only_graph();
  EXPECT_EQ(count(*graph, "ahead.call_hook"), parameters) << graph->str();
  EXPECT_EQ(count(*graph, "ahead.accumulate_grad"), parameters) << graph->str();
}

TEST(EngineCalls, TheHookOfThisBackwardIsCalled) {
  compiled_autograd::reset();
  const auto run = [](double factor) {
    const at::Tensor x = torch::ones({3}, at::requires_grad());
    const at::Tensor h = x * 2;
    h.register_hook([factor](const at::Tensor& gradient) { return gradient * factor; });
    h.sum().backward();
    return x.grad();
  };
  const Enable on({.fullgraph = true});
  for (int i = 1; i < 5; ++i) EXPECT_TRUE(same_values(run(i), torch::full({3}, 2.0 * i)));
  EXPECT_EQ(compiled_autograd::stats().captures, 1u);
  EXPECT_EQ(compiled_autograd::stats().cache_hits, 3u);
}

TEST(EngineCalls, ClippedBySteps) {
  const Stats stats = expect_as_eager(
      [] {
        torch::manual_seed(1);
        models::Mlp model(8, 16, 4);
        for (const at::Tensor& parameter : model->parameters())
          parameter.register_hook([](const at::Tensor& g) { return g.clamp(-0.1, 0.1); });
        torch::optim::SGD optimizer(model->parameters(),
                                    torch::optim::SGDOptions(0.1).momentum(0.9));
        for (int step = 0; step < 4; ++step) {
          optimizer.zero_grad(/*set_to_none=*/step % 2 == 0);
          model->forward(torch::randn({5, 8}), torch::tensor({0, 1, 2, 3, 0})).backward();
          optimizer.step();
        }
        return model->parameters();
      },
      3, {.fullgraph = true});
  EXPECT_EQ(stats.eager_nodes + stats.cuts, 0u) << test::all_reasons();
  EXPECT_EQ(stats.captures, 2u);  // with and without `.grad`
}

TEST(EngineCalls, HookThatReturnsAnotherLayoutNowAndThen) {
  const Stats stats = expect_as_eager(
      [] {
        const at::Tensor x = leaf({4, 3});
        for (int i = 0; i < 4; ++i) {
          const at::Tensor h = x.exp();
          h.register_hook([i](const at::Tensor& gradient) {
            return i % 2 == 0 ? gradient * 2 : (gradient * 3).t().contiguous().t();
          });
          h.relu().mm(torch::ones({3, 2})).sum().backward();
        }
        return Tensors{x.grad()};
      },
      2, {.fullgraph = true});
  EXPECT_EQ(stats.eager_nodes + stats.cuts, 0u) << test::all_reasons();
}

TEST(EngineCalls, HookThatReturnsItsArgumentAndKeepsIt) {
  expect_whole([] {
    const at::Tensor x = leaf({4});
    at::Tensor kept;
    const at::Tensor h = x.exp();
    h.register_hook([&kept](const at::Tensor& gradient) { return kept = gradient; });
    (h * h).sum().backward();
    return Tensors{x.grad(), kept};
  });
}

TEST(EngineCalls, RetainGradIsAnOperator) {
  const Stats stats = expect_whole([] {
    const at::Tensor x = leaf({4});
    const at::Tensor h = x * 2, k = h.exp();
    h.retain_grad();
    k.retain_grad();
    (k * h).sum().backward();
    return Tensors{x.grad(), h.grad(), k.grad()};
  });
  EXPECT_EQ(stats.calls, 0u);
  EXPECT_EQ(stats.compiles, 1u);
  EXPECT_EQ(count(*only_graph(), "ahead.retain_grad"), 2u);
}

TEST(EngineCalls, RetainedGradientsAreAddedUp) {
  const Stats stats = expect_as_eager([] {
    const at::Tensor x = leaf({4});
    const at::Tensor h = x * 2;
    h.retain_grad();
    const at::Tensor y = (h * h).sum();
    y.backward({}, /*retain_graph=*/true);
    y.backward();
    return Tensors{x.grad(), h.grad()};
  });
  EXPECT_EQ(stats.calls + stats.eager_nodes, 0u) << test::all_reasons();
}

TEST(EngineCalls, RetainGradOfOneOfSeveralResults) {
  expect_whole([] {
    const at::Tensor x = leaf({6});
    const std::vector<at::Tensor> pieces = x.exp().split(2);
    pieces[1].retain_grad();
    (pieces[0] * pieces[1]).sum().backward();
    return Tensors{x.grad(), pieces[1].grad()};
  });
}

TEST(EngineCalls, RetainGradBehindAHook) {
  const Stats stats = expect_whole([] {
    const at::Tensor x = leaf({4});
    const at::Tensor h = x * 2;
    h.register_hook([](const at::Tensor& gradient) { return gradient * 3; });
    h.retain_grad();
    (h * h).sum().backward();
    return Tensors{x.grad(), h.grad()};
  });
  EXPECT_EQ(stats.calls, 3u);
}

TEST(EngineCalls, OptimizerInTheBackward) {
  const Stats stats = expect_whole([] {
    torch::manual_seed(2);
    models::Mlp model(8, 16, 4);
    for (const at::Tensor& parameter : model->parameters()) {
      after_accumulation(parameter, [](const at::Tensor& leaf) {
        const at::NoGradGuard no_grad;
        leaf.add_(leaf.grad(), -0.1);
        leaf.mutable_grad().reset();
      });
    }
    model->forward(torch::randn({5, 8}), torch::tensor({0, 1, 2, 3, 0})).backward();
    return model->parameters();
  });
  EXPECT_EQ(stats.calls, 3 * 6u);
  const auto graph = only_graph();
  EXPECT_EQ(count(*graph, "ahead.call_hook"), 6u);
  EXPECT_EQ(graph->str().find("hooks before"), std::string::npos) << graph->str();
}

torch::autograd::variable_list doubled_plus_sum(const torch::autograd::variable_list& outputs,
                                                const torch::autograd::variable_list& inputs) {
  torch::autograd::variable_list changed;
  for (const at::Tensor& output : outputs)
    changed.push_back(output.defined() ? output * 2 + inputs[0].sum() : output);
  return changed;
}

TEST(EngineCalls, HooksOfNodes) {
  const Stats stats = expect_whole([] {
    const at::Tensor x = leaf({4}), y = leaf({4});
    const at::Tensor h = x * y, k = h.exp() * x;
    h.grad_fn()->add_pre_hook(
        std::make_unique<test::PreHook>([](const torch::autograd::variable_list& gradients) {
          return test::scaled(gradients, 3);
        }));
    h.grad_fn()->add_post_hook(std::make_unique<test::PostHook>(doubled_plus_sum));
    k.sum().backward();
    return Tensors{x.grad(), y.grad()};
  });
  EXPECT_EQ(stats.calls, 3 * 2u);
  EXPECT_EQ(count(*only_graph(), "ahead.call_hook"), 2u);
}

TEST(EngineCalls, HookOnWhatALeafsNodeReturns) {
  const Stats stats = expect_whole([] {
    const at::Tensor x = leaf({4});
    auto calls = std::make_shared<int64_t>(0);
    const auto accumulator = torch::autograd::impl::grad_accumulator(x);
    accumulator->add_post_hook(
        std::make_unique<test::PostHook>([calls](const torch::autograd::variable_list& outputs,
                                                 const torch::autograd::variable_list& inputs) {
          *calls += inputs[0].numel();
          return outputs;
        }));
    (x.exp() * x).sum().backward();
    return Tensors{x.grad(), torch::tensor(*calls)};
  });
  EXPECT_EQ(stats.calls, 3u);
}

TEST(EngineCalls, GradientsThatAreAskedFor) {
  expect_whole([] {
    const at::Tensor x = leaf({4}), y = leaf({4});
    x.register_hook([](const at::Tensor& gradient) { return gradient * 2; });
    const at::Tensor h = x * y, z = (h.exp() * h).sum();
    h.register_hook([](const at::Tensor& gradient) { return gradient * 5; });
    return torch::autograd::grad({z}, {h, x});
  });
}

TEST(EngineCalls, SecondDerivatives) {
  const Stats stats = expect_as_eager(
      [] {
        const at::Tensor x = leaf({4});
        const at::Tensor h = x * x;
        h.register_hook([](const at::Tensor& gradient) { return gradient * gradient; });
        const at::Tensor first =
            torch::autograd::grad({(h * h.exp()).sum()}, {x}, {}, true, /*create_graph=*/true)[0];
        first.sum().backward();
        return Tensors{first.detach(), x.grad()};
      },
      3, {.fullgraph = true});
  EXPECT_EQ(stats.eager_nodes + stats.cuts, 0u) << test::all_reasons();
  EXPECT_EQ(stats.captures, 2u);
}

TEST(EngineCalls, HooksOnARootBehindWhichNothingIsAskedFor) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4}), other = leaf({4});
    auto calls = std::make_shared<int64_t>(0);
    const at::Tensor y = x * 2;
    y.register_hook([calls](const at::Tensor& gradient) {
      ++*calls;
      return gradient * 2;
    });
    y.retain_grad();
    const Tensors found = torch::autograd::grad({y}, {other}, {torch::ones({4})}, {},
                                                /*create_graph=*/false, /*allow_unused=*/true);
    return Tensors{found[0], y.grad(), torch::tensor(*calls)};
  });
}

/// Gives no gradient.
struct Nothing : torch::autograd::Function<Nothing> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return x * 2;
  }
  static std::vector<at::Tensor> backward(torch::autograd::AutogradContext*,
                                          std::vector<at::Tensor>) {
    return {at::Tensor()};
  }
};

TEST(EngineCalls, HooksOfLeavesThatGetNoGradient) {
  const Stats stats = expect_as_eager([] {
    const at::Tensor x = leaf({4}), y = leaf({4});
    auto calls = std::make_shared<int64_t>(0);
    after_accumulation(
        x, [calls](const at::Tensor& with) { *calls += with.grad().defined() ? 1 : 10; });
    y.register_hook([calls](const at::Tensor& gradient) { *calls += 100 * gradient.numel(); });
    (Nothing::apply(x) * y).sum().backward();
    return Tensors{x.grad(), y.grad(), torch::tensor(*calls)};
  });
  EXPECT_EQ(stats.eager_nodes + stats.cuts, 0u) << test::all_reasons();
  EXPECT_EQ(stats.calls, 3 * 2u);
}

TEST(EngineCalls, SizesThatChange) {
  const Stats stats = expect_as_eager(
      [] {
        const at::Tensor w = leaf({4, 4});
        w.register_hook([](const at::Tensor& gradient) { return gradient * 2; });
        for (const int64_t batch : {2, 3, 5, 7}) {
          const at::Tensor h = torch::ones({batch, 4}).mm(w).tanh();
          h.register_hook([](const at::Tensor& gradient) { return gradient + 1; });
          (h * h).sum().backward();
        }
        return Tensors{w.grad()};
      },
      1, {.fullgraph = true});
  EXPECT_LE(stats.captures, 3u) << test::all_reasons();
}

TEST(EngineCalls, SuchAGraphDoesNotRunByItself) {
  expect_whole([] {
    const at::Tensor x = leaf({4});
    x.register_hook([](const at::Tensor& gradient) { return gradient * 2; });
    (x.exp() * x).sum().backward();
    return Tensors{x.grad()};
  });
  const auto graph = compiled_autograd::graphs().at(0);
  EXPECT_EQ(Graph::parse(graph->str()).hash(), graph->hash());
  Tensors inputs;
  for (const Graph::Input& input : graph->inputs())
    inputs.push_back(torch::ones(input.value->meta.sizes.fixed(), input.value->meta.dtype));
  try {
    interpret(*graph, inputs);
    FAIL() << "the hook belongs to a backward";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("hooks before torch::autograd::AccumulateGrad"),
              std::string::npos)
        << error.what();
  }
}

TEST(TraceableHooks, ArePartOfTheGraph) {
  const auto calls = std::make_shared<int>(0);
  const at::Tensor w = leaf({4, 4});
  register_traceable_hook(w, [calls](const at::Tensor& gradient) {
    ++*calls;
    return gradient.clamp(-1, 1) * 0.5;
  });
  const auto train = [&] {
    Tensors seen;
    for (int i = 0; i < 3; ++i) {
      w.mutable_grad().reset();
      torch::full({2, 4}, i + 1.0).mm(w).square().sum().backward();
      seen.push_back(w.grad().clone());
    }
    return seen;
  };
  const Tensors expected = train();
  EXPECT_EQ(*calls, 3);
  compiled_autograd::reset();
  const Enable on({.fullgraph = true});
  const Tensors seen = train();
  for (size_t i = 0; i < seen.size(); ++i) EXPECT_TRUE(same_values(seen[i], expected[i]));
  const Stats stats = compiled_autograd::stats();
  EXPECT_EQ(stats.captures, 1u);
  EXPECT_EQ(stats.compiles, 1u);
  EXPECT_EQ(stats.calls + stats.eager_nodes + stats.cuts, 0u) << test::all_reasons();
  EXPECT_EQ(*calls, 3 + 1);  // when it was traced
  EXPECT_EQ(count(*only_graph(), "aten.clamp"), 1u);
}

TEST(TraceableHooks, OfOtherFunctionsAreOtherBackwards) {
  compiled_autograd::reset();
  const Enable on({.fullgraph = true});
  for (int i = 1; i < 4; ++i) {
    const at::Tensor x = torch::ones({3}, at::requires_grad());
    const at::Tensor h = x * 2;
    register_traceable_hook(h, [i](const at::Tensor& gradient) { return gradient * i; });
    h.sum().backward();
    EXPECT_TRUE(same_values(x.grad(), torch::full({3}, 2.0 * i)));
  }
  EXPECT_EQ(compiled_autograd::stats().captures, 3u);
}

TEST(TraceableHooks, CanBeRemoved) {
  compiled_autograd::reset();
  const at::Tensor w = torch::ones({3}, at::requires_grad());
  const unsigned position =
      register_traceable_hook(w, [](const at::Tensor& gradient) { return gradient * 10; });
  const Enable on({.fullgraph = true});
  const auto gradient = [&] {
    w.mutable_grad().reset();
    (w * 2).sum().backward();
    return w.grad()[0].item<float>();
  };
  EXPECT_EQ(gradient(), 20);
  w.remove_hook(position);
  EXPECT_EQ(gradient(), 2);
}

TEST(TraceableHooks, BesideOrdinaryOnesAreCalledInOrder) {
  const Stats stats = expect_whole([] {
    const at::Tensor x = leaf({3});
    const at::Tensor h = x * 2;
    register_traceable_hook(h, [](const at::Tensor& gradient) { return gradient * 3; });
    h.register_hook([](const at::Tensor& gradient) { return gradient + 1; });
    register_traceable_hook(h, [](const at::Tensor& gradient) { return gradient * 5; });
    h.exp().sum().backward();
    return Tensors{x.grad()};
  });
  EXPECT_EQ(stats.calls, 3u);
}

TEST(TraceableHooks, ThatUseOtherTensorsRunEagerlyWithAReason) {
  const at::Tensor mask = torch::tensor({1.0, 0.0, 1.0});
  const at::Tensor x = leaf({3});
  const at::Tensor h = x * 2;
  register_traceable_hook(h, [mask](const at::Tensor& gradient) { return gradient * mask; });
  compiled_autograd::reset();
  {
    const Enable on;
    h.exp().sum().backward();
  }
  EXPECT_TRUE(same_values(x.grad(), (x * 2).exp().detach() * mask * 2));
  EXPECT_NE(test::all_reasons().find("a tensor that it does not tell of"), std::string::npos)
      << test::all_reasons();
}

TEST(TraceableHooks, BadInputIsRefused) {
  const auto twice = [](const at::Tensor& gradient) { return gradient * 2; };
  EXPECT_THROW(register_traceable_hook({}, twice), UserError);
  EXPECT_THROW(register_traceable_hook(torch::ones({2}), twice), UserError);
  EXPECT_THROW(register_traceable_hook(leaf({2}), nullptr), UserError);
}

}  // namespace call_nodes_test
}  // namespace ahead
