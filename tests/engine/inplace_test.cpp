#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/compiled_autograd.h"
#include "support/engine_check.h"

namespace ahead {
namespace inplace_test {

using test::expect_as_eager;
using test::expect_error_as_eager;
using test::expect_one_graph;
using Tensors = std::vector<at::Tensor>;

TEST(EngineInPlace, ChainOfWritesToNestedViews) {
  expect_one_graph([] {
    const at::Tensor x = leaf({4, 4}), y = leaf({2});
    const at::Tensor base = x.clone();
    const at::Tensor rows = base.narrow(0, 1, 2);
    const at::Tensor column = rows.select(1, 3);
    rows.mul_(3);
    column.mul_(y);
    rows.add_(1);
    base.sin_();
    column.exp_();
    (base * base).sum().backward();
    return Tensors{x.grad(), y.grad()};
  });
}

TEST(EngineInPlace, ViewIsReadAfterItsBaseWasWritten) {
  expect_one_graph([] {
    const at::Tensor x = leaf({3, 4});
    const at::Tensor base = x * 2;
    const at::Tensor view = base.t();
    base.mul_(x);
    view.tanh().sum().backward();
    return Tensors{x.grad()};
  });
}

TEST(EngineInPlace, BaseIsReadAfterItsViewWasWritten) {
  expect_one_graph([] {
    const at::Tensor x = leaf({3, 4}), v = leaf({3});
    const at::Tensor base = x * 2;
    base.select(1, 2).copy_(v);
    base.diagonal().mul_(5);
    base.exp().sum().backward();
    return Tensors{x.grad(), v.grad()};
  });
}

TEST(EngineInPlace, BaseWithoutHistoryGetsOne) {
  expect_one_graph([] {
    const at::Tensor buffer = torch::zeros({4, 3}), x = leaf({3}), y = leaf({3});
    buffer.select(0, 1).copy_(x);
    buffer.select(0, 2).add_(y).mul_(x);
    buffer.pow(2).sum().backward();
    return Tensors{x.grad(), y.grad(), buffer.detach()};
  });
}

TEST(EngineInPlace, OutputsThatFormulasSave) {
  expect_one_graph([] {
    const at::Tensor x = leaf({6}), y = leaf({6});
    const at::Tensor a = (x * 2).relu_(), b = (a + y).sigmoid_(), c = (b * y).tanh_();
    (a * c).sum().backward();
    return Tensors{x.grad(), y.grad()};
  });
}

TEST(EngineInPlace, CopiesChangeDtypeAndBroadcast) {
  expect_one_graph([] {
    const at::Tensor x = leaf({3}), whole = torch::zeros({2, 3}, at::kDouble);
    whole.copy_(x);
    whole.select(0, 1).mul_(x);
    whole.sin().sum().backward();
    return Tensors{x.grad()};
  });
}

TEST(EngineInPlace, IndexedWrites) {
  expect_one_graph([] {
    const at::Tensor x = leaf({5, 3}), v = leaf({2, 3}), rows = torch::tensor({4, 1});
    const at::Tensor h = x * 1;
    h.index_put_({rows}, v);
    h.index_put_({rows}, v * v, /*accumulate=*/true);
    h.index_add_(0, rows, v.exp());
    h.scatter_(1, torch::tensor({{0}, {2}}), v.narrow(1, 0, 1));
    h.masked_fill_(torch::eye(5, 3).to(at::kBool), 0.5);
    h.pow(3).sum().backward();
    return Tensors{x.grad(), v.grad()};
  });
}

TEST(EngineInPlace, MaskedFillByATensorKeepsItsOwnFormula) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4}), value = leaf({});
    const at::Tensor h = x * 2;
    h.masked_fill_(torch::tensor({true, false, true, false}), value);
    h.narrow(0, 0, 3).masked_fill_(torch::tensor({false, false, true}), value);
    (h * h).sum().backward();
    return Tensors{x.grad(), value.grad()};
  });
}

TEST(EngineInPlace, WhatIsOverwrittenGetsZeros) {
  expect_one_graph([] {
    const at::Tensor x = leaf({4}), y = leaf({4});
    const at::Tensor h = x * 2;
    h.zero_();
    h.narrow(0, 1, 2).fill_(3);
    (h * y).sum().backward();
    return Tensors{x.grad(), y.grad()};
  });
}

TEST(EngineInPlace, RetainedGradFollowsTheWrite) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4});
    const at::Tensor h = x * 2;
    h.retain_grad();
    h.mul_(3);
    h.sin().sum().backward();
    return Tensors{x.grad(), h.grad()};
  });
}

TEST(EngineInPlace, RetainedGradOfAViewThatIsWritten) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4, 2});
    const at::Tensor base = x * 2;
    const at::Tensor view = base.select(1, 0);
    view.retain_grad();
    base.retain_grad();
    view.mul_(3);
    base.mul_(x);
    (base.sin().sum() + view.exp().sum()).backward();
    return Tensors{x.grad(), base.grad(), view.grad()};
  });
}

