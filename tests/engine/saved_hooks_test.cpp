#include <gtest/gtest.h>
#include <torch/csrc/autograd/generated/Functions.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>
#include <torch/torch.h>

#include <thread>

#include "ahead/checkpoint.h"
#include "ahead/compiled_autograd.h"
#include "ahead/errors.h"
#include "base/front_engine.h"
#include "checkpoint/saved_tensor_hooks.h"
#include "models/models.h"
#include "support/autograd_hooks.h"
#include "support/eager.h"
#include "support/engine_check.h"
#include "support/trace_check.h"

namespace ahead {
namespace saved_hooks_test {

using compiled_autograd::Enable;
using compiled_autograd::Stats;
using test::expect_as_eager;
using torch::autograd::SavedVariableHooks;
using torch::autograd::variable_list;
using Tensors = std::vector<at::Tensor>;
using Log = std::shared_ptr<std::vector<int64_t>>;
using Unpack = std::function<at::Tensor(const at::Tensor& packed)>;

/// Keeps a tensor as it is, notes its number when it is unpacked, and lets a function unpack it.
class Noting final : public SavedVariableHooks {
 public:
  Noting(Log log, int64_t number, Unpack unpack = {})
      : log_(std::move(log)), number_(number), unpack_(std::move(unpack)) {}
  void call_pack_hook(const at::Tensor& tensor) override { packed_ = tensor.detach(); }
  at::Tensor call_unpack_hook() override {
    log_->push_back(number_);
    return unpack_ ? unpack_(packed_) : packed_;
  }

 private:
  const Log log_;
  const int64_t number_;
  const Unpack unpack_;
  at::Tensor packed_;
};

/// While it lives, what autograd saves on this thread has such hooks, numbered from one.
class NotingAll final : public SavedTensorPacker {
 public:
  explicit NotingAll(Log log, Unpack unpack = {})
      : log_(std::move(log)), unpack_(std::move(unpack)), scope_(*this) {}
  std::unique_ptr<SavedVariableHooks> make_hooks() override {
    return std::make_unique<Noting>(log_, ++count_, unpack_);
  }

