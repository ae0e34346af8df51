#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "compile/checkpoint_blocks.h"
#include "support/eager.h"

/// Checkpoints of eager functions.
namespace ahead {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

TEST(Checkpoint, GivesTheSameBits) {
  const Blocks blocks = make_blocks(3);
  const Tensor x = leaf({8, 32});
  Tensors wanted = parameters_of(blocks);
  wanted.push_back(x);
  const auto plain = [&] {
    Tensor y = x;
    for (const auto& block : blocks) y = block->forward(y);
    return y.square().sum();
  };
  const auto checkpointed = [&] {
    Tensor y = x;
    for (const auto& block : blocks) y = checkpoint(everything_again, block, y);
    return y.square().sum();
  };
  expect_same(loss_and_gradients(plain, wanted), loss_and_gradients(checkpointed, wanted));
}

TEST(Checkpoint, AccumulatesIntoTheGradientsOfCapturedParameters) {
  const Tensor w = leaf({4, 4}), x = at::randn({2, 4});
  const auto f = [w](const Tensor& in) { return in.mm(w).sin().mm(w).sin().mm(w); };
  f(x).sum().backward();
  const Tensor expected = w.grad().clone();
  w.mutable_grad().reset();
  int calls = 0;
  const auto hook = w.register_hook([&](const Tensor& gradient) {
    ++calls;
    return gradient;
  });
  const Tensor y = checkpoint(everything_again, f, x);
  EXPECT_TRUE(y.requires_grad());
  y.sum().backward();
  EXPECT_TRUE(w.grad().equal(expected));
  EXPECT_EQ(calls, 1);
  w.remove_hook(hook);
}

TEST(Checkpoint, CallsTheFunctionOnceForEachBackward) {
  int calls = 0;
  const Tensor x = leaf({4});
  const auto f = [&calls](const Tensor& in) {
    ++calls;
    return in.sin().exp().sin();
  };
  const Tensor y = checkpoint(everything_again, f, x);
  EXPECT_EQ(calls, 1);
  const Tensor expected = torch::autograd::grad({f(x).sum()}, {x})[0];
  calls = 0;
  for (int i = 0; i < 3; ++i) {
    const Tensors gradients = torch::autograd::grad({y.sum()}, {x}, {}, /*retain_graph=*/true);
    EXPECT_TRUE(gradients[0].equal(expected));
    EXPECT_EQ(calls, i + 1);
  }
  torch::autograd::grad({y.sum()}, {x});
  EXPECT_EQ(calls, 4);
  EXPECT_THROW(torch::autograd::grad({y.sum()}, {x}), c10::Error);
}

TEST(Checkpoint, HasDerivativesOfHigherOrder) {
  const Tensor x = leaf({4}), w = leaf({4});
  const auto f = [w](const Tensor& in) { return (in * w).sin().exp(); };
  const auto third = [&](const Tensor& y) {
    Tensor d = y;
    for (int i = 0; i < 2; ++i) {
      d = torch::autograd::grad({d.sum()}, {x}, {}, /*retain_graph=*/true,
                                /*create_graph=*/true)[0];
    }
    return torch::autograd::grad({d.sum()}, {x, w});
  };
  expect_same(third(f(x)), third(checkpoint(everything_again, f, x)));
}

TEST(Checkpoint, WorksInsideAGradientTakenInside) {
  const Tensor x = leaf({4});
  const auto f = [](const Tensor& in) {
    const Tensor u = in.sin() * in.exp();
    const Tensor d = torch::autograd::grad({u.sum()}, {in}, {}, true, true)[0];
    return u * d;
  };
  expect_same(torch::autograd::grad({f(x).sum()}, {x}),
              torch::autograd::grad({checkpoint(everything_again, f, x).sum()}, {x}));
}

struct Pair {
  Tensor first;
  std::optional<Tensor> second;
};
}  // namespace
}  // namespace ahead

AHEAD_TREE(ahead::Pair, first, second)

