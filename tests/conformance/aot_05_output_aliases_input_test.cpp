#include "conformance/aot_support.h"

namespace ahead::conformance {
namespace aot_05_output_aliases_input_test {

TEST(AotOutputAliasesInput, test_input_output_view_simple) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors { return {in[0].view({-1})}; };
  expect_with_and_without_grad(f, {at::randn({2, 2})});
  const auto compiled = compiled_once(f, {leaf({2, 2})});
  // Nothing is left to compute: the caller makes the view of its own tensor.
  EXPECT_EQ(output_slots(program(compiled, "inference")), "");
}

TEST(AotOutputAliasesInput, test_input_output_view_mutate_multiple) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    in[0].mul_(2);
    in[2].mul_(3);
    return {in[1].view({2, 2}), in[2].view({2, 2})};
  };
  const Tensors inputs = {at::randn({2, 2}), at::randn({2, 2}), at::randn({2, 2})};
  expect_with_and_without_grad(f, inputs);
  const auto compiled = compiled_once(f, inputs);
  EXPECT_EQ(output_slots(program(compiled, "inference")), "MutatedInput 0, MutatedInput 2");
}

TEST(AotOutputAliasesInput, test_input_mutation_and_output_view) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    in[0].add_(1).mul_(2);
    return {in[0].view({-1})};
  };
  expect_with_and_without_grad(f, {at::ones({2, 2})});
  const auto compiled = compiled_once(f, {leaf({2, 2}).mul(1)});
  EXPECT_EQ(output_slots(program(compiled, "partition.forward")), "MutatedInput 0");
}

TEST(AotOutputAliasesInput, test_output_aliases_multiple_inputs_get_correct_one) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    return {in[0].view(in[0].sizes()), in[1].view(in[1].sizes())};
  };
  const auto views_of = [](const at::Tensor& base) -> Tensors {
    return {base.view({4}), base.view({2, 2})};
  };
  expect_compiled_like_eager(f, views_of(at::randn({2, 2})));
  expect_compiled_like_eager(f, views_of(leaf({2, 2})));
  expect_compiled_like_eager(f, views_of(leaf({2, 2})), {.non_leaf_inputs = true});
}

TEST(AotOutputAliasesInput, test_view_detach) {
  expect_with_and_without_grad(
      [](const Tensors& in) -> Tensors {
        const at::Tensor before = in[0].detach();
        in[0].mul_(2);
        return {in[0], before};
      },
      {at::ones({3, 3})});
}

TEST(AotOutputAliasesInput, test_some_outputs_dont_require_grad_view) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors { return {in[0].detach(), in[1]}; };
  const Tensors inputs = {leaf({3, 3}), leaf({3, 3})};
  expect_compiled_like_eager(f, inputs);
  expect_compiled_like_eager(f, inputs, {.non_leaf_inputs = true});
}

TEST(AotOutputAliasesInput, test_some_outputs_dont_require_grad_non_view) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    return {in[0].mul(2).detach(), in[1]};
  };
  const Tensors inputs = {leaf({3, 3}), leaf({3, 3})};
  expect_compiled_like_eager(f, inputs);
  expect_compiled_like_eager(f, inputs, {.non_leaf_inputs = true});
}

TEST(AotOutputAliasesInput, test_some_output_requires_grad_input_doesnt) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        const at::Tensor view = in[0].view({-1});
        view.requires_grad_(true);
        return {in[0] * in[1], view};
      },
      {at::randn({3, 3}), leaf({3, 3})});
}

TEST(AotOutputAliasesInput, test_backward_prologue_correctness_with_alias) {
  const at::Tensor x = leaf({4});
  auto compiled =
      compiled_by_call([](const at::Tensor& x) { return std::make_tuple(x * 2, x.view({-1})); },
                       {.fullgraph = true}, leaf({4}));
  std::get<0>(compiled(x)).sum().backward();
  EXPECT_TRUE(same_values(x.grad(), at::full({4}, 2.)));
  expect_hits(compiled);
}

/// Compiles, calls with copies of the inputs and expects everything eager gives; then whether
/// output `output` has input `input`'s memory.
void expect_shared_memory(const aot::FlatFunction& f, const Tensors& inputs, size_t output,
                          size_t input, bool non_leaf = false) {
  expect_compiled_like_eager(f, inputs, {.non_leaf_inputs = non_leaf});
  const auto copies = [&] {
    Tensors made;
    for (const at::Tensor& tensor : inputs) {
      made.push_back(non_leaf ? tensor.mul(1)
                              : tensor.detach().clone().set_requires_grad(tensor.requires_grad()));
    }
    return made;
  };
  auto compiled = compiled_by_call(f, {.fullgraph = true}, copies());
  const Tensors passed = copies();
  EXPECT_EQ(compiled(passed)[output].data_ptr(), passed[input].data_ptr());
  expect_hits(compiled);
}

TEST(AotOutputAliasesInput, test_output_is_view_of_input) {
  expect_shared_memory([](const Tensors& in) -> Tensors { return {in[0].view({-1})}; },
                       {at::randn({3, 4})}, 0, 0);
}

TEST(AotOutputAliasesInput, test_output_is_input) {
  at::NoGradGuard no_grad;
  auto compiled = compile(
      [](at::Tensor x) {
        x.mul_(2);
        return x;
      },
      {.fullgraph = true, .confirm = 0});
  const at::Tensor x = at::randn({3});
  for (int call = 0; call < 3; ++call) EXPECT_TRUE(compiled(x).is_same(x));
  expect_hits(compiled);
}