TEST(EngineInPlace, HookStaysWithTheValueItWasGivenFor) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4});
    const at::Tensor h = x * 2;
    Tensors seen(2);
    h.register_hook([&seen](const at::Tensor& grad) { seen[0] = grad.clone(); });
    h.mul_(5);
    h.register_hook([&seen](const at::Tensor& grad) {
      seen[1] = grad.clone();
      return grad * 7;
    });
    h.sin().sum().backward();
    return Tensors{x.grad(), seen[0], seen[1]};
  });
}

TEST(EngineInPlace, DetachedInPlaceCutsTheGraph) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4}), y = leaf({4});
    const at::Tensor h = x.exp();
    const at::Tensor k = h + 1;
    h.detach_();
    (h * y + k).sum().backward();
    return Tensors{x.grad(), y.grad()};
  });
}

TEST(EngineInPlace, DataOfALeafIsReplacedAfterTheForward) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4}), y = leaf({4});
    const at::Tensor loss = (x * y).sum();
    x.set_data(torch::full({4}, 9.0));
    loss.backward();
    return Tensors{x.grad(), y.grad()};
  });
}

TEST(EngineInPlace, DataOfAnotherShape) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4});
    (x * x).sum().backward();
    const at::Tensor first = x.grad().clone();
    x.mutable_grad().reset();
    x.set_data(torch::randn({2, 3}));
    (x * x).sum().backward();
    return Tensors{first, x.grad()};
  });
}

TEST(EngineInPlace, DataOfAnotherShapeBeforeTheBackwardThrowsAsEager) {
  expect_error_as_eager([] {
    const at::Tensor x = leaf({4});
    const at::Tensor loss = x.exp().sum();
    x.set_data(torch::randn({2, 3}));
    loss.backward();
    return Tensors{x.grad()};
  });
}

TEST(EngineInPlace, WriteToASavedViewThrowsAsEager) {
  for (bool through_base : {true, false}) {
    expect_error_as_eager([through_base] {
      const at::Tensor x = leaf({4, 2});
      const at::Tensor base = x * 2;
      const at::Tensor view = base.select(1, 0);
      const at::Tensor loss = (through_base ? view.exp() * view : base * base).sum();
      (through_base ? base : view).mul_(2);
      loss.backward();
      return Tensors{x.grad()};
    });
  }
}

TEST(EngineInPlace, ErrorNamesTheNodeThatEagerNames) {
  // Which one it is depends on whether the second write's node still lives.
  expect_error_as_eager([] {
    const at::Tensor x = leaf({4, 2});
    const at::Tensor base = x * 2;
    const at::Tensor view = base.select(1, 0);
    view.tanh_();
    view.mul_(3);
    view.sum().backward();
    return Tensors{x.grad()};
  });
}

TEST(EngineInPlace, WriteToASavedResultThrowsAsEager) {
  expect_error_as_eager([] {
    const at::Tensor x = leaf({4});
    const at::Tensor h = x.exp();
    const at::Tensor k = h * 3;
    h.add_(1);
    k.sum().backward();
    (h * k).sum().backward();
    return Tensors{x.grad()};
  });
}

TEST(EngineInPlace, WriteUnderNoGradToWhatIsNotSavedIsSeen) {
  expect_one_graph([] {
    const at::Tensor x = leaf({4}), w = torch::randn({4});
    const at::Tensor h = x * 2;
    {
      at::NoGradGuard no_grad;
      h.mul_(3);
    }
    (h * w).sum().backward();
    return Tensors{x.grad(), h.detach()};
  });
}

TEST(EngineInPlace, OptimizerWritesBetweenBackwards) {
  const auto stats = expect_as_eager([] {
    const at::Tensor w = leaf({3, 3});
    for (int step = 0; step < 3; ++step) {
      w.mm(w).tanh().sum().backward();
      at::NoGradGuard no_grad;
      w.sub_(w.grad(), 0.1);
      w.mutable_grad().zero_();
    }
    return Tensors{w, w.grad()};
  });
  // One for a leaf without `.grad`, one for a leaf with.
  EXPECT_EQ(stats.compiles, 2u);
  EXPECT_EQ(stats.cache_hits, 7u);
}

TEST(EngineInPlace, BatchNormWritesItsBuffers) {
  expect_as_eager([] {
    torch::nn::BatchNorm1d norm(3);
    const at::Tensor x = leaf({5, 3});
    for (int step = 0; step < 2; ++step) norm->forward(x * x).pow(2).sum().backward();
    Tensors all = test::grads_of(*norm);
    for (const at::Tensor& buffer : norm->buffers()) all.push_back(buffer);
    all.push_back(x.grad());
    return all;
  });
}

}  // namespace inplace_test
}  // namespace ahead
