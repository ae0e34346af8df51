#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <thread>

#include "ahead/ahead.h"
#include "support/eager.h"
#include "support/engine_check.h"
#include "support/hits.h"

/// Second and higher derivatives of compiled functions whose gradient is not that of the operators
/// they call: custom autograd functions, hooks, and writes that autograd does not see.
namespace ahead {
namespace {

using Tensors = std::vector<at::Tensor>;
using torch::autograd::AutogradContext;
using torch::autograd::grad;

/// The sum of a function and its derivatives, until they depend on nothing any more.
template <class F>
Tensors derivatives(F&& f, const at::Tensor& x, int order) {
  Tensors all{f(x).sum()};
  for (int i = 0; i < order && all.back().requires_grad(); ++i) {
    all.push_back(grad({all.back().sum()}, {x}, {}, /*retain_graph=*/true,
                       /*create_graph=*/true, /*allow_unused=*/true)[0]);
    if (!all.back().defined()) break;
  }
  return all;
}

template <class F>
void expect_derivatives(const F& f, int order = 4) {
  const Options every_way[] = {
      {.fullgraph = true, .confirm = 0},
      {.fullgraph = true, .partitioner = Partitioner::Default, .confirm = 0, .debug_asserts = true},
      {.fullgraph = true, .partitioner = Partitioner::MinCut, .memory_budget = 0, .confirm = 0}};
  for (const Options& options : every_way) {
    auto compiled = compile(f, options);
    for (int call = 0; call < 3; ++call) {
      const at::Tensor x = leaf({5});
      expect_same(derivatives(f, x, order), derivatives(compiled, x, order));
    }
    expect_hits(compiled);
  }
}

/// The same for a function that cannot be compiled.
template <class F>
void expect_eager_derivatives(const F& f, int order = 4) {
  auto compiled = compile(f, {.confirm = 0});
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = leaf({5});
    expect_same(derivatives(f, x, order), derivatives(compiled, x, order));
  }
  expect_runs_eagerly(compiled);
  auto whole = compile(f, {.fullgraph = true, .confirm = 0});
  EXPECT_THROW(whole(leaf({5})), Unsupported);
}

struct Cube : torch::autograd::Function<Cube> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x * x * x;
  }
  static Tensors backward(AutogradContext* context, const Tensors& gradients) {
    const at::Tensor x = context->get_saved_variables()[0];
    return {gradients[0] * 3 * x * x};
  }
};

/// A custom function whose backward is one, whose backward says something else than its forward.
struct SineSlope : torch::autograd::Function<SineSlope> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gradient,
                            const at::Tensor& x) {
    context->save_for_backward({gradient, x});
    return gradient * x.cos();
  }
  static Tensors backward(AutogradContext* context, const Tensors& gradients) {
    const Tensors saved = context->get_saved_variables();
    return {gradients[0] * saved[1].cos(), gradients[0] * saved[0] * saved[1].sin() * -2};
  }
};

struct Sine : torch::autograd::Function<Sine> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x.sin();
  }
  static Tensors backward(AutogradContext* context, const Tensors& gradients) {
    return {SineSlope::apply(gradients[0], context->get_saved_variables()[0])};
  }
};

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

