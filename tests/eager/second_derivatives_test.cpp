#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "eager/harness.h"

/// Second derivatives, taken outside, of functions that cannot simply be run again: they draw
/// random numbers, or change what they are given.
namespace ahead::test {
namespace second_derivatives_test {

namespace nn = torch::nn;
using torch::autograd::grad;
using Tensors = std::vector<at::Tensor>;

/// Derivatives up to the third of the one result of a function, each with a tangent of its own.
Tensors derivatives(const at::Tensor& result, const Tensors& leaves) {
  Tensors all, roots{result};
  for (int order = 0; order < 3 && !roots.empty(); ++order) {
    Tensors tangents;
    for (const at::Tensor& root : roots)
      tangents.push_back(at::linspace(0.5, 1.5, root.numel()).view(root.sizes()).to(root));
    const Tensors found = grad(roots, leaves, tangents, /*retain_graph=*/true,
                               /*create_graph=*/true, /*allow_unused=*/true);
    roots.clear();
    for (const at::Tensor& gradient : found) {
      if (!gradient.defined()) continue;
      all.push_back(gradient.detach());
      if (gradient.requires_grad()) roots.push_back(gradient);
    }
  }
  return all;
}

/// Expects derivatives of `f(x, weight)` by both to be eager's, where x was computed from a leaf.
template <class F>
void expect_derivatives(const F& f) {
  expect_hits(like_eager([&](auto& wrap, Log& log) {
    auto function = wrap(f);
    for (int call = 0; call < 12; ++call) {
      const at::Tensor x = at::rand({4, 4}).requires_grad_(), weight = leaf({4, 4});
      const at::Tensor argument = x * 1.5;
      const at::Tensor result = function(argument, weight);
      log("result", result);
      log("argument", argument);
      log("derivatives", derivatives(result, {x, weight}));
    }
  }));
}

at::Tensor with_noise(const at::Tensor& x) {
  return x + at::randn_like(x);
}

TEST(SecondDerivatives, OfNoise) {
  expect_derivatives(
      [](const at::Tensor& x, const at::Tensor& w) { return with_noise(x).matmul(w).tanh(); });
  expect_derivatives([](const at::Tensor& x, const at::Tensor& w) {
    return with_noise(with_noise(x.sin()).matmul(w).exp()).square();
  });
}

TEST(SecondDerivatives, OfDropout) {
  expect_derivatives([](const at::Tensor& x, const at::Tensor& w) {
    return torch::dropout(x.matmul(w).sin(), 0.5, true).exp();
  });
  expect_derivatives([](const at::Tensor& x, const at::Tensor& w) {
    return std::get<0>(at::native_dropout(x.matmul(w).sin(), 0.5, true)).exp();
  });
  expect_derivatives([](const at::Tensor& x, const at::Tensor& w) {
    return torch::alpha_dropout(x.matmul(w), 0.5, true).pow(3);
  });
}

TEST(SecondDerivatives, OfRandomSlopes) {
  expect_derivatives([](const at::Tensor& x, const at::Tensor& w) {
    return at::rrelu(x.matmul(w), 0.1, 0.3, /*training=*/true).pow(3);
  });
}

TEST(SecondDerivatives, OfGumbelSoftmax) {
  namespace F = nn::functional;
  for (const bool hard : {false, true}) {
    expect_derivatives([=](const at::Tensor& x, const at::Tensor& w) {
      const auto options = F::GumbelSoftmaxFuncOptions().tau(0.7).hard(hard);
      return F::gumbel_softmax(x.matmul(w), options).square();
    });
  }
}

TEST(SecondDerivatives, OfRandomMasksAndChoices) {
  expect_derivatives([](const at::Tensor& x, const at::Tensor& w) {
    return x.matmul(w).sin() * at::bernoulli(at::full({4, 4}, 0.5));
  });
  expect_derivatives([](const at::Tensor& x, const at::Tensor& w) {
    return x.matmul(w).sin() * at::bernoulli(x.clamp(0, 1));
  });
  expect_derivatives([](const at::Tensor& x, const at::Tensor& w) {
    return x.matmul(w).pow(3).gather(1, at::multinomial(x.detach().softmax(1), 2));
  });
  expect_derivatives([](const at::Tensor& x, const at::Tensor& w) {
    const at::Tensor share = at::rand({4, 1});
    return (share * x + (1 - share) * x.flip(0)).matmul(w).tanh();
  });
  expect_derivatives([](const at::Tensor& x, const at::Tensor& w) {
    const at::Tensor y = x * w;
    return y.normal_() * x * x + at::normal(x, 1.0) * w.square();
  });
}

TEST(SecondDerivatives, OfANormalisedBatchWithNoise) {
  expect_derivatives([](const at::Tensor& x, const at::Tensor& w) {
    return at::batch_norm(with_noise(x).matmul(w), w.select(0, 0), w.select(0, 1), {}, {}, true,
                          0.1, 1e-5, false)
        .pow(3);
  });
}

TEST(SecondDerivatives, OfWritesToAnArgument) {
  expect_derivatives(
      [](const at::Tensor& x, const at::Tensor& w) { return x.relu_().square() * w; });
  expect_derivatives([](const at::Tensor& x, const at::Tensor& w) {
    x.mul_(2).add_(w);
    return (x * x).sin();
  });
  expect_derivatives([](const at::Tensor& x, const at::Tensor& w) {
    const at::Tensor y = x.exp();
    x.add_(1);
    return y.sin() * w * x;
  });
  expect_derivatives([](const at::Tensor& x, const at::Tensor& w) {
    x.select(0, 0).mul_(2);
    return x.sin() * w;
  });
  expect_derivatives([](const at::Tensor& x, const at::Tensor& w) {
    x.add_(at::randn_like(x));
    return (x * x).sin() * w;
  });
  expect_derivatives([](const at::Tensor& x, const at::Tensor& w) {
    x.copy_(w);
    return (x * x).sin();
  });
}

TEST(SecondDerivatives, OfWritesThatAutogradDoesNotSee) {
  expect_derivatives([](const at::Tensor& x, const at::Tensor& w) {
    {
      const at::NoGradGuard no_grad;
      x.mul_(2);
    }
    return (x * x).sin() * w;
  });
  expect_derivatives([](const at::Tensor& x, const at::Tensor& w) {
    x.detach().mul_(2);
    return (x * x).sin() * w;
  });
  expect_derivatives([](const at::Tensor& x, const at::Tensor& w) {
    x.data().mul_(2);
    return (x * x).sin() * w;
  });
  expect_derivatives([](const at::Tensor& x, const at::Tensor& w) {
    const at::Tensor y = x.sin();
    y.data().mul_(2);
    return y * x * w;
  });
}

TEST(SecondDerivatives, OfOtherShapesOfAnArgument) {
  expect_derivatives([](const at::Tensor& x, const at::Tensor& w) {
    x.t_();
    return (x * x).sin() * w;
  });
  expect_derivatives([](const at::Tensor& x, const at::Tensor& w) {
    x.transpose_(0, 1).mul_(2);
    return (x * x).sin() * w;
  });
  expect_derivatives([](const at::Tensor& x, const at::Tensor& w) {
    x.unsqueeze_(0);
    return (x * x).sin() * w;
  });
}

TEST(SecondDerivatives, OfArgumentsThatShareMemory) {
  expect_hits(like_eager([](auto& wrap, Log& log) {
    auto function = wrap([](const at::Tensor& x, const at::Tensor& y) {
      x.add_(at::randn_like(x));
      return (x * x).sin() + y.exp();
    });
    for (int call = 0; call < 12; ++call) {
      const at::Tensor leaf = at::rand({4, 4}).requires_grad_(), x = leaf * 1.5;
      const at::Tensor result = function(x, x.t());
      log("result", result);
      log("derivatives", derivatives(result, {leaf}));
    }
  }));
}

TEST(SecondDerivatives, OfBuffersThatAreUpdated) {
  for (const bool subtracts : {true, false}) {
    expect_hits(like_eager([=](auto& wrap, Log& log) {
      const at::Tensor mean = at::zeros({4});
      auto function = wrap([=](const at::Tensor& x) {
        mean.mul_(0.9).add_(x.detach().mean(0), 0.1);
        return (subtracts ? x - mean : x * mean).pow(3);
      });
      for (int call = 0; call < 12; ++call) {
        const at::Tensor x = leaf({4, 4});
        log("derivatives", derivatives(function(x), {x}));
        log("mean", mean);
      }
    }));
  }
}

TEST(SecondDerivatives, OfWeightsThatAreMaskedInPlace) {
  expect_hits(like_eager([](auto& wrap, Log& log) {
    const at::Tensor weight = leaf({4, 4});
    auto function = wrap([=](const at::Tensor& x) {
      {
        const at::NoGradGuard no_grad;
        weight.mul_(weight > -0.5);
      }
      return x.matmul(weight).tanh();
    });
    for (int call = 0; call < 12; ++call) {
      const at::Tensor x = leaf({4, 4});
      log("derivatives", derivatives(function(x), {x, weight}));
      log("weight", weight);
    }
  }));
}

/// Draws in its forward, and takes what it drew in its backward.
struct Noisy : torch::autograd::Function<Noisy> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    const at::Tensor noise = at::randn_like(x);
    context->save_for_backward({x, noise});
    return x * x * noise;
  }
  static Tensors backward(torch::autograd::AutogradContext* context, const Tensors& gradients) {
    const Tensors saved = context->get_saved_variables();
    return {gradients[0] * 2 * saved[0] * saved[1]};
  }
};

