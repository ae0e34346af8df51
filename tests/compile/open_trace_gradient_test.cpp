#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "compile/derivatives.h"

/// Second and higher derivatives of compiled functions whose gradient is not that of the operators
/// they call: custom autograd functions, hooks, and writes that autograd does not see.
namespace ahead {
namespace open_trace_gradient_test {

using Tensors = std::vector<at::Tensor>;
using torch::autograd::AutogradContext;
using torch::autograd::grad;

TEST(OpenTraceGradient, FunctionsThatRegisterHooks) {
  const auto f = [](const at::Tensor& x) {
    const at::Tensor y = x.exp();
    y.register_hook([](const at::Tensor& gradient) { return gradient * gradient; });
    return y * x;
  };
  auto compiled = compile(f, {.confirm = 0});
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = leaf({5});
    expect_same(derivatives(f, x, 4), derivatives(compiled, x, 4));
  }
  expect_hits(compiled);
  // A hook between what is computed divides the graph.
  auto whole = compile(f, {.fullgraph = true, .confirm = 0});
  EXPECT_THROW(whole(leaf({5})), Unsupported);
}

TEST(OpenTraceGradient, WritesThatAutogradDoesNotSee) {
  // cosine_similarity writes to its norms under no_grad, which leaves them their history.
  expect_derivatives([](const at::Tensor& x) { return at::cosine_similarity(x, x.sin(), 0); });
  expect_derivatives([](const at::Tensor& x) {
    at::Tensor y = x.sin();
    {
      const at::NoGradGuard no_grad;
      y.mul_(2);
    }
    return y.exp() * x;
  });
}

TEST(OpenTraceGradient, ViewsWithoutGradModeOfWhatWasWritten) {
  const auto view_of = [](const at::Tensor& written) {
    const at::NoGradGuard no_grad;
    return written.view({1, -1});
  };
  // Such a view requires a gradient but has no history, nor has what is made of it.
  expect_derivatives([=](const at::Tensor& x) {
    at::Tensor y = x.sin();
    y.copy_(x * x);
    return view_of(y).tanh() * x.exp();
  });
  expect_derivatives([=](const at::Tensor& x) {
    at::Tensor y = x.sin();
    y.mul_(x);
    return view_of(y).t().tanh() * x.exp();
  });
}

TEST(OpenTraceGradient, WriteWithoutGradModeToAViewFromOutside) {
  // Autograd gives the view a new history each time its memory is written to, to the same end.
  const auto f = [](const at::Tensor& view) {
    {
      at::NoGradGuard no_grad;
      view.mul_(1.5);
    }
    return view.logsumexp(0);
  };
  auto compiled = compile(f, {.fullgraph = true, .confirm = 0});
  const auto second = [](auto&& function) {
    torch::manual_seed(0);
    const at::Tensor x = leaf({5}), whole = x * 1;
    return derivatives([&](const at::Tensor&) { return function(whole.narrow(0, 1, 3)); }, x, 3);
  };
  for (int call = 0; call < 3; ++call) expect_same(second(f), second(compiled));
  expect_hits(compiled);
}

TEST(OpenTraceGradient, WritesToIntermediatesAndArguments) {
  expect_derivatives([](const at::Tensor& x) {
    at::Tensor y = x.sin();
    y.mul_(x);
    return Cube::apply(y).mul_(x.cos());
  });
  const auto f = [](at::Tensor x) {
    x.mul_(x.detach().cos());
    return Cube::apply(x);
  };
  auto compiled = compile(f, {.fullgraph = true, .confirm = 0});
  const at::Tensor x = leaf({5});
  const auto second = [&](auto& function) {
    return derivatives([&](const at::Tensor& start) { return function(start * 2); }, x, 3);
  };
  for (int call = 0; call < 3; ++call) expect_same(second(f), second(compiled));
  expect_hits(compiled);
}

TEST(OpenTraceGradient, SomeOutputsAndSomeInputs) {
  const auto f = [](const at::Tensor& x, const at::Tensor& w) {
    return Tensors{Cube::apply(x) * w * w, Cube::apply(x * w), w.exp()};
  };
  auto compiled = compile(f, {.fullgraph = true, .confirm = 0});
  const at::Tensor x = leaf({3}), w = leaf({3});
  const auto third = [&](auto& function, size_t output, const at::Tensor& by) {
    const at::Tensor result = function(x, w)[output];
    const at::Tensor first = grad({result.sum()}, {by}, {}, true, true)[0];
    Tensors all = grad({first.sum()}, {x, w}, {}, true, true, /*allow_unused=*/true);
    if (!all[1].defined()) return all;
    const Tensors more = grad({all[1].square().sum()}, {x, w}, {}, true, true, true);
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  for (int call = 0; call < 3; ++call) {
    for (size_t output = 0; output < 2; ++output) {
      expect_same(third(f, output, x), third(compiled, output, x));
      expect_same(third(f, output, w), third(compiled, output, w));
    }
    expect_same(third(f, 2, w), third(compiled, 2, w));
  }
  expect_hits(compiled);
}

TEST(OpenTraceGradient, OfTangents) {
  const auto f = [](const at::Tensor& x) { return Cube::apply(x.sin()); };
  auto compiled = compiled_by_call(f, {.fullgraph = true}, leaf({4, 3}));
  const at::Tensor x = leaf({4, 3}), expanded = leaf({3});
  const auto mixed = [&](auto& function, const at::Tensor& tangent) {
    const at::Tensor first = grad({function(x)}, {x}, {tangent}, true, true)[0];
    return grad({first.square().sum()}, {x, tangent}, {}, true, true);
  };
  const at::Tensor tangent = leaf({4, 3});
  expect_same(mixed(f, tangent), mixed(compiled, tangent));
  const at::Tensor rows = expanded.expand({4, 3});
  expect_same(mixed(f, rows), mixed(compiled, rows));
  const at::Tensor columns = leaf({3, 4}).t();
  expect_same(mixed(f, columns), mixed(compiled, columns));
  expect_hits(compiled);
}

TEST(OpenTraceGradient, GradientPenaltyByParameters) {
  torch::manual_seed(3);
  auto net =
      torch::nn::Sequential(torch::nn::Linear(3, 8), torch::nn::Tanh(), torch::nn::Linear(8, 1));
  const auto f = [&](const at::Tensor& x) { return Cube::apply(net->forward(x)); };
  auto compiled = compile(f, {.fullgraph = true, .confirm = 0});
  const auto penalty = [&](auto& function, const at::Tensor& x) {
    net->zero_grad();
    const at::Tensor y = function(x);
    const at::Tensor slope = grad({y}, {x}, {at::ones_like(y)}, true, true)[0];
    (slope.norm(2, 1) - 1).square().mean().backward();
    Tensors grads{slope.detach()};
    for (const at::Tensor& parameter : net->parameters())
      grads.push_back(parameter.grad().defined() ? parameter.grad().clone() : at::Tensor());
    return grads;
  };
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = leaf({5, 3});
    expect_same(penalty(f, x), penalty(compiled, x));
  }
  expect_hits(compiled);
}

TEST(OpenTraceGradient, ResidualOfADifferentialEquation) {
  torch::manual_seed(4);
  auto net =
      torch::nn::Sequential(torch::nn::Linear(2, 8), torch::nn::Tanh(), torch::nn::Linear(8, 1));
  const auto f = [&](const at::Tensor& x, const at::Tensor& t) {
    return Sine::apply(net->forward(at::cat({x, t}, 1)));
  };
  auto compiled = compile(f, {.fullgraph = true, .confirm = 0});
  const auto residual = [&](auto& function, const at::Tensor& x, const at::Tensor& t) {
    net->zero_grad();
    const at::Tensor u = function(x, t);
    const Tensors first = grad({u.sum()}, {x, t}, {}, true, true);
    const at::Tensor second = grad({first[0].sum()}, {x}, {}, true, true)[0];
    (first[1] - second).square().mean().backward();
    Tensors grads{first[0].detach(), first[1].detach(), second.detach()};
    for (const at::Tensor& parameter : net->parameters())
      grads.push_back(parameter.grad().defined() ? parameter.grad().clone() : at::Tensor());
    return grads;
  };
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = leaf({6, 1}), t = leaf({6, 1});
    const Tensors eager = residual(f, x, t), actual = residual(compiled, x, t);
    ASSERT_EQ(eager.size(), actual.size());
    for (size_t i = 0; i < eager.size(); ++i) {
      // Eager adds up what the terms give to each layer, the compiled function at its end.
      const bool is_exact = i < 3;
      EXPECT_TRUE(is_exact ? at::equal(eager[i], actual[i])
                           : at::allclose(eager[i], actual[i], 1e-5, 1e-6))
          << i;
    }
  }
  expect_hits(compiled);
}