TEST(KeptGradient, CustomFunctions) {
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

TEST(KeptGradient, NeedsWhatTheBackwardDoesNotSave) {
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

TEST(KeptGradient, CustomFunctionsInTheBackwardOfOthers) {
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

TEST(KeptGradient, CustomFunctionsWithSeveralResults) {
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

TEST(KeptGradient, CustomFunctionsThatReturnViews) {
  expect_eager_derivatives([](const at::Tensor& x) { return Tail::apply(x.sin() * x).exp(); });
  expect_derivatives([](const at::Tensor& x) { return Cube::apply(x.narrow(0, 1, 3)) * x[0]; });
}

TEST(KeptGradient, OneTensorAsTwoArguments) {
  const auto f = [](const at::Tensor& a, const at::Tensor& b) { return Cube::apply(a) * b.sin(); };
  auto compiled = compile(f, {.fullgraph = true, .confirm = 0});
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = leaf({3});
    expect_same(derivatives([&](const at::Tensor& in) { return f(in, in); }, x, 3),
                derivatives([&](const at::Tensor& in) { return compiled(in, in); }, x, 3));
  }
  expect_hits(compiled);
}

TEST(KeptGradient, DerivativesInsideAndOutside) {
  expect_derivatives([](const at::Tensor& x) {
    const at::Tensor y = Sine::apply(x) * Cube::apply(x);
    return grad({y.sum()}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0].tanh();
  });
}

TEST(KeptGradient, CapturedTensorsThatAreNoLeavesOrHaveHooks) {
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

TEST(KeptGradient, UnderAutocast) {
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

TEST(KeptGradient, SeveralThreads) {
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

TEST(KeptGradient, OnceDifferentiable) {
  expect_derivatives([](const at::Tensor& x) { return Once::apply(x); });
  expect_derivatives([](const at::Tensor& x) { return Once::apply(x * x) * x.sin(); });
}

TEST(KeptGradient, FunctionsThatRegisterHooks) {
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

TEST(KeptGradient, WritesThatAutogradDoesNotSee) {
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

TEST(KeptGradient, ViewsWithoutGradModeOfWhatWasWritten) {
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

TEST(KeptGradient, WritesToIntermediatesAndArguments) {
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

TEST(KeptGradient, SomeOutputsAndSomeInputs) {
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

TEST(KeptGradient, OfTangents) {
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

TEST(KeptGradient, GradientPenaltyByParameters) {
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

TEST(KeptGradient, ResidualOfADifferentialEquation) {
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

TEST(KeptGradient, ForcesOfAnEnergy) {
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

TEST(KeptGradient, ByTensorsThatOnlyTheBackwardNames) {
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

TEST(KeptGradient, TakesRandomNumbersFromTheFirstRun) {
  const auto f = [](const at::Tensor& x) {
    return Cube::apply(torch::dropout(x.exp(), 0.5, true)) * torch::dropout(x.detach(), 0.5, true);
  };
  auto compiled = compile(f, {.fullgraph = true, .confirm = 0});
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = leaf({16});
    torch::manual_seed(call);
    const Tensors expected = derivatives(f, x, 3);
    torch::manual_seed(call);
    expect_same(expected, derivatives(compiled, x, 3));
  }
  expect_hits(compiled);
}

TEST(KeptGradient, ReleasesWhatItHoldsAsEagerDoes) {
  auto compiled =
      compiled_by_call([](const at::Tensor& x) { return Cube::apply(x.sin()); }, {}, leaf({3}));
  const at::Tensor x = leaf({3});
  const at::Tensor y = compiled(x).sum();
  expect_hits(compiled);
  // The graph of the derivative has to work though that of the function is released.
  const at::Tensor first = grad({y}, {x}, {}, /*retain_graph=*/false, /*create_graph=*/true)[0];
  const at::Tensor slope = first.sum();
  EXPECT_NO_THROW(grad({slope}, {x}));
  EXPECT_THROW(grad({slope}, {x}), c10::Error);
  EXPECT_THROW(grad({y}, {x}), c10::Error);
}

TEST(KeptGradient, NoticesWritesToWhatItNeeds) {
  auto compiled =
      compiled_by_call([](const at::Tensor& x) { return Cube::apply(x); }, {}, leaf({3}) * 2);
  const at::Tensor start = leaf({3});
  const at::Tensor x = start * 2;
  const at::Tensor first = grad({compiled(x).sum()}, {x}, {}, true, true)[0];
  {
    const at::NoGradGuard no_grad;
    x.add_(1);
  }
  EXPECT_THROW(grad({first.sum()}, {start}), c10::Error);
  expect_hits(compiled);
}

TEST(KeptGradient, KeepsNoArguments) {
  auto compiled =
      compile([](const at::Tensor& x) { return Cube::apply(x.sin()).sum(); }, {.confirm = 0});
  for (int call = 0; call < 3; ++call) {
    at::Tensor x = leaf({3});
    grad({compiled(x)}, {x}, {}, true, true);
    const c10::weak_intrusive_ptr<c10::TensorImpl> watched(x.getIntrusivePtr());
    x.reset();
    EXPECT_TRUE(watched.expired()) << call;
  }
  expect_hits(compiled);
}

TEST(KeptGradient, IsGoneWithTheFunction) {
  const auto token = std::make_shared<int>();
  {
    auto compiled = compile([token](const at::Tensor& x) { return Cube::apply(x.sin()); },
                            {.fullgraph = true, .confirm = 0});
    for (int call = 0; call < 3; ++call) derivatives(compiled, leaf({3}), 3);
    expect_hits(compiled);
    EXPECT_GT(token.use_count(), 1);
  }
  EXPECT_EQ(token.use_count(), 1);
}

TEST(KeptGradient, FindsReplacedParameters) {
  at::Tensor weight = leaf({3});
  const auto f = [&](const at::Tensor& x) { return Cube::apply(x * weight); };
  auto compiled = compile(f, {.fullgraph = true, .confirm = 0});
  const at::Tensor x = leaf({3});
  for (int call = 0; call < 4; ++call) {
    expect_same(derivatives(f, x, 2), derivatives(compiled, x, 2));
    if (call % 2 == 1) weight = leaf({3});
  }
}

/// Writes to what it saved, so that it gives something else each time.
struct Doubling : torch::autograd::Function<Doubling> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    const at::Tensor factor = x.detach().cos();
    context->saved_data["factor"] = factor;
    return x * factor;
  }
  static Tensors backward(AutogradContext* context, const Tensors& gradients) {
    return {gradients[0] * context->saved_data["factor"].toTensor().mul_(2)};
  }
};

TEST(KeptGradient, ABackwardThatChangesWhatItSaved) {
  const auto f = [](const at::Tensor& x) { return Doubling::apply(x.sin()).sum(); };
  auto compiled = compile(f, {.confirm = 0});
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = leaf({3});
    const at::Tensor expected = f(x), actual = compiled(x);
    for (int i = 0; i < 3; ++i)
      expect_same(grad({expected}, {x}, {}, true, true), grad({actual}, {x}, {}, true, true));
  }
}

TEST(KeptGradient, AHookThatComesLater) {
  const auto two_gradients = [](auto& f, const at::Tensor& x, const at::Tensor& weight) {
    weight.mutable_grad().reset();
    const at::Tensor y = f(x);
    const auto hook = weight.register_hook([](const at::Tensor& gradient) { return gradient * 2; });
    const at::Tensor first = grad({y}, {x}, {}, true, true)[0];
    first.sum().backward();
    weight.remove_hook(hook);
    return Tensors{first, weight.grad()};
  };
  at::Tensor weight = leaf({3});
  const auto f = [&](const at::Tensor& x) { return Cube::apply(x * weight).sum(); };
  auto compiled = compiled_by_call(f, {}, leaf({3}));
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = leaf({3});
    expect_same(two_gradients(f, x, weight), two_gradients(compiled, x, weight));
  }
  expect_hits(compiled);
}

/// Compares functions that do something else in every call, each with a count of its own.
template <class Make>
void expect_changing_derivatives(const Make& make) {
  int runs = 0, eager_runs = 0;
  auto compiled = compile(make(runs));
  auto eager = make(eager_runs);
  for (int call = 0; call < 9; ++call) {
    const at::Tensor x = leaf({3});
    expect_same(derivatives(eager, x, 3), derivatives(compiled, x, 3));
    EXPECT_EQ(runs, eager_runs) << call;
  }
  EXPECT_GT(compiled.stats().eager_calls, 0u);
  EXPECT_EQ(compiled.stats().cache_hits, 0u);
}

TEST(KeptGradient, AFunctionThatTakesOtherTensorsRunsEagerly) {
  const Tensors weights = {at::full({3}, 2.), at::full({3}, 5.)};
  expect_changing_derivatives([&](int& runs) {
    return [&](const at::Tensor& x) { return Cube::apply(x) * weights[runs++ % 2]; };
  });
}

TEST(KeptGradient, AFunctionThatChangesRunsEagerly) {
  expect_changing_derivatives([](int& runs) {
    return [&](const at::Tensor& x) {
      return ++runs % 2 == 1 ? Cube::apply(x) : Cube::apply(x.sin());
    };
  });
}

TEST(KeptGradient, WriteWithoutGradModeToAViewFromOutside) {
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

}  // namespace
}  // namespace ahead
