#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <mutex>
#include <sstream>
#include <thread>

#include "ahead/ahead.h"
#include "eager/harness.h"
#include "models/memory.h"

/// Steps with ahead::optim that are compiled whole, as people write them.
namespace ahead::test {
namespace optimizer_steps_test {

using Parameters = std::vector<at::Tensor>;

torch::nn::Sequential make_net() {
  return torch::nn::Sequential(torch::nn::Linear(5, 6), torch::nn::ReLU(), torch::nn::Linear(6, 2));
}

/// Calls a step on random batches, and logs its losses and what it makes of the net.
template <class Step>
void log_steps(Step& step, torch::nn::Module& net, Log& log) {
  for (int call = 0; call < 24; ++call) {
    log("loss", step(at::randn({3, 5})));
    log("net", net);
  }
}

/// zero_grad, forward, backward, clip and step of an optimizer that `make` makes.
template <class Make>
Outcome train(const Make& make, int64_t calls = 24) {
  return like_eager([&](auto& wrap, Log& log) {
    auto net = make_net();
    auto optimizer = make(net->parameters());
    auto step = wrap([&](const at::Tensor& x, const at::Tensor& y) {
      optimizer.zero_grad();
      const at::Tensor loss = torch::mse_loss(net->forward(x), y);
      loss.backward();
      const at::Tensor norm = clip_grad_norm_(net->parameters(), 0.5);
      optimizer.step();
      return std::make_pair(loss.detach(), norm);
    });
    for (int64_t i = 0; i < calls; ++i) {
      const auto [loss, norm] = step(at::randn({3, 5}), at::randn({3, 2}));
      log("loss", loss);
      log("norm", norm);
      log("net", *net);
    }
    step.explain(at::randn({3, 5}), at::randn({3, 2}));
  });
}

TEST(OptimizerSteps, Sgd) {
  expect_hits(train([](const Parameters& p) { return optim::SGD(p, 0.1); }));
}

TEST(OptimizerSteps, SgdWithMomentum) {
  expect_hits(train([](const Parameters& p) {
    return optim::SGD(p, optim::SGDOptions(0.05).momentum(0.9).weight_decay(0.01).nesterov(true));
  }));
}

TEST(OptimizerSteps, Adam) {
  expect_hits(train([](const Parameters& p) { return optim::Adam(p, 0.01); }));
}

TEST(OptimizerSteps, AdamWithMaxima) {
  expect_hits(train([](const Parameters& p) {
    return optim::Adam(p, optim::AdamOptions(0.01).amsgrad(true).weight_decay(0.1));
  }));
}

TEST(OptimizerSteps, AdamW) {
  expect_hits(train([](const Parameters& p) { return optim::AdamW(p, 0.01); }));
}

TEST(OptimizerSteps, Adagrad) {
  expect_hits(train([](const Parameters& p) {
    return optim::Adagrad(p, optim::AdagradOptions(0.05).lr_decay(0.1));
  }));
}

TEST(OptimizerSteps, Rmsprop) {
  expect_hits(train([](const Parameters& p) { return optim::RMSprop(p, 0.01); }));
}

TEST(OptimizerSteps, RmspropCenteredWithMomentum) {
  expect_hits(train([](const Parameters& p) {
    return optim::RMSprop(p, optim::RMSpropOptions(0.01).centered(true).momentum(0.5));
  }));
}

/// Counts of steps are numbers of the host's: what a hit leaves is saved as eager would save it.
TEST(OptimizerSteps, StepsAreCounted) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor weight = leaf({4});
    optim::Adam adam({weight}, 0.01);
    auto step = wrap([&](const at::Tensor& x) { train_step(adam, (weight * x).sum()); });
    for (int call = 0; call < 20; ++call) {
      step(at::randn({4}));
      const auto& state = static_cast<const torch::optim::AdamParamState&>(
          *adam.state().at(weight.unsafeGetTensorImpl()));
      log("steps", static_cast<double>(state.step()));
      log("average", state.exp_avg());
      log("weight", weight);
    }
  });
  expect_hits(outcome);
}

/// A model with its optimizer and scheduler, which belong together.
struct Trainer {
  torch::nn::Sequential net = make_net();
  optim::AdamW optimizer{net->parameters(), 0.01};

  at::Tensor step(const at::Tensor& x) {
    return train_step(optimizer, net->forward(x).square().mean()).detach();
  }
};

TEST(OptimizerSteps, MembersOfOneObject) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    Trainer trainer;
    auto step = wrap([&](const at::Tensor& x) { return trainer.step(x); });
    for (int call = 0; call < 24; ++call) {
      log("loss", step(at::randn({3, 5})));
      log("net", *trainer.net);
    }
  });
  expect_hits(outcome);
}

