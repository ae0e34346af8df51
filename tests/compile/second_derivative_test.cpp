#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "support/compiled_check.h"
#include "support/eager.h"
#include "support/hits.h"

/// Programs whose second derivatives were wrong once, found by the fuzzer and made small.
namespace ahead {
namespace second_derivative_test {

using Tensors = std::vector<at::Tensor>;

/// Differentiates the gradient of a compiled function by its one input.
void differentiate_twice(const aot::FlatFunction& function, const at::Tensor& input) {
  auto compiled = compiled_by_call(function, {.fullgraph = true}, Tensors{input * 1});
  const at::Tensor result = compiled(Tensors{input * 1})[0];
  expect_hits(compiled);
  torch::autograd::grad({result.sum()}, {input}, {}, true, /*create_graph=*/true);
}

/// The gradient of a function of one input, and the gradient of that where it has a history.
Tensors two_gradients(const aot::FlatFunction& function, const at::Tensor& input) {
  const at::Tensor result = function({input * 1})[0];
  const at::Tensor first =
      torch::autograd::grad({result.sum()}, {input}, {}, true, /*create_graph=*/true)[0];
  if (!first.requires_grad()) return {first};
  return {first, torch::autograd::grad({first.sum()}, {input}, {}, false, false, true)[0]};
}

void expect_two_gradients_like_eager(const aot::FlatFunction& function) {
  auto compiled = compile(function, {.fullgraph = true, .confirm = 0});
  for (int call = 0; call < 3; ++call) {
    const at::Tensor input = leaf({3});
    const Tensors expected = two_gradients(function, input);
    const Tensors actual = two_gradients([&](const Tensors& in) { return compiled(in); }, input);
    expect_same(expected, actual);
  }
  expect_hits(compiled);
}

TEST(SecondDerivative, BehindAWriteThatAutogradDoesNotSee) {
  const auto f = [](const Tensors& in) -> Tensors {
    const at::Tensor y = in[0].sin();
    {
      at::NoGradGuard no_grad;
      y.mul_(2);
    }
    return {y * in[0]};
  };
  expect_two_gradients_like_eager(f);
  const auto g = [](const Tensors& in) -> Tensors {
    const at::Tensor y = in[0] * 2;
    y.detach().mul_(2);
    return {y * y.sin()};
  };
  expect_two_gradients_like_eager(g);
}

TEST(SecondDerivative, OfAnInputThatWasWrittenTo) {
  const auto f = [](const Tensors& in) -> Tensors {
    const at::Tensor y = in[0].sin();
    in[0].mul_(2);
    return {y};
  };
  EXPECT_THROW(differentiate_twice(f, leaf({3})), Unsupported);
}

TEST(SecondDerivative, BesideAWriteInTheGraph) {
  const at::Tensor counter = at::ones({3});
  const auto f = [counter](const Tensors& in) -> Tensors {
    counter.square_();
    return {in[0] + counter.dot(counter)};
  };
  expect_two_gradients_like_eager(f);
}

TEST(SecondDerivative, BehindAWriteWithoutDerivative) {
  const auto f = [](const Tensors& in) -> Tensors {
    const at::Tensor y = in[0].sin();
    y.logical_and_(in[0]);
    return {y};
  };
  expect_two_gradients_like_eager(f);
}

TEST(SecondDerivative, ThroughACopyIntoAnotherLayout) {
  const auto f = [](const Tensors& in) -> Tensors {
    const at::Tensor y = at::zeros({3, 2});
    y.t().copy_(in[0] * in[0]);
    return {y * y};
  };
  auto compiled =
      compiled_by_call(aot::FlatFunction(f), {.fullgraph = true}, Tensors{leaf({2, 3})});
  const at::Tensor x = leaf({2, 3});
  const auto second_gradient = [&](const aot::FlatFunction& function) {
    const at::Tensor first =
        torch::autograd::grad({function({x})[0].sum()}, {x}, {}, true, true)[0];
    return torch::autograd::grad({first.sum()}, {x})[0];
  };
  const at::Tensor actual = second_gradient([&](const Tensors& in) { return compiled(in); });
  EXPECT_TRUE(at::allclose(actual, second_gradient(f)));
  expect_hits(compiled);
}

TEST(SecondDerivative, OfAGradientInPlaceOnly) {
  const auto f = [](const Tensors& in) -> Tensors {
    const at::Tensor y = in[0].clone();
    return {y.eq_(in[0])};
  };
  expect_two_gradients_like_eager(f);
}

TEST(SecondDerivative, OfWhatCannotBeRunAgainWhateverIsSaved) {
  const aot::FlatFunction functions[] = {
      [](const Tensors& in) -> Tensors { return {(in[0] + at::randn_like(in[0])).sin() * in[0]}; },
      [](const Tensors& in) -> Tensors {
        return {at::rrelu(in[0].sin(), 0.1, 0.3, /*training=*/true).square()};
      },
      [](const Tensors& in) -> Tensors {
        const at::Tensor y = in[0].exp();
        in[0].add_(at::rand_like(y));
        return {y.sin() * in[0]};
      },
      [](const Tensors& in) -> Tensors { return {in[0].relu_().square().cos()}; }};
  const Options every_way[] = {{.confirm = 0},
                               {.partitioner = Partitioner::Default, .confirm = 0},
                               {.memory_budget = 0, .confirm = 0},
                               {.confirm = 0, .keep_input_mutations = false}};
  for (const aot::FlatFunction& f : functions) {
    for (const Options& options : every_way) {
      auto compiled = compile(f, options);
      for (int call = 0; call < 3; ++call) {
        const at::Tensor input = leaf({3});
        torch::manual_seed(call);
        const Tensors expected = two_gradients(f, input);
        torch::manual_seed(call);
        expect_same(expected,
                    two_gradients([&](const Tensors& in) { return compiled(in); }, input));
      }
      expect_hits(compiled);
    }
  }
}

/// A partitioner that does not say what it saves.
PartitionedGraphs partition_silently(const JointGraph& joint) {
  PartitionedGraphs graphs = partition_min_cut(joint);
  for (SavedValue& saved : graphs.saved) saved.joint_value = -1;
  return graphs;
}

TEST(SecondDerivative, ThatCannotBeHadIsKnownBeforehand) {
  const auto f = [](const Tensors& in) -> Tensors {
    return {(in[0] + at::randn_like(in[0])).sin()};
  };
  const PartitionChoice silently(&partition_silently);
  const auto like_eager = [&](auto& compiled, auto&& gradients) {
    for (int call = 0; call < 3; ++call) {
      const at::Tensor input = leaf({3});
      torch::manual_seed(call);
      const Tensors expected = gradients(f, input);
      torch::manual_seed(call);
      expect_same(expected, gradients([&](const Tensors& in) { return compiled(in); }, input));
    }
  };
  const auto one_gradient = [](const aot::FlatFunction& function, const at::Tensor& input) {
    return torch::autograd::grad({function({input})[0].sum()}, {input});
  };
  auto eager = compile(aot::FlatFunction(f), {.partitioner = silently, .confirm = 0});
  like_eager(eager, two_gradients);
  expect_runs_eagerly(eager);
  auto once = compile(aot::FlatFunction(f),
                      {.partitioner = silently, .confirm = 0, .double_backward = false});
  like_eager(once, one_gradient);
  expect_hits(once);
  auto whole =
      compile(aot::FlatFunction(f), {.fullgraph = true, .partitioner = silently, .confirm = 0});
  like_eager(whole, one_gradient);
  expect_hits(whole);
  const at::Tensor x = leaf({3});
  EXPECT_THROW(torch::autograd::grad({whole(Tensors{x})[0].sum()}, {x}, {}, true, true),
               Unsupported);
}

}  // namespace second_derivative_test
}  // namespace ahead
