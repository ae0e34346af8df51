#include <gtest/gtest.h>
#include <torch/torch.h>

#include <thread>

#include "ahead/ahead.h"
#include "eager/harness.h"
#include "models/memory.h"
#include "models/models.h"
#include "support/autograd_hooks.h"

/// Gradients are handed over as they are made: hooks are called in eager's order, and no gradient
/// lives longer than in eager.
namespace ahead::test {
namespace hand_over_test {

/// Linear layers with norms between them, one of them used twice.
struct Blocks : torch::nn::Module {
  explicit Blocks(int64_t width = 8) {
    for (int i = 0; i < 4; ++i) {
      linears->push_back(torch::nn::Linear(width, width));
      norms->push_back(torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    }
    register_module("linears", linears);
    register_module("norms", norms);
  }
  at::Tensor forward(at::Tensor x) {
    for (size_t i = 0; i < linears->size(); ++i) {
      x = norms[i]->as<torch::nn::LayerNorm>()->forward(x);
      x = torch::gelu(linears[i]->as<torch::nn::Linear>()->forward(x)) + x;
    }
    return linears[0]->as<torch::nn::Linear>()->forward(x).pow(2).mean();
  }
  torch::nn::ModuleList linears, norms;
};

void add_hook_after_accumulation(const at::Tensor& leaf, AccumulatedHook::Function hook) {
  torch::autograd::impl::set_post_acc_grad_hooks(
      leaf, std::make_unique<AccumulatedHook>(std::move(hook)));
}

TEST(HandOver, HooksOfParametersAreCalledInEagersOrder) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    Blocks model;
    const EventLog events;
    int64_t number = 0;
    for (const at::Tensor& parameter : model.parameters()) {
      parameter.register_hook([events, id = number++](const at::Tensor& gradient) {
        events.add(id);
        return gradient * 1.5;
      });
    }
    auto loss = wrap([&](const at::Tensor& x) { return model.forward(x); });
    for (int call = 0; call < 12; ++call) {
      loss(at::randn({3, 8})).backward();
      log("model", model);
      log("events", events.tensor());
    }
  });
  expect_hits(outcome);
}

TEST(HandOver, StepsInHooksAfterAccumulation) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    Blocks model;
    const EventLog events;
    int64_t number = 0;
    for (const at::Tensor& parameter : model.parameters()) {
      add_hook_after_accumulation(parameter, [events, id = number++](const at::Tensor& leaf) {
        at::NoGradGuard no_grad;
        events.add(id);
        at::Tensor updated = leaf;
        updated.sub_(leaf.grad() * 0.1);
        updated.mutable_grad().reset();
      });
    }
    auto loss = wrap([&](const at::Tensor& x) { return model.forward(x); });
    for (int call = 0; call < 12; ++call) {
      log("loss", loss(at::randn({3, 8})).detach());
      loss(at::randn({3, 8})).backward();
      log("model", model);
      log("events", events.tensor());
    }
  });
  expect_hits(outcome);
}

/// Eager computes all gradients of an operator before it hands over any.
TEST(HandOver, StepsOnWhatTheSameOperatorReads) {
  for (const bool is_after : {false, true}) {
    SCOPED_TRACE(is_after ? "after accumulation" : "before");
    const Outcome outcome = like_eager([&](auto& wrap, Log& log) {
      const at::Tensor a = leaf({8, 8}), w = leaf({8, 8}), m = leaf({8});
      for (const at::Tensor& parameter : {a, w, m}) {
        if (is_after) {
          add_hook_after_accumulation(parameter, [](const at::Tensor& leaf) {
            at::NoGradGuard no_grad;
            at::Tensor written = leaf;
            written.sub_(leaf.grad() * 0.1);
          });
        } else {
          parameter.register_hook([parameter](const at::Tensor& gradient) {
            at::NoGradGuard no_grad;
            at::Tensor written = parameter;
            written.sub_(gradient * 0.1);
          });
        }
      }
      auto function = wrap([&](const at::Tensor& x) { return (x.mm(a).tanh() * m).mm(w).sum(); });
      for (int call = 0; call < 12; ++call) {
        log("result", function(at::randn({4, 8})).detach());
        function(at::randn({4, 8})).backward();
        log("leaves", {a, w, m});
      }
    });
    expect_hits(outcome);
  }
}

