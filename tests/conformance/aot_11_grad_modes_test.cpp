#include "conformance/aot_support.h"

namespace ahead::conformance {
namespace aot_11_grad_modes_test {

TEST(AotGradModes, test_input_mutation_requires_grad_detach) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    in[0].detach().mul_(2);
    return {in[0] + 3, in[0] * in[0]};
  };
  expect_compiled_like_eager(f, {leaf({4})});
  expect_compiled_like_eager(f, {leaf({4})}, {.non_leaf_inputs = true});
}

TEST(AotGradModes, test_input_mutation_hidden_from_autograd_aliasing) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    const at::Tensor alias = in[0].view({-1});
    {
      at::NoGradGuard no_grad;
      alias.mul_(2);
    }
    return {in[0] + 1, in[0] * in[0]};
  };
  expect_compiled_like_eager(f, {leaf({4})});
  expect_compiled_like_eager(f, {leaf({4})}, {.non_leaf_inputs = true});
}

TEST(AotGradModes, test_input_mutation_requires_grad_no_grad) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    {
      at::NoGradGuard no_grad;
      in[0].mul_(2);
    }
    return {in[0] + 3, in[0].sin()};
  };
  expect_compiled_like_eager(f, {leaf({4})});
  expect_compiled_like_eager(f, {leaf({4})}, {.non_leaf_inputs = true});
  const auto compiled = compiled_once(f, {leaf({4})});
  EXPECT_EQ(output_slots(program(compiled, "partition.forward")).find("MutatedInput 0, Output 0"),
            0u);
}

TEST(AotGradModes, test_input_mutation_requires_grad_no_grad_detach_mixed) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        in[0].detach().mul_(2);
        in[0].mul_(3);
        {
          at::NoGradGuard no_grad;
          in[0].mul_(4);
        }
        return {in[0] + 5};
      },
      {leaf({4})}, {.non_leaf_inputs = true});
}

TEST(AotGradModes, test_input_inplace_requires_grad_true) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    in[0].requires_grad_(true);
    return {in[0].mul(5), in[1] * 3};
  };
  expect_compiled_like_eager(f, {at::randn({4}), leaf({4})});
  expect_compiled_like_eager(f, {at::randn({4}), at::randn({4})});
}

TEST(AotGradModes, test_no_grad_input_output) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    return {in[0].cos(), in[1].cos(), in[0] * in[1]};
  };
  for (const bool first : {false, true}) {
    for (const bool second : {false, true}) {
      expect_compiled_like_eager(
          f, {at::randn({5}).set_requires_grad(first), at::randn({5}).set_requires_grad(second)});
    }
  }
}

TEST(AotGradModes, test_aot_dispatch_output_requires_grad_in_no_grad) {
  at::NoGradGuard no_grad;
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        at::Tensor with, without = in[0].sin();
        {
          at::AutoGradMode enabled(true);
          with = in[0].sin() * in[0];
        }
        return {with, without};
      },
      {leaf({5})}, {.write_to_outputs = false});
}

TEST(AotGradModes, test_aot_dispatch_output_requires_grad_in_no_grad_views) {
  at::NoGradGuard no_grad;
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    return {in[0].view({-1}), in[0].sin()};
  };
  expect_compiled_like_eager(f, {leaf({2, 3})});
  const auto compiled = compiled_once(f, {leaf({2, 3})});
  EXPECT_EQ(output_slots(program(compiled, "inference")), "Output 1");
}

TEST(AotGradModes, test_composite_impl_compile) {
  torch::nn::Linear linear(3, 3);
  auto compiled = compiled_by_call(linear, {.fullgraph = true}, leaf({3, 3}));
  const at::Tensor x = leaf({3, 3});
  EXPECT_TRUE(same_values(compiled(x), linear->forward(x)));
  const Graph forward = program(compiled, "partition.forward");
  EXPECT_EQ(count(forward, "aten.addmm"), 1u);
  EXPECT_EQ(count(forward, "aten.t") + count(forward, "aten.transpose.int"), 1u);
  EXPECT_EQ(count(forward, "aten.linear"), 0u);

  c10::InferenceMode inference;
  const at::Tensor y = at::randn({3, 3});
  for (int call = 0; call < 2; ++call) EXPECT_TRUE(same_values(compiled(y), linear->forward(y)));
  expect_hits(compiled, 2);
  EXPECT_EQ(output_slots(program(compiled, "inference")), "Output 0");
}

