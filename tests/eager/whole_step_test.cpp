#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "eager/harness.h"

/// Steps that are compiled whole: forward, backward and update.
namespace ahead::test {
namespace whole_step_test {

torch::nn::Sequential make_net() {
  return torch::nn::Sequential(torch::nn::Linear(5, 6), torch::nn::ReLU(), torch::nn::Linear(6, 2));
}

/// zero_grad, backward and step of an optimizer that `make` makes, in one compiled lambda.
template <class Make>
Outcome train(const Make& make) {
  return like_eager([&](auto& wrap, Log& log) {
    auto net = make_net();
    auto optimizer = make(net->parameters());
    auto step = wrap([&](const at::Tensor& x, const at::Tensor& y) {
      const at::Tensor loss =
          train_step(optimizer, [&] { return torch::mse_loss(net->forward(x), y); });
      return loss.detach();
    });
    const at::Tensor x = at::randn({24 * 3, 5}), y = at::randn({24 * 3, 2});
    for (int64_t i = 0; i < 24; ++i) {
      log("loss", step(x.narrow(0, 3 * i, 3), y.narrow(0, 3 * i, 3)));
      log("net", *net);
    }
    step.explain(x.narrow(0, 0, 3), y.narrow(0, 0, 3));
  });
}

using Parameters = std::vector<at::Tensor>;

TEST(WholeStep, Sgd) {
  expect_hits(train([](const Parameters& p) { return torch::optim::SGD(p, 0.1); }));
}

TEST(WholeStep, SgdWithMomentum) {
  expect_hits(train([](const Parameters& p) {
    return torch::optim::SGD(p, torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(0.01));
  }));
}

TEST(WholeStep, SgdWithNesterov) {
  expect_hits(train([](const Parameters& p) {
    return torch::optim::SGD(p, torch::optim::SGDOptions(0.05).momentum(0.9).nesterov(true));
  }));
}

TEST(WholeStep, RmsProp) {
  expect_hits(train([](const Parameters& p) { return torch::optim::RMSprop(p, 0.01); }));
}

TEST(WholeStep, RmsPropCenteredWithMomentum) {
  expect_hits(train([](const Parameters& p) {
    return torch::optim::RMSprop(p,
                                 torch::optim::RMSpropOptions(0.01).centered(true).momentum(0.5));
  }));
}

TEST(WholeStep, Adagrad) {
  expect_hits(train([](const Parameters& p) { return torch::optim::Adagrad(p, 0.05); }));
}

TEST(WholeStep, Adam) {
  const Outcome outcome = train([](const Parameters& p) { return torch::optim::Adam(p, 0.01); });
  expect_eager(outcome);
  EXPECT_NE(outcome.explanation.find("counts its steps"), std::string::npos) << outcome.explanation;
}

TEST(WholeStep, AdamW) {
  const Outcome outcome = train([](const Parameters& p) { return torch::optim::AdamW(p, 0.01); });
  expect_eager(outcome);
  EXPECT_NE(outcome.explanation.find("counts its steps"), std::string::npos) << outcome.explanation;
}

/// A step of a function of two leaves, with another leaf's penalty on its slope.
template <class Function>
Outcome train_with(const Function& function) {
  return like_eager([&](auto& wrap, Log& log) {
    const at::Tensor w = at::rand({4, 6}).add_(0.5).requires_grad_(),
                     v = at::rand({4, 6}).add_(0.5).requires_grad_();
    torch::optim::SGD optimizer(Parameters{w, v}, 0.01);
    auto step = wrap([&](const at::Tensor& x) {
      optimizer.zero_grad();
      const at::Tensor y = function(x * w, v);
      const at::Tensor slope = torch::autograd::grad({y.square().sum()}, {w}, {}, true, true)[0];
      const at::Tensor loss = y.mean() + slope.square().mean();
      loss.backward();
      optimizer.step();
      return loss.detach();
    });
    for (int call = 0; call < 24; ++call) {
      log("loss", step(at::rand({4, 6}).add_(0.5)));
      log("w", w.detach().clone());
      log("v", v.detach().clone());
    }
  });
}

TEST(WholeStep, GradientsThatNeedWhatWasOverwritten) {
  using at::Tensor;
  expect_hits(train_with([](const Tensor& x, const Tensor& v) { return x.mul_(v.sigmoid()); }));
  expect_hits(train_with([](const Tensor& x, const Tensor& v) { return x.mul_(v).mul_(v + 1); }));
  expect_hits(train_with([](const Tensor& x, const Tensor& v) { return x.pow_(3).div_(v.exp()); }));
  expect_hits(train_with([](const Tensor& x, const Tensor& v) {
    x.narrow(1, 1, 3).mul_(v.narrow(1, 0, 3));
    return x.sin();
  }));
  expect_hits(train_with([](const Tensor& x, const Tensor& v) {
    const std::vector<Tensor> gates = x.unsafe_chunk(2, 1);
    return gates[0].mul_(gates[1].add_(v.narrow(1, 0, 3)).sigmoid_()).tanh_();
  }));
}

TEST(WholeStep, GatedRecurrentUnit) {
  expect_hits(like_eager([&](auto& wrap, Log& log) {
    torch::nn::GRU net(5, 6);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    auto step = wrap([&](const at::Tensor& x) {
      return train_step(optimizer, [&] { return std::get<0>(net->forward(x)).square().mean(); })
          .detach();
    });
    for (int call = 0; call < 24; ++call) {
      log("loss", step(at::randn({3, 2, 5})));
      log("net", *net);
    }
  }));
}

/// A step whose gradients `clip` makes shorter before they are used.
template <class Clip>
Outcome train_clipped(const Clip& clip) {
  return like_eager([&](auto& wrap, Log& log) {
    auto net = make_net();
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    auto step = wrap([&](const at::Tensor& x) {
      optimizer.zero_grad();
      const at::Tensor loss = net->forward(x).square().mean();
      loss.backward();
      clip(net->parameters());
      optimizer.step();
      return loss.detach();
    });
    for (int call = 0; call < 24; ++call) {
      log("loss", step(at::randn({3, 5})));
      log("net", *net);
    }
  });
}

TEST(WholeStep, NormsClippedByLibTorch) {
  const auto clip = [](const Parameters& p) { torch::nn::utils::clip_grad_norm_(p, 0.1); };
  expect_eager(train_clipped(clip));
}

TEST(WholeStep, NormsClippedWithTensors) {
  expect_hits(train_clipped([](const Parameters& parameters) {
    std::vector<at::Tensor> norms;
    for (const auto& p : parameters) norms.push_back(p.grad().norm());
    const at::Tensor norm = torch::stack(norms).norm();
    for (const auto& p : parameters) p.grad().mul_((0.1 / (norm + 1e-6)).clamp_max(1));
  }));
}

/// A step that is left where the loss is no number, after the gradients were taken away.
TEST(WholeStep, SkippedWhereTheLossIsNoNumber) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor weight = at::ones({2}).set_requires_grad(true);
    torch::optim::SGD optimizer({weight}, 0.1);
    auto step = wrap([&](const at::Tensor& x) {
      optimizer.zero_grad();
      const at::Tensor loss = (weight * x).sum();
      if (loss.isnan().item<bool>()) return loss.detach();
      loss.backward();
      optimizer.step();
      return loss.detach();
    });
    for (int call = 0; call < 60; ++call) {
      log("loss", step(call % 9 == 8 ? at::full({2}, NAN) : at::rand({2})));
      log("weight", weight);
    }
  });
  expect_hits(outcome);
}