TEST(OptimizerSteps, GradientsOfFourCalls) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = make_net();
    optim::Adam adam(net->parameters(), 0.01);
    auto step = wrap([&](const at::Tensor& x, bool is_last) {
      const at::Tensor loss = net->forward(x).square().mean() / 4;
      loss.backward();
      if (is_last) {
        clip_grad_norm_(net->parameters(), 0.5);
        adam.step();
        adam.zero_grad();
      }
      return loss.detach();
    });
    for (int call = 0; call < 64; ++call) {
      log("loss", step(at::randn({3, 5}), call % 4 == 3));
      log("net", *net);
    }
  });
  expect_hits(outcome);
}

/// Four microbatches in one call.
TEST(OptimizerSteps, FourBackwardsInOneCall) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = make_net();
    optim::AdamW adam(net->parameters(), 0.01);
    auto step = wrap([&](const at::Tensor& batch) {
      adam.zero_grad();
      at::Tensor sum = at::zeros({});
      for (const at::Tensor& x : batch.chunk(4)) {
        const at::Tensor loss = net->forward(x).square().mean() / 4;
        loss.backward();
        sum = sum + loss.detach();
      }
      adam.step();
      return sum;
    });
    for (int call = 0; call < 24; ++call) {
      log("loss", step(at::randn({8, 5})));
      log("net", *net);
    }
  });
  expect_hits(outcome);
}

TEST(OptimizerSteps, SeveralStepsInOneCall) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = make_net();
    optim::Adam adam(net->parameters(), 0.01);
    auto steps = wrap([&](const at::Tensor& x) {
      for (int i = 0; i < 3; ++i) train_step(adam, [&] { return net->forward(x).square().mean(); });
    });
    for (int call = 0; call < 24; ++call) {
      steps(at::randn({3, 5}));
      log("net", *net);
    }
  });
  expect_hits(outcome);
}

TEST(OptimizerSteps, SchedulerOutside) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = make_net();
    optim::SGD sgd(net->parameters(), optim::SGDOptions(0.1).momentum(0.9));
    torch::optim::StepLR scheduler(sgd, 3, 0.5);
    auto step = wrap([&](const at::Tensor& x) {
      return train_step(sgd, net->forward(x).square().mean()).detach();
    });
    for (int call = 0; call < 32; ++call) {
      log("loss", step(at::randn({3, 5})));
      log("net", *net);
      scheduler.step();
    }
  });
  expect_hits(outcome);
}

/// In a hit the scheduler would not run.
TEST(OptimizerSteps, SchedulerInsideIsEager) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = make_net();
    optim::Adam adam(net->parameters(), 0.1);
    torch::optim::StepLR scheduler(adam, 1, 0.9);
    auto step = wrap([&](const at::Tensor& x) {
      const at::Tensor loss = train_step(adam, net->forward(x).square().mean());
      scheduler.step();
      return loss.detach();
    });
    log_steps(step, *net, log);
    step.explain(at::randn({3, 5}));
  });
  expect_eager(outcome);
  EXPECT_NE(outcome.explanation.find("scheduler"), std::string::npos) << outcome.explanation;
}

TEST(OptimizerSteps, RateSetInsideIsEager) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = make_net();
    optim::Adam adam(net->parameters(), 0.1);
    auto rate = std::make_shared<double>(0.1);
    auto step = wrap([&adam, net, rate](const at::Tensor& x) {
      *rate *= 0.9;
      static_cast<optim::AdamOptions&>(adam.param_groups()[0].options()).lr(*rate);
      auto own = net;
      return train_step(adam, own->forward(x).square().mean()).detach();
    });
    log_steps(step, *net, log);
  });
  expect_eager(outcome);
}

TEST(OptimizerSteps, RateOfZeroAndBack) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = make_net();
    optim::AdamW adam(net->parameters(), 0.1);
    auto step = wrap([&](const at::Tensor& x) {
      return train_step(adam, net->forward(x).square().mean()).detach();
    });
    for (int call = 0; call < 24; ++call) {
      const bool is_still = call % 7 == 6;
      static_cast<optim::AdamWOptions&>(adam.param_groups()[0].options()).lr(is_still ? 0 : 0.1);
      log("loss", step(at::randn({3, 5})));
      log("net", *net);
    }
  });
  expect_hits(outcome);
}

