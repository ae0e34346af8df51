#include "conformance/aot_support.h"
#include "support/noisy_gradient.h"

/// Random numbers. Upstream's tests of functionalised ones want CUDA; here they run on the CPU,
/// too.
namespace ahead::conformance {
namespace aot_18_random_test {

Options functional() {
  return {.fullgraph = true, .confirm = Confirm::Never, .functionalize_rng = true};
}

/// Compiles a function with its first call, and expects the numbers and gradients of eager, from
/// graphs, and the generator to stand where eager leaves it.
Compiled<aot::FlatFunction> like_eager_from_graphs(const aot::FlatFunction& f,
                                                   const Tensors& inputs, const Options& options) {
  auto compiled = compile(f, options);
  compiled(with_grad(inputs));
  for (int call = 0; call < 3; ++call) {
    Tensors shown[2];
    for (const bool is_eager : {true, false}) {
      torch::manual_seed(call);
      const Tensors given = with_grad(inputs);
      const Tensors results = is_eager ? f(given) : compiled(given);
      for (const at::Tensor& result : results) {
        shown[is_eager ? 0 : 1].push_back(result.detach());
        if (result.requires_grad()) result.sum().backward();
      }
      for (const at::Tensor& each : given) shown[is_eager ? 0 : 1].push_back(each.grad());
      shown[is_eager ? 0 : 1].push_back(random_state());
    }
    expect_same(shown[0], shown[1]);
  }
  expect_hits(compiled);
  return compiled;
}

TEST(AotRandom, test_preserve_random) {
  const aot::FlatFunction f = [](const Tensors& in) {
    return Tensors{at::dropout(in[0], 0.5, true) + in[0]};
  };
  like_eager_from_graphs(f, {at::randn({4})}, {.fullgraph = true, .confirm = Confirm::Never});
}

TEST(AotRandom, test_functionalized_rng_codegen_correctness) {
  const aot::FlatFunction f = [](const Tensors& in) { return Tensors{at::rand_like(in[0])}; };
  auto compiled = compiled_once(f, {at::ones({4, 5})}, functional());
  const at::Tensor drawn = compiled(Tensors{at::ones({4, 5})})[0];
  EXPECT_EQ(drawn.sizes(), (at::IntArrayRef{4, 5}));
  EXPECT_TRUE(drawn.device().is_cpu());
  EXPECT_TRUE(((drawn >= 0) & (drawn < 1)).all().item<bool>());
  expect_hits(compiled);
}

TEST(AotRandom, test_functionalized_rng_codegen_multi_output) {
  const aot::FlatFunction f = [](const Tensors& in) {
    return Tensors{in[0] + at::rand_like(in[0]), in[0] * 2};
  };
  auto compiled = compiled_once(f, {at::ones({4})}, functional());
  const at::Tensor x = at::randn({4});
  const Tensors results = compiled(Tensors{x});
  EXPECT_TRUE(same_bits(x * 2, results[1]));
  EXPECT_TRUE(((results[0] - x >= 0) & (results[0] - x <= 1)).all().item<bool>());
  expect_hits(compiled);
}

TEST(AotRandom, test_functionalized_rng_codegen_advances_state) {
  const aot::FlatFunction f = [](const Tensors& in) { return Tensors{at::rand_like(in[0])}; };
  auto compiled = compiled_once(f, {at::ones({8})}, functional());
  const at::Tensor first = compiled(Tensors{at::ones({8})})[0];
  EXPECT_FALSE(same_values(first, compiled(Tensors{at::ones({8})})[0]));
  expect_hits(compiled);
}

TEST(AotRandom, test_functionalized_rng_codegen_training) {
  const aot::FlatFunction f = [](const Tensors& in) {
    return Tensors{at::dropout(in[0] * in[1], 0.5, true)};
  };
  like_eager_from_graphs(f, {at::randn({40, 50}), at::randn({40, 50})}, functional());
}

TEST(AotRandom, test_compiled_backward_rng_correctness) {
  const aot::FlatFunction f = [](const Tensors& in) {
    return Tensors{at::rand_like(in[0]) + in[0]};
  };
  auto compiled = like_eager_from_graphs(f, {at::randn({4})}, functional());
  const at::Tensor x = leaf({4});
  compiled(Tensors{x})[0].sum().backward();
  EXPECT_TRUE(same_values(x.grad(), at::ones({4})));
}

TEST(AotRandom, test_backward_epilogue_rng_correctness) {
  const aot::FlatFunction f = [](const Tensors& in) {
    return Tensors{NoisyGradient::apply(in[0].sin())};
  };
  const compiled_autograd::Disable off;  // it would capture the backward that is looked at
  const auto compiled = like_eager_from_graphs(f, {at::randn({4})}, functional());
  const Graph backward = program(compiled, "backend.backward");
  EXPECT_TRUE(input_slots(backward).ends_with("Seed 1, Offset 1")) << input_slots(backward);
  EXPECT_TRUE(output_slots(backward).ends_with("Offset 1")) << output_slots(backward);
}

TEST(AotRandom, test_functionalized_rng_codegen_unit_return_new_outs) {
  const aot::FlatFunction f = [](const Tensors& in) {
    return Tensors{at::rand_like(in[0]), in[0] * 2};
  };
  auto compiled = compiled_once(f, {at::ones({4})}, functional());
  const Graph graph = program(compiled, "inference");
  EXPECT_EQ(input_slots(graph), "Primal 0, Seed 0, Offset 0");
  EXPECT_EQ(output_slots(graph), "Output 0, Output 1, Offset 0");
  // The call keeps the new offset to itself, and leaves the generator where eager does.
  torch::manual_seed(3);
  const Tensors expected = f({at::ones({4})});
  const at::Tensor next = at::rand({3});
  torch::manual_seed(3);
  const Tensors actual = compiled(Tensors{at::ones({4})});
  ASSERT_EQ(actual.size(), 2u);
  EXPECT_TRUE(same_values(actual[0], expected[0]));
  EXPECT_TRUE(same_values(at::rand({3}), next));
  expect_hits(compiled);
}

TEST(AotRandom, test_functionalized_rng_codegen_unit_no_return_new_outs) {
  const aot::FlatFunction f = [](const Tensors& in) {
    return Tensors{at::dropout(in[0].sin(), 0.5, true)};
  };
  const auto compiled = compiled_once(f, {leaf({40, 50})}, functional());
  const std::string outputs = output_slots(program(compiled, "backend.forward"));
  EXPECT_TRUE(outputs.starts_with("Output 0, Saved ")) << outputs;
  EXPECT_TRUE(outputs.ends_with("Offset 0")) << outputs;
}

TEST(AotRandom, test_functionalized_rng_no_codegen) {
  const aot::FlatFunction f = [](const Tensors& in) { return Tensors{in[0].sin()}; };
  const auto compiled = compiled_once(f, {at::ones({4})}, functional());
  EXPECT_EQ(input_slots(program(compiled, "inference")), "Primal 0");
}

/// A checkpointed function that draws: forward and backward share the state.
TEST(AotRandom, test_compiled_backward_rng_codegen) {
  const aot::FlatFunction f = [](const Tensors& in) {
    return Tensors{checkpoint(
        CheckpointPolicy::recompute_everything(),
        [](const at::Tensor& x) {
          return (x.sin() * at::rand({40, 50})).cos();
        },
        in[0])};
  };
  const auto compiled = like_eager_from_graphs(f, {at::randn({40, 50})},
                                               {.fullgraph = true, .confirm = Confirm::Never});
  EXPECT_NE(program(compiled, "backend.forward").str().find("ahead.draw.aten.rand"),
            std::string::npos);
  EXPECT_NE(program(compiled, "partition.backward").str().find("ahead.random.aten.rand"),
            std::string::npos);
}

}  // namespace aot_18_random_test
}  // namespace ahead::conformance
