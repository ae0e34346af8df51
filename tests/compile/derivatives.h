#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <vector>

#include "ahead/ahead.h"
#include "support/eager.h"
#include "support/hits.h"

/// Derivatives of any order of functions of one tensor, and custom functions to differentiate.
namespace ahead {

/// The sum of a function and its derivatives, until they depend on nothing any more.
template <class F>
std::vector<at::Tensor> derivatives(F&& f, const at::Tensor& x, int order) {
  std::vector<at::Tensor> all{f(x).sum()};
  for (int i = 0; i < order && all.back().requires_grad(); ++i) {
    all.push_back(torch::autograd::grad({all.back().sum()}, {x}, {}, /*retain_graph=*/true,
                                        /*create_graph=*/true, /*allow_unused=*/true)[0]);
    if (!all.back().defined()) break;
  }
  return all;
}

/// Expects derivatives to take the random numbers that the function drew, as eager's do.
template <class F>
void expect_derivatives_with_random_numbers(const F& f) {
  auto compiled = compile(f, {.fullgraph = true, .confirm = 0});
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = leaf({16});
    torch::manual_seed(call);
    const std::vector<at::Tensor> expected = derivatives(f, x, 3);
    torch::manual_seed(call);
    expect_same(expected, derivatives(compiled, x, 3));
  }
  expect_hits(compiled);
}

/// Expects the derivatives of a compiled function to be eager's, whatever is saved and computed
/// again.
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

/// A custom function whose gradient is the right one.
struct Cube : torch::autograd::Function<Cube> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x * x * x;
  }
  static std::vector<at::Tensor> backward(torch::autograd::AutogradContext* context,
                                          const std::vector<at::Tensor>& gradients) {
    const at::Tensor x = context->get_saved_variables()[0];
    return {gradients[0] * 3 * x * x};
  }
};

/// A custom function whose backward is one, whose backward says something else than its forward.
struct SineSlope : torch::autograd::Function<SineSlope> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& gradient,
                            const at::Tensor& x) {
    context->save_for_backward({gradient, x});
    return gradient * x.cos();
  }
  static std::vector<at::Tensor> backward(torch::autograd::AutogradContext* context,
                                          const std::vector<at::Tensor>& gradients) {
    const std::vector<at::Tensor> saved = context->get_saved_variables();
    return {gradients[0] * saved[1].cos(), gradients[0] * saved[0] * saved[1].sin() * -2};
  }
};

struct Sine : torch::autograd::Function<Sine> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x.sin();
  }
  static std::vector<at::Tensor> backward(torch::autograd::AutogradContext* context,
                                          const std::vector<at::Tensor>& gradients) {
    return {SineSlope::apply(gradients[0], context->get_saved_variables()[0])};
  }
};

}  // namespace ahead