TEST(WholeStep, GradientsZeroedInPlace) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = make_net();
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    auto step = wrap([&](const at::Tensor& x) {
      optimizer.zero_grad(/*set_to_none=*/false);
      const at::Tensor loss = net->forward(x).pow(2).mean();
      loss.backward();
      optimizer.step();
      return loss;
    });
    for (int call = 0; call < 24; ++call) {
      log("loss", step(at::randn({3, 5})));
      log("net", *net);
    }
  });
  expect_hits(outcome);
}

/// The backward inside, all else outside; a step for so many calls, whose gradients are summed.
Outcome train_outside(int calls_per_step) {
  return like_eager([&](auto& wrap, Log& log) {
    auto net = make_net();
    torch::optim::Adam optimizer(net->parameters(), 0.01);
    auto gradients = wrap([&](const at::Tensor& x) {
      const at::Tensor loss = net->forward(x).abs().mean();
      loss.backward();
      return loss.detach();
    });
    for (int call = 0; call < 24; ++call) {
      log("loss", gradients(at::randn({3, 5})));
      log("net", *net);
      if (call % calls_per_step != calls_per_step - 1) continue;
      optimizer.step();
      optimizer.zero_grad();
    }
    gradients.explain(at::randn({3, 5}));
  });
}

TEST(WholeStep, OnlyTheBackwardInside) {
  expect_hits(train_outside(1));
}