TEST(HandOver, LeavesOfOneOperatorInTheOrderOfItsEdges) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    std::vector<at::Tensor> leaves;
    const EventLog events;
    for (const auto& sizes : std::vector<std::vector<int64_t>>{{4}, {3, 5}, {5, 4}, {3, 4}}) {
      leaves.push_back(leaf(sizes));
      const auto id = static_cast<int64_t>(leaves.size());
      leaves.back().register_hook([events, id](const at::Tensor&) { events.add(id); });
    }
    auto function = wrap([&](const at::Tensor& x) {
      return (at::addmm(leaves[0], leaves[1], leaves[2]) * leaves[3] * x).sum();
    });
    for (int call = 0; call < 8; ++call) function(at::randn({3, 4})).backward();
    log("events", events.tensor());
  });
  expect_hits(outcome);
}

TEST(HandOver, ManyLeavesOfOneNode) {
  for (int64_t count = 2; count < 10; ++count) {
    const Outcome outcome = like_eager([&](auto& wrap, Log& log) {
      std::vector<at::Tensor> leaves;
      const EventLog events;
      for (int64_t i = 0; i < count; ++i) {
        leaves.push_back(leaf({3}));
        leaves.back().register_hook([events, i](const at::Tensor&) { events.add(i); });
      }
      auto function = wrap([&](const at::Tensor& x) { return torch::stack(leaves).mul(x).sum(); });
      for (int call = 0; call < 8; ++call) function(at::randn({3})).backward();
      log("events", events.tensor());
      log("leaves", leaves);
    });
    expect_hits(outcome);
  }
}

TEST(HandOver, GradientsOfSomeLeavesOnly) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    Blocks model;
    const std::vector<at::Tensor> parameters = model.parameters();
    const EventLog events;
    for (size_t i = 0; i < parameters.size(); i += 2)
      parameters[i].register_hook(
          [events, i](const at::Tensor&) { events.add(static_cast<int64_t>(i)); });
    auto loss = wrap([&](const at::Tensor& x) { return model.forward(x); });
    for (size_t call = 0; call < 24; ++call) {
      const at::Tensor made = loss(at::randn({3, 8}));
      const at::Tensor wanted = parameters[call % parameters.size()];
      log("gradient", torch::autograd::grad({made}, {wanted}, {}, /*retain_graph=*/true)[0]);
      log("two", torch::autograd::grad({made}, {wanted, parameters[3]}, {}, true));
      torch::autograd::backward({made}, {}, /*retain_graph=*/true, /*create_graph=*/false,
                                {parameters[2], wanted});
      made.backward();
      log("model", model);
      log("events", events.tensor());
    }
  });
  expect_hits(outcome);
}

TEST(HandOver, SecondBackwardsAndSecondDerivatives) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    Blocks model;
    const EventLog events;
    for (const at::Tensor& parameter : model.parameters())
      parameter.register_hook([events](const at::Tensor& gradient) { events.add(gradient.dim()); });
    auto loss = wrap([&](const at::Tensor& x) { return model.forward(x); });
    for (int call = 0; call < 12; ++call) {
      const at::Tensor made = loss(at::randn({3, 8}));
      made.backward({}, /*retain_graph=*/true);
      made.backward({}, /*retain_graph=*/true);
      std::vector<at::Tensor> gradients =
          torch::autograd::grad({made}, model.parameters(), {}, true, /*create_graph=*/true);
      at::Tensor penalty = made;
      for (const at::Tensor& gradient : gradients) penalty = penalty + gradient.pow(2).sum();
      penalty.backward();
      for (const at::Tensor& parameter : model.parameters())
        log.close("gradient", parameter.grad());
      log("events", events.tensor());
      model.zero_grad();
    }
  });
  expect_hits(outcome);
}

