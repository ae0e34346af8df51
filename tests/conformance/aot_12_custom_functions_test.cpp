#include "conformance/aot_support.h"

namespace ahead::conformance {
namespace aot_12_custom_functions_test {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// The identity with a gradient that is one more.
struct AddOneToGradient : torch::autograd::Function<AddOneToGradient> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x.clone(); }
  static variable_list backward(AutogradContext*, variable_list grads) { return {grads[0] + 1}; }
};

/// Returns its argument itself, with half of the gradient.
struct HalveGradient : torch::autograd::Function<HalveGradient> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x; }
  static variable_list backward(AutogradContext*, variable_list grads) { return {grads[0] * 0.5}; }
};

/// Hands out a saved argument as a gradient.
struct ArgumentAsGradient : torch::autograd::Function<ArgumentAsGradient> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x) {
    ctx->save_for_backward({x});
    return x.sin();
  }
  static variable_list backward(AutogradContext* ctx, variable_list) {
    return {ctx->get_saved_variables()[0]};
  }
};

/// Overwrites one of its tangents with the other.
struct CopyTangents : torch::autograd::Function<CopyTangents> {
  static variable_list forward(AutogradContext*, const at::Tensor& a, const at::Tensor& b) {
    return {a.clone(), b.clone()};
  }
  static variable_list backward(AutogradContext*, variable_list grads) {
    grads[0].copy_(grads[1]);
    return {grads[0] * 2, grads[1]};
  }
};

TEST(AotCustomFunctions, test_custom_autograd) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors { return {AddOneToGradient::apply(in[0]).cos()}; },
      {leaf({5})});
}

/// Expects all that a caller can see of some calls to be as in eager.
template <class Compiled>
void expect_same_calls(const aot::FlatFunction& f, Compiled& compiled, const Tensors& inputs,
                       uint64_t num_calls, const CallPoints& points = {}) {
  const auto make_inputs = [&]() -> CallInputs {
    const Tensors leaves = with_grad(inputs);
    return {leaves, leaves};
  };
  const CallSide eager{f, make_inputs};
  const CallSide own{[&](const Tensors& args) { return compiled(args); }, make_inputs};
  for (uint64_t call = 0; call < num_calls; ++call) {
    for (const auto& [what, detail] : compare_call(eager, own, call, points).differences)
      ADD_FAILURE() << "call " << call << ", " << what << ": " << detail;
  }
}

/// Expects a function to run eagerly, with all that a caller can see as in eager, and a refusal if
/// that is not wanted.
void expect_like_eager_by_running_it(const aot::FlatFunction& f, const Tensors& inputs,
                                     const std::string& reason) {
  auto compiled = compile(f);
  expect_same_calls(f, compiled, inputs, 4);
  expect_runs_eagerly(compiled, 2);
  auto strict = compile(f, {.fullgraph = true, .confirm = 0});
  const std::string error = error_of([&] { strict(with_grad(inputs)); });
  EXPECT_NE(error.find(reason), std::string::npos) << error;
}

TEST(AotCustomFunctions, test_input_output_aliase_custom_autograd_function) {
  auto compiled = compile([](const at::Tensor& x) { return HalveGradient::apply(x); },
                          {.fullgraph = true, .confirm = Confirm::Never});
  for (int call = 0; call < 4; ++call) {
    const at::Tensor x = leaf({2, 2});
    const at::Tensor out = compiled(x);
    EXPECT_TRUE(same_values(out, x));
    EXPECT_TRUE(out.is_alias_of(x));
    out.sum().backward();
    EXPECT_TRUE(same_values(x.grad(), at::full({2, 2}, 0.5)));
  }
  expect_hits(compiled);
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors { return {HalveGradient::apply(in[0])}; }, {leaf({2, 2})});
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors { return {HalveGradient::apply(in[0]) * in[0]}; },
      {leaf({2, 2})});
}

