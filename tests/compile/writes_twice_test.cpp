#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "support/eager.h"
#include "support/hits.h"

/// Second derivatives through custom autograd functions whose backward writes to something: eager's
/// numbers, or an error that says why not, and nothing in between.
namespace ahead {
namespace writes_twice_test {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Cubes; the backward adds what it is given to its second argument.
struct CountsGradients : torch::autograd::Function<CountsGradients> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& buffer) {
    ctx->save_for_backward({x});
    ctx->saved_data["buffer"] = buffer;
    return x * x * x;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const Tensor x = ctx->get_saved_variables()[0];
    {
      const at::NoGradGuard no_grad;
      ctx->saved_data["buffer"].toTensor().add_(grads[0]);
    }
    return {grads[0] * x * x * 3, Tensor()};
  }
};

/// Cubes; the backward doubles the gradient that it is given, where it is, and halves the result.
struct ScalesIncoming : torch::autograd::Function<ScalesIncoming> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x) {
    ctx->save_for_backward({x});
    return x * x * x;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const Tensor x = ctx->get_saved_variables()[0];
    {
      const at::NoGradGuard no_grad;
      grads[0].mul_(2);
    }
    return {grads[0] * x * x * 1.5};
  }
};

constexpr const char* twice = "and a second derivative would do so again";

/// What two backwards leave: gradients, what was written to, and an error if there was one.
struct Outcome {
  Tensors tensors;
  std::string error;
};

/// Calls a function of a leaf and of a tensor that is written to, and differentiates twice.
template <class F>
Outcome differentiate_twice(F& function, int64_t call, bool writes_to_leaf) {
  const Tensor x = torch::linspace(0.5, 2, 4).add(static_cast<double>(call)).requires_grad_();
  const Tensor written = torch::zeros({4}).set_requires_grad(writes_to_leaf);
  const Tensor tangent = torch::full({4}, 0.5);
  Outcome outcome;
  try {
    const Tensor y = function(x, written);
    const Tensor first = torch::autograd::grad({y}, {x}, {tangent}, true, true)[0];
    outcome.tensors = {first.detach(), written.detach().clone(), tangent.clone()};
    const Tensor second = torch::autograd::grad({first.square().sum()}, {x})[0];
    for (const Tensor& left : {second, written.detach(), tangent}) outcome.tensors.push_back(left);
  } catch (const std::exception& error) {
    outcome.error = error.what();
  }
  return outcome;
}

/// Expects eager's numbers, or, if words are given, an error that has them, with what was there up
/// to then as in eager. One call is observed and runs as in eager; the others run from graphs.
template <class F>
void expect_numbers_or(const std::string& words, F function, bool writes_to_leaf = false) {
  auto compiled = compile(function, {.fullgraph = true, .confirm = Confirm::Never});
  for (int64_t call = 0; call < 3; ++call) {
    const Outcome expected = differentiate_twice(function, call, writes_to_leaf);
    const Outcome actual = differentiate_twice(compiled, call, writes_to_leaf);
    EXPECT_EQ(expected.error, "");
    if (call > 0 && !words.empty()) {
      EXPECT_NE(actual.error.find(words), std::string::npos) << actual.error;
    } else {
      EXPECT_EQ(actual.error, "");
      EXPECT_EQ(actual.tensors.size(), expected.tensors.size());
    }
    for (size_t i = 0; i < actual.tensors.size(); ++i)
      EXPECT_EQ(tensor_difference(expected.tensors[i], actual.tensors[i]), "") << call << " " << i;
  }
  expect_hits(compiled);
}

TEST(WritesTwice, ToABuffer) {
  expect_numbers_or(twice, [](const Tensor& x, const Tensor& buffer) {
    return CountsGradients::apply(x.sin(), buffer).cos();
  });
}

TEST(WritesTwice, ToABufferThatIsCaptured) {
  const Tensor buffer = torch::zeros({4});
  expect_numbers_or(twice, [buffer](const Tensor& x, const Tensor&) {
    return CountsGradients::apply(x, buffer);
  });
}

TEST(WritesTwice, ToAnInputThatRequiresGrad) {
  expect_numbers_or(
      "aot_autograd does not support input mutations with requires_grad",
      [](const Tensor& x, const Tensor& input) { return CountsGradients::apply(x, input); }, true);
}

TEST(WritesTwice, ToTheTangentOfAResult) {
  expect_numbers_or(twice,
                    [](const Tensor& x, const Tensor&) { return ScalesIncoming::apply(x.sin()); });
}

TEST(WritesTwice, ToAGradientInTheMiddle) {
  expect_numbers_or(
      "", [](const Tensor& x, const Tensor&) { return ScalesIncoming::apply(x.sin()).cos(); });
}

}  // namespace writes_twice_test
}  // namespace ahead
