#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/compile.h"
#include "ahead/compiled_autograd.h"
#include "support/autograd_hooks.h"
#include "support/engine_check.h"
#include "support/hits.h"

namespace ahead {
namespace graphs_test {

using test::EventLog;
using test::expect_as_eager;
using test::expect_error_as_eager;
using test::grads_of;
using torch::autograd::backward;
using torch::autograd::grad;
using Tensors = std::vector<at::Tensor>;

TEST(EngineGraphs, TrunkIsRetainedForTwoHeads) {
  const auto stats = expect_as_eager([] {
    const at::Tensor x = leaf({3}), a = leaf({3}), b = leaf({3});
    const at::Tensor trunk = x.exp().sin();
    (trunk * a).sum().backward({}, /*keep_graph=*/true);
    (trunk * b).tanh().sum().backward();
    return Tensors{x.grad(), a.grad(), b.grad()};
  });
  EXPECT_EQ(stats.captures, 2u);
}

TEST(EngineGraphs, SecondHeadAfterTheTrunkWasReleasedThrowsAsEager) {
  expect_error_as_eager([] {
    const at::Tensor x = leaf({3}), b = leaf({3});
    const at::Tensor trunk = x.exp().sin();
    trunk.sum().backward();
    (trunk * b).tanh().sum().backward();
    return Tensors{};
  });
}

TEST(EngineGraphs, LeavesBeforeAReleasedNodeHaveTheirGradients) {
  expect_as_eager([] {
    const at::Tensor x = leaf({3}), b = leaf({3});
    const at::Tensor trunk = x.exp().sin();
    trunk.sum().backward();
    EXPECT_ANY_THROW((trunk * b).tanh().sum().backward());
    return Tensors{x.grad(), b.grad()};
  });
}

TEST(EngineGraphs, RetainedOnceMoreUnderOtherInputs) {
  expect_as_eager([] {
    const at::Tensor x = leaf({3}), y = leaf({3});
    const at::Tensor h = x.exp() * y;
    const at::Tensor loss = h.sin().sum();
    Tensors all = grad({loss}, {x}, {}, /*retain_graph=*/true);
    all.push_back(grad({loss}, {h, y}, {}, true)[1]);
    backward({loss}, {}, true, false, {y});
    loss.backward();
    all.push_back(x.grad());
    all.push_back(y.grad());
    return all;
  });
}

TEST(EngineGraphs, SameInputAskedForTwice) {
  expect_as_eager([] {
    const at::Tensor x = leaf({3});
    return grad({(x * x.exp()).sum()}, {x, x});
  });
}

TEST(EngineGraphs, RootAskedForItself) {
  expect_as_eager([] {
    const at::Tensor x = leaf({3});
    const at::Tensor y = x.exp();
    return grad({y}, {y, x}, {torch::randn({3})});
  });
}

TEST(EngineGraphs, InputBehindAnotherInput) {
  expect_as_eager([] {
    const at::Tensor x = leaf({3});
    const at::Tensor h = x.exp(), k = h.sin();
    return grad({(k * h).sum()}, {k, h, x});
  });
}

TEST(EngineGraphs, InputsThatAreResultsOfOneNode) {
  expect_as_eager([] {
    const at::Tensor x = leaf({6, 2});
    const Tensors pieces = (x * 2).split(2);
    return grad({(pieces[0] * pieces[2].exp()).sum()}, {pieces[2], pieces[1], x}, {}, false, false,
                /*allow_unused=*/true);
  });
}

TEST(EngineGraphs, UnusedInputThrowsAsEager) {
  expect_error_as_eager([] {
    const at::Tensor x = leaf({3}), y = leaf({3});
    return grad({x.exp().sum()}, {x, y}, {}, false, false, /*allow_unused=*/false);
  });
}

TEST(EngineGraphs, BackwardToIntermediatesFillsTheirGrad) {
  expect_as_eager([] {
    const at::Tensor x = leaf({3}), y = leaf({3});
    const at::Tensor h = x.exp();
    h.retain_grad();
    backward({(h * y).sum()}, {}, false, false, {h, y});
    return Tensors{x.grad(), y.grad(), h.grad()};
  });
}

TEST(EngineGraphs, OneTensorIsTwoRoots) {
  expect_as_eager([] {
    const at::Tensor x = leaf({3});
    const at::Tensor y = x.exp();
    backward({y, y}, {torch::randn({3}), torch::randn({3})});
    return Tensors{x.grad()};
  });
}

TEST(EngineGraphs, RootInsideTheGraphOfAnother) {
  expect_as_eager([] {
    const at::Tensor x = leaf({3});
    const at::Tensor h = x.exp(), y = h.sin();
    backward({y, h, x}, {torch::randn({3}), torch::randn({3}), torch::randn({3})});
    return Tensors{x.grad()};
  });
}

TEST(EngineGraphs, RootsOfSeveralDtypes) {
  expect_as_eager([] {
    const at::Tensor x = leaf({3});
    const at::Tensor low = x.to(at::kBFloat16).exp(), high = x.to(at::kDouble).sin();
    backward({low, high}, {torch::ones({3}, at::kBFloat16), torch::ones({3}, at::kDouble)});
    return Tensors{x.grad()};
  });
}

TEST(EngineGraphs, RootWithoutHistoryThrowsAsEager) {
  expect_error_as_eager([] {
    torch::randn({}).backward();
    return Tensors{};
  });
}

TEST(EngineGraphs, GradientOfTheRootThatRequiresGrad) {
  expect_as_eager([] {
    const at::Tensor x = leaf({3}), given = leaf({3});
    const at::Tensor y = x.exp();
    y.backward(given);
    return Tensors{x.grad(), given.grad()};
  });
}

TEST(EngineGraphs, CreateGraphThenEveryOrder) {
  const auto stats = expect_as_eager([] {
    const at::Tensor x = leaf({3}), w = leaf({3});
    const at::Tensor loss = (x.sin() * w.exp()).sum();
    const at::Tensor first = grad({loss}, {x}, {}, true, /*create_graph=*/true)[0];
    const at::Tensor mixed = grad({first.sum()}, {w}, {}, true)[0];
    (first.pow(2).sum() + loss).backward();
    return Tensors{first.detach(), mixed, x.grad(), w.grad()};
  });
  EXPECT_EQ(stats.captures, 3u);
  EXPECT_EQ(stats.eager_fallbacks, 0u);
}

TEST(EngineGraphs, GradLeftByCreateGraphIsAddedTo) {
  expect_as_eager([] {
    const at::Tensor x = leaf({3});
    x.pow(3).sum().backward({}, true, /*create_graph=*/true);
    const bool has_history = x.grad().requires_grad();
    x.exp().sum().backward();
    const Tensors all{x.grad().detach(), torch::tensor(has_history)};
    x.mutable_grad().reset();  // else x and its gradient would keep each other alive
    return all;
  });
}

TEST(EngineGraphs, UndefinedGradientsReachLeaves) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4}), y = leaf({4});
    const at::Tensor h = x.exp();
    h.grad_fn()->add_post_hook(std::make_unique<test::PostHook>(
        [](const auto& outputs, const auto&) { return Tensors(outputs.size()); }));
    auto [values, indices] = (h * y).sort();
    values.sum().backward();
    return Tensors{x.grad(), y.grad()};
  });
}

