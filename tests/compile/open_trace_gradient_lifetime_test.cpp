#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "compile/derivatives.h"

/// What a kept gradient holds and for how long, and functions that do not stay what they were.
namespace ahead {
namespace open_trace_gradient_lifetime_test {

using Tensors = std::vector<at::Tensor>;
using torch::autograd::AutogradContext;
using torch::autograd::grad;

TEST(OpenTraceGradient, TakesRandomNumbersFromTheFirstRun) {
  const auto f = [](const at::Tensor& x) {
    return Cube::apply(torch::dropout(x.exp(), 0.5, true)) * torch::dropout(x.detach(), 0.5, true);
  };
  expect_derivatives_with_random_numbers(f);
}

TEST(OpenTraceGradient, ReleasesWhatItHoldsAsEagerDoes) {
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

TEST(OpenTraceGradient, NoticesWritesToWhatItNeeds) {
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

TEST(OpenTraceGradient, KeepsNoArguments) {
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

TEST(OpenTraceGradient, IsGoneWithTheFunction) {
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

TEST(OpenTraceGradient, FindsReplacedParameters) {
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

TEST(OpenTraceGradient, ABackwardThatChangesWhatItSaved) {
  const auto f = [](const at::Tensor& x) { return Doubling::apply(x.sin()).sum(); };
  auto compiled = compile(f, {.confirm = 0});
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = leaf({3});
    const at::Tensor expected = f(x), actual = compiled(x);
    for (int i = 0; i < 3; ++i)
      expect_same(grad({expected}, {x}, {}, true, true), grad({actual}, {x}, {}, true, true));
  }
}

TEST(OpenTraceGradient, AHookThatComesLater) {
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

TEST(OpenTraceGradient, AFunctionThatTakesOtherTensorsRunsEagerly) {
  const Tensors weights = {at::full({3}, 2.), at::full({3}, 5.)};
  expect_changing_derivatives([&](int& runs) {
    return [&](const at::Tensor& x) { return Cube::apply(x) * weights[runs++ % 2]; };
  });
}

TEST(OpenTraceGradient, AFunctionThatChangesRunsEagerly) {
  expect_changing_derivatives([](int& runs) {
    return [&](const at::Tensor& x) {
      return ++runs % 2 == 1 ? Cube::apply(x) : Cube::apply(x.sin());
    };
  });
}

}  // namespace open_trace_gradient_lifetime_test
}  // namespace ahead
