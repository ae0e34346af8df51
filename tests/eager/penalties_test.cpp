#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "eager/harness.h"

/// Derivatives of derivatives, taken inside and outside compiled functions.
namespace ahead::test {
namespace penalties_test {

namespace nn = torch::nn;
using torch::autograd::grad;

/// The gradient of a critic's score, whose length is punished.
at::Tensor penalty_of(const at::Tensor& x, const at::Tensor& score) {
  const at::Tensor gradient = grad({score}, {x}, {at::ones_like(score)}, /*retain_graph=*/true,
                                   /*create_graph=*/true)[0];
  return (gradient.norm(2, 1) - 1).pow(2).mean();
}

template <class Make>
Outcome train_critic(const Make& make) {
  return like_eager([&](auto& wrap, Log& log) {
    nn::Sequential critic = make();
    torch::optim::SGD optimizer(critic->parameters(), 0.01);
    auto score_of = wrap(critic);
    for (int call = 0; call < 12; ++call) {
      const at::Tensor real = at::randn({4, 3}), fake = at::randn({4, 3}), share = at::rand({4, 1});
      const at::Tensor mixed = (share * real + (1 - share) * fake).requires_grad_();
      const at::Tensor loss = train_step(optimizer, [&] {
        return score_of(fake).mean() - score_of(real).mean() +
               10 * penalty_of(mixed, score_of(mixed));
      });
      log.close("loss", loss);
      log.close("critic", *critic);
    }
  });
}

TEST(Penalties, OutsideACritic) {
  expect_hits(
      train_critic([] { return nn::Sequential(nn::Linear(3, 4), nn::Tanh(), nn::Linear(4, 1)); }));
}

TEST(Penalties, OutsideACriticWithBatchNorm) {
  const Outcome outcome = train_critic([] {
    return nn::Sequential(nn::Linear(3, 4), nn::BatchNorm1d(4), nn::LeakyReLU(), nn::Linear(4, 1));
  });
  expect_settled(outcome);
}

TEST(Penalties, OutsideACriticWithLayerNormAndDropout) {
  const Outcome outcome = train_critic([] {
    return nn::Sequential(nn::Linear(3, 4), nn::LayerNorm(nn::LayerNormOptions({4})), nn::GELU(),
                          nn::Dropout(0.2), nn::Linear(4, 1));
  });
  expect_settled(outcome);
}

TEST(Penalties, OutsideAnEncoder) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    nn::TransformerEncoderLayer net(
        nn::TransformerEncoderLayerOptions(4, 2).dim_feedforward(8).dropout(0));
    auto forward = wrap([net](const at::Tensor& x) mutable { return net->forward(x); });
    for (int call = 0; call < 16; ++call) {
      const at::Tensor x = leaf({3, 2, 4});
      const at::Tensor gradient = grad({forward(x).pow(2).sum()}, {x}, {}, true, true)[0];
      gradient.pow(2).sum().backward();
      log.close("gradient", gradient);
      log.close("net", *net);
    }
  });
  expect_settled(outcome);
}

TEST(Penalties, InsideTheFunction) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    nn::Sequential critic(nn::Linear(3, 4), nn::Softplus(), nn::Linear(4, 1));
    auto loss_of = wrap([&](const at::Tensor& real) {
      const at::Tensor x = real.detach().requires_grad_();
      const at::Tensor score = critic->forward(x);
      return score.mean() + penalty_of(x, score);
    });
    for (int call = 0; call < 20; ++call) {
      critic->zero_grad();
      const at::Tensor loss = loss_of(at::randn({4, 3}));
      loss.backward();
      log("loss", loss);
      log("critic", *critic);
    }
  });
  expect_hits(outcome);
}

/// Two derivatives of a network after its argument, as for a differential equation.
TEST(Penalties, ResidualOfADifferentialEquation) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    nn::Sequential net(nn::Linear(1, 6), nn::Tanh(), nn::Linear(6, 1));
    torch::optim::SGD optimizer(net->parameters(), 0.01);
    auto residual = wrap([&](const at::Tensor& points) {
      const at::Tensor x = points.clone().requires_grad_();
      const at::Tensor u = net->forward(x);
      const at::Tensor first = grad({u.sum()}, {x}, {}, true, true)[0];
      const at::Tensor second = grad({first.sum()}, {x}, {}, true, true)[0];
      return (second + u).pow(2).mean();
    });
    for (int call = 0; call < 16; ++call) {
      const at::Tensor loss = train_step(optimizer, [&] { return residual(at::rand({5, 1})); });
      log("loss", loss);
      log("net", *net);
    }
  });
  expect_hits(outcome);
}

