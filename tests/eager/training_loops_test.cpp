#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <random>

#include "ahead/ahead.h"
#include "eager/harness.h"

/// Minibatches, losses and what is made of host memory; the optimizer is outside.
namespace ahead::test {
namespace training_loops_test {

namespace F = torch::nn::functional;

torch::nn::Sequential make_net() {
  return torch::nn::Sequential(torch::nn::Linear(5, 8), torch::nn::Tanh(), torch::nn::Linear(8, 3));
}

TEST(TrainingLoops, MinibatchesBySlices) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor data = at::randn({24 * 4, 5});
    auto net = make_net();
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    auto forward = wrap(net);
    for (int64_t i = 0; i < 24; ++i) {
      const at::Tensor loss = train_step(
          optimizer, [&] { return forward(data.slice(0, 4 * i, 4 * i + 4)).pow(2).mean(); });
      log("loss", loss);
    }
    log("net", *net);
  });
  expect_doubling(outcome);
}

TEST(TrainingLoops, DataAndTargetsBySlices) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor data = at::randn({20 * 4, 5}), targets = at::randint(0, 3, {20 * 4});
    auto net = make_net();
    torch::optim::Adam optimizer(net->parameters(), 0.01);
    auto loss_of = wrap([&](const at::Tensor& x, const at::Tensor& y) {
      return F::cross_entropy(net->forward(x), y);
    });
    for (int64_t i = 0; i < 20; ++i) {
      const at::Tensor loss = loss_of(data.narrow(0, 4 * i, 4), targets.narrow(0, 4 * i, 4));
      train_step(optimizer, loss);
      log("loss", loss);
    }
    log("net", *net);
  });
  expect_doubling(outcome);
}

TEST(TrainingLoops, RowsAndColumnsByIndex) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor data = at::randn({20, 4, 5}), across = at::randn({5, 4, 20});
    auto net = make_net();
    auto both = wrap([&](const at::Tensor& x, const at::Tensor& y) {
      return net->forward(x + y.t()).log_softmax(1);
    });
    for (int64_t i = 0; i < 20; ++i) {
      const at::Tensor result = both(data[i], across.select(2, i));
      result.sum().backward();
      log("result", result);
    }
    log("net", *net);
  });
  expect_doubling(outcome);
}

TEST(TrainingLoops, ShuffledEpochsWithASmallerLastBatch) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor data = at::randn({22, 5}), targets = at::randn({22, 3});
    auto net = make_net();
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
    auto loss_of = wrap([net](const at::Tensor& x, const at::Tensor& y) mutable {
      return torch::mse_loss(net->forward(x), y);
    });
    for (int epoch = 0; epoch < 5; ++epoch) {
      const at::Tensor order = at::randperm(22);
      for (int64_t begin = 0; begin < 22; begin += 5) {
        const at::Tensor rows = order.slice(0, begin, begin + 5);
        const at::Tensor loss = train_step(
            optimizer, [&] { return loss_of(data.index_select(0, rows), targets.index({rows})); });
        log("loss", loss);
      }
    }
    log("net", *net);
  });
  expect_hits(outcome);
}

TEST(TrainingLoops, OneBufferThatTheHostRefills) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    std::mt19937 random(3);
    std::array<float, 20> buffer{};
    auto net = make_net();
    auto forward = wrap(net);
    for (int call = 0; call < 20; ++call) {
      for (float& value : buffer) value = static_cast<float>(random() % 100) / 50 - 1;
      const at::Tensor result = forward(torch::from_blob(buffer.data(), {4, 5}));
      result.sum().backward();
      log("result", result);
    }
    log("net", *net);
  });
  expect_doubling(outcome);
}

TEST(TrainingLoops, GradientsOfFourBatchesAreAccumulated) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = make_net();
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    auto forward = wrap(net);
    for (int call = 0; call < 24; ++call) {
      const at::Tensor loss = forward(at::randn({4, 5})).abs().mean() / 4;
      loss.backward();
      log("loss", loss);
      if (call % 4 != 3) continue;
      log("norm", torch::nn::utils::clip_grad_norm_(net->parameters(), 0.1));
      optimizer.step();
      optimizer.zero_grad();
    }
    log("net", *net);
  });
  expect_doubling(outcome);
}

TEST(TrainingLoops, ValidationBetweenSteps) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = make_net();
    net->push_back(torch::nn::Dropout(0.5));
    torch::optim::SGD optimizer(net->parameters(), 0.01);
    auto forward = wrap(net);
    for (int call = 0; call < 16; ++call) {
      net->train();
      const at::Tensor loss = train_step(optimizer, [&] {
        return forward(at::randn({4, 5})).pow(2).sum();
      });
      log("loss", loss);
      net->eval();
      at::NoGradGuard no_grad;
      log("validation", forward(at::randn({4, 5})));
    }
    log("net", *net);
  });
  expect_hits(outcome);
}

