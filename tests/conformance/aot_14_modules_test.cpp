#include <map>

#include "conformance/aot_support.h"

namespace ahead::conformance {
namespace aot_14_modules_test {

/// Calls a module and a compiled twin in turn, differentiates, and compares results, gradients and
/// buffers.
template <class MakeModule>
void expect_module_like_eager(MakeModule make, const Tensors& inputs, int calls = 3) {
  torch::manual_seed(5);
  auto eager = make();
  torch::manual_seed(5);
  auto own = make();
  auto compiled = compile(own, {.fullgraph = true, .confirm = 0});
  for (int call = 0; call < calls; ++call) {
    for (const at::Tensor& input : inputs) {
      torch::manual_seed(call);
      const at::Tensor expected = eager->forward(input);
      torch::manual_seed(call);
      const at::Tensor actual = compiled(input);
      EXPECT_EQ(tensor_difference(expected, actual), "");
      expected.square().sum().backward();
      actual.square().sum().backward();
    }
    const auto twins = own->named_parameters();
    for (const auto& parameter : eager->named_parameters()) {
      EXPECT_EQ(tensor_difference(parameter.value().grad(), twins[parameter.key()].grad()), "")
          << parameter.key();
    }
    const auto buffers = own->named_buffers();
    for (const auto& buffer : eager->named_buffers()) {
      EXPECT_EQ(tensor_difference(buffer.value(), buffers[buffer.key()]), "") << buffer.key();
      EXPECT_EQ(buffer.value()._version(), buffers[buffer.key()]._version()) << buffer.key();
    }
  }
  expect_hits(compiled, inputs.size());
}

TEST(AotModules, test_module) {
  expect_module_like_eager(
      [] { return torch::nn::Sequential(torch::nn::Linear(32, 32), torch::nn::ReLU()); },
      {at::randn({1, 32}), at::randn({4, 32})});
}

TEST(AotModules, test_input_mutation_batchnorm) {
  // Parameters, running statistics and input, all as arguments.
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        const auto [out, mean, rstd] = at::_native_batch_norm_legit(
            in[0], in[1], in[2], const_cast<at::Tensor&>(in[3]), const_cast<at::Tensor&>(in[4]),
            /*training=*/true, /*momentum=*/0.3, /*eps=*/1e-5);
        // Eager's kernel rounds differently for the gradient of a sum, which is one number
        // expanded.
        return {out * 3, mean, rstd};
      },
      {leaf({2, 5, 5, 5}), leaf({5}), leaf({5}), at::ones({5}), at::ones({5})},
      {.write_to_outputs = false});
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        return {at::batch_norm(in[0], in[1], in[2], in[3], in[4], true, 0.3, 1e-5, false) * 3};
      },
      {leaf({2, 5, 5, 5}), leaf({5}), leaf({5}), at::ones({5}), at::ones({5})});
}

TEST(AotModules, test_batchnorm_inference) {
  torch::nn::Sequential module(torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 3, 3)),
                               torch::nn::BatchNorm2d(3));
  module->eval();
  at::NoGradGuard no_grad;
  auto compiled = compiled_by_call(module, {.fullgraph = true}, at::randn({2, 1, 6, 6}));
  const at::Tensor x = at::randn({2, 1, 6, 6});
  EXPECT_TRUE(same_values(compiled(x), module->forward(x)));
  expect_hits(compiled);
  EXPECT_EQ(output_slots(program(compiled, "inference")), "Output 0");
}

/// Counts its calls in a buffer that takes part in the result.
struct CountingImpl : torch::nn::Module {
  explicit CountingImpl(bool matrix)
      : matrix(matrix),
        weight(register_parameter("weight",
                                  at::randn(matrix ? at::IntArrayRef{3, 4} : at::IntArrayRef{3}))),
        other(register_parameter("other", at::randn({3}))),
        count(register_buffer("count", at::ones({3}))) {}

  at::Tensor forward(const at::Tensor& x) {
    count.mul_(2).add_(1);
    if (matrix) return (weight.t().matmul(x * other)) * (other * count).sum();
    return (weight + other) * x * count;
  }

