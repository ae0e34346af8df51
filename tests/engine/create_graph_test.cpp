#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/backend.h"
#include "ahead/compile.h"
#include "ahead/compiled_autograd.h"
#include "ahead/interpret.h"
#include "support/autograd_hooks.h"
#include "support/engine_check.h"
#include "support/hits.h"

/// Backwards that leave a history behind are captured as any other, and so are those of that
/// history in their turn.
namespace ahead {
namespace create_graph_test {

using test::all_reasons;
using test::expect_as_eager;
using test::expect_error_as_eager;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::grad;
using torch::autograd::variable_list;
using Tensors = std::vector<at::Tensor>;

/// Runs the program three times, with so many backwards in each run of which so many differ, and
/// expects that nothing ran in the eager engine and that all of it was found again.
void expect_captured(const test::BackwardProgram& program, uint64_t captures, uint64_t backwards) {
  const auto stats = expect_as_eager(program);
  EXPECT_EQ(stats.captures, captures) << all_reasons();
  EXPECT_EQ(stats.eager_fallbacks, 0u) << all_reasons();
  EXPECT_EQ(stats.cache_hits, 3 * backwards - captures) << all_reasons();
}

/// The gradient with a history of its own.
at::Tensor slope(const at::Tensor& of, const at::Tensor& by) {
  return grad({of}, {by}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
}

TEST(EngineCreateGraph, FourOrdersOfACube) {
  expect_captured(
      [] {
        const at::Tensor x = leaf({3});
        Tensors all;
        at::Tensor y = x.pow(3).sum();
        for (int order = 0; order < 4; ++order) {
          y = slope(y, x).sum();
          all.push_back(y.detach());
        }
        return all;
      },
      4, 4);
}

TEST(EngineCreateGraph, ThirdDerivativesOfManyOperators) {
  expect_captured(
      [] {
        const at::Tensor x = torch::rand({4, 4}).add(0.5).requires_grad_(), w = leaf({4, 4});
        const at::Tensor y = (x.mm(w).tanh() * x.log() + x.sigmoid() / (w * w + 1)).softmax(1);
        const at::Tensor first = slope(y.pow(2).sum(), x);
        const at::Tensor second = slope((first * w).sum(), x);
        const at::Tensor third = slope((second * second).sum(), w);
        third.sum().backward();
        return Tensors{first.detach(), second.detach(), third.detach(), x.grad(), w.grad()};
      },
      4, 4);
}

TEST(EngineCreateGraph, GradientPenaltyInATrainingLoop) {
  expect_captured(
      [] {
        torch::nn::Sequential critic(torch::nn::Linear(4, 8), torch::nn::Tanh(),
                                     torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})),
                                     torch::nn::Linear(8, 1));
        torch::optim::Adam optimizer(critic->parameters(), 0.01);
        Tensors losses;
        for (int step = 0; step < 5; ++step) {
          const at::Tensor x = torch::randn({6, 4}, torch::requires_grad());
          const at::Tensor score = critic->forward(x).sum();
          const at::Tensor penalty = (slope(score, x).norm(2, 1) - 1).pow(2).mean();
          const at::Tensor loss = score + 10 * penalty;
          optimizer.zero_grad();
          loss.backward();
          optimizer.step();
          losses.push_back(loss.detach());
        }
        for (const at::Tensor& p : critic->parameters()) losses.push_back(p.detach());
        return losses;
      },
      2, 10);
}

TEST(EngineCreateGraph, HessianVectorProducts) {
  expect_captured(
      [] {
        const at::Tensor x = leaf({5}), w = torch::randn({5, 5});
        const at::Tensor first = slope((w.mv(x)).sin().pow(2).sum(), x);
        Tensors columns;
        for (int i = 0; i < 5; ++i) {
          at::Tensor vector = torch::zeros({5});
          vector[i] = 1;
          columns.push_back(grad({first}, {x}, {vector}, /*retain_graph=*/true)[0]);
        }
        return columns;
      },
      2, 6);
}

TEST(EngineCreateGraph, InnerStepOfMetaLearning) {
  expect_captured(
      [] {
        const at::Tensor w = leaf({4, 3}), b = leaf({3});
        const at::Tensor x = torch::randn({6, 4}), y = torch::randn({6, 3});
        const auto loss = [&](const at::Tensor& weight, const at::Tensor& bias) {
          return torch::mse_loss(torch::addmm(bias, x, weight).relu(), y);
        };
        const variable_list inner = grad({loss(w, b)}, {w, b}, {}, true, true);
        loss(w - 0.1 * inner[0], b - 0.1 * inner[1]).backward();
        return Tensors{w.grad(), b.grad()};
      },
      2, 2);
}