 private:
  const Log log_;
  const Unpack unpack_;
  int64_t count_ = 0;
  runtime::PackerScope scope_;
};

Log new_log() {
  return std::make_shared<std::vector<int64_t>>();
}

std::shared_ptr<const Graph> only_graph() {
  const auto graphs = compiled_autograd::graphs();
  EXPECT_EQ(graphs.size(), 1u);
  return graphs.at(0);
}

/// The same as eager with fullgraph, so that nothing runs eagerly; returns what was counted.
Stats expect_whole(const test::BackwardProgram& program, uint64_t captures = 1) {
  const Stats stats = expect_as_eager(program, 3, {.fullgraph = true});
  EXPECT_EQ(stats.eager_nodes + stats.cuts + stats.eager_fallbacks, 0u) << test::all_reasons();
  EXPECT_EQ(stats.captures, captures) << test::all_reasons();
  return stats;
}

TEST(EngineSavedHooks, OneSavedTensorIsACallAndNoCut) {
  const Stats stats = expect_whole([] {
    const at::Tensor x = leaf({4});
    const at::Tensor y = x.exp().sin();
    const Log log = new_log();
    auto& node = dynamic_cast<torch::autograd::generated::SinBackward0&>(*y.grad_fn());
    node.self_.register_hooks(std::make_unique<Noting>(
        log, 1, [](const at::Tensor& packed) { return packed.to(at::kHalf).to(at::kFloat); }));
    (y * y).sum().backward();
    return Tensors{x.grad(), torch::tensor(*log)};
  });
  EXPECT_EQ(stats.calls, 3u);
  EXPECT_EQ(stats.cache_hits, 2u);
  const auto graph = only_graph();
  EXPECT_EQ(count(*graph, "ahead.call_hook"), 1u) << graph->str();
  EXPECT_EQ(count(*graph, "aten.cos"), 1u) << graph->str();
}

TEST(EngineSavedHooks, EverySavedTensorInEagersOrder) {
  const Stats stats = expect_whole([] {
    torch::manual_seed(0);
    models::Mlp model(8, 16, 4);
    const Log log = new_log();
    at::Tensor loss;
    {
      const NotingAll hooks(log);
      loss = model->forward(torch::randn({5, 8}), torch::tensor({0, 1, 2, 3, 0}));
    }
    loss.backward();
    Tensors seen = test::grads_of(*model);
    seen.push_back(torch::tensor(*log));
    return seen;
  });
  EXPECT_GT(stats.calls, 3u);
}

TEST(EngineSavedHooks, TwoSavedTensorsOfANodeAndHooksAroundIt) {
  expect_whole([] {
    const Log log = new_log();
    const at::Tensor a = leaf({3, 4}), b = leaf({4, 2});
    at::Tensor y;
    {
      const NotingAll hooks(log);
      y = a.sin().mm(b.cos());
    }
    y.register_hook([log](const at::Tensor& gradient) {
      log->push_back(100);
      return gradient * 2;
    });
    y.grad_fn()->add_post_hook(std::make_unique<test::PostHook>(
        [log](const variable_list& gradients, const variable_list&) {
          log->push_back(200);
          return gradients;
        }));
    y.sum().backward();
    return Tensors{a.grad(), b.grad(), torch::tensor(*log)};
  });
}

TEST(EngineSavedHooks, HooksOfThisBackwardAreAsked) {
  compiled_autograd::reset();
  const auto run = [](double factor) {
    const at::Tensor x = torch::ones({3}, at::requires_grad());
    at::Tensor y;
    {
      const NotingAll hooks(new_log(), [=](const at::Tensor& packed) { return packed * factor; });
      y = x.pow(2);
    }
    y.sum().backward();
    return x.grad();
  };
  const Enable on({.fullgraph = true});
  for (int i = 1; i < 5; ++i) EXPECT_TRUE(same_values(run(i), torch::full({3}, 2.0 * i)));
  EXPECT_EQ(compiled_autograd::stats().captures, 1u);
  EXPECT_EQ(compiled_autograd::stats().cache_hits, 3u);
}

TEST(EngineSavedHooks, WhatIsUnpackedMayLieOtherwise) {
  const Stats stats = expect_as_eager(
      [] {
        Tensors seen;
        for (int i = 0; i < 4; ++i) {
          const at::Tensor x = leaf({4, 3});
          at::Tensor y;
          {
            const NotingAll hooks(new_log(), [i](const at::Tensor& packed) {
              return i % 2 == 0 ? packed : packed.t().contiguous().t();
            });
            y = x.exp().relu().sin();
          }
          y.sum().backward();
          seen.push_back(x.grad());
        }
        return seen;
      },
      2, {.fullgraph = true});
  EXPECT_EQ(stats.eager_nodes + stats.cuts, 0u) << test::all_reasons();
  EXPECT_EQ(stats.captures, 2u) << "one program, whose pieces have two variants";
  EXPECT_EQ(stats.cache_hits, 6u);
}

TEST(EngineSavedHooks, AnotherTypeThanWasSaved) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4});
    at::Tensor y;
    {
      const NotingAll hooks(new_log(),
                            [](const at::Tensor& packed) { return packed.to(at::kDouble); });
      y = x.exp().sin();
    }
    y.sum().backward();
    return Tensors{x.grad()};
  });
}

TEST(EngineSavedHooks, NoTensorThrowsAsEager) {
  test::expect_error_as_eager([] {
    const at::Tensor x = leaf({4});
    at::Tensor y;
    {
      const NotingAll hooks(new_log(), [](const at::Tensor&) { return at::Tensor(); });
      y = x.exp().sin();
    }
    y.sum().backward();
    return Tensors{};
  });
}

TEST(EngineSavedHooks, WhatTheyThrowIsEagers) {
  test::expect_error_as_eager([] {
    const at::Tensor x = leaf({4});
    at::Tensor y;
    {
      const NotingAll hooks(new_log(), [](const at::Tensor&) -> at::Tensor {
        throw std::invalid_argument("the disk is gone");
      });
      y = x.exp().sin();
    }
    y.sum().backward();
    return Tensors{};
  });
}

/// Where a node cannot be traced, it finds unpacked what hooks were asked for already.
TEST(EngineSavedHooks, NodesThatCannotBeTracedAskOnce) {
  const Stats stats = expect_as_eager([] {
    const at::Tensor x = leaf({4});
    const Log log = new_log();
    at::Tensor y;
    {
      const NotingAll hooks(log);
      y = x.exp().cumprod(0).sin();
    }
    y.sum().backward();
    return Tensors{x.grad(), torch::tensor(*log)};
  });
  EXPECT_EQ(stats.eager_nodes, 3u) << test::all_reasons();
}

TEST(EngineSavedHooks, TheGraphMayBeKept) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4});
    const Log log = new_log();
    at::Tensor y;
    {
      const NotingAll hooks(log);
      y = x.exp().cumprod(0).sin() * x;
    }
    const at::Tensor loss = y.sum();
    loss.backward({}, /*retain_graph=*/true);
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
    return Tensors{x.grad(), torch::tensor(*log)};
  });
}