TEST(EngineGraphs, PartsOfTheGraphThatGiveNothing) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4}), y = leaf({4});
    (x.detach() * y + x.round() + torch::where(y > 0, x, y).sign()).sum().backward();
    return Tensors{x.grad(), y.grad()};
  });
}

TEST(EngineGraphs, TwoLossesOfAnAdversarialStep) {
  const auto stats = expect_as_eager([] {
    torch::nn::Sequential generator(torch::nn::Linear(2, 4), torch::nn::Tanh(),
                                    torch::nn::Linear(4, 3));
    torch::nn::Sequential judge(torch::nn::Linear(3, 4), torch::nn::LeakyReLU(),
                                torch::nn::Linear(4, 1));
    torch::optim::Adam for_generator(generator->parameters(), 0.1);
    torch::optim::SGD for_judge(judge->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    for (int step = 0; step < 3; ++step) {
      const at::Tensor made = generator->forward(torch::randn({5, 2}));
      judge->zero_grad();
      (judge->forward(torch::randn({5, 3})).sigmoid().log() +
       (1 - judge->forward(made.detach()).sigmoid()).log())
          .mean()
          .neg()
          .backward();
      for_judge.step();
      generator->zero_grad();
      judge->forward(made).sigmoid().log().mean().neg().backward();
      for_generator.step();
    }
    Tensors all = generator->parameters();
    for (const at::Tensor& p : judge->parameters()) all.push_back(p);
    return all;
  });
  EXPECT_EQ(stats.captures, 2u);
  EXPECT_EQ(stats.eager_fallbacks, 0u);
}

TEST(EngineGraphs, GradientPenaltyOfATrainingStep) {
  expect_as_eager([] {
    torch::nn::Sequential judge(torch::nn::Linear(3, 4), torch::nn::Tanh(),
                                torch::nn::Linear(4, 1));
    for (int step = 0; step < 2; ++step) {
      const at::Tensor x = leaf({5, 3});
      const at::Tensor slope = grad({judge->forward(x).sum()}, {x}, {}, true, true)[0];
      ((slope.norm(2, 1) - 1).pow(2).mean() + judge->forward(x).mean()).backward();
    }
    return grads_of(*judge);
  });
}

TEST(EngineGraphs, ClippingAndScalingOfGradients) {
  const auto stats = expect_as_eager([] {
    torch::nn::Sequential net(torch::nn::Linear(3, 4), torch::nn::ReLU(), torch::nn::Linear(4, 1));
    torch::optim::AdamW adam(net->parameters(), 0.1);
    Tensors norms;
    for (int step = 0; step < 4; ++step) {
      adam.zero_grad(/*set_to_none=*/step % 2 == 0);
      (net->forward(torch::randn({2, 3})).pow(2).mean() * 1024).backward();
      for (const at::Tensor& p : net->parameters()) p.mutable_grad().div_(1024);
      torch::nn::utils::clip_grad_value_(net->parameters(), 0.5);
      norms.push_back(torch::tensor(torch::nn::utils::clip_grad_norm_(net->parameters(), 0.3)));
      adam.step();
    }
    for (const at::Tensor& p : net->parameters()) norms.push_back(p);
    return norms;
  });
  EXPECT_EQ(stats.captures, 2u);
}

TEST(EngineGraphs, RecurrentNetsOfVaryingLength) {
  const auto stats = expect_as_eager([] {
    torch::nn::LSTMCell cell(3, 4);
    Tensors all;
    for (int64_t length : {2, 4, 2}) {
      auto state = std::make_tuple(torch::zeros({1, 4}), torch::zeros({1, 4}));
      for (int64_t i = 0; i < length; ++i) state = cell->forward(torch::randn({1, 3}), state);
      std::get<0>(state).sum().backward();
    }
    return grads_of(*cell);
  });
  EXPECT_EQ(stats.captures, 3u);
}

TEST(EngineGraphs, TruncatedBackpropagationThroughTime) {
  expect_as_eager([] {
    torch::nn::GRUCell cell(3, 4);
    at::Tensor state = torch::zeros({2, 4});
    for (int i = 0; i < 4; ++i) {
      state = cell->forward(torch::randn({2, 3}), state.detach());
      state.pow(2).sum().backward();
    }
    return grads_of(*cell);
  });
}

TEST(EngineGraphs, CompiledForwardWithEagerHeadAndLoss) {
  torch::nn::Linear body(4, 4);
  auto compiled = ahead::compile([&body](const at::Tensor& x) { return body->forward(x).tanh(); },
                                 {.confirm = 0});
  const auto program = [&] {
    torch::nn::init::normal_(body->weight);
    torch::nn::init::normal_(body->bias);
    body->zero_grad();
    torch::nn::Linear head(4, 2);
    const at::Tensor x = leaf({3, 4});
    torch::nn::functional::cross_entropy(head->forward(compiled(compiled(x.sin()))),
                                         torch::tensor({0, 1, 1}))
        .backward();
    Tensors all = grads_of(*body);
    for (const at::Tensor& grad : grads_of(*head)) all.push_back(grad);
    all.push_back(x.grad());
    return all;
  };
  program();
  const auto stats = expect_as_eager(program);
  EXPECT_EQ(stats.captures, 1u);
  EXPECT_EQ(stats.compiles, 1u);
  expect_hits(compiled);
}

TEST(EngineGraphs, CompiledForwardWithHooksAroundIt) {
  auto compiled = ahead::compile(
      [](const at::Tensor& x, const at::Tensor& w) {
        return std::make_pair(x.mm(w).tanh(), (x * w).exp());
      },
      {.confirm = 0});
  const auto program = [&] {
    const EventLog log;
    const at::Tensor x = leaf({3, 3}), w = leaf({3, 3});
    const at::Tensor h = x.sin();
    const auto [a, b] = compiled(h, w);
    int64_t number = 0;
    for (const at::Tensor& tensor : {x, w, h, a, b}) {
      tensor.register_hook([log, number](const at::Tensor& gradient) {
        log.add(number);
        return gradient * (static_cast<double>(number) + 2);
      });
      ++number;
    }
    (a * b).sum().backward();
    return Tensors{x.grad(), w.grad(), log.tensor()};
  };
  program();
  EXPECT_EQ(expect_as_eager(program).captures, 1u);
  expect_hits(compiled);
}

TEST(EngineGraphs, CompiledForwardRetainedAndMutated) {
  auto compiled = ahead::compile(
      [](at::Tensor x, const at::Tensor& w) {
        x.mul_(w);
        return (x * x).sin();
      },
      {.confirm = 0});
  const auto program = [&] {
    const at::Tensor x = leaf({3}), w = leaf({3});
    const at::Tensor h = x * 2;
    const at::Tensor loss = (compiled(h, w) * h).sum();
    loss.backward({}, /*keep_graph=*/true);
    loss.backward();
    return Tensors{x.grad(), w.grad()};
  };
  program();
  EXPECT_EQ(expect_as_eager(program).captures, 2u);
  expect_hits(compiled);
}

}  // namespace graphs_test
}  // namespace ahead