// Nobody may write to such a view, whatever it is a view of.
TEST(AotCustomFunctions, CustomViewsHaveTheBaseOfTheirArgument) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    return {HalveGradient::apply(in[0])};
  };
  auto compiled = compile(f, {.fullgraph = true, .confirm = Confirm::Never});
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = leaf({2, 2}) * 2, same = x.detach().clone().requires_grad_() * 1;
    const at::Tensor expected = f({x})[0], actual = compiled(Tensors{same})[0];
    EXPECT_TRUE(actual.is_view());
    EXPECT_TRUE(at::Tensor(actual._base()).is_same(same));
    EXPECT_EQ(error_of([&] { expected.mul_(2); }).empty(), false);
    EXPECT_EQ(error_of([&] { actual.mul_(2); }).empty(), false);
    const at::NoGradGuard no_grad;
    x.mul_(3);
    same.mul_(3);
    EXPECT_EQ(actual._version(), expected._version());
    EXPECT_TRUE(same_values(actual, same));
  }
  expect_hits(compiled);
}

TEST(AotCustomFunctions, ViewsOfCustomViews) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors { return {HalveGradient::apply(in[0].t())}; },
      {leaf({2, 3})});
  const at::Tensor weight = leaf({3});
  expect_compiled_like_eager(
      [weight](const Tensors&) -> Tensors { return {HalveGradient::apply(weight)}; },
      {leaf({2, 3})});
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors { return {HalveGradient::apply(in[0]).t()}; },
      {leaf({2, 3})});
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors { return {HalveGradient::apply(in[0].t()) * 2}; },
      {leaf({2, 3})});
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        return {HalveGradient::apply(in[0].sin()).t() * in[0].t()};
      },
      {leaf({2, 3})});
}

// Autograd has no history for such a view once its memory was written to.
TEST(AotCustomFunctions, CustomViewsThatAreWrittenToByTheirBase) {
  for (const bool uses_it_before : {false, true}) {
    const auto f = [=](const at::Tensor& x) {
      const at::Tensor y = HalveGradient::apply(x);
      if (uses_it_before) y.sin();
      const at::NoGradGuard no_grad;
      x.mul_(2);
      return y;
    };
    auto compiled = compile(f);
    for (int call = 0; call < 4; ++call) {
      const at::Tensor x = leaf({2}), same = x.detach().clone().requires_grad_();
      const at::Tensor eager = f(x * 1), own = compiled(same * 1);
      EXPECT_TRUE(same_values(eager, own));
      EXPECT_EQ(eager._version(), own._version());
      EXPECT_EQ(error_of([&] { eager.sum().backward(); }), error_of([&] { own.sum().backward(); }));
    }
    expect_runs_eagerly(compiled, 2);
  }
}

TEST(AotCustomFunctions, WritesBeforeACustomView) {
  expect_with_and_without_grad(
      [](const Tensors& in) -> Tensors {
        in[0].mul_(2);
        return {HalveGradient::apply(in[0])};
      },
      {at::randn({2, 2})});
}

TEST(AotCustomFunctions, ReturnedCustomViewsOfIntermediatesRunEagerly) {
  expect_like_eager_by_running_it(
      [](const Tensors& in) -> Tensors { return {HalveGradient::apply(in[0].sin())}; },
      {leaf({2, 2})}, "a custom autograd function returns a view");
  expect_like_eager_by_running_it(
      [](const Tensors& in) -> Tensors {
        const at::Tensor y = in[0].sin();
        return {y, HalveGradient::apply(y)};
      },
      {leaf({2, 2})}, "a custom autograd function returns a view");
}

/// Expects a function that is traced itself, for a compiler of the caller's, to be as in eager.
void expect_traced_like_eager(const aot::FlatFunction& f, const Tensors& inputs) {
  for (const Partitioner partitioner : {Partitioner::Default, Partitioner::MinCut}) {
    const PartitionFunction partition = [partitioner](const JointGraph& joint) {
      return partitioner == Partitioner::Default ? partition_default(joint)
                                                 : partition_min_cut(joint);
    };
    auto compiled = aot::function(f, {.partition = partition});
    expect_same_calls(f, compiled, inputs, 3, {.write_to_outputs = false});
    EXPECT_EQ(compiled.stats().traces, 1u);
    EXPECT_EQ(compiled.stats().cache_hits, 3u);
  }
}