TEST(HandOver, HookThatThrowsInBetween) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    Blocks model;
    int calls = 0;
    for (const at::Tensor& parameter : model.parameters())
      parameter.register_hook(
          [&calls](const at::Tensor&) { TORCH_CHECK(++calls % 17 != 0, "the hook is angry"); });
    auto loss = wrap([&](const at::Tensor& x) { return model.forward(x); });
    for (int call = 0; call < 12; ++call) {
      const at::Tensor made = loss(at::randn({3, 8}));
      log("error", error_of([&] { made.backward(); }));
      log("calls", calls);
      log("model", model);
    }
  });
  expect_hits(outcome);
}

/// What a hook writes to is needed by what is still to be computed.
TEST(HandOver, HookThatWritesToWhatIsStillNeeded) {
  Blocks model;
  auto loss = compile([&](const at::Tensor& x) { return model.forward(x); });
  const at::Tensor x = at::randn({3, 8});
  for (int call = 0; call < 3; ++call) loss(x).backward();
  const at::Tensor last = model.linears[3]->as<torch::nn::Linear>()->bias;
  const at::Tensor first = model.linears[0]->as<torch::nn::Linear>()->weight;
  last.register_hook([&](const at::Tensor&) {
    at::NoGradGuard no_grad;
    at::Tensor written = first;
    written.mul_(2);
  });
  const at::Tensor eager = model.forward(x);
  EXPECT_NE(error_of([&] { eager.backward(); }).find("modified by an inplace operation"),
            std::string::npos);
  const at::Tensor compiled = loss(x);
  EXPECT_NE(error_of([&] { compiled.backward(); }).find("modified by an inplace operation"),
            std::string::npos);
}

/// Compiled autograd captures a chain as a whole, or leaves it to itself where hooks are called in
/// between.
TEST(HandOver, IsCapturedByCompiledAutograd) {
  for (const bool has_hook : {false, true}) {
    SCOPED_TRACE(has_hook ? "with a hook" : "without hooks");
    compiled_autograd::reset();
    const Outcome outcome = like_eager(
        [&](auto& wrap, Log& log) {
          Blocks model(32);
          const EventLog events;
          if (has_hook) {
            model.linears[2]->as<torch::nn::Linear>()->weight.register_hook(
                [events](const at::Tensor& gradient) {
                  events.add(1);
                  return gradient * 2;
                });
          }
          auto loss = wrap([&](const at::Tensor& x) { return model.forward(x); });
          for (int call = 0; call < 12; ++call) {
            const at::Tensor made = loss(at::randn({3, 32}));
            const compiled_autograd::Enable on;
            made.backward();
            log("model", model);
            log("events", events.tensor());
          }
        },
        Confirm::Doubling);
    expect_hits(outcome);
    EXPECT_EQ(compiled_autograd::stats().eager_fallbacks, 0u);
    EXPECT_GT(compiled_autograd::stats().cache_hits, 6u);
  }
}

TEST(HandOver, IsOneGraphOfCompiledAutograd) {
  Blocks model(32);
  auto loss = compile([&](const at::Tensor& x) { return model.forward(x); });
  const at::Tensor x = at::randn({3, 32});
  for (int call = 0; call < 3; ++call) loss(x).backward();
  model.zero_grad();
  model.forward(x).backward();
  std::vector<at::Tensor> expected;
  for (const at::Tensor& parameter : model.parameters()) expected.push_back(parameter.grad());
  model.zero_grad();
  compiled_autograd::reset();
  {
    const compiled_autograd::Enable on({.fullgraph = true});
    loss(x).backward();
  }
  EXPECT_EQ(compiled_autograd::stats().captures, 1u);
  EXPECT_EQ(compiled_autograd::graphs().size(), 1u);
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(same_values(expected[i], model.parameters()[i].grad()));
}

