#include "conformance/aot_support.h"

namespace ahead::conformance {
namespace aot_13_backward_mutation_test {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Multiplies, and writes to the second factor in the backward.
struct WriteToSaved : torch::autograd::Function<WriteToSaved> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& a, const at::Tensor& b) {
    ctx->saved_data["b"] = b;
    return a.sin();
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    at::Tensor b = ctx->saved_data["b"].toTensor();
    {
      at::NoGradGuard no_grad;
      b.mul_(2);
    }
    return {grads[0] * 3, {}};
  }
};

/// Writes to the gradient it is given.
struct WriteToTangent : torch::autograd::Function<WriteToTangent> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& a) { return a.clone(); }
  static variable_list backward(AutogradContext*, variable_list grads) {
    grads[0].mul_(2);
    return {grads[0]};
  }
};

struct BackwardCase {
  Tensors leaves;
  Tensors inputs;
};

/// Calls, compares, differentiates, compares again, inputs included. All but the first call run
/// from graphs.
void expect_same_writes_in_backward(const aot::FlatFunction& f,
                                    const std::function<BackwardCase()>& make) {
  auto compiled = compile(f, {.fullgraph = true, .confirm = Confirm::Never});
  for (int call = 0; call < 4; ++call) {
    torch::manual_seed(call);
    const BackwardCase eager = make();
    torch::manual_seed(call);
    const BackwardCase own = make();
    const Tensors expected = f(eager.inputs), actual = compiled(own.inputs);
    const auto compare = [&](const char* when) {
      for (size_t i = 0; i < eager.inputs.size(); ++i) {
        EXPECT_EQ(tensor_difference(eager.inputs[i].detach(), own.inputs[i].detach()), "")
            << "input " << i << " " << when;
        EXPECT_EQ(eager.inputs[i]._version(), own.inputs[i]._version()) << i << " " << when;
      }
    };
    compare("after the forward");
    expected[0].sum().backward();
    actual[0].sum().backward();
    compare("after the backward");
    for (size_t i = 0; i < eager.leaves.size(); ++i) {
      EXPECT_EQ(tensor_difference(eager.leaves[i].grad(), own.leaves[i].grad()), "");
    }
  }
  expect_hits(compiled);
}

/// How many nodes of the backward graph write to what it is given.
size_t num_writes_in_backward(const aot::FlatFunction& f, const Tensors& inputs) {
  const auto compiled = compiled_once(f, inputs);
  const Graph backward = program(compiled, "partition.backward");
  size_t count = 0;
  for (const Node& node : backward.nodes()) count += node.op().name() == "aten.copy_" ? 1 : 0;
  return count;
}

TEST(AotBackwardMutation, test_backward_mutation_data) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    return {WriteToSaved::apply(in[0], in[1]) * 2};
  };
  expect_same_writes_in_backward(f, []() -> BackwardCase {
    const at::Tensor a = leaf({3}), b = at::randn({3});
    return {{a}, {a, b}};
  });
  expect_same_writes_in_backward(f, []() -> BackwardCase {
    const at::Tensor a = leaf({3}), b = leaf({3});
    return {{a}, {a, b}};
  });
  EXPECT_EQ(num_writes_in_backward(f, {leaf({3}), at::randn({3})}), 1u);
}

TEST(AotBackwardMutation, test_backward_mutation_on_grad_out) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    return {WriteToTangent::apply(in[0] * in[1]) * 3};
  };
  expect_compiled_like_eager(f, {leaf({3}), leaf({3})});
}

TEST(AotBackwardMutation, WritesToTheTangentOfAResult) {
  // In eager it is the caller's own tensor that is written to.
  const auto f = [](const at::Tensor& x) { return WriteToTangent::apply(x); };
  auto compiled = compile(f, {.fullgraph = true, .confirm = Confirm::Never});
  for (int call = 0; call < 4; ++call) {
    const at::Tensor x = leaf({3}), tangent = at::ones({3}), eager_tangent = at::ones({3});
    const Tensors expected = torch::autograd::grad({f(x)}, {x}, {eager_tangent});
    const Tensors actual = torch::autograd::grad({compiled(x)}, {x}, {tangent});
    EXPECT_EQ(tensor_difference(expected[0], actual[0]), "");
    EXPECT_EQ(tensor_difference(eager_tangent, tangent), "");
    EXPECT_EQ(eager_tangent._version(), tangent._version());
  }
  expect_hits(compiled);
}