// What is traced itself may have such views and hooks. A view only shares its argument's memory.
TEST(AotCustomFunctions, TracedFunctionsMayReturnCustomViews) {
  expect_traced_like_eager(
      [](const Tensors& in) -> Tensors { return {HalveGradient::apply(in[0])}; }, {leaf({2, 2})});
  expect_traced_like_eager(
      [](const Tensors& in) -> Tensors { return {HalveGradient::apply(in[0]) * in[0]}; },
      {leaf({2, 2})});
}

TEST(AotCustomFunctions, TracedFunctionsMayRegisterHooks) {
  expect_traced_like_eager(
      [](const Tensors& in) -> Tensors {
        const at::Tensor y = in[0] * in[1];
        y.register_hook([](const at::Tensor& grad) { return grad * 2; });
        return {y.sin() + y};
      },
      {leaf({4}), leaf({4})});
}

TEST(AotCustomFunctions, test_grad_inputs_alias_inputs) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        return {ArgumentAsGradient::apply(in[0]) + in[1] * in[0]};
      },
      {leaf({4}), leaf({4})});
}

TEST(AotCustomFunctions, SeveralResultsRunEagerly) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    return {ArgumentAsGradient::apply(in[0]), in[1] * in[0]};
  };
  auto compiled = compile(f);
  for (size_t call = 0; call < 4; ++call) {
    const Tensors eager = {leaf({4}), leaf({4})}, own = with_grad(eager);
    f(eager)[call % 2].sum().backward();
    compiled(own)[call % 2].sum().backward();
    for (size_t i = 0; i < 2; ++i) EXPECT_EQ(tensor_difference(eager[i].grad(), own[i].grad()), "");
  }
  expect_runs_eagerly(compiled, 2);
}

TEST(AotCustomFunctions, test_autograd_function_tangent_mutation) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    const variable_list outs = CopyTangents::apply(in[0], in[1]);
    return {(outs[0] * 3).sum() + (outs[1] * 5).sum()};
  };
  expect_compiled_like_eager(f, {leaf({4}), leaf({4})});
}

TEST(AotCustomFunctions, WritesToTheCallersTangents) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    return {CopyTangents::apply(in[0], in[1])};
  };
  auto compiled = compile(f);
  for (int call = 0; call < 4; ++call) {
    const Tensors eager_in = {leaf({4}), leaf({4})}, own_in = with_grad(eager_in);
    const Tensors eager_tangents = {at::randn({4}), at::randn({4})};
    const Tensors own_tangents = {eager_tangents[0].clone(), eager_tangents[1].clone()};
    const Tensors eager = torch::autograd::grad(f(eager_in), eager_in, eager_tangents);
    const Tensors own = torch::autograd::grad(compiled(own_in), own_in, own_tangents);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(tensor_difference(eager[i], own[i]), "");
      EXPECT_EQ(tensor_difference(eager_tangents[i], own_tangents[i]), "") << "tangent " << i;
    }
  }
  expect_runs_eagerly(compiled, 2);
}

TEST(AotCustomFunctions, test_register_hook_in_checkpoint_accumulated_grad) {
  // A hook that the function registers itself is called by the backward, between two graphs.
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    const at::Tensor y = in[0] * in[1];
    y.register_hook([](const at::Tensor& grad) { return grad * 2; });
    return {y.sin() + y};
  };
  auto compiled = compile(f, {.confirm = 0});
  expect_same_calls(f, compiled, {leaf({4}), leaf({4})}, 4);
  expect_hits(compiled);
}

}  // namespace aot_12_custom_functions_test
}  // namespace ahead::conformance