TEST(AotGradModes, test_aot_grad_mode_mutation) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        const at::Tensor second = in[0] * in[0];
        at::GradMode::set_enabled(false);
        return {in[0] * 2, second};
      },
      {leaf({3, 3})}, {.write_to_outputs = false, .backward = false});
  auto compiled = compile(
      [](const at::Tensor& x) {
        const at::Tensor second = x * x;
        at::GradMode::set_enabled(false);
        return std::make_tuple(x * 2, second);
      },
      {.fullgraph = true, .confirm = 0});
  for (int call = 0; call < 3; ++call) {
    at::AutoGradMode restore(true);
    const at::Tensor x = leaf({3, 3});
    const auto [first, second] = compiled(x);
    EXPECT_FALSE(at::GradMode::is_enabled());
    at::GradMode::set_enabled(true);
    EXPECT_EQ(first.grad_fn(), nullptr);
    second.sum().backward();
    EXPECT_TRUE(same_values(x.grad(), 2 * x));
  }
  expect_hits(compiled);
}

TEST(AotGradModes, test_batched_matmul_inference_mode) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        c10::InferenceMode inference;
        return {at::matmul(in[0], in[1])};
      },
      {at::randn({2, 3, 4}), at::randn({2, 4, 5})});
}

TEST(AotGradModes, test_aot_autograd_stride_reconstruction_on_zero_dim_dynamic_shaped_tensor) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        const at::Tensor x = in[0].reshape({1, 1}).squeeze();
        return {x * in[1], x.expand({2}) * in[1]};
      },
      {at::randn({1}), leaf({})});
}

TEST(AotGradModes, test_training_with_detach_indices) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    return {in[0] * 2, in[1].detach() * in[0]};
  };
  expect_compiled_like_eager(f, {leaf({4}), leaf({4})}, {.non_leaf_inputs = true});
  // A graph outside that one call has freed must not be entered by the next.
  auto compiled = compile(f, {.fullgraph = true, .confirm = 0});
  const at::Tensor source = leaf({4});
  const at::Tensor shared = source * 2;
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = leaf({4});
    compiled(Tensors{x, shared})[1].sum().backward();
    EXPECT_TRUE(same_values(x.grad(), shared));
  }
  expect_hits(compiled);
  EXPECT_FALSE(source.grad().defined());
}

TEST(AotGradModes, test_grad_enabled_mutation) {
  auto compiled = compile(
      [](const at::Tensor& x) {
        at::GradMode::set_enabled(false);
        return x * 2;
      },
      {.fullgraph = true, .confirm = 0});
  for (int call = 0; call < 3; ++call) {
    at::AutoGradMode restore(true);
    compiled(at::randn({4}));
    EXPECT_FALSE(at::GradMode::is_enabled());
  }
  expect_hits(compiled);
}

TEST(AotGradModes, test_leaf_no_grad_mutation_uses_copy) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        in[0].detach().mul_(2);
        return {in[0] + in[1]};
      },
      {at::randn({4}), leaf({4})});
}

TEST(AotGradModes, test_leaf_mutation_under_no_grad) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        in[0].detach().mul_(2);
        return {in[0] * 3};
      },
      {leaf({4})});
}

TEST(AotGradModes, test_inference_simple) {
  at::NoGradGuard no_grad;
  const auto compiled =
      compiled_once([](const Tensors& in) -> Tensors { return {in[0].sin() * 2}; }, {leaf({4})});
  EXPECT_EQ(output_slots(program(compiled, "inference")), "Output 0");
  for (const Program& stage : compiled.programs())
    EXPECT_EQ(stage.name.find("partition"), std::string::npos) << stage.name;
}

TEST(AotGradModes, test_training_simple) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors { return {in[0].sin() * 2}; };
  expect_compiled_like_eager(f, {leaf({4})});
  EXPECT_EQ(output_slots(program(compiled_once(f, {leaf({4})}), "partition.backward")), "GradOf 0");
}

TEST(AotGradModes, WritesHiddenFromAutograd) {
  // Through `.data()`: neither the history nor the version of the tensor knows.
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    const at::Tensor before = in[0] * in[1];
    in[1].data().mul_(2);
    return {before + in[0] * in[1]};
  };
  expect_compiled_like_eager(f, {leaf({3}), at::randn({3})});
  const auto compiled = compiled_once(f, {leaf({3}), at::randn({3})});
  EXPECT_EQ(output_slots(program(compiled, "trace")).find("MutatedInput 1"), 0u);
}

}  // namespace aot_11_grad_modes_test
}  // namespace ahead::conformance