  bool matrix;
  at::Tensor weight, other, count;
};
TORCH_MODULE(Counting);

TEST(AotModules, test_buffer_copied_in_graph) {
  expect_module_like_eager([] { return Counting(false); }, {at::randn({3})}, 4);
  Counting module(false);
  auto compiled = compile(module, {.fullgraph = true, .confirm = 0});
  compiled(at::randn({3}));
  EXPECT_EQ(output_slots(program(compiled, "partition.forward")).find("MutatedInput"), 0u);
}

TEST(AotModules, test_buffer_copied_in_graph_with_different_shapes) {
  expect_module_like_eager([] { return Counting(true); }, {at::randn({3})}, 4);
}

TEST(AotModules, test_buffer_batch_norm) {
  expect_module_like_eager([] { return torch::nn::BatchNorm1d(16); }, {at::randn({8, 16})}, 4);
  torch::nn::BatchNorm1d module(16);
  auto compiled = compile(module, {.fullgraph = true, .confirm = 0});
  compiled(leaf({8, 16}));
  std::map<Slot::Kind, int> counts;
  const Graph forward = program(compiled, "partition.forward");
  for (const Graph::Output& output : forward.outputs()) {
    ++counts[output.slot.kind];
  }
  EXPECT_EQ(counts[Slot::Kind::MutatedInput], 3);
  EXPECT_EQ(counts[Slot::Kind::Output], 1);
  int gradients = 0;
  const Graph backward = program(compiled, "partition.backward");
  for (const Graph::Output& output : backward.outputs()) {
    gradients += output.value != nullptr ? 1 : 0;
  }
  EXPECT_EQ(gradients, 3);
}

TEST(AotModules, test_rrelu) {
  for (const bool inplace : {false, true}) {
    expect_compiled_like_eager(
        [inplace](const Tensors& in) -> Tensors {
          if (inplace) {
            at::Tensor x = in[0];
            return {at::rrelu_(x, 0.2, 0.6, /*training=*/true)};
          }
          return {at::rrelu(in[0], 0.2, 0.6, /*training=*/true)};
        },
        {leaf({4, 4})}, {.non_leaf_inputs = inplace});
  }
}

TEST(AotModules, test_rrelu_with_noise_mutation) {
  for (const bool inplace : {false, true}) {
    const aot::FlatFunction f = [inplace](const Tensors& in) -> Tensors {
      at::Tensor x = in[0], noise = in[1];
      if (inplace) return {at::rrelu_with_noise_(x, noise, 0.2, 0.6, /*training=*/true)};
      return {at::rrelu_with_noise(x, noise, 0.2, 0.6, /*training=*/true)};
    };
    expect_compiled_like_eager(f, {leaf({4, 4}), at::full({4, 4}, 3.)}, {.non_leaf_inputs = true});
    auto compiled = compiled_once(f, {at::full({4, 4}, -1.), at::full({4, 4}, 3.)});
    const at::Tensor noise = at::full({4, 4}, 3.), x = at::full({4, 4}, -1.);
    compiled(Tensors{x, noise});
    EXPECT_TRUE((noise < 1).all().item<bool>());
    expect_hits(compiled);
  }
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        const auto [out, noise] =
            at::rrelu_with_noise_functional(in[0], in[1], 0.2, 0.6, /*training=*/true);
        return {out, noise};
      },
      {leaf({4, 4}), at::ones({4, 4})});
}

TEST(AotModules, test_nn_module_with_params_global_constant) {
  // A tensor that belongs to no call is read anew on each one.
  const at::Tensor constant = at::ones({3});
  auto compiled = compile([constant](const at::Tensor& x) { return x * constant; },
                          {.fullgraph = true, .confirm = 0});
  const at::Tensor x = at::randn({3});
  for (int call = 0; call < 4; ++call) {
    constant.fill_(call);
    EXPECT_TRUE(same_values(compiled(x), x * constant));
  }
  expect_hits(compiled);
}

}  // namespace aot_14_modules_test
}  // namespace ahead::conformance