TEST(Penalties, SecondDerivativesOutside) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    nn::Sequential net(nn::Linear(1, 6), nn::Sigmoid(), nn::Linear(6, 1));
    auto forward = wrap(net);
    for (int call = 0; call < 16; ++call) {
      const at::Tensor x = leaf({5, 1});
      const at::Tensor first = grad({forward(x).sum()}, {x}, {}, true, true)[0];
      const at::Tensor second = grad({first.sum()}, {x}, {}, true, true)[0];
      second.pow(2).sum().backward();
      log("derivatives", {first, second, x});
      log("net", *net);
    }
  });
  expect_settled(outcome);
}

/// Model-agnostic meta-learning: through a step of gradient descent.
TEST(Penalties, ThroughAnInnerStep) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor weight = leaf({3, 2});
    torch::optim::SGD optimizer({weight}, 0.1);
    auto loss_of = wrap([&](const at::Tensor& x, const at::Tensor& y) {
      const at::Tensor inner = torch::mse_loss(x.matmul(weight).tanh(), y);
      const at::Tensor faster = weight - 0.1 * grad({inner}, {weight}, {}, true, true)[0];
      return torch::mse_loss(x.matmul(faster).tanh(), y);
    });
    for (int call = 0; call < 20; ++call) {
      const at::Tensor loss = train_step(optimizer, [&] {
        return loss_of(at::randn({4, 3}), at::randn({4, 2}));
      });
      log("loss", loss);
      log("weight", weight);
    }
  });
  expect_hits(outcome);
}

/// A function whose backward is written by hand, in operators that have derivatives.
struct Cubed : torch::autograd::Function<Cubed> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x * x * x;
  }
  static std::vector<at::Tensor> backward(torch::autograd::AutogradContext* context,
                                          std::vector<at::Tensor> gradients) {
    const at::Tensor x = context->get_saved_variables()[0];
    return {gradients[0] * 3 * x * x};
  }
};

TEST(Penalties, CustomFunctionDifferentiatedOnce) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto cubed = wrap([](const at::Tensor& x) { return Cubed::apply(x * 2).sum(); });
    for (int call = 0; call < 16; ++call) {
      const at::Tensor x = leaf({3});
      cubed(x).backward();
      log("x", x);
    }
  });
  expect_settled(outcome);
}

TEST(Penalties, CustomFunctionDifferentiatedTwice) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto cubed = wrap([](const at::Tensor& x) { return Cubed::apply(x * 2).sum(); });
    for (int call = 0; call < 16; ++call) {
      const at::Tensor x = leaf({3});
      const at::Tensor first = grad({cubed(x)}, {x}, {}, true, true)[0];
      first.pow(2).sum().backward();
      log("first", first);
      log("x", x);
    }
  });
  expect_settled(outcome);
}

TEST(Penalties, SecondDerivativesThroughWrites) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor count = at::zeros({});
    auto written = wrap([&](const at::Tensor& x) {
      count.add_(1);
      at::Tensor y = x * x;
      y.slice(0, 0, 1).mul_(x.slice(0, 1, 2));
      return y.exp().sum();
    });
    for (int call = 0; call < 16; ++call) {
      const at::Tensor x = at::rand({3}).requires_grad_();
      grad({written(x)}, {x}, {}, true, true)[0].sum().backward();
      log("x", x);
    }
    log("count", count);
  });
  expect_settled(outcome);
}

TEST(Penalties, SecondDerivativesAfterAValueWasRead) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto branch = wrap([](const at::Tensor& x) {
      return (x.sum() > 0).item<bool>() ? x.pow(3).sum() : x.exp().sum();
    });
    for (int call = 0; call < 30; ++call) {
      const at::Tensor x = leaf({3});
      grad({branch(x)}, {x}, {}, true, true)[0].sum().backward();
      log("x", x);
    }
  });
  expect_settled(outcome);
}

}  // namespace penalties_test
}  // namespace ahead::test