TEST(AotOutputAliasesInput, test_mixed_alias_and_non_alias_outputs) {
  expect_shared_memory(
      [](const Tensors& in) -> Tensors {
        return {in[0] * 2, in[0].view({-1})};
      },
      {at::randn({3, 4})}, 1, 0);
}

TEST(AotOutputAliasesInput, test_output_alias_with_mutation) {
  expect_shared_memory(
      [](const Tensors& in) -> Tensors {
        in[0].add_(1).mul_(2);
        return {in[0].view({-1})};
      },
      {at::randn({3, 4})}, 0, 0);
}

TEST(AotOutputAliasesInput, test_multiple_views_of_same_input) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    return {in[0].view({-1}), in[0].reshape({4, 3})};
  };
  expect_shared_memory(f, {at::randn({3, 4})}, 0, 0);
  expect_shared_memory(f, {at::randn({3, 4})}, 1, 0);
}

TEST(AotOutputAliasesInput, test_training_path_view_of_input) {
  expect_shared_memory([](const Tensors& in) -> Tensors { return {in[0].view({-1})}; },
                       {leaf({3, 4})}, 0, 0);
}

TEST(AotOutputAliasesInput, test_training_path_mixed_requires_grad) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    return {in[0] * 2, in[1].view({-1})};
  };
  expect_shared_memory(f, {leaf({3, 4}), at::randn({3, 4})}, 1, 1);
}

TEST(AotOutputAliasesInput, test_training_path_mutation_and_alias) {
  expect_shared_memory(
      [](const Tensors& in) -> Tensors {
        in[0].mul_(3);
        return {in[0].view({-1})};
      },
      {leaf({3, 4})}, 0, 0, /*non_leaf=*/true);
}

TEST(AotOutputAliasesInput, test_training_path_is_input) {
  auto compiled = compile(
      [](at::Tensor x) {
        x.mul_(2);
        return x;
      },
      {.fullgraph = true, .confirm = 0});
  for (int call = 0; call < 3; ++call) {
    const at::Tensor source = leaf({3});
    const at::Tensor x = source.mul(1);
    const at::Tensor out = compiled(x);
    EXPECT_TRUE(out.is_same(x));
    out.sum().backward();
    EXPECT_TRUE(same_values(source.grad(), at::full({3}, 2.)));
  }
  expect_hits(compiled);
}

TEST(AotOutputAliasesInput, test_cross_dtype_view_alias) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    return {at::view_as_real(in[0])};
  };
  const Tensors inputs = {at::randn({4}, at::kComplexFloat)};
  expect_shared_memory(f, inputs, 0, 0);
  expect_compiled_like_eager(f, with_grad(inputs));
  auto compiled = compiled_once(f, inputs);
  const at::Tensor out = compiled(inputs)[0];
  EXPECT_EQ(out.scalar_type(), at::kFloat);
  EXPECT_EQ(out.sizes(), at::IntArrayRef({4, 2}));
  expect_hits(compiled);
}

TEST(AotOutputAliasesInput, test_xform_aliased_output_tensoralias_wrapping) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        return {in[0] * 2, in[0].view({-1}), in[0].t()};
      },
      {leaf({3, 4})});
}

TEST(AotOutputAliasesInput, test_inference_with_mutation_and_alias) {
  at::NoGradGuard no_grad;
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        in[0].add_(1).mul_(3);
        return {in[0].view({-1})};
      },
      {at::randn({2, 3})});
}

TEST(AotOutputAliasesInput, test_training_with_alias) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        return {in[0] * 2, in[0].view({-1})};
      },
      {leaf({2, 3})});
}

TEST(AotOutputAliasesInput, test_multiple_output_aliases_different_inputs) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    return {in[0].view({-1}), in[1].t()};
  };
  expect_shared_memory(f, {at::randn({2, 3}), at::randn({2, 3})}, 0, 0);
  expect_shared_memory(f, {leaf({2, 3}), leaf({2, 3})}, 1, 1);
}

TEST(AotOutputAliasesInput, test_output_views_input_dynamic) {
  auto compiled =
      compile([](const at::Tensor& x) { return x.view({-1}); }, {.fullgraph = true, .confirm = 0});
  for (const int64_t rows : {2, 5, 2, 7, 5, 7}) {
    const at::Tensor x = at::randn({rows, 3});
    const at::Tensor out = compiled(x);
    EXPECT_TRUE(same_values(out, x.view({-1})));
    EXPECT_TRUE(out.is_alias_of(x));
  }
  expect_hits(compiled, 3);
}

TEST(AotOutputAliasesInput, test_view_replay) {
  auto compiled = compile(
      [](const at::Tensor& x) {
        const at::Tensor y = x.detach();
        x.mul_(2);
        return std::make_tuple(x, y);
      },
      {.fullgraph = true, .confirm = 0});
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = at::ones({3});
    const auto [same, detached] = compiled(x);
    EXPECT_TRUE(same.is_same(x));
    EXPECT_TRUE(detached.is_alias_of(x));
    EXPECT_TRUE(same_values(detached, at::full({3}, 2.)));
  }
  EXPECT_EQ(compiled.stats().traces, 1u);
  EXPECT_EQ(compiled.stats().cache_hits, 2u);
}

}  // namespace aot_05_output_aliases_input_test
}  // namespace ahead::conformance
