#include "support/trace_check.h"

#include <gtest/gtest.h>

namespace ahead {
namespace mutation_test {

using at::Tensor;
using Tensors = std::vector<at::Tensor>;
using Kind = Slot::Kind;

/// A scene without captured tensors whose inputs do not require grad.
std::function<Scene()> on_plain_inputs(aot::FlatFunction function,
                                       std::vector<std::vector<int64_t>> shapes) {
  return [=] {
    Tensors inputs;
    for (const auto& shape : shapes) inputs.push_back(at::randn(shape));
    return Scene{function, inputs, {}, {}};
  };
}

TEST(Mutation, OfAnIntermediate) {
  expect_like_eager([] {
    return Scene{[](const Tensors& in) { return Tensors{in[0].sin().mul_(2).sigmoid_()}; },
                 {leaf({3, 4})},
                 {},
                 {}};
  });
}

TEST(Mutation, OfAViewOfAnIntermediate) {
  expect_like_eager([] {
    return Scene{[](const Tensors& in) {
                   Tensor y = in[0] + 1;
                   y.select(0, 1).mul_(3);
                   y.t().narrow(0, 1, 2).mul_(in[0].sum());
                   return Tensors{y, y.select(1, 0)};
                 },
                 {leaf({3, 4})},
                 {},
                 {}};
  });
}

TEST(Mutation, OfAnInputWithoutGrad) {
  auto graph = expect_like_eager(on_plain_inputs(
      [](const Tensors& in) {
        Tensor x = in[0];
        x.mul_(2);
        return Tensors{x + 1};
      },
      {{2, 3}}));
  EXPECT_EQ(graph.find_output({Kind::MutatedInput, 0}), 0);
}

TEST(Mutation, OfAnInputThroughAView) {
  expect_like_eager(on_plain_inputs(
      [](const Tensors& in) {
        in[0].view({-1}).slice(0, 1, 5, 2).mul_(-3);
        return Tensors{};
      },
      {{2, 3}}));
}

TEST(Mutation, OfANonLeafInputThatRequiresGrad) {
  expect_like_eager([] {
    Tensor p = leaf({2, 3});
    return Scene{[](const Tensors& in) {
                   Tensor x = in[0];
                   x.view({-1}).mul_(3).sigmoid_();
                   return Tensors{x.cos()};
                 },
                 {as_non_leaf(p)},
                 {},
                 {p}};
  });
}

TEST(Mutation, OfALeafThatRequiresGradFailsAsInEager) {
  Tensor x = leaf({2});
  auto function = [](const Tensors& in) {
    Tensor y = in[0];
    y.mul_(2);
    return Tensors{y};
  };
  EXPECT_THROW(function({x}), c10::Error);
  EXPECT_THROW(trace(function, {x}), c10::Error);
}

TEST(Mutation, OfASavedTensorFailsAsInEager) {
  auto function = [](const Tensors& in) {
    Tensor y = in[0].exp();
    y.mul_(2);
    return Tensors{y.sum()};
  };
  Tensor x = leaf({2});
  EXPECT_THROW(function({x})[0].backward(), c10::Error);
  EXPECT_THROW(trace_joint(function, {x}), c10::Error);
}

TEST(Mutation, OfALeafUnderNoGrad) {
  expect_like_eager([] {
    return Scene{[](const Tensors& in) {
                   {
                     torch::NoGradGuard no_grad;
                     Tensor w = in[0];
                     w.mul_(0.5);
                   }
                   return Tensors{in[0].pow(3)};
                 },
                 {leaf({4})},
                 {},
                 {}};
  });
}

TEST(Mutation, OfACapturedBuffer) {
  auto graph = expect_like_eager([] {
    Tensor counter = torch::zeros({1}), x = leaf({3});
    return Scene{[counter](const Tensors& in) mutable {
                   counter.add_(1).mul_(3);
                   return Tensors{in[0] * counter};
                 },
                 {x},
                 {counter},
                 {}};
  });
  EXPECT_EQ(graph.find_output({Kind::MutatedInput, 1}), 0);
}

TEST(Mutation, OfBatchNormStatistics) {
  for (bool training : {true, false}) {
    auto graph = expect_like_eager([training] {
      torch::manual_seed(3);
      torch::nn::BatchNorm2d norm(4);
      norm->train(training);
      return Scene{[norm](const Tensors& in) mutable { return Tensors{norm(in[0])}; },
                   {leaf({2, 4, 3, 3})},
                   {norm->weight, norm->bias, norm->running_mean, norm->running_var,
                    norm->num_batches_tracked},
                   {}};
    });
    size_t mutated = 0;
    for (const auto& output : graph.outputs())
      mutated += output.slot.kind == Kind::MutatedInput ? 1 : 0;
    EXPECT_EQ(mutated, training ? 3u : 0u);
  }
}

TEST(Mutation, IndexPutAndMaskedFill) {
  expect_like_eager([] {
    return Scene{[](const Tensors& in) {
                   Tensor y = in[0].clone();
                   y.index_put_({torch::tensor({0, 2})}, in[1]);
                   y.masked_fill_(y > 0.5, 7);
                   return Tensors{y};
                 },
                 {leaf({3, 2}), leaf({2, 2})},
                 {},
                 {}};
  });
}

TEST(Mutation, OutArguments) {
  expect_like_eager(on_plain_inputs(
      [](const Tensors& in) {
        Tensor out = torch::empty({2, 3}), input = in[0];
        at::mul_out(out, input, input);
        at::add_out(input, out, out);
        return Tensors{out};
      },
      {{2, 3}}));
}

TEST(Mutation, ReturnsTheMutatedInputItself) {
  expect_like_eager(on_plain_inputs(
      [](const Tensors& in) {
        Tensor x = in[0];
        return Tensors{x.mul_(2), x.view({-1})};
      },
      {{2, 3}}));
}

TEST(Mutation, OfTheSameTensorPassedTwice) {
  expect_like_eager([] {
    Tensor x = at::randn({3});
    return Scene{[](const Tensors& in) {
                   Tensor a = in[0];
                   a.mul_(2);
                   return Tensors{in[1] + 1};
                 },
                 {x, x},
                 {},
                 {}};
  });
}

TEST(Mutation, KeepsTheLayoutThatAnOutOfPlaceOperatorWouldChange) {
  expect_like_eager([] {
    Tensor mask = at::randn({4, 3}) > 0;
    return Scene{[mask](const Tensors& in) {
                   Tensor y = in[0].t() + 1;
                   y.masked_fill_(mask, 2);
                   Tensor out = torch::zeros({4, 3}).t();
                   at::mul_out(out, in[0].detach(), in[0].detach());
                   return Tensors{y, y.reshape({-1}), out};
                 },
                 {leaf({3, 4})},
                 {mask},
                 {}};
  });
}

TEST(Mutation, ThatWouldBroadcastTheTargetFailsAsInEager) {
  auto function = [](const Tensors& in) {
    Tensor y = in[0] * 2;
    y.logical_and_(in[1]);
    return Tensors{y};
  };
  const Tensors inputs{at::randn({3}), at::randn({2, 3})};
  EXPECT_THROW(function(inputs), c10::Error);
  EXPECT_THROW(trace(function, inputs), c10::Error);
}

TEST(Mutation, ConcatenatedSlices) {
  expect_like_eager([] {
    return Scene{[](const Tensors& in) {
                   Tensor y = torch::zeros({4, 4});
                   for (int64_t i = 0; i < 4; ++i) y[i].copy_(in[0] * i).mul_(in[0]);
                   auto parts = y.chunk(2, 1);
                   return Tensors{torch::cat({parts[1], parts[0]}, 1)};
                 },
                 {leaf({4})},
                 {},
                 {}};
  });
}

TEST(Mutation, KernelsThatAskForRequiresGrad) {
  expect_like_eager([] {
    const Tensor leaf = at::arange(4.0).view({2, 2}).t().clone().requires_grad_();
    const auto function = [](const Tensors& in) -> Tensors {
      in[0].fill_diagonal_(3);
      return {};
    };
    return Scene{function, {as_non_leaf(leaf)}, {}, {leaf}};
  });
}

TEST(Mutation, DiagonalOfTensorThatDoesNotBeginAtItsStorage) {
  const auto function = [](const Tensors& in) -> Tensors {
    in[0].fill_diagonal_(3);
    return {};
  };
  const Tensor leaf = at::zeros({9}).requires_grad_();
  const Tensor x = (leaf * 1).narrow(0, 3, 4).view({2, 2});
  const Graph graph = trace_joint(function, {x});
  const Tensors results = interpret(graph, {x.detach(), at::ones({2, 2})});
  EXPECT_TRUE(at::equal(results[0], 3 * at::eye(2)));
  EXPECT_TRUE(at::equal(results[1], 1 - at::eye(2)));
}

TEST(Mutation, WritesBesideWhatIsRead) {
  expect_like_eager([] {
    const auto function = [](const Tensors& in) -> Tensors {
      in[0].select(1, 0).sub_(in[0].select(1, 2));
      in[0].slice(0, 0, 2).mul_(in[0].slice(0, 2, 4));
      in[0].slice(1, 0, 3, 2).add_(in[0].slice(1, 1, 4, 2));
      in[0].view({16}).mul_(in[0].view({16}));
      return {};
    };
    return Scene{function, {at::arange(16.0).view({4, 4})}, {}, {}};
  });
}

TEST(Mutation, WritesThroughExpandThatMakesNothingLarger) {
  expect_like_eager([] {
    const auto function = [](const Tensors& in) -> Tensors {
      in[0].expand({1, -1, 3}).tanh_();
      const Tensor sum = in[0].sum().expand({});
      sum.fill_(2).tanh_();
      return {sum};
    };
    return Scene{function, {at::full({2, 3}, 1e10)}, {}, {}};
  });
}

TEST(Mutation, WritesToPartsOfExpandedTensors) {
  expect_like_eager([] {
    const auto function = [](const Tensors& in) -> Tensors {
      const Tensor expanded = in[0].expand({3, 2});
      expanded.select(0, 1).mul_(in[1]);
      return {expanded * 2, in[0] + 1};
    };
    const Tensor leaf = at::full({1, 2}, 3.0).requires_grad_();
    const Tensor factor = at::full({2}, 5.0).requires_grad_();
    return Scene{function, {as_non_leaf(leaf), factor}, {}, {leaf, factor}};
  });
}

TEST(Mutation, RefusesToWriteToTensorsThatOverlapThemselves) {
  const auto function = [](const Tensors& in) -> Tensors { return {in[0].tril_()}; };
  EXPECT_THROW(trace(function, {at::zeros({1, 2}).expand({2, 2})}), Unsupported);
  const auto windows = [](const Tensors& in) -> Tensors {
    in[0].unfold(0, 2, 1).mul_(2);
    return {};
  };
  EXPECT_THROW(trace(windows, {at::zeros({4})}), Unsupported);
}

TEST(Mutation, RefusesDifferentiableWritesBesideFragileViews) {
  const Tensor x = at::arange(4.0).view({2, 2}), w = at::ones({}).requires_grad_();
  EXPECT_THROW(trace_joint(
                   [&](const Tensors& in) -> Tensors {
                     Tensor view = in[0].t();
                     view.t_();
                     view.select(0, 1).mul_(in[1]);
                     return {in[0] * 1};
                   },
                   {x, w}),
               Unsupported);
  EXPECT_THROW(trace_joint(
                   [&](const Tensors& in) -> Tensors {
                     const Tensor product = in[0] * in[1];
                     const Tensor part = product.narrow(1, 0, 1);
                     const Tensor strided = part.as_strided({3}, {1});
                     part.mul_(2);
                     return {product, strided};
                   },
                   {x, w}),
               Unsupported);
}

TEST(Mutation, RefusesResultThatSharesMemoryWithWrittenTensor) {
  const Tensor x = at::zeros({2});
  const Tensor same = x.narrow(0, 0, 1);
  const auto function = [x](const Tensors& in) -> Tensors {
    in[0].add_(1);
    return {x};
  };
  EXPECT_THROW(trace(function, {same}), Unsupported);
}

TEST(Mutation, RefusesToReadWhatIsBeingWritten) {
  const auto reads_itself = [](const Tensors& in) -> Tensors {
    in[0].sub_(in[0].select(1, 2));
    return {};
  };
  EXPECT_THROW(trace(reads_itself, {at::zeros({3, 3})}), Unsupported);
  const auto turned = [](const Tensors& in) -> Tensors {
    in[0].copy_(in[0].t());
    return {};
  };
  EXPECT_THROW(trace(turned, {at::zeros({3, 3})}), Unsupported);
}

}  // namespace mutation_test
}  // namespace ahead