TEST(WholeStep, BackwardsOfTwoCallsAreSummed) {
  expect_hits(train_outside(2));
}

TEST(WholeStep, BackwardsOfFourCallsAreSummed) {
  expect_hits(train_outside(4));
}

TEST(WholeStep, UpdateWrittenByHand) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor weight = leaf({5, 2}), bias = leaf({2});
    auto step = wrap([&](const at::Tensor& x) {
      const at::Tensor loss = torch::sigmoid(x.matmul(weight) + bias).sum();
      loss.backward();
      torch::NoGradGuard no_grad;
      for (at::Tensor p : {weight, bias}) {
        p -= 0.1 * p.grad();
        p.grad().zero_();
      }
      return loss.detach();
    });
    for (int call = 0; call < 24; ++call) {
      log("loss", step(at::randn({3, 5})));
      log("parameters", {weight, bias});
    }
  });
  expect_hits(outcome);
}

TEST(WholeStep, GradientsResetAndWrittenInside) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor weight = leaf({5});
    torch::optim::SGD optimizer({weight}, torch::optim::SGDOptions(0.1).momentum(0.5));
    auto step = wrap([&](const at::Tensor& x) {
      weight.mutable_grad().reset();
      weight.mutable_grad() = x.sign() * weight.detach();
      optimizer.step();
      weight.mutable_grad() = at::Tensor();
      return weight.detach().sum();
    });
    for (int call = 0; call < 24; ++call) {
      log("sum", step(at::randn({5})));
      log("weight", weight);
    }
  });
  expect_hits(outcome);
}

TEST(WholeStep, GradientsByGradAndClippedByValue) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = make_net();
    const std::vector<at::Tensor> parameters = net->parameters();
    torch::optim::SGD optimizer(parameters, 0.1);
    auto step = wrap([&](const at::Tensor& x) {
      const at::Tensor loss = net->forward(x).pow(4).mean();
      const auto gradients = torch::autograd::grad({loss}, parameters);
      for (size_t i = 0; i < parameters.size(); ++i) parameters[i].mutable_grad() = gradients[i];
      torch::nn::utils::clip_grad_value_(parameters, 0.01);
      optimizer.step();
      return loss.detach();
    });
    for (int call = 0; call < 24; ++call) {
      log("loss", step(at::randn({3, 5})));
      log("net", *net);
    }
  });
  expect_hits(outcome);
}

/// LibTorch's clip_grad_norm_ returns a number that it reads.
TEST(WholeStep, GradientsClippedByNorm) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = make_net();
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    auto step = wrap([&](const at::Tensor& x) {
      optimizer.zero_grad();
      const at::Tensor loss = net->forward(x).pow(2).mean();
      loss.backward();
      torch::nn::utils::clip_grad_norm_(net->parameters(), 0.05);
      optimizer.step();
      return loss.detach();
    });
    for (int call = 0; call < 24; ++call) {
      log("loss", step(at::randn({3, 5})));
      log("net", *net);
    }
  });
  expect_settled(outcome);
}

