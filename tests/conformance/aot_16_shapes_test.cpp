#include "conformance/aot_support.h"

namespace ahead::conformance {
namespace aot_16_shapes_test {

TEST(AotShapes, test_dynamic_shape_output_not_in_bw_graph) {
  auto compiled =
      compiled_by_call([](const at::Tensor& x) { return std::make_tuple(x + 1, x.size(0)); },
                       {.fullgraph = true}, leaf({5}));
  const auto [out, size] = compiled(leaf({5}));
  EXPECT_EQ(size, 5);
  EXPECT_TRUE(out.requires_grad());
  expect_hits(compiled);
  const Graph backward = program(compiled, "partition.backward");
  EXPECT_EQ(input_slots(backward), "Tangent 0");
  EXPECT_EQ(backward.num_nodes(), 0u);
}

TEST(AotShapes, test_default_partitioner_saves_symints_not_tensors_for_bw) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        in[0].select(0, 0).masked_fill_(in[1], 0);
        return {in[0] * 2};
      },
      {leaf({2, 3}), at::randn({3}) > 0}, {.non_leaf_inputs = true});
}

TEST(AotShapes, test_output_op_depending_on_symint) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors { return {in[0].expand(in[0].sizes())}; }, {leaf({5, 3})});
}

TEST(AotShapes, test_aot_module_simplified_dynamic) {
  torch::nn::Linear eager(20, 30), own(20, 30);
  {
    at::NoGradGuard no_grad;
    own->weight.copy_(eager->weight);
    own->bias.copy_(eager->bias);
  }
  auto compiled = compile(own, {.fullgraph = true, .confirm = 0});
  for (const int64_t batch : {2, 5, 9, 5, 2, 9}) {
    const at::Tensor x = at::randn({batch, 20});
    const at::Tensor expected = eager->forward(x), actual = compiled(x);
    EXPECT_EQ(tensor_difference(expected, actual), "");
    expected.square().sum().backward();
    actual.square().sum().backward();
    EXPECT_EQ(tensor_difference(eager->weight.grad(), own->weight.grad()), "");
    EXPECT_EQ(tensor_difference(eager->bias.grad(), own->bias.grad()), "");
  }
  expect_hits(compiled, 3);
}

TEST(AotShapes, test_compiled_backward_dynamic_shapes) {
  auto compiled = compile([](const at::Tensor& x) { return x * x; }, {.fullgraph = true});
  for (int round = 0; round < 4; ++round) {
    for (const int64_t size : {4, 8, 16, 5, 9}) {
      const at::Tensor x = leaf({size});
      compiled(x).sum().backward();
      EXPECT_TRUE(same_values(x.grad(), 2 * x.detach()));
    }
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0u);
  EXPECT_LE(compiled.stats().compilations, 2u);
  EXPECT_GT(compiled.stats().cache_hits, 8u);
}

}  // namespace aot_16_shapes_test
}  // namespace ahead::conformance
