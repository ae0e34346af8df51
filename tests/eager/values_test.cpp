#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "eager/harness.h"

/// Functions that read the values of tensors.
namespace ahead::test {
namespace values_test {

/// Positive or not, in no order that a counter would show.
at::Tensor of_sign(int call) {
  return at::rand({4}) + (call * call % 7 < 3 ? 1 : -2);
}

TEST(Values, BranchOnATruthValue) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor weight = leaf({4});
    auto branch = wrap([&](const at::Tensor& x) {
      if ((x.sum() > 0).item<bool>()) return (x * weight).sum();
      return (x - weight).pow(2).sum();
    });
    for (int call = 0; call < 40; ++call) {
      const at::Tensor loss = branch(of_sign(call));
      loss.backward();
      log("loss", loss);
    }
    log("weight", weight);
  });
  expect_hits(outcome);
  EXPECT_GT(outcome.value_misses, 0u);
}

TEST(Values, TruthValueThatStaysTheSame) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto checked = wrap([](const at::Tensor& x) {
      if (torch::isnan(x).any().item<bool>()) throw std::runtime_error("not a number");
      return x.log1p();
    });
    for (int call = 0; call < 24; ++call) log("result", checked(at::rand({4})));
  });
  expect_doubling(outcome);
}

TEST(Values, BranchOnEqual) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto attend = wrap([](const at::Tensor& query, const at::Tensor& key) {
      if (torch::equal(query, key)) return query * 2;
      return query + key * 3;
    });
    for (int call = 0; call < 40; ++call) {
      const at::Tensor x = at::randn({4});
      log("result", attend(x, call * call % 7 < 3 ? x : at::randn({4})));
    }
  });
  expect_hits(outcome);
}

TEST(Values, BranchOnIsNonzero) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto branch = wrap([](const at::Tensor& x, const at::Tensor& flag) {
      if (flag.is_nonzero()) return x.exp();
      return x.sin();
    });
    for (int call = 0; call < 40; ++call)
      log("result", branch(at::randn({4}), at::tensor(call * call % 7 < 3 ? 1 : 0)));
  });
  expect_hits(outcome);
}

TEST(Values, IntegerThatIsASize) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto trimmed = wrap([](const at::Tensor& x, const at::Tensor& lengths) {
      return x.slice(1, 0, lengths.max().item<int64_t>()).cumsum(1);
    });
    for (int call = 0; call < 40; ++call)
      log("result", trimmed(at::randn({2, 5}), at::tensor({1, 3 + call * call % 3})));
  });
  expect_hits(outcome);
}

TEST(Values, IntegersOfManyValues) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto chosen = wrap([](const at::Tensor& x) { return x[x.argmax().item<int64_t>()] * 2; });
    for (int call = 0; call < 100; ++call) log("result", chosen(at::randn({60})));
  });
  expect_settled(outcome);
}

TEST(Values, LoopUntilATruthValue) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto shrunk = wrap([](const at::Tensor& x) {
      at::Tensor y = x;
      while ((y.abs().max() > 1).item<bool>()) y = y / 2;
      return y;
    });
    for (int call = 0; call < 40; ++call) log("result", shrunk(at::ones({3}) * (1 + call % 3)));
  });
  expect_hits(outcome);
}

/// What is written before a value turns out to be another one must not be written twice.
TEST(Values, WritesBeforeARead) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor count = at::zeros({}, at::kLong), sum = at::zeros({3});
    auto step = wrap([&](const at::Tensor& x) {
      count.add_(1);
      sum.add_(x);
      if ((count % 3 == 0).item<bool>()) sum.zero_();
      return sum * 2;
    });
    for (int call = 0; call < 40; ++call) {
      log("result", step(at::randn({3})));
      log("state", {count, sum});
    }
  });
  expect_hits(outcome);
}

TEST(Values, RandomNumbersBeforeARead) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto maybe = wrap([](const at::Tensor& x) {
      if ((torch::rand({}) < 0.5).item<bool>()) return x * torch::rand({3});
      return x;
    });
    for (int call = 0; call < 40; ++call) log("result", maybe(at::randn({3})) + 0);
  });
  expect_hits(outcome);
}

