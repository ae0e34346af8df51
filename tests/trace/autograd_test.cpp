#include "support/trace_check.h"

#include <gtest/gtest.h>

namespace ahead {
namespace autograd_test {

using at::Tensor;
using Tensors = std::vector<at::Tensor>;
using Kind = Slot::Kind;
using torch::autograd::AutogradContext;

/// Scales, but its gradient is deliberately not that of scaling: only its own backward gives it.
struct Odd : torch::autograd::Function<Odd> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& w) {
    context->save_for_backward({x, w});
    return x * w;
  }
  static Tensors backward(AutogradContext* context, Tensors gradients) {
    auto saved = context->get_saved_variables();
    return {gradients[0] * saved[1] * 5,
            (gradients[0] * saved[0] * 7).sum_to_size(saved[1].sizes())};
  }
};

/// Takes a parameter that its forward never computes with.
struct OnlyInBackward : torch::autograd::Function<OnlyInBackward> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& w) {
    context->save_for_backward({w});
    return x.sin();
  }
  static Tensors backward(AutogradContext* context, Tensors gradients) {
    Tensor w = context->get_saved_variables()[0];
    return {gradients[0] * 2, w * gradients[0].sum()};
  }
};

TEST(Autograd, CustomFunctionOfArguments) {
  auto graph = expect_like_eager([] {
    return Scene{[](const Tensors& in) { return Tensors{Odd::apply(in[0], in[1]).exp()}; },
                 {leaf({2, 3}), leaf({3})},
                 {},
                 {}};
  });
  EXPECT_GT(graph.num_nodes(), 4u);
}

TEST(Autograd, CustomFunctionOfACapturedParameter) {
  expect_like_eager([] {
    Tensor w = leaf({3});
    return Scene{
        [w](const Tensors& in) { return Tensors{Odd::apply(in[0], w)}; }, {leaf({2, 3})}, {w}, {}};
  });
}

TEST(Autograd, CustomFunctionOfAParameterUsedOnlyInItsBackward) {
  expect_like_eager([] {
    Tensor w = leaf({3});
    return Scene{[w](const Tensors& in) { return Tensors{OnlyInBackward::apply(in[0], w)}; },
                 {leaf({2, 3})},
                 {w},
                 {}};
  });
}

TEST(Autograd, DetachAndNoGrad) {
  expect_like_eager([] {
    return Scene{[](const Tensors& in) {
                   Tensor y;
                   {
                     torch::NoGradGuard no_grad;
                     y = in[0].exp();
                   }
                   Tensor z = in[0].detach() * y;
                   return Tensors{z, in[0] * z, y};
                 },
                 {leaf({3})},
                 {},
                 {}};
  });
}

TEST(Autograd, HookOnAnIntermediate) {
  expect_like_eager([] {
    Tensor scale = torch::full({3}, 4.0);
    return Scene{[scale](const Tensors& in) {
                   Tensor y = in[0].sin();
                   y.register_hook([scale](const Tensor& grad) { return grad * scale; });
                   return Tensors{y.exp()};
                 },
                 {leaf({3})},
                 {scale},
                 {}};
  });
}

TEST(Autograd, GradInsideWithRespectToAnArgument) {
  expect_like_eager([] {
    return Scene{[](const Tensors& in) {
                   Tensor y = in[0].pow(4).sum();
                   Tensor g = torch::autograd::grad({y}, {in[0]}, {}, true, true)[0];
                   Tensor h = torch::autograd::grad({g.sum()}, {in[0]}, {}, true, true)[0];
                   return Tensors{(h * in[0]).sum(), g};
                 },
                 {leaf({3})},
                 {},
                 {}};
  });
}

TEST(Autograd, GradInsideWithRespectToACapturedParameter) {
  expect_like_eager([] {
    Tensor w = leaf({3});
    return Scene{[w](const Tensors& in) {
                   Tensor loss = (in[0] * w).sin().sum();
                   Tensor g = torch::autograd::grad({loss}, {w}, {}, true, true)[0];
                   return Tensors{(w - 0.1 * g).pow(2).sum()};
                 },
                 {leaf({3})},
                 {w},
                 {}};
  });
}

TEST(Autograd, BackwardInsideSetsGradOfCapturedParameters) {
  auto graph = expect_like_eager([] {
    Tensor w = leaf({3});
    return Scene{[w](const Tensors& in) {
                   Tensor loss = (in[0] * w).sin().sum();
                   loss.backward();
                   return Tensors{loss.detach(), w.grad() * 2};
                 },
                 {torch::ones({3})},
                 {w},
                 {}};
  });
  bool accumulated = false;
  for (const auto& output : graph.outputs())
    accumulated |= output.slot.kind == Kind::AccumulatedGrad;
  EXPECT_TRUE(accumulated);
}