TEST(SecondDerivatives, OfCustomFunctionsThatDraw) {
  expect_derivatives([](const at::Tensor& x, const at::Tensor& w) {
    return Noisy::apply(with_noise(x.matmul(w))).exp();
  });
}

TEST(SecondDerivatives, UnderAutocast) {
  expect_derivatives([](const at::Tensor& x, const at::Tensor& w) {
    const Autocast autocast;
    return with_noise(x).matmul(w).tanh().to(at::kFloat).square();
  });
}

nn::Sequential make_critic() {
  return nn::Sequential(nn::Linear(3, 6), nn::Tanh(), nn::Dropout(0.3), nn::Linear(6, 1));
}

/// A loss over a critic's score and the length of its gradient. Eager sums up the gradients of both
/// layer by layer.
template <class Forward>
void train_critic(const Forward& forward) {
  expect_hits(like_eager([&](auto& wrap, Log& log) {
    nn::Sequential critic = make_critic();
    torch::optim::SGD optimizer(critic->parameters(), 0.01);
    auto score_of = wrap([=](const at::Tensor& x) mutable { return forward(critic, x); });
    for (int call = 0; call < 12; ++call) {
      const at::Tensor x = leaf({4, 3});
      optimizer.zero_grad();
      const at::Tensor score = score_of(x);
      const at::Tensor slope = grad({score.sum()}, {x}, {}, true, true)[0];
      const at::Tensor loss = score.mean() + 10 * (slope.norm(2, 1) - 1).square().mean();
      loss.backward();
      optimizer.step();
      log.close("loss", loss);
      log.close("critic", *critic);
    }
  }));
}