TEST(EngineSavedHooks, TwiceThrowsAsEager) {
  test::expect_error_as_eager([] {
    const at::Tensor x = leaf({4});
    at::Tensor y;
    {
      const NotingAll hooks(new_log());
      y = torch::cat({x.exp(), x}).sin().sum();
    }
    y.backward();
    y.backward();
    return Tensors{};
  });
}

TEST(EngineSavedHooks, ListsOfSavedTensors) {
  expect_whole([] {
    const at::Tensor x = leaf({4, 3});
    const Log log = new_log();
    at::Tensor y;
    {
      const NotingAll hooks(log);
      y = x.exp().index({torch::tensor({0, 2}), torch::tensor({1, 1})}).sin();
    }
    y.sum().backward();
    return Tensors{x.grad(), torch::tensor(*log)};
  });
}

TEST(EngineSavedHooks, HigherDerivatives) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4});
    const Log log = new_log();
    at::Tensor y;
    {
      const NotingAll hooks(log);
      y = (x.exp().sin() * x.tanh()).sum();
    }
    const at::Tensor first = torch::autograd::grad({y}, {x}, {}, true, /*create_graph=*/true)[0];
    first.pow(2).sum().backward();
    return Tensors{first.detach(), x.grad(), torch::tensor(*log)};
  });
}

TEST(EngineSavedHooks, OtherSizes) {
  const Stats stats = expect_as_eager([] {
    const at::Tensor w = leaf({3, 4});
    Tensors seen;
    for (const int64_t batch : {2, 5, 7, 9, 11}) {
      const at::Tensor x = torch::randn({batch, 3});
      at::Tensor y;
      {
        const NotingAll hooks(new_log());
        y = x.mm(w).tanh().sin();
      }
      w.mutable_grad().reset();
      y.sum().backward();
      seen.push_back(w.grad());
    }
    return seen;
  });
  EXPECT_EQ(stats.eager_nodes + stats.cuts, 0u) << test::all_reasons();
  EXPECT_EQ(stats.captures, 2u) << test::all_reasons();
}

/// A hook of an earlier node may write to what a later one unpacks; hooks do not see versions.
TEST(EngineSavedHooks, WrittenBetween) {
  expect_whole([] {
    const at::Tensor x = leaf({4});
    at::Tensor buffer = torch::ones({4});
    at::Tensor y;
    {
      const NotingAll hooks(new_log(), [buffer](const at::Tensor&) { return buffer; });
      y = x.sin();
    }
    y.register_hook([buffer](const at::Tensor& gradient) {
      buffer.mul_(3);
      return gradient;
    });
    y.sum().backward();
    return Tensors{x.grad(), buffer};
  });
}

/// Hooks that nodes get while something is unpacked for them are called as in eager.
TEST(EngineSavedHooks, HooksGivenWhileUnpacking) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4});
    const Log log = new_log();
    const at::Tensor y = x.exp().sin();
    torch::autograd::Node* const node = y.grad_fn().get();
    const auto give_hook = [log, node](const at::Tensor& packed) {
      node->add_post_hook(std::make_unique<test::PostHook>(
          [log](const variable_list& gradients, const variable_list&) {
            log->push_back(7);
            return test::scaled(gradients, 3);
          }));
      return packed;
    };
    dynamic_cast<torch::autograd::generated::SinBackward0&>(*node).self_.register_hooks(
        std::make_unique<Noting>(log, 1, give_hook));
    y.sum().backward();
    return Tensors{x.grad(), torch::tensor(*log)};
  });
}

/// The memory that is unpacked is that to which a later step adds.
TEST(EngineSavedHooks, UnpackingAGradient) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4}), w = leaf({4});
    w.mutable_grad() = torch::ones({4});
    at::Tensor y;
    {
      const NotingAll hooks(new_log(), [w](const at::Tensor&) { return w.grad(); });
      y = (w * 3).mul(x.sin());
    }
    y.sum().backward();
    return Tensors{x.grad(), w.grad()};
  });
}

