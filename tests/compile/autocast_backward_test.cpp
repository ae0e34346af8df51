#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"

namespace ahead {
namespace {

/// Autocast on for a scope.
struct Autocast {
  Autocast() { at::autocast::set_autocast_enabled(at::kCPU, true); }
  ~Autocast() {
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
  }
};

template <class Function>
std::vector<at::Tensor> gradients(Function& function, bool backward_inside) {
  torch::manual_seed(0);
  const at::Tensor x = torch::randn({4, 8}).requires_grad_();
  const at::Tensor w = torch::randn({8, 3}).requires_grad_();
  std::optional<Autocast> autocast(std::in_place);
  const at::Tensor y = function(x, w);
  if (!backward_inside) autocast.reset();
  y.sum().backward();
  return {x.grad(), w.grad()};
}

template <class Function>
void expect_as_eager(Function& function, Options options) {
  auto compiled = compile(function, std::move(options));
  for (const bool inside : {false, true, false}) {
    const auto expected = gradients(function, inside), actual = gradients(compiled, inside);
    EXPECT_TRUE(at::equal(expected[0], actual[0])) << inside;
    EXPECT_TRUE(at::equal(expected[1], actual[1])) << inside;
  }
}

TEST(AutocastBackward, IsTheSameInsideAndOutsideForLayers) {
  auto function = [](const at::Tensor& x, const at::Tensor& w) {
    return torch::softmax(torch::gelu(x.mm(w)), 1).mm(w.t()).pow(2);
  };
  expect_as_eager(function, {.fullgraph = true});
}

/// Multiplies matrices of floats in its backward.
struct Product : torch::autograd::Function<Product> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& w) {
    context->save_for_backward({x, w});
    return x.mm(w);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor gradient = gradients[0].to(at::kFloat);
    return {gradient.mm(saved[1].t()), saved[0].t().mm(gradient)};
  }
};

TEST(AutocastBackward, RunsEagerlyWhereAutocastWouldCast) {
  auto function = [](const at::Tensor& x, const at::Tensor& w) {
    return Product::apply(x, w).sin();
  };
  expect_as_eager(function, {});
  auto whole = compile(function, {.fullgraph = true});
  EXPECT_THROW(gradients(whole, false), Unsupported);
}

}  // namespace
}  // namespace ahead