TEST(Values, StepsWithFiniteLossesOnly) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = torch::nn::Linear(3, 2);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    auto step = wrap([&](const at::Tensor& x) {
      optimizer.zero_grad();
      const at::Tensor loss = net->forward(x).pow(2).mean();
      loss.backward();
      if (torch::isfinite(loss).item<bool>()) optimizer.step();
      return loss.detach();
    });
    for (int call = 0; call < 40; ++call) {
      const at::Tensor x = at::randn({2, 3});
      if (call % 5 == 4) x.fill_(std::numeric_limits<float>::infinity());
      log("loss", step(x));
      log("net", *net);
    }
  });
  expect_hits(outcome);
}

TEST(Values, TruthValueThatIsReturned) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto is_positive = wrap([](const at::Tensor& x) { return (x.sum() > 0).item<bool>(); });
    for (int call = 0; call < 40; ++call) log("result", is_positive(of_sign(call)) ? 1 : 0);
  });
  expect_hits(outcome);
}

TEST(Values, LossReturnedAsANumber) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto net = torch::nn::Linear(3, 2);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    auto step = wrap([&](const at::Tensor& x) {
      const at::Tensor loss = train_step(optimizer, [&] { return net->forward(x).pow(2).mean(); });
      return loss.item<double>();
    });
    for (int call = 0; call < 24; ++call) {
      log("loss", step(at::randn({2, 3})));
      log("net", *net);
    }
    step.explain(at::randn({2, 3}));
  });
  expect_eager(outcome);
  EXPECT_NE(outcome.explanation.find("return the tensor"), std::string::npos)
      << outcome.explanation;
}

TEST(Values, NumberThatDiffers) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto scaled = wrap([](const at::Tensor& x) { return x / x.abs().max().item<float>(); });
    for (int call = 0; call < 24; ++call) log("result", scaled(at::randn({3})));
    scaled.explain(at::randn({3}));
  });
  expect_eager(outcome);
  EXPECT_NE(outcome.explanation.find("item<bool>()"), std::string::npos) << outcome.explanation;
}

TEST(Values, NumberThatStaysTheSameAndThenDoesNot) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor temperature = at::full({}, 2.0);
    auto scaled =
        wrap([&](const at::Tensor& x) { return (x / temperature.item<double>()).softmax(0); });
    for (int call = 0; call < 40; ++call) {
      if (call == 22) temperature.fill_(1.5);
      log("result", scaled(at::randn({3})));
    }
  });
  EXPECT_GE(outcome.cache_hits, 10u) << outcome.str();
}

/// Its kernel asks for the address of what it reads as if it would write there, which is not the
/// host's doing.
TEST(Values, RandomNumbersThatBatchNormReads) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor weight = at::ones({3}, at::kBFloat16), bias = at::zeros({3}, at::kBFloat16);
    auto function = wrap([&](const at::Tensor& x) {
      const at::Tensor noise = at::randn_like(x);
      const at::Tensor part = noise.split_with_sizes({3, 1}, 1)[0];
      const at::Tensor normed = at::batch_norm(part, weight, bias, {}, {}, true, 0.1, 1e-5, false);
      return std::vector<at::Tensor>{part.unfold(0, 2, 2), normed};
    });
    for (int call = 0; call < 12; ++call) log("results", function(at::ones({4, 4}, at::kBFloat16)));
  });
  expect_hits(outcome);
}

/// Without gradients it writes its result by itself, which is not the host's doing either.
TEST(Values, PooledRandomNumbers) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto function = wrap([&](const at::Tensor& x) {
      const at::Tensor pooled = at::max_pool1d(at::feature_dropout(x, 0.5, true), 2, 2);
      return std::vector<at::Tensor>{pooled, pooled * 2};
    });
    for (int call = 0; call < 12; ++call) log("results", function(at::randn({3, 4, 4})));
  });
  expect_hits(outcome);
}

}  // namespace values_test
}  // namespace ahead::test