TEST(AotBackwardMutation, WritesToTheTangentOfAResultFromWhichAnotherWasComputed) {
  // In eager it is the caller's own tensor where only the first result is differentiated.
  const auto f = [](const Tensors& in) {
    const at::Tensor y = WriteToTangent::apply(in[0]);
    return Tensors{y.view({-1}), y * 2};
  };
  auto compiled = compile(f);
  for (int call = 0; call < 4; ++call) {
    const at::Tensor x = leaf({3}), tangent = at::ones({3}), eager_tangent = at::ones({3});
    const Tensors expected = torch::autograd::grad({f({x})[0]}, {x}, {eager_tangent});
    const Tensors actual = torch::autograd::grad({compiled(Tensors{x})[0]}, {x}, {tangent});
    EXPECT_EQ(tensor_difference(expected[0], actual[0]), "");
    EXPECT_EQ(tensor_difference(eager_tangent, tangent), "");
  }
  EXPECT_EQ(compiled.stats().cache_hits, 0u);
  auto full = compile(f, {.fullgraph = true, .confirm = Confirm::Never});
  EXPECT_THROW(full(Tensors{leaf({3})}), Unsupported);
}

TEST(AotBackwardMutation, WritesToAGradientThatIsAddedToThatOfAnotherResult) {
  // In eager the argument gets the tensor that is written to where only the first is differentiated.
  const auto f = [](const Tensors& in) {
    return Tensors{in[0] + WriteToTangent::apply(in[0]), in[0].sin()};
  };
  auto compiled = compile(f);
  for (int call = 0; call < 4; ++call) {
    const at::Tensor x = leaf({3}), tangent = at::ones({3}), eager_tangent = at::ones({3});
    const Tensors expected = torch::autograd::grad({f({x})[0]}, {x}, {eager_tangent});
    const Tensors actual = torch::autograd::grad({compiled(Tensors{x})[0]}, {x}, {tangent});
    EXPECT_EQ(tensor_difference(expected[0], actual[0]), "");
  }
  EXPECT_EQ(compiled.stats().cache_hits, 0u);
  auto full = compile(f, {.fullgraph = true, .confirm = Confirm::Never});
  EXPECT_THROW(full(Tensors{leaf({3})}), Unsupported);
}

TEST(AotBackwardMutation, OneOfTwoResultsWhoseGradientsLieOtherwiseHasEagersZeros) {
  const auto f = [](const Tensors& in) {
    return Tensors{WriteToSaved::apply(in[0], in[1]) * in[2], in[2] / (in[0].square() + 1)};
  };
  auto compiled = compile(f, {.fullgraph = true, .confirm = Confirm::Never});
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = at::randn({3, 2}).t().requires_grad_(), zeros = at::zeros({2, 3});
    const auto gradient = [&](const auto& function) {
      const Tensors results = function(Tensors{x, at::randn({3}), zeros});
      const at::Tensor tangent = at::full({2, 3}, -1.0);
      return torch::autograd::grad({results[0]}, {x}, {tangent})[0].signbit();
    };
    EXPECT_TRUE(gradient(f).all().item<bool>());
    EXPECT_TRUE(gradient(compiled).all().item<bool>());
  }
  expect_hits(compiled);
}

TEST(AotBackwardMutation, TakesTangentsAsTheyLie) {
  // In half precision batch norm rounds otherwise for an expanded tangent, such as that of a sum.
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    const at::Tensor x = WriteToSaved::apply(in[0], in[1]) * in[0];
    return {at::batch_norm(x, in[2], {}, {}, {}, true, 0.1, 1e-5, false)};
  };
  expect_same_writes_in_backward(f, []() -> BackwardCase {
    const at::Tensor a = at::randn({2, 2}, at::kBFloat16).requires_grad_();
    return {{a}, {a, at::randn({3}), at::randn({2}, at::kBFloat16)}};
  });
}