TEST(HandOver, ThreadsShareOneGraph) {
  Blocks model(64);
  auto loss = compile([&](const at::Tensor& x) { return model.forward(x); });
  const at::Tensor x = at::randn({3, 64});
  for (int call = 0; call < 3; ++call) loss(x).backward();
  const std::vector<at::Tensor> parameters = model.parameters();
  const at::Tensor made = loss(x);
  const auto expected = torch::autograd::grad({made}, parameters, {}, true);
  std::vector<std::vector<at::Tensor>> found(4);
  std::vector<std::thread> threads;
  for (auto& gradients : found) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i)
        gradients = torch::autograd::grad({made}, parameters, {}, /*retain_graph=*/true);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& gradients : found) expect_same(expected, gradients);
}

TEST(HandOver, OnAGpu) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "there is no GPU";
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    Blocks model(64);
    model.to(at::kCUDA);
    const EventLog events;
    int64_t number = 0;
    for (const at::Tensor& parameter : model.parameters()) {
      const int64_t id = number++;
      if (id % 3 != 0) continue;
      parameter.register_hook([events, id](const at::Tensor& gradient) {
        events.add(id);
        return gradient * 1.5;
      });
    }
    auto loss = wrap([&](const at::Tensor& x) { return model.forward(x); });
    for (int call = 0; call < 12; ++call) {
      const at::Tensor made = loss(at::randn({3, 64}, at::kCUDA));
      made.backward({}, /*retain_graph=*/true);
      made.backward();
      for (const at::Tensor& parameter : model.parameters())
        log("gradient", parameter.grad().cpu());
      log("events", events.tensor());
    }
  });
  expect_hits(outcome);
}

enum class Grads { Reset, Kept };

/// The most memory that a step takes, beyond what it leaves.
template <class Loss>
int64_t peak_of_step(const Loss& loss, const std::vector<at::Tensor>& parameters, Grads grads) {
  models::MemoryCounter counter;
  int64_t peak = 0;
  for (int step = 0; step < 6; ++step) {
    if (grads == Grads::Reset)
      for (const at::Tensor& parameter : parameters) parameter.mutable_grad().reset();
    peak = counter.peak([&] { loss().backward(); });
  }
  return peak;
}

void expect_no_higher_peak(const models::Workload& workload) {
  auto compiled = compile([&](const at::Tensor&) { return workload.loss(workload.inputs)[0]; });
  const at::Tensor nothing = at::zeros({1});
  for (const Grads grads : {Grads::Reset, Grads::Kept}) {
    SCOPED_TRACE(workload.name + (grads == Grads::Kept ? ", gradients kept" : ", reset"));
    const int64_t eager =
        peak_of_step([&] { return workload.loss(workload.inputs)[0]; }, workload.parameters, grads);
    const int64_t ours =
        peak_of_step([&] { return compiled(nothing); }, workload.parameters, grads);
    EXPECT_LE(ours, eager);
    ::testing::Test::RecordProperty(
        workload.name + (grads == Grads::Kept ? "_kept" : "_reset"),
        std::to_string(static_cast<double>(ours) / static_cast<double>(eager)));
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0u);
  EXPECT_GT(compiled.stats().cache_hits, 4u);
}

models::Workload deep_mlp() {
  torch::manual_seed(0);
  torch::nn::Sequential model;
  for (int i = 0; i < 16; ++i) model->push_back(torch::nn::Linear(512, 512));
  const at::Tensor x = at::randn({4, 512});
  return {"deep_mlp", model->parameters(), {x}, [model](const auto& inputs) mutable {
            return std::vector<at::Tensor>{model->forward(inputs[0]).pow(2).mean()};
          }};
}

TEST(HandOver, NoHigherPeakThanEager) {
  expect_no_higher_peak(deep_mlp());
  expect_no_higher_peak(models::mlp_workload());
  expect_no_higher_peak(models::gpt_workload({.layers = 4, .width = 128}));
  expect_no_higher_peak(models::resnet_workload());
  expect_no_higher_peak(models::lstm_workload());
}

}  // namespace hand_over_test
}  // namespace ahead::test