TEST(OptimizerSteps, OtherOptionsAreGuards) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = make_net();
    optim::AdamW adam(net->parameters(), 0.1);
    auto step = wrap([&](const at::Tensor& x) {
      return train_step(adam, net->forward(x).square().mean()).detach();
    });
    for (int call = 0; call < 48; ++call) {
      static_cast<optim::AdamWOptions&>(adam.param_groups()[0].options())
          .weight_decay(call / 6 % 2 == 0 ? 0.01 : 0.5);
      log("loss", step(at::randn({3, 5})));
      log("net", *net);
    }
  });
  expect_hits(outcome);
}

TEST(OptimizerSteps, LoadedInBetween) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = make_net();
    optim::Adam adam(net->parameters(), 0.1);
    auto step = wrap([&](const at::Tensor& x) {
      return train_step(adam, net->forward(x).square().mean()).detach();
    });
    std::string saved;
    for (int call = 0; call < 40; ++call) {
      if (call == 5) {
        std::ostringstream stream;
        torch::save(adam, stream);
        saved = stream.str();
      }
      if (call == 11 || call == 23) {
        std::istringstream stream(saved);
        torch::load(adam, stream);
      }
      log("loss", step(at::randn({3, 5})));
      log("net", *net);
    }
  });
  expect_hits(outcome);
}

TEST(OptimizerSteps, GroupAddedInBetween) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor weight = leaf({5, 2}), bias = leaf({2});
    optim::AdamW adam({weight}, 0.1);
    auto step = wrap([&](const at::Tensor& x) {
      return train_step(adam, (x.matmul(weight) + bias).square().mean()).detach();
    });
    for (int call = 0; call < 40; ++call) {
      if (call == 11)
        adam.add_param_group(torch::optim::OptimizerParamGroup(
            {bias}, std::make_unique<optim::AdamWOptions>(optim::AdamWOptions(0.3))));
      log("loss", step(at::randn({3, 5})));
      log("weight", weight);
      log("bias", bias);
    }
  });
  expect_hits(outcome);
}

TEST(OptimizerSteps, TwoPlayers) {
  expect_hits(train_two_players<optim::Adam, optim::RMSprop>());
}

TEST(OptimizerSteps, AParameterIsFrozenForAWhile) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = make_net();
    optim::Adam adam(net->parameters(), 0.01);
    const at::Tensor first = net->parameters()[0];
    auto step = wrap([&](const at::Tensor& x) {
      return train_step(adam, net->forward(x).square().mean()).detach();
    });
    for (int call = 0; call < 40; ++call) {
      if (call == 9 || call == 21) first.set_requires_grad(!first.requires_grad());
      log("loss", step(at::randn({3, 5})));
      log("net", *net);
    }
  });
  expect_hits(outcome);
}

TEST(OptimizerSteps, Closure) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = make_net();
    optim::Adam adam(net->parameters(), 0.01);
    auto step = wrap([&](const at::Tensor& x) {
      return adam
          .step([&] {
            adam.zero_grad();
            const at::Tensor loss = net->forward(x).square().mean();
            loss.backward();
            return loss;
          })
          .detach();
    });
    log_steps(step, *net, log);
  });
  expect_hits(outcome);
}

TEST(OptimizerSteps, UnderAutocast) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = make_net();
    optim::AdamW adam(net->parameters(), 0.01);
    auto step = wrap([&](const at::Tensor& x) {
      adam.zero_grad();
      at::Tensor loss;
      {
        const Autocast autocast;
        loss = net->forward(x).to(at::kFloat).square().mean();
      }
      loss.backward();
      adam.step();
      return loss.detach();
    });
    log_steps(step, *net, log);
  });
  expect_hits(outcome);
}

TEST(OptimizerSteps, OptimizerIsReplaced) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = make_net();
    auto adam = std::make_unique<optim::Adam>(net->parameters(), 0.01);
    auto step = wrap([&](const at::Tensor& x) {
      return train_step(*adam, net->forward(x).square().mean()).detach();
    });
    for (int call = 0; call < 40; ++call) {
      if (call == 10) adam = std::make_unique<optim::Adam>(net->parameters(), 0.05);
      log("loss", step(at::randn({3, 5})));
      log("net", *net);
    }
  });
  expect_hits(outcome);
}

