#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include "conformance/aot_support.h"
#include "models/models.h"

namespace ahead::conformance {
namespace aot_15_autocast_test {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Autocast on or off for a scope.
class AutocastSwitch {
 public:
  explicit AutocastSwitch(bool enabled) {
    at::autocast::set_autocast_enabled(at::kCPU, enabled);
    at::autocast::increment_nesting();
  }
  ~AutocastSwitch() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, before_);
  }
  AutocastSwitch(const AutocastSwitch&) = delete;
  AutocastSwitch& operator=(const AutocastSwitch&) = delete;

 private:
  const bool before_ = at::autocast::is_autocast_enabled(at::kCPU);
};

at::Tensor call_plain(const at::Tensor& x) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("ahead_autocast_test::plain", "")
                             .typed<at::Tensor(const at::Tensor&)>();
  return op.call(x);
}

/// Zeros; one more under autocast.
at::Tensor plain_under_autocast(const at::Tensor& x) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCPU);
  return call_plain(x) + 1;
}

TORCH_LIBRARY(ahead_autocast_test, m) {
  m.def("plain(Tensor x) -> Tensor");
}
TORCH_LIBRARY_IMPL(ahead_autocast_test, CPU, m) {
  m.impl("plain", [](const at::Tensor& x) { return at::zeros_like(x); });
}
TORCH_LIBRARY_IMPL(ahead_autocast_test, Meta, m) {
  m.impl("plain", [](const at::Tensor& x) { return at::empty_like(x); });
}
TORCH_LIBRARY_IMPL(ahead_autocast_test, AutocastCPU, m) {
  m.impl("plain", plain_under_autocast);
}

/// Calls the operator in its forward, and in its backward.
struct CallsPlain : torch::autograd::Function<CallsPlain> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return call_plain(x); }
  static variable_list backward(AutogradContext*, variable_list gradients) {
    return {call_plain(gradients[0])};
  }
};

/// The result and the gradient of the function with autocast switched off inside, for that choice.
void expect_backward_under(const BackwardAutocastChoice& choice, bool forward_autocast,
                           double gradient) {
  auto compiled = compile(
      [](const at::Tensor& x) {
        const AutocastSwitch off(false);
        return CallsPlain::apply(x);
      },
      {.fullgraph = true, .confirm = Confirm::Never, .backward_autocast = choice});
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = leaf({4});
    at::Tensor out;
    {
      const AutocastSwitch outside(forward_autocast);
      out = compiled(x);
    }
    EXPECT_TRUE(same_values(out, at::zeros({4})));
    out.sum().backward();
    if (call == 0) continue;  // observed: its backward is eager's own
    EXPECT_TRUE(same_values(x.grad(), at::full({4}, gradient))) << x.grad();
  }
  expect_hits(compiled);
}

TEST(AotAutocast, test_backward_pass_autocast_on) {
  expect_backward_under(BackwardAutocast::SameAsForward, /*forward_autocast=*/true, 1);
}

TEST(AotAutocast, test_backward_pass_autocast_off) {
  expect_backward_under(BackwardAutocast::Off, /*forward_autocast=*/true, 0);
}

TEST(AotAutocast, test_backward_pass_autocast_custom) {
  const std::vector<AutocastSetting> settings{{at::kCPU, at::kBFloat16}};
  expect_backward_under(BackwardAutocastChoice(settings), /*forward_autocast=*/false, 1);
}

/// Calls a function under autocast, eagerly and compiled, and compares results and gradients.
void expect_as_eager_under_autocast(const aot::FlatFunction& f, const Tensors& inputs,
                                    at::ScalarType dtype) {
  auto compiled = compile(f, {.fullgraph = true, .confirm = Confirm::Never});
  for (int call = 0; call < 3; ++call) {
    const Tensors eager = with_grad(inputs), own = with_grad(inputs);
    at::Tensor expected, actual;
    {
      const AutocastSwitch on(true);
      expected = f(eager)[0];
      actual = compiled(own)[0];
    }
    EXPECT_EQ(actual.scalar_type(), dtype);
    EXPECT_EQ(tensor_difference(expected, actual), "");
    expected.sum().backward();
    actual.sum().backward();
    for (size_t i = 0; i < inputs.size(); ++i)
      EXPECT_EQ(tensor_difference(eager[i].grad(), own[i].grad()), "") << i;
  }
  expect_hits(compiled);
}

TEST(AotAutocast, test_autocast_disable_guard) {
  expect_as_eager_under_autocast(
      [](const Tensors& in) -> Tensors {
        const AutocastSwitch off(false);
        return {in[0].mm(in[1])};
      },
      {at::randn({3, 4}), at::randn({4, 2})}, at::kFloat);
}

TEST(AotAutocast, test_nonidempotent_amp) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    return {at::einsum("abc,bd->acd", {in[0], in[1]}).log_softmax(-1)};
  };
  expect_as_eager_under_autocast(f, {at::randn({2, 3, 4}), at::randn({3, 5})}, at::kBFloat16);
  expect_as_eager_under_autocast(f, {at::randn({2, 3, 4}), at::randn({3, 5}).to(at::kBFloat16)},
                                 at::kBFloat16);
}

TEST(AotAutocast, test_autocast) {
  torch::manual_seed(1);
  models::ResNet net(/*depth=*/4, /*channels=*/8, /*classes=*/5);
  net->eval();
  const at::Tensor images = at::randn({2, 3, 8, 8}), targets = at::randint(5, {2});
  auto compiled = compile(net, {.fullgraph = true, .confirm = Confirm::Never});
  const auto gradients = [&](auto&& call) {
    at::Tensor loss;
    {
      const AutocastSwitch on(true);
      loss = call();
    }
    return torch::autograd::grad({loss}, net->parameters());
  };
  for (int call = 0; call < 3; ++call) {
    const Tensors expected = gradients([&] { return net->forward(images, targets); });
    const Tensors actual = gradients([&] { return compiled(images, targets); });
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_EQ(tensor_difference(expected[i], actual[i]), "") << "parameter " << i;
  }
  expect_hits(compiled);
}

}  // namespace aot_15_autocast_test
}  // namespace ahead::conformance