/// Bounds the gradient that comes in.
struct Bounded : torch::autograd::Function<Bounded> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x.clone(); }
  static Tensors backward(AutogradContext*, const Tensors& gradients) {
    return {gradients[0].clamp(-10, 10)};
  }
};

TEST(OpenTraceGradient, ForcesOfAnEnergy) {
  torch::manual_seed(5);
  const at::Tensor strength = leaf({4}), length = leaf({1});
  const auto energy = [&](const at::Tensor& positions) {
    const at::Tensor distances =
        Bounded::apply((positions.unsqueeze(0) - positions.unsqueeze(1)).square().sum(-1));
    return (Cube::apply(distances.add(1).rsqrt() * length) * strength).sum();
  };
  auto compiled = compile(energy, {.fullgraph = true, .confirm = 0});
  const auto fit = [&](auto& function, const at::Tensor& positions) {
    const at::Tensor forces = grad({function(positions)}, {positions}, {}, true, true)[0].neg();
    Tensors grads = grad({forces.square().sum()}, {strength, length, positions});
    grads.push_back(forces.detach());
    return grads;
  };
  for (int call = 0; call < 3; ++call) {
    const at::Tensor positions = leaf({4, 3});
    expect_same(fit(energy, positions), fit(compiled, positions));
  }
  expect_hits(compiled);
}

/// Names a tensor in its backward only.
struct Scaled : torch::autograd::Function<Scaled> {
  static inline at::Tensor scale;
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x.clone(); }
  static Tensors backward(AutogradContext*, const Tensors& gradients) {
    return {gradients[0] * scale * scale};
  }
};

TEST(OpenTraceGradient, ByTensorsThatOnlyTheBackwardNames) {
  Scaled::scale = leaf({3});
  const auto f = [](const at::Tensor& x) { return Scaled::apply(x.sin()); };
  auto compiled = compile(f, {.fullgraph = true, .confirm = 0});
  const at::Tensor x = leaf({3});
  const auto second = [&](auto& function) {
    const at::Tensor first = grad({function(x).sum()}, {x}, {}, true, true)[0];
    return grad({first.square().sum()}, {x, Scaled::scale}, {}, true, true);
  };
  for (int call = 0; call < 3; ++call) {
    expect_same(second(f), second(compiled));
    const at::NoGradGuard no_grad;
    Scaled::scale.add_(1);
  }
  expect_hits(compiled);
  Scaled::scale.reset();
}

}  // namespace open_trace_gradient_test
}  // namespace ahead