/// What each of two threads makes of a weight of its own, by calling what `wrap` makes of its step.
template <class Wrap>
std::vector<at::Tensor> train_in_threads(const Wrap& wrap) {
  std::vector<at::Tensor> ends(2);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ends.size(); ++i) {
    threads.emplace_back([&, i] {
      at::Tensor weight =
          at::linspace(-1, 1, 5).add(static_cast<double>(i)).set_requires_grad(true);
      optim::Adam adam({weight}, 0.05);
      auto step = wrap([&](const at::Tensor& x) {
        train_step(adam, [&] { return (weight * x).sum().square(); });
      });
      for (int call = 0; call < 40; ++call) step(at::linspace(0, 1, 5).mul(call % 7));
      ends[i] = weight.detach();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ends;
}

TEST(OptimizerSteps, EachThreadWithItsOwn) {
  Outcome outcome;
  std::mutex mutex;
  const auto eager = train_in_threads([](auto f) { return Plain(std::move(f)); });
  const auto compiled = train_in_threads([&](auto f) {
    return [&, compiled = std::make_shared<Compiled<decltype(f)>>(std::move(f), Options())](
               const at::Tensor& x) {
      (*compiled)(x);
      if (compiled->stats().calls != 40) return;
      const std::lock_guard<std::mutex> lock(mutex);
      outcome.add(compiled->stats());
    };
  });
  for (size_t i = 0; i < eager.size(); ++i) EXPECT_TRUE(same_values(eager[i], compiled[i]));
  expect_hits(outcome);
}

TEST(OptimizerSteps, SkippedWhereTheLossIsNoNumber) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor weight = at::ones({2}).set_requires_grad(true);
    optim::Adam adam({weight}, 0.1);
    auto step = wrap([&](const at::Tensor& x) {
      adam.zero_grad();
      const at::Tensor loss = (weight * x).sum();
      if (loss.isnan().item<bool>()) return loss.detach();
      loss.backward();
      adam.step();
      return loss.detach();
    });
    for (int call = 0; call < 60; ++call) {
      log("loss", step(call % 9 == 8 ? at::full({2}, NAN) : at::rand({2})));
      log("weight", weight);
    }
  });
  expect_hits(outcome);
}

/// Somebody else makes a step in between: the count is read anew.
TEST(OptimizerSteps, StepsOutsideInBetween) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = make_net();
    optim::Adam adam(net->parameters(), 0.05);
    auto step = wrap([&](const at::Tensor& x) {
      return train_step(adam, net->forward(x).square().mean()).detach();
    });
    for (int call = 0; call < 24; ++call) {
      log("loss", step(at::randn({3, 5})));
      if (call % 5 == 4) train_step(adam, net->forward(at::randn({3, 5})).abs().mean());
      log("net", *net);
    }
  });
  expect_hits(outcome);
}

/// Gradients that the function takes away first are gone while a hit makes new ones.
TEST(OptimizerSteps, TakeNoMoreMemoryThanEager) {
  at::Tensor weight = at::ones({256, 256}).set_requires_grad(true);
  optim::Adam adam({weight}, 0.01);
  const auto step = [&](const at::Tensor& x) {
    train_step(adam, [&] { return x.matmul(weight).sum(); });
  };
  auto compiled = ahead::compile(step);
  const at::Tensor x = at::ones({1, 256});
  models::MemoryCounter memory;
  for (int call = 0; call < 8; ++call) step(x);
  const int64_t eager = memory.peak([&] { step(x); });
  for (int call = 0; call < 8; ++call) compiled(x);
  const uint64_t hits = compiled.stats().cache_hits;
  const int64_t peak = memory.peak([&] { compiled(x); });
  EXPECT_EQ(compiled.stats().cache_hits, hits + 1);
  EXPECT_LE(peak, eager + (1 << 14));
}

/// The step alone, with gradients from outside: a parameter gets its first one after a while.
TEST(OptimizerSteps, OnlyTheStepInside) {
  for (const int first : {1, 11}) {
    const Outcome outcome = like_eager([&](auto& wrap, Log& log) {
      const at::Tensor weight = leaf({3}), bias = leaf({3});
      optim::AdamW adam({weight, bias}, 0.05);
      auto step = wrap([&] { adam.step(); });
      for (int call = 0; call < 40; ++call) {
        adam.zero_grad();
        (weight * weight).sum().backward();
        if (call >= first && call % 10 != 9) (bias * at::randn({3})).sum().backward();
        step();
        log("weight", weight);
        log("bias", bias);
      }
    });
    expect_some_hits(outcome);
  }
}

TEST(OptimizerSteps, GradientsZeroedInPlace) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = make_net();
    optim::Adam adam(net->parameters(), 0.05);
    auto step = wrap([&](const at::Tensor& x) {
      adam.zero_grad(/*set_to_none=*/false);
      const at::Tensor loss = net->forward(x).square().mean();
      loss.backward();
      clip_grad_value_(net->parameters(), 0.01);
      adam.step();
      return loss.detach();
    });
    log_steps(step, *net, log);
  });
  expect_hits(outcome);
}

}  // namespace optimizer_steps_test
}  // namespace ahead::test