TEST(TrainingLoops, SeveralResults) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = make_net();
    auto losses_of = wrap([net](const at::Tensor& x, const at::Tensor& y) mutable {
      const at::Tensor guess = net->forward(x);
      return std::make_tuple(torch::mse_loss(guess, y), torch::l1_loss(guess, y), guess.detach());
    });
    for (int call = 0; call < 16; ++call) {
      const auto [squared, absolute, guess] = losses_of(at::randn({4, 5}), at::randn({4, 3}));
      (squared + 0.1 * absolute).backward();
      log("losses", {squared, absolute, guess});
    }
    log("net", *net);
  });
  expect_doubling(outcome);
}

TEST(TrainingLoops, RandomNumbersAsInEager) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor weight = leaf({5, 5});
    auto noisy = wrap([&](const at::Tensor& x) {
      const at::Tensor noise = torch::randn_like(x) * 0.1;
      return torch::dropout((x + noise).matmul(weight), 0.3, /*train=*/true);
    });
    for (int call = 0; call < 16; ++call) {
      const at::Tensor result = noisy(at::randn({4, 5}));
      result.sum().backward();
      log("result", result);
    }
    log("weight", weight);
  });
  expect_doubling(outcome);
}

TEST(TrainingLoops, IndexPutWithAMask) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto masked = wrap([](const at::Tensor& x, const at::Tensor& mask) {
      at::Tensor hidden = x * 2;
      hidden.index_put_({mask}, 0);
      return hidden.exp().sum();
    });
    for (int call = 0; call < 20; ++call) {
      const at::Tensor x = leaf({4, 5});
      masked(x, at::rand({4, 5}) > 0.5).backward();
      log("x", x);
    }
  });
  expect_settled(outcome);
}

TEST(TrainingLoops, IndexPutWithAMaskMadeInside) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto clipped = wrap([](const at::Tensor& x) {
      at::Tensor copy = x.clone();
      copy.index_put_({copy > 1}, torch::tensor(1.0f));
      return copy;
    });
    for (int call = 0; call < 20; ++call) log("result", clipped(at::randn({4, 5})));
  });
  expect_settled(outcome);
}

TEST(TrainingLoops, ConstantsFromHostMemory) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    std::array<float, 3> weights{0.2f, 0.3f, 0.5f};
    auto net = make_net();
    auto weighted = wrap([&](const at::Tensor& x) {
      const at::Tensor from_blob = torch::from_blob(weights.data(), {3});
      const at::Tensor from_vector = torch::tensor(std::vector<float>{1, 2, 3});
      return (net->forward(x) * from_blob + from_vector).mean();
    });
    for (int call = 0; call < 20; ++call) {
      const at::Tensor loss = weighted(at::randn({4, 5}));
      loss.backward();
      log("loss", loss);
    }
    log("net", *net);
  });
  expect_settled(outcome);
}

TEST(TrainingLoops, MasksDrawnByTheHost) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    std::mt19937 random(5);
    auto masked = wrap([&](const at::Tensor& x) {
      std::vector<float> kept(5);
      for (float& value : kept) value = static_cast<float>(random() % 2);
      return x * torch::tensor(kept);
    });
    for (int call = 0; call < 20; ++call) log("result", masked(at::randn({4, 5})));
    log("next", static_cast<double>(random()));
  });
  expect_eager(outcome);
}

/// A mask whose elements the host writes, each time others, or each time the same.
template <class Make>
Outcome mask_by_hand(const Make& make, bool is_random) {
  return like_eager([&](auto& wrap, Log& log) {
    std::mt19937 random(5);
    auto masked = wrap([&](const at::Tensor& x) {
      const at::Tensor mask = make(x);
      auto elements = mask.template accessor<float, 2>();
      for (int64_t row = 0; row < 4; ++row) {
        for (int64_t column = 0; column < 5; ++column)
          elements[row][column] = static_cast<float>((is_random ? random() : row + column) % 2);
      }
      return (x * mask).sum(1);
    });
    for (int call = 0; call < 20; ++call) log("result", masked(at::randn({4, 5})));
    log("next", static_cast<double>(random()));
  });
}

TEST(TrainingLoops, ElementsWrittenByTheHost) {
  const auto expect = [](const char* name, const auto& make) {
    SCOPED_TRACE(name);
    expect_eager(mask_by_hand(make, /*is_random=*/true));
    expect_hits(mask_by_hand(make, /*is_random=*/false));
  };
  expect("zeros", [](const at::Tensor&) { return at::zeros({4, 5}); });
  expect("empty", [](const at::Tensor&) { return at::empty({4, 5}); });
  expect("empty of a size", [](const at::Tensor& x) { return at::empty(x.sizes(), x.options()); });
  expect("zeros_like", [](const at::Tensor& x) { return at::zeros_like(x); });
  expect("ones_like", [](const at::Tensor& x) { return at::ones_like(x); });
  expect("full_like", [](const at::Tensor& x) { return at::full_like(x, 2); });
  expect("empty_like", [](const at::Tensor& x) { return at::empty_like(x); });
  expect("new_zeros", [](const at::Tensor& x) { return x.new_zeros({4, 5}); });
  expect("new_ones", [](const at::Tensor& x) { return x.new_ones({4, 5}); });
  expect("new_full", [](const at::Tensor& x) { return x.new_full({4, 5}, 2); });
  expect("new_empty", [](const at::Tensor& x) { return x.new_empty({4, 5}); });
}

}  // namespace training_loops_test
}  // namespace ahead::test