TEST(EngineSavedHooks, OneThreadEach) {
  compiled_autograd::reset();
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([thread] {
      const Enable on;
      for (int i = 1; i < 20; ++i) {
        const at::Tensor x = torch::full({4}, 2.0, at::requires_grad());
        const double factor = thread + i;
        at::Tensor y;
        {
          const NotingAll hooks(new_log(),
                                [=](const at::Tensor& packed) { return packed * factor; });
          y = x.pow(2).mul(x);
        }
        y.sum().backward();
        EXPECT_TRUE(same_values(x.grad(), torch::full({4}, 4 * factor * (1 + 2 * factor))));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(compiled_autograd::stats().eager_fallbacks, 0u);
}

/// It promises to be traceable; that hooks unpack what it saved is nevertheless its own affair.
struct Scaled : torch::autograd::Function<Scaled> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x * x;
  }
  static variable_list backward(torch::autograd::AutogradContext* context, variable_list grads) {
    return {grads[0] * context->get_saved_variables()[0] + context->get_saved_variables()[0]};
  }
};

TEST(EngineSavedHooks, CustomFunctionsAreCalledAsAWhole) {
  const Stats stats = expect_whole([] {
    const at::Tensor x = leaf({4});
    const Log log = new_log();
    at::Tensor y;
    {
      const NotingAll hooks(log);
      y = Scaled::apply(x.exp()).sin();
    }
    y.sum().backward();
    return Tensors{x.grad(), torch::tensor(*log)};
  });
  EXPECT_EQ(stats.calls, 3 * 3u);
  EXPECT_EQ(count(*only_graph(), "ahead.call_hook"), 3u) << only_graph()->str();
}

/// Writes to a view whose formula saved something.
TEST(EngineSavedHooks, InsideCopySlices) {
  expect_whole([] {
    const at::Tensor x = leaf({4});
    const Log log = new_log();
    at::Tensor y;
    {
      const NotingAll hooks(log);
      y = x.exp();
      y.narrow(0, 1, 2).mul_(x.narrow(0, 0, 2));
      y = y.sin();
    }
    y.sum().backward();
    return Tensors{x.grad(), torch::tensor(*log)};
  });
}

TEST(EngineCheckpoints, ARegionIsOneCallAndOnePiece) {
  const Stats stats = expect_whole([] {
    const at::Tensor x = leaf({4, 4}), w = leaf({4, 4});
    const auto block = [&w](const at::Tensor& h) { return h.mm(w).tanh().mm(w).sin() * h; };
    at::Tensor h = x.exp();
    for (int i = 0; i < 3; ++i) h = checkpoint(CheckpointPolicy::recompute_everything(), block, h);
    h.sum().backward();
    return Tensors{x.grad(), w.grad()};
  });
  EXPECT_EQ(stats.calls, 3 * 3u) << "one for each region";
  EXPECT_EQ(stats.compiles, 4u) << "what comes before them, and one for each";
  EXPECT_EQ(count(*only_graph(), "ahead.call_hook"), 3u) << only_graph()->str();
}

TEST(EngineCheckpoints, RunsTheRegionAsOftenAsEager) {
  auto runs = std::make_shared<int64_t>(0);
  expect_as_eager([runs] {
    *runs = 0;
    const at::Tensor x = leaf({4, 4});
    const auto block = [runs](const at::Tensor& h) {
      ++*runs;
      return h.sin().tanh().mm(h).exp();
    };
    const at::Tensor y = checkpoint(CheckpointPolicy::recompute_everything(), block, x.exp());
    y.register_hook([](const at::Tensor& gradient) { return gradient * 2; });
    y.sum().backward();
    return Tensors{x.grad(), torch::tensor(*runs)};
  });
}

/// What a region that writes to a captured tensor with a gradient, and its derivatives, come to.
template <class Around>
Tensors second_derivatives_past_a_write(Around around, bool reads_after) {
  const at::Tensor x = leaf({3}), a = leaf({3});
  const at::Tensor w = a * 1;
  const auto region = [w](const at::Tensor& h) {
    w.mul_(h);
    return (w.sin() * h).exp();
  };
  at::Tensor y = around(region, x.exp());
  if (reads_after) y = y * w;
  const Tensors first = torch::autograd::grad({y.sum()}, {x, a}, {}, true, true);
  Tensors all = torch::autograd::grad({(first[0] * first[1]).sum()}, {x, a}, {}, {}, false, true);
  all.insert(all.end(), first.begin(), first.end());
  return all;
}

TEST(EngineCheckpoints, WriteToACapturedTensorWithAGradient) {
  const auto plain = [](const auto& f, const at::Tensor& h) { return f(h); };
  const auto checkpointed = [](const auto& f, const at::Tensor& h) {
    return checkpoint(CheckpointPolicy::recompute_everything(), f, h);
  };
  for (const bool reads_after : {false, true}) {
    torch::manual_seed(3);
    const Tensors expected = second_derivatives_past_a_write(plain, reads_after);
    for (const bool is_compiled : {false, true}) {
      torch::manual_seed(3);
      std::optional<Enable> on;
      if (is_compiled) on.emplace();
      const Tensors actual = second_derivatives_past_a_write(checkpointed, reads_after);
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_EQ(tensor_difference(expected[i].detach(), actual[i].detach()), "") << i;
    }
  }
}

TEST(EngineCheckpoints, WrittenTensorsKeepTheirHistoriesAndHooks) {
  expect_as_eager([] {
    const at::Tensor a = leaf({3});
    const at::Tensor w = a * 1;
    const Log log = new_log();
    const auto region = [w](const at::Tensor& h) {
      w.mul_(h);
      return w.sin();
    };
    const at::Tensor y = checkpoint(CheckpointPolicy::recompute_everything(), region, a.exp());
    w.retain_grad();
    w.register_hook([log](const at::Tensor&) { log->push_back(1); });
    const auto* history = w.grad_fn().get();
    (y.sum() + w.sum()).backward({}, /*retain_graph=*/true);
    EXPECT_EQ(w.grad_fn().get(), history);
    w.sum().backward();
    return Tensors{a.grad(), w.grad(), torch::tensor(*log)};
  });
}

TEST(EngineCheckpoints, NestedWithDropoutAndHooks) {
  expect_whole([] {
    const at::Tensor x = leaf({4, 4});
    const Log log = new_log();
    const auto inner = [](const at::Tensor& h) {
      return torch::dropout(h.tanh(), 0.5, true).sin();
    };
    const auto outer = [inner](const at::Tensor& h) {
      return checkpoint(CheckpointPolicy::recompute_everything(), inner, h.exp()).cos();
    };
    const at::Tensor h = x * 2;
    h.register_hook([log](const at::Tensor& gradient) {
      log->push_back(1);
      return gradient * 2;
    });
    checkpoint(CheckpointPolicy::recompute_everything(), outer, h).sum().backward();
    return Tensors{x.grad(), torch::tensor(*log)};
  });
}

TEST(EngineCheckpoints, PoliciesThatSaveSome) {
  expect_whole([] {
    const at::Tensor x = leaf({4, 4}), w = leaf({4, 4});
    const CheckpointPolicy products([](const Operator& op) {
      return op.name() == "aten.mm" ? Saving::MustSave : Saving::MustRecompute;
    });
    const auto block = [&w](const at::Tensor& h) { return h.mm(w).tanh().mm(w).sin(); };
    checkpoint(products, block, x.exp()).sum().backward();
    return Tensors{x.grad(), w.grad()};
  });
}

TEST(EngineCheckpoints, AFunctionThatDiffersThrowsAsEager) {
  test::expect_error_as_eager([] {
    const at::Tensor x = leaf({4});
    auto calls = std::make_shared<int>(0);
    const auto block = [calls](const at::Tensor& h) {
      return (*calls)++ == 0 ? h.sin().exp() : h.sin().exp().tanh();
    };
    checkpoint(CheckpointPolicy::recompute_everything(), block, x * 2).sum().backward();
    return Tensors{};
  });
}

/// What was saved is looked at when a backward is captured inside a checkpointed function.
TEST(EngineCheckpoints, ABackwardInsideARegion) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4});
    const auto block = [](const at::Tensor& h) {
      const at::Tensor inner = h.detach().requires_grad_();
      const at::Tensor slope = torch::autograd::grad({inner.sin().exp().sum()}, {inner})[0];
      return h.sin() * slope;
    };
    checkpoint(CheckpointPolicy::recompute_everything(), block, x * 2).sum().backward();
    return Tensors{x.grad()};
  });
}

TEST(EngineCheckpoints, TrainsAsEager) {
  const Stats stats = expect_as_eager(
      [] {
        torch::manual_seed(1);
        torch::nn::Linear first(8, 16), second(16, 16), third(16, 4);
        Tensors parameters;
        for (const auto& layer : {first, second, third})
          for (const at::Tensor& parameter : layer->parameters()) parameters.push_back(parameter);
        torch::optim::SGD optimizer(parameters, torch::optim::SGDOptions(0.1).momentum(0.9));
        const at::Tensor data = torch::randn({20, 8});
        for (int step = 0; step < 5; ++step) {
          optimizer.zero_grad();
          const at::Tensor h = first->forward(data.narrow(0, 4 * step, 4));
          const at::Tensor k = checkpoint(
              CheckpointPolicy::recompute_everything(),
              [&](const at::Tensor& in) { return second->forward(in.relu()).tanh(); }, h);
          third->forward(k).pow(2).mean().backward();
          optimizer.step();
        }
        return parameters;
      },
      3, {.fullgraph = true});
  EXPECT_EQ(stats.captures, 1u) << test::all_reasons();
  EXPECT_EQ(stats.cache_hits, 14u);
}

}  // namespace saved_hooks_test
}  // namespace ahead