TEST(SecondDerivatives, PenaltyOfACriticWithNoise) {
  train_critic(
      [](nn::Sequential& critic, const at::Tensor& x) { return critic->forward(with_noise(x)); });
}

TEST(SecondDerivatives, PenaltyOfACriticWithNoiseInside) {
  train_critic([](nn::Sequential& critic, const at::Tensor& x) {
    at::Tensor y = x;
    for (auto& layer : *critic) y = with_noise(layer.any_forward(y).get<at::Tensor>());
    return y;
  });
}

TEST(SecondDerivatives, PenaltyOfRealSamplesWithDropout) {
  expect_hits(like_eager([](auto& wrap, Log& log) {
    nn::Sequential critic = make_critic();
    auto score_of = wrap([=](const at::Tensor& x) mutable { return critic->forward(x * x); });
    for (int call = 0; call < 12; ++call) {
      const at::Tensor x = leaf({4, 3});
      critic->zero_grad();
      const at::Tensor slope = grad({score_of(x).sum()}, {x}, {}, true, true)[0];
      slope.square().sum(1).mean().backward();
      log.close("slope", slope);
      log.close("critic", *critic);
    }
  }));
}

TEST(SecondDerivatives, HessianTimesAVector) {
  expect_hits(like_eager([](auto& wrap, Log& log) {
    nn::Sequential net = make_critic();
    auto loss_of = wrap(
        [=](const at::Tensor& x) mutable { return net->forward(with_noise(x)).square().mean(); });
    for (int call = 0; call < 12; ++call) {
      const Tensors parameters = net->parameters();
      const Tensors first = grad({loss_of(at::randn({4, 3}))}, parameters, {}, true, true);
      Tensors vectors;
      for (const at::Tensor& parameter : parameters) vectors.push_back(at::randn_like(parameter));
      log("first", first);
      log("product", grad(first, parameters, vectors, false, false, /*allow_unused=*/true));
    }
  }));
}

/// Meta-learning through a step of gradient descent, whose loss has noise in it.
TEST(SecondDerivatives, ThroughAnInnerStepWithNoise) {
  expect_hits(like_eager([](auto& wrap, Log& log) {
    const at::Tensor weight = leaf({3, 2});
    torch::optim::SGD optimizer({weight}, 0.1);
    auto loss_of = wrap([](const at::Tensor& x, const at::Tensor& w) {
      return with_noise(x).matmul(w).tanh().square().mean();
    });
    for (int call = 0; call < 12; ++call) {
      optimizer.zero_grad();
      const at::Tensor x = at::randn({4, 3});
      const at::Tensor slope = grad({loss_of(x, weight)}, {weight}, {}, true, true)[0];
      loss_of(x, weight - 0.1 * slope).backward();
      optimizer.step();
      log.close("weight", weight);
    }
  }));
}

/// Eager has saved a copy of what the function overwrote; if a graph has not, the call runs
/// eagerly.
TEST(SecondDerivatives, OfAnArgumentThatIsOverwrittenBesideAGradientTakenInside) {
  expect_settled(like_eager([](auto& wrap, Log& log) {
    auto overwrite = wrap([](at::Tensor x) {
      x.sin_();
      const at::Tensor slope = grad({x.exp().sum()}, {x})[0];
      return x * slope;
    });
    for (int call = 0; call < 12; ++call) {
      const at::Tensor source = leaf({3}), x = source * 1;
      overwrite(x);
      const at::Tensor first = grad({x.sum()}, {source}, {}, true, /*create_graph=*/true)[0];
      log("first", first);
      log("second", grad({first.sum()}, {source})[0]);
    }
  }));
}

}  // namespace second_derivatives_test
}  // namespace ahead::test
