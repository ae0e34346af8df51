#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <thread>

#include "ahead/ahead.h"
#include "compile/derivatives.h"

/// Second and higher derivatives of compiled functions that call custom autograd functions.
namespace ahead {
namespace open_trace_gradient_functions_test {

using Tensors = std::vector<at::Tensor>;
using torch::autograd::AutogradContext;
using torch::autograd::grad;

TEST(OpenTraceGradient, CustomFunctions) {
  expect_derivatives([](const at::Tensor& x) { return Cube::apply(x); });
  expect_derivatives([](const at::Tensor& x) { return Cube::apply(x.sin()) * x; });
  const at::Tensor weight = leaf({5});
  expect_derivatives([&](const at::Tensor& x) { return Cube::apply(x * weight).tanh(); });
}

struct SquaredRelu : torch::autograd::Function<SquaredRelu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x.relu().square();
  }
  static Tensors backward(AutogradContext* context, const Tensors& gradients) {
    return {gradients[0] * 2 * context->get_saved_variables()[0].relu()};
  }
};

TEST(OpenTraceGradient, NeedsWhatTheBackwardDoesNotSave) {
  // The first derivative needs what the custom function made of its argument, the second what that
  // was made from.
  const at::Tensor weight = leaf({5}), bias = leaf({1});
  expect_derivatives(
      [&](const at::Tensor& x) { return SquaredRelu::apply(x * weight + bias).tanh(); });
  torch::nn::Linear linear(5, 1);
  expect_derivatives([&](const at::Tensor& x) {
    return SquaredRelu::apply(linear->forward(x.sin().unsqueeze(0))).tanh();
  });
}

TEST(OpenTraceGradient, CustomFunctionsInTheBackwardOfOthers) {
  expect_derivatives([](const at::Tensor& x) { return Sine::apply(x); });
  expect_derivatives([](const at::Tensor& x) { return Sine::apply(Cube::apply(x).tanh()) * x; });
}

/// A custom function with two results, either of which may go unused.
struct Polar : torch::autograd::Function<Polar> {
  static Tensors forward(AutogradContext* context, const at::Tensor& radius,
                         const at::Tensor& angle) {
    context->save_for_backward({radius, angle});
    return {radius * angle.cos(), radius * angle.sin()};
  }
  static Tensors backward(AutogradContext* context, const Tensors& gradients) {
    const Tensors saved = context->get_saved_variables();
    const at::Tensor x = gradients[0].defined() ? gradients[0] : at::zeros_like(saved[0]);
    const at::Tensor y = gradients[1].defined() ? gradients[1] : at::zeros_like(saved[0]);
    const at::Tensor cosine = saved[1].cos(), sine = saved[1].sin();
    return {x * cosine + y * sine, saved[0] * (y * cosine - x * sine)};
  }
};

TEST(OpenTraceGradient, CustomFunctionsWithSeveralResults) {
  expect_derivatives([](const at::Tensor& x) {
    const Tensors point = Polar::apply(x.exp(), x);
    return point[0] * point[1].sin();
  });
  expect_derivatives([](const at::Tensor& x) { return Polar::apply(x.exp(), x)[1].tanh(); });
}

/// A custom function that returns a view.
struct Tail : torch::autograd::Function<Tail> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x.slice(0, 2); }
  static Tensors backward(AutogradContext*, const Tensors& gradients) {
    return {at::constant_pad_nd(gradients[0] * 2, {2, 0})};
  }
};

TEST(OpenTraceGradient, CustomFunctionsThatReturnViews) {
  expect_derivatives([](const at::Tensor& x) { return Tail::apply(x.sin() * x).exp(); });
  expect_derivatives([](const at::Tensor& x) { return Cube::apply(x.narrow(0, 1, 3)) * x[0]; });
}

TEST(OpenTraceGradient, OneTensorAsTwoArguments) {
  const auto f = [](const at::Tensor& a, const at::Tensor& b) { return Cube::apply(a) * b.sin(); };
  auto compiled = compile(f, {.fullgraph = true, .confirm = 0});
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = leaf({3});
    expect_same(derivatives([&](const at::Tensor& in) { return f(in, in); }, x, 3),
                derivatives([&](const at::Tensor& in) { return compiled(in, in); }, x, 3));
  }
  expect_hits(compiled);
}

TEST(OpenTraceGradient, DerivativesInsideAndOutside) {
  expect_derivatives([](const at::Tensor& x) {
    const at::Tensor y = Sine::apply(x) * Cube::apply(x);
    return grad({y.sum()}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0].tanh();
  });
}

TEST(OpenTraceGradient, CapturedTensorsThatAreNoLeavesOrHaveHooks) {
  const at::Tensor start = leaf({5}), hooked = leaf({5});
  hooked.register_hook([](const at::Tensor& gradient) { return gradient * 2; });
  const at::Tensor weight = start.exp();
  const auto f = [&](const at::Tensor& x) { return Cube::apply(x * weight) * hooked; };
  auto compiled = compile(f, {.fullgraph = true, .confirm = 0});
  const at::Tensor x = leaf({5});
  const auto second = [&](auto& function) {
    const at::Tensor slope = grad({function(x).sum()}, {x}, {}, true, true)[0];
    return grad({slope.square().sum()}, {start, hooked, x}, {}, true, true);
  };
  for (int call = 0; call < 3; ++call) expect_same(second(f), second(compiled));
  expect_hits(compiled);
}

TEST(OpenTraceGradient, UnderAutocast) {
  const auto f = [](const at::Tensor& x) { return Cube::apply(x.mm(x.t())).to(at::kFloat).sin(); };
  auto compiled = compile(f, {.fullgraph = true, .confirm = 0});
  const auto with_autocast = [](auto&& function) {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    const Tensors results = function();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
    return results;
  };
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = leaf({3, 3});
    expect_same(with_autocast([&] { return derivatives(f, x, 2); }),
                with_autocast([&] { return derivatives(compiled, x, 2); }));
  }
  expect_hits(compiled);
}

TEST(OpenTraceGradient, SeveralThreads) {
  const auto f = [](const at::Tensor& x) { return Cube::apply(x.sin()); };
  auto compiled = compile(f, {.fullgraph = true, .confirm = 0});
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int call = 0; call < 5; ++call) {
        const at::Tensor x = leaf({3});
        expect_same(derivatives(f, x, 3), derivatives(compiled, x, 3));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(compiled.stats().cache_hits, 16u);
}

/// A custom function that is differentiable once.
struct Once : torch::autograd::Function<Once> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x.exp();
  }
  static Tensors backward(AutogradContext* context, const Tensors& gradients) {
    const at::NoGradGuard no_grad;
    return {gradients[0] * context->get_saved_variables()[0].exp()};
  }
};

TEST(OpenTraceGradient, OnceDifferentiable) {
  expect_derivatives([](const at::Tensor& x) { return Once::apply(x); });
  expect_derivatives([](const at::Tensor& x) { return Once::apply(x * x) * x.sin(); });
}

}  // namespace open_trace_gradient_functions_test
}  // namespace ahead