TEST(Autograd, BackwardInsideAccumulatesIntoAnExistingGrad) {
  expect_like_eager([] {
    Tensor w = leaf({3});
    w.mutable_grad() = torch::full({3}, 2.0);
    return Scene{[w](const Tensors& in) {
                   Tensor loss = (in[0] * w).sin().sum();
                   loss.backward();
                   return Tensors{loss.detach()};
                 },
                 {torch::ones({3})},
                 {w},
                 {}};
  });
}

TEST(Autograd, BackwardInsideSetsGradOfArguments) {
  expect_like_eager([] {
    return Scene{[](const Tensors& in) {
                   in[0].pow(3).sum().backward();
                   return Tensors{in[0].grad().clone()};
                 },
                 {leaf({3})},
                 {},
                 {}};
  });
}

TEST(Autograd, BackwardInsideThatLeavesTheFunctionIsRefused) {
  Tensor p = leaf({3});
  Tensor x = as_non_leaf(p);
  try {
    trace(
        [](const Tensors& in) {
          in[0].sum().backward();
          return Tensors{};
        },
        {x});
    FAIL();
  } catch (const Unsupported& error) {
    EXPECT_NE(std::string(error.what()).find("not a leaf"), std::string::npos) << error.what();
  }
  EXPECT_FALSE(p.grad().defined());
}

TEST(Autograd, HooksOnOutsideParametersStayOutside) {
  int calls = 0;
  Tensor w = leaf({3});
  w.register_hook([&calls](const Tensor& grad) {
    ++calls;
    return grad * 100;
  });
  auto joint = trace_joint([w](const Tensors& in) { return Tensors{(in[0] * w).sum()}; },
                           {torch::ones({3})});
  EXPECT_EQ(calls, 0);
  auto results = interpret(joint, {torch::ones({3}), torch::ones({})});
  EXPECT_TRUE(results.back().equal(torch::ones({3})));
}

TEST(Autograd, InferenceMode) {
  expect_like_eager([] {
    return Scene{[](const Tensors& in) {
                   c10::InferenceMode mode;
                   return Tensors{in[0].sin() * 2};
                 },
                 {leaf({3})},
                 {},
                 {}};
  });
}

TEST(Autograd, OutputsThatAreInputsAndDuplicates) {
  expect_like_eager([] {
    return Scene{[](const Tensors& in) {
                   Tensor y = in[0] * in[1];
                   return Tensors{in[0], y, y, in[1].view({-1}), Tensor()};
                 },
                 {leaf({2, 2}), leaf({2, 2})},
                 {},
                 {}};
  });
}

TEST(Autograd, UnusedInputsHaveNoGradient) {
  auto graph = expect_like_eager([] {
    return Scene{
        [](const Tensors& in) { return Tensors{in[0] * 2}; }, {leaf({2}), leaf({3})}, {}, {}};
  });
  const int64_t position = graph.find_output({Kind::GradOf, 1});
  ASSERT_GE(position, 0);
  EXPECT_EQ(graph.outputs()[static_cast<size_t>(position)].value, nullptr);
}

TEST(Autograd, PhasesAndSequenceNumbers) {
  auto graph =
      trace_joint([](const Tensors& in) { return Tensors{in[0].sin().exp()}; }, {leaf({2})});
  EXPECT_EQ(graph.first()->phase, Phase::Forward);
  EXPECT_EQ(graph.last()->phase, Phase::Backward);
  EXPECT_EQ(graph.last()->sequence, graph.first()->sequence);
  ASSERT_NE(graph.last()->provenance, nullptr);
  EXPECT_EQ(*graph.last()->provenance, "SinBackward0");
}

TEST(Autograd, GradientByCapturedTensorThatIsNoLeaf) {
  expect_like_eager([] {
    const Tensor x = leaf({3}) * 1;
    const auto function = [x](const Tensors&) -> Tensors {
      const Tensor y = (x * x * x).sum();
      return torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true);
    };
    return Scene{function, {}, {x}, {}};
  });
}