TEST(EngineCreateGraph, ReleasedAllTheSame) {
  expect_captured(
      [] {
        const at::Tensor x = leaf({3});
        const at::Tensor y = x.sin().exp().sum();
        const at::Tensor first =
            grad({y}, {x}, {}, /*retain_graph=*/false, /*create_graph=*/true)[0];
        return Tensors{first.detach(), torch::tensor(first.requires_grad())};
      },
      1, 1);
  expect_error_as_eager([] {
    const at::Tensor x = leaf({3});
    const at::Tensor first = grad({x.sin().exp().sum()}, {x}, {}, false, true)[0];
    first.sum().backward();
    return Tensors{x.grad()};
  });
}

TEST(EngineCreateGraph, AccumulatesOutOfPlace) {
  const auto program = [] {
    const at::Tensor x = leaf({3}), w = leaf({3});
    (x.pow(3) * w).sum().backward({}, true, /*create_graph=*/true);
    const at::Tensor before = x.grad();
    (x.exp() * w.sin()).sum().backward({}, true, /*create_graph=*/true);
    const at::Tensor after = x.grad();
    const Tensors all{before.detach(), after.detach(), torch::tensor(before.is_same(after)),
                      grad({after.sum()}, {w}, {}, true)[0]};
    x.mutable_grad().reset();
    w.mutable_grad().reset();
    return all;
  };
  expect_captured(program, 3, 3);
}

TEST(EngineCreateGraph, HooksInBetweenSeeGradientsWithHistory) {
  const auto program = [] {
    const at::Tensor x = leaf({3});
    const at::Tensor h = x.sin();
    bool has_history = false;
    h.register_hook([&](const at::Tensor& gradient) {
      has_history = gradient.requires_grad();
      return gradient * gradient;
    });
    const at::Tensor first = slope((h * h.exp()).sum(), x);
    first.pow(2).sum().backward();
    return Tensors{first.detach(), x.grad(), torch::tensor(has_history)};
  };
  expect_captured(program, 2, 2);
}

template <bool traceable>
struct Square : Function<Square<traceable>> {
  static constexpr bool is_traceable = traceable;
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x * x;
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    return {grads[0] * 2 * context->get_saved_variables()[0]};
  }
};

TEST(EngineCreateGraph, CustomFunctions) {
  const auto program = [](auto function) {
    return [function] {
      const at::Tensor x = leaf({4});
      const at::Tensor first = slope(decltype(function)::apply(x.exp()).sin().sum(), x);
      first.pow(2).sum().backward();
      return Tensors{first.detach(), x.grad()};
    };
  };
  expect_captured(program(Square<true>()), 2, 2);
  expect_captured(program(Square<false>()), 2, 2);
}

/// Twice the gradient that the operators of its forward have.
struct Doubling : Function<Doubling> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x.sin(); }
  static variable_list backward(AutogradContext*, const variable_list& grads) {
    return {grads[0] * 2};
  }
};

/// Its backward has a gradient that its operators do not tell.
struct CallsDoubling : Function<CallsDoubling> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x * 3;
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    return {Doubling::apply(context->get_saved_variables()[0]) * grads[0]};
  }
};

TEST(EngineCreateGraph, FunctionInsideTheBackwardOfAFunction) {
  expect_captured(
      [] {
        const at::Tensor x = leaf({4});
        const at::Tensor first = slope(CallsDoubling::apply(x.exp()).cos().sum(), x);
        first.pow(2).sum().backward();
        return Tensors{first.detach(), x.grad()};
      },
      2, 2);
  EXPECT_NE(all_reasons().find("has a gradient of its own"), std::string::npos) << all_reasons();
}

TEST(EngineCreateGraph, CompiledFunctionsInTheForward) {
  auto model = ahead::compile(
      [](const at::Tensor& x, const at::Tensor& w) { return x.mm(w).tanh() * x; }, {.confirm = 0});
  const auto program = [&] {
    const at::Tensor x = leaf({3, 3}), w = leaf({3, 3});
    const at::Tensor first = slope((model(x.exp(), w) * w).sum(), x);
    const at::Tensor second = slope(first.pow(2).sum(), w);
    second.sum().backward();
    return Tensors{first.detach(), second.detach(), x.grad(), w.grad()};
  };
  program();
  const auto stats = expect_as_eager(program);
  EXPECT_EQ(stats.captures, 3u) << all_reasons();
  EXPECT_EQ(stats.cache_hits, 6u) << all_reasons();
  EXPECT_EQ(stats.eager_fallbacks, 0u) << all_reasons();
  expect_hits(model);
}

