#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "support/hits.h"

namespace ahead {
namespace autocast_backward_test {

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
  gradients(compiled, true);
  for (const bool inside : {false, true, false}) {
    const auto expected = gradients(function, inside), actual = gradients(compiled, inside);
    EXPECT_TRUE(at::equal(expected[0], actual[0])) << inside;
    EXPECT_TRUE(at::equal(expected[1], actual[1])) << inside;
  }
  expect_hits(compiled);
}

TEST(AutocastBackward, IsTheSameInsideAndOutsideForLayers) {
  auto function = [](const at::Tensor& x, const at::Tensor& w) {
    return torch::softmax(torch::gelu(x.mm(w)), 1).mm(w.t()).pow(2);
  };
  expect_as_eager(function, {.fullgraph = true, .confirm = 0});
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

auto product() {
  return [](const at::Tensor& x, const at::Tensor& w) { return Product::apply(x, w).sin(); };
}

TEST(AutocastBackward, CastsWhereEagerWould) {
  auto function = product();
  expect_as_eager(function, {.fullgraph = true, .confirm = 0});
  expect_as_eager(function, {.fullgraph = true, .partitioner = Partitioner::Default, .confirm = 0});
  EXPECT_FALSE(at::equal(gradients(function, false)[0], gradients(function, true)[0]));
}

TEST(AutocastBackward, WithoutSecondDerivativesCastsAreRefused) {
  auto function = product();
  auto whole = compile(function, {.fullgraph = true, .confirm = 0, .double_backward = false});
  EXPECT_THROW(gradients(whole, false), Unsupported);
}

/// The forward outside of autocast, the backward inside.
template <class Function>
std::vector<at::Tensor> gradients_of_outside(Function& function) {
  torch::manual_seed(0);
  const at::Tensor x = torch::randn({4, 8}).requires_grad_();
  const at::Tensor w = torch::randn({8, 3}).requires_grad_();
  const at::Tensor y = function(x, w);
  const Autocast autocast;
  y.sum().backward();
  return {x.grad(), w.grad()};
}

TEST(AutocastBackward, InsideThoughTheForwardWasOutside) {
  auto function = [](const at::Tensor& x, const at::Tensor& w) { return x.mm(w).sin(); };
  auto compiled = compile(function, {.fullgraph = true, .confirm = 0});
  const auto expected = gradients_of_outside(function);
  EXPECT_FALSE(at::equal(expected[0], gradients(function, false)[0]));
  for (int call = 0; call < 3; ++call) {
    const auto actual = gradients_of_outside(compiled);
    EXPECT_TRUE(at::equal(expected[0], actual[0]));
    EXPECT_TRUE(at::equal(expected[1], actual[1]));
  }
  expect_hits(compiled);
  auto once = compile(function, {.fullgraph = true, .confirm = 0, .double_backward = false});
  gradients_of_outside(once);
  EXPECT_THROW(gradients_of_outside(once), Unsupported);
}

TEST(AutocastBackward, InsideWithoutAnythingToCast) {
  auto function = [](const at::Tensor& x, const at::Tensor& w) { return (x * 2).sin() + w.sum(); };
  auto compiled = compile(function, {.fullgraph = true, .confirm = 0, .double_backward = false});
  for (int call = 0; call < 2; ++call)
    EXPECT_TRUE(at::equal(gradients_of_outside(function)[0], gradients_of_outside(compiled)[0]));
  expect_hits(compiled);
}

/// Compares a compiled function, wherever its backward is called, with an eager backward that is
/// called where the option says.
template <class Function>
void expect_always(BackwardAutocastChoice choice, Function& function,
                   const std::vector<at::Tensor>& expected) {
  auto compiled =
      compile(function, {.fullgraph = true, .confirm = 0, .backward_autocast = std::move(choice)});
  gradients(compiled, true);  // observed: eager's backward, as it is called
  for (const bool inside : {false, true, false}) {
    const auto actual = gradients(compiled, inside);
    EXPECT_TRUE(at::equal(expected[0], actual[0])) << inside;
    EXPECT_TRUE(at::equal(expected[1], actual[1])) << inside;
    EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  }
  expect_hits(compiled);
}

TEST(AutocastBackward, AsTheOptionSays) {
  auto function = product();
  expect_always(BackwardAutocast::SameAsForward, function, gradients(function, true));
  expect_always(BackwardAutocast::Off, function, gradients(function, false));
}

TEST(AutocastBackward, UnderGivenSettings) {
  auto function = product();
  const at::ScalarType before = at::autocast::get_autocast_dtype(at::kCPU);
  torch::manual_seed(0);
  const at::Tensor x = torch::randn({4, 8}).requires_grad_();
  const at::Tensor w = torch::randn({8, 3}).requires_grad_();
  std::optional<Autocast> autocast(std::in_place);
  const at::Tensor loss = function(x, w).sum();
  at::autocast::set_autocast_dtype(at::kCPU, at::kHalf);
  loss.backward();
  at::autocast::set_autocast_dtype(at::kCPU, before);
  autocast.reset();
  expect_always(std::vector<AutocastSetting>{{at::kCPU, at::kHalf}}, function,
                {x.grad(), w.grad()});
  expect_always(std::vector<AutocastSetting>{}, function, gradients(function, false));
  EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), before);
}

TEST(AutocastBackward, SettingsNameDevicesThatHaveAutocast) {
  auto function = product();
  auto compiled = compile(
      function,
      {.confirm = 0, .backward_autocast = std::vector<AutocastSetting>{{at::kMeta, at::kHalf}}});
  EXPECT_THROW(gradients(compiled, false), UserError);
}

/// A gradient penalty, all of whose derivatives are taken inside or outside of autocast.
template <class Function>
at::Tensor penalty(Function& function, bool inside) {
  torch::manual_seed(0);
  const at::Tensor x = torch::randn({4, 8}).requires_grad_();
  const at::Tensor w = torch::randn({8, 3}).requires_grad_();
  std::optional<Autocast> autocast(std::in_place);
  const at::Tensor y = function(x, w);
  if (!inside) autocast.reset();
  const at::Tensor gradient = torch::autograd::grad({y.sum()}, {x}, {}, true, true)[0];
  gradient.pow(2).sum().backward();
  return w.grad();
}

TEST(AutocastBackward, SecondDerivativesInsideAndOutside) {
  auto function = [](const at::Tensor& x, const at::Tensor& w) {
    at::autocast::set_autocast_enabled(at::kCPU, false);
    const at::Tensor exact = x.mm(w);  // must not be cast when it is replayed
    at::autocast::set_autocast_enabled(at::kCPU, true);
    return (exact + x.mm(w)).sin();
  };
  auto compiled = compile(function, {.fullgraph = true, .confirm = 0});
  for (const bool inside : {true, false, true, false})
    EXPECT_TRUE(at::equal(penalty(function, inside), penalty(compiled, inside))) << inside;
  expect_hits(compiled);
}

TEST(AutocastBackward, InsideCompiledAutograd) {
  auto function = [](const at::Tensor& x, const at::Tensor& w) { return x.mm(w).sin(); };
  auto compiled = compile(function, {.fullgraph = true, .confirm = 0});
  const compiled_autograd::Enable on;
  for (int call = 0; call < 2; ++call) {
    for (const bool inside : {false, true}) {
      EXPECT_TRUE(at::equal(gradients(function, inside)[1], gradients(compiled, inside)[1]));
    }
    EXPECT_TRUE(at::equal(gradients_of_outside(function)[1], gradients_of_outside(compiled)[1]));
  }
  expect_hits(compiled, 2);
}

}  // namespace autocast_backward_test
}  // namespace ahead