TEST(Autograd, GradientByLeafThatCapturedTensorWasMadeFrom) {
  const Tensor leaf = at::full({3}, 2.0).requires_grad_();
  const Tensor x = leaf * 3;
  const auto function = [=](const Tensors&) -> Tensors {
    return torch::autograd::grad({(x * x).sum()}, {leaf}, {}, /*retain_graph=*/true);
  };
  const Graph graph = trace(function, {});
  const Tensors results = interpret(graph, {});
  EXPECT_TRUE(at::equal(results[0], at::full({3}, 36.0)));
}

TEST(Autograd, GradientByCapturedTensorAfterWritingToIt) {
  const Tensor x = leaf({3}) * 1, start = x.detach().clone();
  const auto* history = x.grad_fn().get();
  const auto function = [x](const Tensors&) -> Tensors {
    x.neg_();
    return torch::autograd::grad({(x * x).sum()}, {x}, {}, /*retain_graph=*/true);
  };
  const Graph graph = trace(function, {});
  EXPECT_EQ(x.grad_fn().get(), history);
  EXPECT_TRUE(at::equal(interpret(graph, {})[1], -2 * start));
}

TEST(Autograd, GradientByArgumentThatIsCapturedToo) {
  const Tensor x = at::full({3}, 2.0).requires_grad_();
  const auto function = [x](const Tensors& in) -> Tensors {
    const Tensor y = (in[0] * in[0]).sum();
    return {torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true)[0],
            torch::autograd::grad({y}, {in[0]})[0]};
  };
  const Graph graph = trace(function, {x});
  EXPECT_FALSE(x.grad().defined());
  for (const Tensor& result : interpret(graph, {x}))
    EXPECT_TRUE(at::equal(result, at::full({3}, 4.0)));
}

TEST(Autograd, CapturedTensorThatGetsAGradientAndIsReturned) {
  const Tensor captured = at::randn({2});
  const auto function = [&](const Tensors& in) -> Tensors {
    captured.add_(in[0], 2);
    return {captured};
  };
  const JointGraph graph = trace_joint(function, Tensors{at::randn({2}).set_requires_grad(true)});
  size_t tangents = 0;
  for (const Graph::Input& input : graph.inputs()) {
    tangents += input.slot.kind == Slot::Kind::Tangent ? 1 : 0;
  }
  EXPECT_EQ(tangents, 2u) << "one of what was written, one of what was returned";
}

TEST(Autograd, GradientsOfExtremaHaveTheSignsAndLayoutOfEager) {
  expect_like_eager([] {
    const Tensor x = at::randn({4, 3}, at::make_generator<at::CPUGeneratorImpl>(1)).t();
    const auto function = [](const Tensors& in) -> Tensors {
      return {-at::max(in[0]), at::min(in[0]), -at::median(in[0])};
    };
    return Scene{function, {x.detach().requires_grad_()}, {}, {}};
  });
}

TEST(Autograd, GradientOfClampThatEagerRefuses) {
  const auto function = [](const Tensors& in) -> Tensors {
    return {at::clamp(in[0], in[1], in[0])};
  };
  const Tensors inputs = {at::zeros({}).requires_grad_(), at::zeros({1})};
  EXPECT_THROW(function(inputs)[0].sum().backward(), c10::Error);
  EXPECT_THROW(trace_joint(function, inputs), c10::Error);
}

TEST(Autograd, RefusesGradientsOfIntegerViews) {
  const auto function = [](const Tensors& in) -> Tensors {
    at::argsort(in[0]).view({2}).eq_(in[0]);
    return {};
  };
  EXPECT_THROW(trace_joint(function, {at::zeros({2}).requires_grad_()}), Unsupported);
}

TEST(Autograd, OrderOfGradientsOfWrittenViews) {
  expect_like_eager([] {
    const Tensor leaf = at::zeros({8, 8}).requires_grad_();
    const auto function = [](const Tensors& in) -> Tensors {
      const Tensor joined = at::cat({in[0], in[0]}, 0);
      in[0].tril_();
      return {joined};
    };
    return Scene{function, {(leaf * 1).narrow(0, 0, 8)}, {}, {leaf}};
  });
}

TEST(Autograd, GradientsThroughViewsOfTensorsWrittenLater) {
  expect_like_eager([] {
    const auto function = [](const Tensors& in) -> Tensors {
      const Tensor a = at::hardsigmoid(in[0]), b = in[0] * 2;
      const Tensor turned = a.transpose(0, 1), larger = b.expand({5, 7, 3, 4});
      a.fill_(0);
      b.mul_(in[0]);
      return {turned * 1, larger * 1};
    };
    return Scene{function, {at::ones({3, 4}).requires_grad_()}, {}, {}};
  });
}

}  // namespace autograd_test
}  // namespace ahead
