#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"

namespace ahead::native {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

/// A loop over time, as a user writes it down.
struct Loop {
  enum class Cell { Lstm, Gru, Plain };
  Cell cell;
  enum class Loss { Stack, StackOfColumns, Cat, CatOfColumns, Parts };
  Loss loss;
  at::ScalarType dtype;
  int64_t times, batch, inputs, width;
};

Tensor next_state(const Loop& loop, const Tensors& weights, const Tensor& x, const Tensor& h,
                  Tensor& c) {
  if (loop.cell == Loop::Cell::Plain) {
    const Tensor all = torch::cat({h, x}, 1).matmul(weights[2]);
    return torch::tanh(all) * torch::sigmoid(all);
  }
  const Tensors gates = (x.matmul(weights[0]) + h.matmul(weights[1])).chunk(4, 1);
  if (loop.cell == Loop::Cell::Gru) {
    const Tensor update = gates[0].sigmoid();
    return (1 - update) * h + update * torch::tanh(gates[2] + gates[1].sigmoid() * gates[3]);
  }
  c = gates[1].sigmoid() * c + gates[0].sigmoid() * gates[2].tanh();
  return gates[3].sigmoid() * c.tanh();
}

Tensor loss_of(const Loop& loop, const Tensors& weights, const Tensor& x) {
  Tensor h = torch::zeros({loop.batch, loop.width}, x.options()), c = h;
  Tensors states;
  for (int64_t time = 0; time < loop.times; ++time) {
    h = next_state(loop, weights, x.select(0, time), h, c);
    states.push_back(h);
  }
  switch (loop.loss) {
    case Loop::Loss::Stack:
      return torch::stack(states, 0).pow(2).mean();
    case Loop::Loss::StackOfColumns:
      return torch::stack(states, 2).softmax(1).pow(2).sum();
    case Loop::Loss::Cat:
      return torch::cat(states, 0).exp().mean();
    case Loop::Loss::CatOfColumns:
      return (torch::cat(states, 1) * 2).tanh().sum();
    default: {
      const Tensor all = torch::stack(states, 0);
      return all.slice(0, 0, loop.times / 2 + 1).relu().sum() +
             (all * all).select(0, loop.times - 1).sum();
    }
  }
}

void expect_near(const Tensor& actual, const Tensor& expected) {
  const double bound = expected.scalar_type() == at::kDouble ? 1e-11 : 1e-4;
  EXPECT_LE((actual - expected).abs().max().item<double>(),
            bound * expected.abs().max().item<double>());
}

void expect_like_eager(const Loop& loop) {
  torch::manual_seed(0);
  const auto weight = [&](int64_t rows, int64_t columns) {
    return (torch::randn({rows, columns}, loop.dtype) * 0.4).requires_grad_();
  };
  const Tensors all = {weight(loop.inputs, 4 * loop.width), weight(loop.width, 4 * loop.width),
                       weight(loop.width + loop.inputs, loop.width)};
  const Tensors used = loop.cell == Loop::Cell::Plain ? Tensors{all[2]} : Tensors{all[0], all[1]};
  const Tensor x = torch::randn({loop.times, loop.batch, loop.inputs}, loop.dtype);
  const auto loss = [=](const Tensor& in) { return loss_of(loop, all, in); };
  const Options options{.backend = "native", .fullgraph = true, .confirm = Confirm::Never};
  auto halves = compile(loss, options);
  auto whole =
      compile([=](const Tensor& in) { return torch::autograd::grad({loss(in)}, used); }, options);
  for (int call = 0; call < 3; ++call) {
    const Tensors expected = torch::autograd::grad({loss(x)}, used);
    const Tensor result = halves(x);
    const Tensors inside = whole(x);
    for (const bool is_kept : {true, false}) {
      const Tensors actual = torch::autograd::grad({result}, used, {}, is_kept);
      for (size_t i = 0; i < used.size(); ++i) expect_near(actual[i], expected[i]);
    }
    for (size_t i = 0; i < used.size(); ++i) expect_near(inside[i], expected[i]);
  }
  EXPECT_EQ(halves.stats().eager_calls + whole.stats().eager_calls, 0u);
  EXPECT_GT(halves.stats().kernels, 0u);
  EXPECT_EQ(halves.stats().kernels_failed + whole.stats().kernels_failed, 0u);
}

TEST(NativeLoops, StatesThatAreStackedJoinedAndRead) {
  using Cell = Loop::Cell;
  using Loss = Loop::Loss;
  int64_t number = 0;
  for (const Cell cell : {Cell::Lstm, Cell::Gru, Cell::Plain}) {
    for (const Loss loss :
         {Loss::Stack, Loss::StackOfColumns, Loss::Cat, Loss::CatOfColumns, Loss::Parts}) {
      SCOPED_TRACE("loop " + std::to_string(number));
      const at::ScalarType dtype = number % 4 == 3 ? at::kDouble : at::kFloat;
      expect_like_eager({cell, loss, dtype, 3 + number % 6, 1 + number % 5, 2 + number % 7,
                         5 + 3 * (number % 4)});
      ++number;
    }
  }
}

}  // namespace
}  // namespace ahead::native