TEST(AotBackwardMutation, OfWhatGetsNoGradientItselfWithOneOfTwoResults) {
  // The gradient of the second argument is none, so that nobody asks for it.
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    return {WriteToSaved::apply(in[2], in[1]), in[0].sin()};
  };
  expect_same_writes_in_backward(f, []() -> BackwardCase {
    const at::Tensor a = leaf({3}), b = leaf({3}), c = leaf({3});
    return {{a, b}, {a, b, c.detach()}};
  });
}

TEST(AotBackwardMutation, test_backward_mutation_forward_inputs) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    in[2].mul_(3);
    return {WriteToSaved::apply(in[0], in[1]) * in[2]};
  };
  expect_same_writes_in_backward(f, []() -> BackwardCase {
    const at::Tensor a = leaf({3}), b = at::randn({3}), c = at::randn({3});
    return {{a}, {a, b, c}};
  });
}

TEST(AotBackwardMutation, test_backward_mutation_forward_inputs_create_graph) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    return {WriteToSaved::apply(in[0], in[1])};
  };
  auto compiled = compiled_once(f, {leaf({3}), leaf({3})});
  for (int call = 0; call < 3; ++call) {
    const at::Tensor a = leaf({3}), b = leaf({3}), before = b.detach().clone();
    const at::Tensor out = compiled(Tensors{a, b})[0];
    const std::string error = error_of([&] {
      torch::autograd::grad({out.sum()}, {a}, {}, /*retain_graph=*/true, /*create_graph=*/true);
    });
    EXPECT_NE(error.find("aot_autograd does not support input mutations with requires_grad in "
                         "backward for create_graph=True"),
              std::string::npos)
        << error;
    EXPECT_TRUE(same_values(b.detach(), before));
    torch::autograd::grad({out.sum()}, {a});
    EXPECT_TRUE(same_values(b.detach(), before * 2));
  }
  expect_hits(compiled);
}

/// Sines of a list in place in the forward; the backward writes to a list as well.
struct WritesToLists : torch::autograd::Function<WritesToLists> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& buffer) {
    const at::Tensor activation = x.clone();
    at::_foreach_mul_({activation, buffer}, 2);
    ctx->saved_data["buffer"] = buffer;
    ctx->save_for_backward({activation});
    return activation.exp();
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const at::Tensor activation = ctx->get_saved_variables()[0];
    at::_foreach_mul_({ctx->saved_data["buffer"].toTensor()}, 3);
    return {grads[0] * activation.exp() * 2, {}};
  }
};

TEST(AotBackwardMutation, test_fw_bw_mutation_no_functionalization1) {
  // Ahead's graphs are always functional: what is asked for is where the writes are.
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    return {WritesToLists::apply(in[0] * 3, in[1])};
  };
  expect_same_writes_in_backward(f, []() -> BackwardCase {
    const at::Tensor a = leaf({3}), b = at::randn({3});
    return {{a}, {a, b}};
  });
  const auto compiled = compiled_once(f, {leaf({3}), at::randn({3})});
  EXPECT_EQ(output_slots(program(compiled, "partition.forward")).find("MutatedInput 1, Output 0"),
            0u);
  EXPECT_EQ(num_writes_in_backward(f, {leaf({3}), at::randn({3})}), 1u);
}

TEST(AotBackwardMutation, test_fw_bw_mutation_no_functionalization2) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    const at::Tensor activation = in[0].sin();
    activation.mul_(2);
    const at::Tensor other = activation.clone();
    other.exp_();
    return {other * in[0]};
  };
  expect_same_writes_in_backward(f, []() -> BackwardCase {
    const at::Tensor a = leaf({3});
    return {{a}, {a}};
  });
  EXPECT_EQ(num_writes_in_backward(f, {leaf({3})}), 0u);
}

TEST(AotBackwardMutation, test_mutation_of_input_in_fw_and_bw) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    in[1].mul_(3);
    return {WriteToSaved::apply(in[0], in[1])};
  };
  expect_same_writes_in_backward(f, []() -> BackwardCase {
    const at::Tensor a = leaf({3}), b = at::randn({3});
    return {{a}, {a, b}};
  });
}

}  // namespace aot_13_backward_mutation_test
}  // namespace ahead::conformance