TEST(EngineCreateGraph, InPlaceOnViews) {
  expect_captured(
      [] {
        const at::Tensor x = leaf({4, 3}), w = leaf({4});
        const at::Tensor h = x * x;
        h.select(1, 1).mul_(w).add_(1);
        h.slice(0, 1, 3).exp_();
        const at::Tensor first = slope(h.sin().sum(), x);
        first.pow(2).sum().backward();
        return Tensors{first.detach(), x.grad(), w.grad()};
      },
      2, 2);
}

TEST(EngineCreateGraph, LayersAndLosses) {
  expect_captured(
      [] {
        torch::nn::Conv2d conv(torch::nn::Conv2dOptions(2, 3, 3).padding(1));
        torch::nn::BatchNorm2d norm(3);
        torch::nn::GroupNorm groups(torch::nn::GroupNormOptions(3, 3));
        torch::nn::Linear last(3, 4);
        const at::Tensor x = leaf({2, 2, 6, 6});
        const at::Tensor h =
            torch::gelu(torch::max_pool2d(groups->forward(norm->forward(conv->forward(x))), 2));
        const at::Tensor loss = torch::cross_entropy_loss(
            last->forward(torch::adaptive_avg_pool2d(h, {1, 1}).flatten(1)), torch::arange(2));
        const at::Tensor first = slope(loss, x);
        first.pow(2).sum().backward();
        Tensors all{first.detach(), x.grad()};
        for (const at::Tensor& grad : test::grads_of(*conv)) all.push_back(grad);
        for (const at::Tensor& grad : test::grads_of(*norm)) all.push_back(grad);
        for (const at::Tensor& grad : test::grads_of(*last)) all.push_back(grad);
        return all;
      },
      2, 2);
}

TEST(EngineCreateGraph, BothKindsOfBackwardOfOneGraph) {
  expect_captured(
      [] {
        const at::Tensor x = leaf({3});
        const at::Tensor y = x.exp().sin().sum();
        const at::Tensor plain = grad({y}, {x}, {}, true)[0];
        const at::Tensor first = slope(y, x);
        return Tensors{plain, torch::tensor(plain.requires_grad()), first.detach(),
                       torch::tensor(first.requires_grad())};
      },
      2, 2);
}

TEST(EngineCreateGraph, SizesChange) {
  const auto stats = expect_as_eager([] {
    Tensors all;
    for (const int64_t size : {2, 3, 5, 7}) {
      const at::Tensor x = leaf({size, 4}), w = leaf({4, 4});
      const at::Tensor first = slope(x.mm(w).tanh().sum(), x);
      first.pow(2).sum().backward();
      all.push_back(first.detach());
      all.push_back(w.grad());
    }
    return all;
  });
  EXPECT_EQ(stats.captures, 4u) << all_reasons();
  EXPECT_EQ(stats.eager_fallbacks, 0u);
}

TEST(EngineCreateGraph, OtherBackendsGetGraphsWithoutHistoryOnly) {
  static int compiled = 0;
  register_backend("test_create_graph", [](const Graph& graph, const std::vector<TensorMeta>&) {
    ++compiled;
    auto interpreter = std::make_shared<const Interpreter>(graph);
    return [interpreter](Tensors&& args) { return (*interpreter)(std::move(args)); };
  });
  const auto stats = expect_as_eager(
      [] {
        const at::Tensor x = leaf({3});
        const at::Tensor first = slope(x.exp().sin().sum(), x);
        first.pow(2).sum().backward();
        return Tensors{first.detach(), x.grad()};
      },
      3, {.backend = "test_create_graph"});
  EXPECT_EQ(stats.compiles, 2u);
  EXPECT_EQ(compiled, 1);
}

TEST(EngineCreateGraph, TangentsThatRequireGrad) {
  expect_captured(
      [] {
        const at::Tensor x = leaf({3}), v = leaf({3});
        const at::Tensor product = grad({x.exp()}, {x}, {v}, true, /*create_graph=*/true)[0];
        const Tensors back = grad({product.sin().sum()}, {v, x}, {}, true);
        return Tensors{product.detach(), back[0], back[1]};
      },
      2, 2);
}

}  // namespace create_graph_test
}  // namespace ahead
