#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "compile/derivatives.h"

namespace ahead {
namespace double_backward_test {

using Tensors = std::vector<at::Tensor>;
using torch::autograd::grad;

TEST(DoubleBackward, AnyOrder) {
  const auto f = [](const at::Tensor& x) { return (x.sin() * x.exp()).tanh() * x; };
  auto compiled = compile(f, {.fullgraph = true, .confirm = 0});
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = leaf({4});
    expect_same(derivatives(f, x, 4), derivatives(compiled, x, 4));
  }
  expect_hits(compiled);
}

TEST(DoubleBackward, AddsUpGradientsWhereViewsPart) {
  // The transposes of the backward are views of the views that the forward makes.
  const auto f = [](const at::Tensor& x) {
    return x.unsqueeze(1).mm(x.unsqueeze(0)).sin().diagonal() * x;
  };
  auto compiled = compile(f, {.fullgraph = true, .confirm = 0});
  for (int call = 0; call < 20; ++call) {
    const at::Tensor x = leaf({4});
    expect_same(derivatives(f, x, 3), derivatives(compiled, x, 3));
  }
  expect_hits(compiled);
}

TEST(DoubleBackward, WritesToParts) {
  const auto f = [](const at::Tensor& x, const at::Tensor& w) {
    const at::Tensor y = x * 1;
    y.narrow(0, 0, 2).add_(w.narrow(0, 1, 2));
    return y.sin() + y;
  };
  auto compiled = compile(f, {.fullgraph = true, .confirm = 0});
  const auto mixed = [](auto& function, const at::Tensor& x, const at::Tensor& w) {
    const at::Tensor first = grad({function(x, w).sum()}, {w}, {}, true, true)[0];
    return Tensors{first, grad({first.sum()}, {x}, {}, true, true)[0]};
  };
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = leaf({4}), w = leaf({4});
    expect_same(mixed(f, x, w), mixed(compiled, x, w));
  }
  expect_hits(compiled);
}

TEST(DoubleBackward, TakesNoiseThatTheBackwardDoesNotNeed) {
  expect_derivatives_with_random_numbers([](const at::Tensor& x) {
    return (x * 0.6 + at::randn_like(x) * 0.8).sin() * at::dropout(x, 0.5, true);
  });
}

TEST(DoubleBackward, GradientPenalty) {
  torch::manual_seed(5);
  auto net = torch::nn::Sequential(torch::nn::Linear(3, 8), torch::nn::SiLU(),
                                   torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})),
                                   torch::nn::GELU(), torch::nn::Linear(8, 1));
  auto compiled = compile(net, {.fullgraph = true, .confirm = 0});
  const auto step = [&](auto& f, const at::Tensor& x) {
    net->zero_grad();
    const at::Tensor y = f(x);
    const at::Tensor slope =
        grad({y}, {x}, {at::ones_like(y)}, /*retain_graph=*/true, /*create_graph=*/true)[0];
    (y.mean() + (slope.norm(2, 1) - 1).square().mean()).backward();
    Tensors grads{y, slope};
    for (const at::Tensor& parameter : net->parameters()) grads.push_back(parameter.grad().clone());
    return grads;
  };
  auto eager = [&](const at::Tensor& x) { return net->forward(x); };
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = leaf({5, 3});
    const Tensors expected = step(eager, x), actual = step(compiled, x);
    expect_same({expected[0], expected[1]}, {actual[0], actual[1]});
    // Eager adds the gradients of both terms up layer by layer, the compiled one at the end.
    for (size_t i = 2; i < expected.size(); ++i) {
      EXPECT_TRUE(at::allclose(expected[i], actual[i], 1e-5, 1e-6)) << i;
    }
  }
  expect_hits(compiled);
}

TEST(DoubleBackward, TakesRandomNumbersFromTheFirstRun) {
  const auto f = [](const at::Tensor& x) {
    return torch::dropout(x.exp(), 0.5, true) * torch::dropout(x.detach(), 0.5, true) * x;
  };
  expect_derivatives_with_random_numbers(f);
}

TEST(DoubleBackward, SomeOutputsAndSomeInputs) {
  const auto f = [](const at::Tensor& x, const at::Tensor& w) {
    return std::vector<at::Tensor>{x * w * w, x.square() * w, w.exp()};
  };
  auto compiled = compiled_by_call(f, {.fullgraph = true}, leaf({3}), leaf({3}));
  const at::Tensor x = leaf({3}), w = leaf({3});
  const auto second = [&](auto& function, size_t output, const at::Tensor& by) {
    const Tensors outputs = function(x, w);
    const at::Tensor first = grad({outputs[output].sum()}, {by}, {}, true, true)[0];
    return grad({first.sum()}, {x, w}, {}, true, true, /*allow_unused=*/true);
  };
  for (size_t output = 0; output < 2; ++output) {
    expect_same(second(f, output, x), second(compiled, output, x));
    expect_same(second(f, output, w), second(compiled, output, w));
  }
  expect_same(second(f, 2, w), second(compiled, 2, w));
  expect_hits(compiled);
}

TEST(DoubleBackward, SwitchedOff) {
  const auto f = [](const at::Tensor& x) { return x.sin() * x; };
  auto compiled = compiled_by_call(f, {.fullgraph = true, .double_backward = false}, leaf({3}));
  const at::Tensor x = leaf({3});
  const at::Tensor first = grad({compiled(x).sum()}, {x}, {}, true, true)[0];
  EXPECT_TRUE(first.requires_grad());
  EXPECT_TRUE(at::equal(first, grad({f(x).sum()}, {x})[0]));
  try {
    first.sum().backward();
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_NE(error.msg().find("does not currently support double backward"), std::string::npos);
  }
}

}  // namespace double_backward_test
}  // namespace ahead
