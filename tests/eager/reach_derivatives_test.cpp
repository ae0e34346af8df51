#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "eager/reach.h"

/// Hooks of tensors that not all results lead to, where backwards are differentiated again and
/// where arguments have a history.
namespace ahead::test {
namespace reach_derivatives_test {

using torch::autograd::variable_list;

/// A gradient penalty of one head while leaves of the other have hooks.
TEST(Reach, GradientPenalty) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    TwoHeads net;
    HookCalls calls;
    calls.watch("trunk", *net.trunk);
    calls.watch("left", *net.left);
    calls.watch("right", *net.right);
    auto heads = wrap([net](const at::Tensor& x) { return net(x); });
    for (int call = 0; call < 24; ++call) {
      const at::Tensor x = leaf({5, 3});
      const auto [l, r] = heads(x);
      const at::Tensor head = call % 2 == 0 ? l : r;
      const at::Tensor gradient =
          torch::autograd::grad({head.tanh().sum()}, {x}, {}, true, /*create_graph=*/true)[0];
      gradient.square().sum().backward();
      for (const at::Tensor& parameter : net.parameters()) log.close("parameter", parameter);
      log.close("x", x);
      calls.show_close(log);
    }
  });
  expect_hits(outcome);
}

/// A backward that keeps its history accumulates gradients with one.
TEST(Reach, BackwardWithHistory) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor a = leaf({3}), b = leaf({3});
    HookCalls calls;
    calls.watch("a", a);
    calls.watch("b", b);
    auto two = wrap([a, b](const at::Tensor& x) {
      const at::Tensor first = (a * x).exp();
      return std::make_tuple(first, (first * b).sigmoid());
    });
    for (int call = 0; call < 24; ++call) {
      const auto [first, second] = two(at::randn({2, 3}));
      const std::vector<at::Tensor> gradients =
          torch::autograd::grad({(call % 2 == 0 ? first : second).sum()}, {a, b}, {}, true,
                                /*create_graph=*/true, /*allow_unused=*/true);
      calls.show_close(log);
      at::Tensor penalty = gradients[0].square().sum();
      if (call % 4 == 3) penalty = penalty + gradients[1].square().sum();
      penalty.backward();
      log.close("a", a);
      log.close("b", b);
      calls.show_close(log);
    }
  });
  expect_hits(outcome);
}

/// Doubles, and has another idea of its gradient.
struct Reversed : torch::autograd::Function<Reversed> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x * 2;
  }
  static variable_list backward(torch::autograd::AutogradContext* context,
                                variable_list gradients) {
    return {-gradients[0] * context->get_saved_variables()[0].square()};
  }
};

TEST(Reach, SecondDerivativesOfACustomFunction) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor a = leaf({3}), b = leaf({3});
    HookCalls calls;
    calls.watch("a", a);
    calls.watch("b", b);
    auto two = wrap([](const at::Tensor& x, const at::Tensor& a, const at::Tensor& b) {
      const at::Tensor inner = Reversed::apply(x);
      return std::make_tuple((inner * a).exp(), (inner * b).sigmoid());
    });
    for (int call = 0; call < 24; ++call) {
      const at::Tensor x = leaf({3});
      const auto [first, second] = two(x, a, b);
      const at::Tensor loss = call % 3 == 0   ? first.sum()
                              : call % 3 == 1 ? second.sum()
                                              : (first * second).sum();
      const std::vector<at::Tensor> gradients = torch::autograd::grad(
          {loss}, {x, a, b}, {}, true, /*create_graph=*/true, /*allow_unused=*/true);
      calls.show_close(log);
      gradients[0].square().sum().backward();
      log.close("x", x);
      log.close("a", a);
      log.close("b", b);
      calls.show_close(log);
    }
  });
  expect_hits(outcome);
}

/// What an argument was computed from has hooks.
TEST(Reach, ArgumentsWithAHistory) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor a = leaf({3}), b = leaf({3});
    HookCalls calls;
    calls.watch("a", a);
    calls.watch("b", b);
    auto two = wrap([](const at::Tensor& x, const at::Tensor& y) {
      return std::make_tuple(x.sin(), x.cos() * y);
    });
    for (int call = 0; call < 24; ++call) {
      const auto [first, second] = two(a.exp(), b.exp());
      (call % 2 == 0 ? first : second).sum().backward();
      log("a", a);
      log("b", b);
      calls.show(log);
    }
  });
  expect_hits(outcome);
}

/// Its gradient would be zeros rather than none.
TEST(Reach, ArgumentsOfACustomFunction) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor a = leaf({3}), b = leaf({3});
    auto two = wrap([](const at::Tensor& x, const at::Tensor& y) {
      return std::make_tuple(x.sin(), x.cos() * y);
    });
    for (int call = 0; call < 24; ++call) {
      a.mutable_grad() = b.mutable_grad() = at::Tensor();
      const auto [first, second] = two(Reversed::apply(a), Reversed::apply(b));
      (call % 2 == 0 ? first : second).sum().backward();
      log("a", a);
      log("b", b);
    }
  });
  expect_hits(outcome);
}

/// The history of an argument was released, but nothing goes there.
TEST(Reach, ArgumentsWithAReleasedHistory) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor a = leaf({3}), b = leaf({3});
    auto two = wrap([](const at::Tensor& x, const at::Tensor& y) {
      return std::make_tuple(x.sin(), x.cos() * y);
    });
    for (int call = 0; call < 24; ++call) {
      const at::Tensor old = b.exp();
      old.sum().backward();
      const auto [first, second] = two(a, old);
      first.sum().backward();
      log("a", a);
      log("b", b);
    }
  });
  expect_hits(outcome);
}

}  // namespace reach_derivatives_test
}  // namespace ahead::test