namespace ahead {
namespace {

TEST(Checkpoint, TakesTrees) {
  const Tensor x = leaf({4}), y = leaf({4});
  const auto f = [](const Pair& pair, double scale, const std::string& mode, Tensors more) {
    Tensor sum = pair.first.sin() * scale;
    if (mode == "all" && pair.second) sum = sum + pair.second->exp();
    for (const Tensor& other : more) sum = sum * other.cos();
    return std::make_pair(sum, std::vector<Tensor>{sum.sin(), sum.tanh()});
  };
  const auto gradients = [&](const std::pair<Tensor, Tensors>& result) {
    return torch::autograd::grad({(result.first + result.second[0] * result.second[1]).sum()},
                                 {x, y});
  };
  const Pair pair{x, y};
  const Tensors more{y, x};
  expect_same(gradients(f(pair, 0.5, "all", more)),
              gradients(checkpoint(everything_again, f, pair, 0.5, "all", more)));
}

TEST(Checkpoint, MayReturnNothing) {
  const Tensor x = leaf({4});
  const Tensor sum = at::zeros({4});
  const auto f = [](const Tensor& in, Tensor total) { total.add_(in.sin().exp()); };
  checkpoint(everything_again, f, x, sum);
  const Tensor expected = torch::autograd::grad({x.sin().exp().sum()}, {x})[0];
  EXPECT_TRUE(torch::autograd::grad({sum.sum()}, {x})[0].equal(expected));
  EXPECT_TRUE(sum.equal(x.sin().exp()));
}

TEST(Checkpoint, WritesOnceToWhatItWritesTo) {
  torch::nn::BatchNorm1d norm(4);
  const Tensor x = leaf({8, 4}), counter = at::zeros({});
  auto f = [norm, counter](const Tensor& in) mutable {
    counter.add_(1);
    return torch::relu(norm(in * counter)) * counter;
  };
  torch::nn::BatchNorm1d other(4);
  const Tensor plain_counter = at::zeros({});
  auto plain = [other, plain_counter](const Tensor& in) mutable {
    plain_counter.add_(1);
    return torch::relu(other(in * plain_counter)) * plain_counter;
  };
  for (int i = 0; i < 3; ++i) {
    const Tensor a = torch::autograd::grad({checkpoint(everything_again, f, x).sum()}, {x})[0];
    const Tensor b = torch::autograd::grad({plain(x).sum()}, {x})[0];
    EXPECT_TRUE(a.equal(b)) << i;
    EXPECT_TRUE(norm->running_mean.equal(other->running_mean)) << i;
    EXPECT_TRUE(norm->running_var.equal(other->running_var)) << i;
    EXPECT_TRUE(norm->num_batches_tracked.equal(other->num_batches_tracked)) << i;
    EXPECT_TRUE(counter.equal(plain_counter)) << i;
    EXPECT_EQ(counter._version(), plain_counter._version()) << i;
  }
}

TEST(Checkpoint, ComputesAgainUnderTheSameAutocast) {
  const Tensor x = leaf({4, 4}), w = leaf({4, 4});
  const auto f = [w](const Tensor& in) { return in.mm(w).sin().mm(w).to(at::kFloat).sum(); };
  const auto under_autocast = [&](auto&& call) {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    const Tensor loss = call();
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    return torch::autograd::grad({loss}, {x, w});
  };
  expect_same(under_autocast([&] { return f(x); }),
              under_autocast([&] { return checkpoint(everything_again, f, x); }));
}

TEST(Checkpoint, LeavesRandomNumbersAsEagerDoes) {
  const Tensor x = leaf({64});
  const auto f = [](const Tensor& in) { return torch::dropout(in.sin(), 0.5, true).exp(); };
  const auto numbers = [&](auto&& call) {
    torch::manual_seed(3);
    const Tensor y = call();
    const Tensor before = at::rand({3});
    const Tensor gradient = torch::autograd::grad({y.sum()}, {x})[0];
    return Tensors{y, before, gradient, at::rand({3})};
  };
  expect_same(numbers([&] { return f(x); }),
              numbers([&] { return checkpoint(everything_again, f, x); }));
}

TEST(Checkpoint, MakesNoDifferenceWithoutGradients) {
  int calls = 0;
  const auto f = [&calls](const Tensor& in) {
    ++calls;
    return in.sin();
  };
  at::NoGradGuard no_grad;
  const Tensor x = leaf({4});
  EXPECT_TRUE(checkpoint(everything_again, f, x).equal(x.sin()));
  EXPECT_EQ(calls, 1);
}

TEST(Checkpoint, NoticesThatWhatItReadWasWrittenTo) {
  const Tensor x = leaf({4}), c = at::randn({4});
  const Tensor y = checkpoint(
      everything_again, [c](const Tensor& in) { return (in + c).sin(); }, x);
  at::Tensor(c).add_(1);
  try {
    torch::autograd::grad({y.sum()}, {x});
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_NE(error.msg().find("modified by an inplace operation"), std::string::npos);
    EXPECT_NE(error.msg().find("checkpointed"), std::string::npos);
  }
}

TEST(Checkpoint, NoticesAFunctionThatDoesSomethingElse) {
  bool first = true;
  const Tensor x = leaf({4});
  const Tensor y = checkpoint(
      everything_again,
      [&first](const Tensor& in) {
        const Tensor y = in.sin().exp();
        return std::exchange(first, false) ? y : y.exp();
      },
      x);
  EXPECT_THROW(torch::autograd::grad({y.sum()}, {x}), UserError);
}

TEST(Checkpoint, KeepsTheHistoriesOfItsFirstCall) {
  const auto gradient = [](const auto& around) {
    const Tensor x = torch::full({4}, 0.5).requires_grad_();
    const Tensor h = x * 2;
    const Tensor part = h.narrow(0, 0, 2);
    const auto f = [h, part](const Tensor& in) {
      part.mul_(in.narrow(0, 1, 2));
      return (h.sigmoid_() * in).sin();
    };
    const Tensor y = around(f, x).sum();
    y.backward({}, /*retain_graph=*/true);
    (h.sum() + part.sum()).backward();
    return x.grad();
  };
  const Tensor expected = gradient([](const auto& f, const Tensor& in) { return f(in); });
  const Tensor actual =
      gradient([](const auto& f, const Tensor& in) { return checkpoint(everything_again, f, in); });
  EXPECT_TRUE(at::equal(expected, actual)) << expected << actual;
}

TEST(Checkpoint, ChangesTheShapeOfWhatRetainsItsGradient) {
  const Tensor x = torch::full({3}, 0.5).requires_grad_();
  const Tensor h = (x * 2).view({3, 1}) * 1;
  const auto f = [h](const Tensor& in) {
    h.squeeze_(1);
    return in.exp().sin();
  };
  const Tensor y = checkpoint(everything_again, f, x).sum();
  h.retain_grad();
  (y + h.sum()).backward();
  EXPECT_EQ(h.dim(), 1);
  EXPECT_TRUE(at::equal(h.grad(), torch::ones({3})));
}

TEST(Checkpoint, ChangesShapesOnce) {
  const Tensor buffer = torch::ones({3}), x = torch::full({3}, 0.5).requires_grad_();
  const auto f = [buffer](const Tensor& in) {
    buffer.unsqueeze_(0);
    return in.exp() * buffer.sum(0);
  };
  const Tensor y = checkpoint(everything_again, f, x).sum();
  for (int backward = 0; backward < 2; ++backward) {
    y.backward({}, /*retain_graph=*/true);
    EXPECT_EQ(buffer.sizes(), at::IntArrayRef({1, 3}));
  }
  EXPECT_TRUE(at::equal(x.grad(), 2 * x.detach().exp()));
}

TEST(Checkpoint, LeavesNothingBehindWhenTheFunctionThrows) {
  const Tensor x = leaf({4});
  EXPECT_THROW(checkpoint(
                   everything_again,
                   [](const Tensor& in) -> Tensor {
                     in.sin();
                     throw std::runtime_error("no");
                   },
                   x),
               std::runtime_error);
  x.sin().exp().sum().backward();
  EXPECT_TRUE(x.grad().equal(x.detach().sin().exp() * x.detach().cos()));
}

TEST(Checkpoint, FreesTheFunctionAfterTheBackward) {
  const auto token = std::make_shared<int>(0);
  const Tensor x = leaf({4});
  {
    const Tensor y = checkpoint(
        everything_again, [token](const Tensor& in) { return in.sin().exp(); }, x);
    EXPECT_GT(token.use_count(), 1);
    y.sum().backward();
    EXPECT_EQ(token.use_count(), 1);
  }
  {
    Tensor y = x.exp();
    checkpoint(
        everything_again, [token](Tensor in) { in.sin_().exp_(); }, y);
  }
  EXPECT_EQ(token.use_count(), 1);
}

}  // namespace
}  // namespace ahead