TEST(WholeStep, TwoPlayers) {
  expect_hits(train_two_players<torch::optim::RMSprop, torch::optim::SGD>());
}

TEST(WholeStep, NothingIsReturned) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = make_net();
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    auto step = wrap([&](const at::Tensor& x) {
      train_step(optimizer, [&] { return net->forward(x).pow(2).mean(); });
    });
    for (int call = 0; call < 24; ++call) {
      step(at::randn({3, 5}));
      log("net", *net);
    }
  });
  expect_hits(outcome);
}

/// After an exception nothing is known of the call before: gradients are found out anew.
TEST(WholeStep, GradientsAreZeroedBesideExceptions) {
  for (const bool is_zeroed_first : {true, false}) {
    const Outcome outcome = like_eager([&](auto& wrap, Log& log) {
      const at::Tensor weight = leaf({4, 4}), bias = leaf({4});
      torch::optim::SGD optimizer({weight, bias}, 0.05);
      auto step = wrap([&](const at::Tensor& x, bool is_bad) {
        if (is_zeroed_first) optimizer.zero_grad(/*set_to_none=*/false);
        const at::Tensor loss = (x.matmul(weight) + bias).square().mean();
        if (is_bad) throw std::runtime_error("a bad call");
        if (!is_zeroed_first) optimizer.zero_grad(/*set_to_none=*/false);
        loss.backward();
        optimizer.step();
      });
      for (int call = 0; call < 16; ++call) {
        const bool is_bad = call == 2 || call == 4;
        try {
          step(at::randn({3, 4}), is_bad);
        } catch (const std::runtime_error& error) {
          log("error", std::string(error.what()));
        }
        log("weight", weight);
        log("bias", bias);
      }
    });
    expect_some_hits(outcome);
  }
}

TEST(WholeStep, GradientsOfFrozenParametersAreLetGo) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor weight = leaf({4, 4}), bias = leaf({4});
    torch::optim::SGD optimizer({weight, bias}, 0.05);
    auto step = wrap([&](const at::Tensor& x) {
      const at::Tensor loss = (x.matmul(weight) + bias).square().mean();
      optimizer.zero_grad();
      loss.backward();
    });
    for (int call = 0; call < 24; ++call) {
      if (call % 6 == 5) weight.set_requires_grad(!weight.requires_grad());
      step(at::randn({3, 4}));
      log("weight", weight);
      log("bias", bias);
    }
  });
  expect_hits(outcome);
}

/// A program that was made while there were no gradients does nothing about them.
TEST(WholeStep, BranchesWithoutGradients) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor weight = leaf({4, 4});
    torch::optim::SGD optimizer({weight}, 0.05);
    auto step = wrap([&](const at::Tensor& x) {
      const at::Tensor y = x.matmul(weight);
      optimizer.zero_grad(/*set_to_none=*/false);
      if ((x.sum() > 0).item<bool>()) y.square().mean().backward();
      optimizer.step();
      return y.detach();
    });
    for (int call = 0; call < 24; ++call) {
      const bool is_learning = call > 4 && call % 5 == 0;
      log("result", step((is_learning ? 1 : -1) * at::rand({3, 4})));
      log("weight", weight);
    }
  });
  expect_hits(outcome);
}

/// Gradients are no constants, though calls in a row find the same ones.
TEST(WholeStep, StepsWithGradientsThatSeldomChange) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor weight = leaf({4, 4});
    torch::optim::SGD optimizer({weight}, 0.05);
    auto step = wrap([&](const at::Tensor& x) {
      optimizer.step();
      return x.matmul(weight).tanh();
    });
    for (int call = 0; call < 24; ++call) {
      const at::Tensor result = step(at::randn({3, 4}));
      log("result", result);
      log("weight", weight);
      if (call % 5 == 0) result.sum().backward();
    }
  });
  expect_hits(outcome);
}

}  // namespace whole_step_test
}  // namespace ahead::test
