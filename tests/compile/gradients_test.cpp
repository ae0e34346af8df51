#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "support/compiled_check.h"
#include "support/hits.h"

/// Which gradients there are: zeros, none, those taken inside a function, and what hooks make of
/// them.
namespace ahead {
namespace gradients_test {

using Tensors = std::vector<at::Tensor>;

TEST(Gradients, OfZerosOfOneOfTwoResults) {
  const auto f = [](const Tensors& in) -> Tensors { return {at::floor(in[0]), at::mish(in[0])}; };
  auto compiled = compiled_by_call(aot::FlatFunction(f), {.fullgraph = true}, Tensors{leaf({3})});
  const at::Tensor x = leaf({3});
  compiled(Tensors{x})[0].sum().backward();
  expect_hits(compiled);
  ASSERT_TRUE(x.grad().defined());
  EXPECT_TRUE(at::equal(x.grad(), at::zeros({3})));
}

TEST(Gradients, OfZerosBesideOneThatDoesNotComeIn) {
  const auto f = [](const Tensors& in) -> Tensors {
    const at::Tensor y = at::fmod(in[0], 2);
    in[1].eq_(in[0]);
    return {y};
  };
  auto compiled = compiled_by_call(aot::FlatFunction(f), {.fullgraph = true},
                                   Tensors{leaf({3}), at::randn({3})});
  const at::Tensor x = leaf({3}), written = at::randn({3});
  compiled(Tensors{x, written});
  expect_hits(compiled);
  written.sum().backward();
  ASSERT_TRUE(x.grad().defined());
  EXPECT_TRUE(at::equal(x.grad(), at::zeros({3})));
}

TEST(Gradients, ThatDoNotDependOnWhatComesIn) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        const at::Tensor y = in[1] * 1;
        y.eq_(in[1]);
        return {in[0] * 2, y};
      },
      {leaf({3}), leaf({3})});
}

TEST(Gradients, ClampWhoseBackwardThrowsInEagerIsRefused) {
  const auto f = [](const Tensors& in) -> Tensors {
    at::Tensor without_history;
    {
      at::NoGradGuard no_grad;
      without_history = in[1].select(1, -1);
    }
    return {at::clamp(in[0], at::celu(without_history), in[1])};
  };
  const at::Tensor x = at::randn({}), bound = leaf({1, 1});
  EXPECT_THROW(f({x, bound})[0].sum().backward(), c10::Error);
  auto compiled = compile(aot::FlatFunction(f), {.fullgraph = true, .confirm = 0});
  EXPECT_THROW(compiled(Tensors{x, bound}), Unsupported);
  const auto overwritten = [](const Tensors& in) -> Tensors {
    const at::Tensor result = at::clamp(in[0], in[0], in[0]);
    at::NoGradGuard no_grad;
    in[0].mul_(2);
    return {result};
  };
  auto written = compile(aot::FlatFunction(overwritten), {.fullgraph = true, .confirm = 0});
  EXPECT_THROW(written(Tensors{leaf({2})}), Unsupported);
  const auto fitting = [](const Tensors& in) -> Tensors {
    return {at::clamp(in[0], in[1], in[2])};
  };
  expect_compiled_like_eager(fitting, {leaf({2, 2}), leaf({2}), leaf({1, 1})});
}

TEST(Gradients, HookInAFunctionWithSeveralResults) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    const at::Tensor y = in[0] * 2;
    y.register_hook([](const at::Tensor& gradient) { return gradient * gradient + 1; });
    return {y.sin(), in[1] * 3};
  };
  auto compiled = compile(f, {.confirm = 0});
  for (int call = 0; call < 3; ++call) {
    const Tensors arguments{leaf({3}), leaf({3})};
    const Tensors expected = f(arguments), actual = compiled(arguments);
    expect_same(expected, actual);
    for (size_t i = 0; i < 2; ++i)
      expect_same(torch::autograd::grad({expected[i].sum()}, {arguments[i]}),
                  torch::autograd::grad({actual[i].sum()}, {arguments[i]}));
  }
  expect_hits(compiled);
}

TEST(InnerGradients, ByWhatAnotherArgumentWasMadeFrom) {
  const auto f = [](const Tensors& in) -> Tensors {
    return torch::autograd::grad({(in[0] * in[1]).sum()}, {in[0]}, {}, true, true);
  };
  const at::Tensor x = leaf({3}), y = x * 2;
  const Tensors parts = (x * 2).split(1);
  for (const Tensors& arguments :
       {Tensors{x, x.view({3})}, Tensors{y, y.view({3})}, Tensors{parts[0], parts[1] * 2}}) {
    auto whole = compile(aot::FlatFunction(f), {.fullgraph = true, .confirm = 0});
    EXPECT_THROW(whole(arguments), Unsupported);
    auto compiled = compile(aot::FlatFunction(f), {.confirm = 0});
    for (int call = 0; call < 3; ++call) expect_same(f(arguments), compiled(arguments));
    expect_runs_eagerly(compiled);
  }
  auto compiled = compile(aot::FlatFunction(f), {.fullgraph = true, .confirm = 0});
  for (int call = 0; call < 3; ++call) {
    const Tensors arguments{leaf({3}), leaf({3})};
    expect_same(f(arguments), compiled(arguments));
  }
  expect_hits(compiled);
}

TEST(InnerGradients, ByAnArgumentThatIsCapturedAsWellAndWasWrittenTo) {
  const auto run = [](bool is_compiled) {
    torch::manual_seed(0);
    const at::Tensor x = leaf({3}) * 1;
    const aot::FlatFunction function = [x](const Tensors& in) -> Tensors {
      const at::Tensor written = in[0];
      written.add_(x, 3);
      return {torch::autograd::grad({written.sum()}, {x})[0]};
    };
    auto compiled = compile(function, {.fullgraph = true, .confirm = 0});
    Tensors seen;
    for (int call = 0; call < 3; ++call) {
      seen.push_back((is_compiled ? compiled(Tensors{x}) : function({x}))[0]);
      seen.push_back(x.detach().clone());
    }
    if (is_compiled) expect_hits(compiled);
    return seen;
  };
  expect_same(run(false), run(true));
}

TEST(InnerGradients, ByAnArgumentOfWhichAnotherIsAViewIsRefused) {
  const auto f = [](const Tensors& in) -> Tensors {
    in[2].mul_(3);
    const at::Tensor gradient =
        torch::autograd::grad({in[1].sum()}, {in[0]}, {}, /*retain_graph=*/true,
                              /*create_graph=*/true, /*allow_unused=*/true)[0];
    return {gradient.defined() ? gradient : at::zeros_like(in[0])};
  };
  const at::Tensor x = leaf({4}), view = x.mul(2).narrow(0, 1, 2), memory = at::randn({3});
  const Tensors arguments{view, view.view({2, 1}), memory, memory.narrow(0, 0, 2)};
  auto compiled = compile(aot::FlatFunction(f), {.confirm = 0});
  for (int call = 0; call < 3; ++call)
    EXPECT_TRUE(at::equal(compiled(arguments)[0], at::ones({2})));
  expect_runs_eagerly(compiled);
}

}  // namespace gradients_test
}  // namespace ahead
