#include "conformance/aot_support.h"

namespace ahead::conformance {
namespace aot_24_tangent_layout_test {

/// Differentiates with the given tangents, each in eager and compiled.
void expect_same_for_tangents(const aot::FlatFunction& f, const Tensors& inputs,
                              const Tensors& tangents) {
  auto compiled = compile(f, {.fullgraph = true, .confirm = 0});
  for (const at::Tensor& tangent : tangents) {
    for (int call = 0; call < 2; ++call) {
      const Tensors eager_in = with_grad(inputs), own_in = with_grad(inputs);
      const at::Tensor expected = f(eager_in)[0], actual = compiled(own_in)[0];
      EXPECT_EQ(expected.strides(), actual.strides());
      expected.backward(tangent);
      actual.backward(tangent.clone());
      for (size_t i = 0; i < inputs.size(); ++i) {
        EXPECT_TRUE(same_values(eager_in[i].grad(), own_in[i].grad()));
      }
    }
  }
  expect_hits(compiled);
}

TEST(AotTangentLayout, test_grads_no_force_contiguous_dense) {
  const at::Tensor x = at::randn({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast);
  expect_same_for_tangents([](const Tensors& in) -> Tensors { return {in[0] * in[1]}; },
                           {x, x.clone()},
                           {at::randn({2, 3, 4, 5}),
                            at::randn({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast)});
  const auto compiled =
      compiled_once([](const Tensors& in) -> Tensors { return {in[0] * in[0]}; }, with_grad({x}));
  const Graph backward = program(compiled, "partition.backward");
  for (const Graph::Input& input : backward.inputs()) {
    if (input.slot.kind != Slot::Kind::Tangent) continue;
    EXPECT_EQ(at::IntArrayRef(input.value->meta.strides), x.strides());
  }
}

TEST(AotTangentLayout, test_backward_with_expanded_computed_output) {
  expect_same_for_tangents(
      [](const Tensors& in) -> Tensors {
        return {(in[0] * 2).expand({4, 3})};
      },
      {at::randn({1, 3})}, {at::randn({4, 3})});
  expect_same_for_tangents(
      [](const Tensors& in) -> Tensors {
        return {in[0].sum(0, true).expand({2, 5, 3}) * 1};
      },
      {at::randn({4, 3})}, {at::randn({2, 5, 3})});
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        return {(in[0] * 2).expand({4, 3})};
      },
      {leaf({1, 3})}, {.write_to_outputs = false});
}

TEST(AotTangentLayout, test_noncontig_nonmemformat_tangents) {
  expect_same_for_tangents(
      [](const Tensors& in) -> Tensors { return {(in[0] * in[0]).transpose(0, 1)}; },
      {at::randn({3, 5})},
      {at::randn({5, 3}), at::randn({5, 1}).expand({5, 3}), at::randn({5, 6}).slice(1, 0, 6, 2),
       at::randn({3, 5}).t()});
}

TEST(AotTangentLayout, OnlyResultsThatRequireGradHaveATangent) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    return {in[0].detach() * 3, in[0].argmax(), (in[0] * 2).view({3, 2}).t()};
  };
  const JointGraph joint = trace_joint(f, {leaf({6})});
  ASSERT_EQ(input_slots(joint), "Primal 0, Tangent 2");
  EXPECT_EQ(joint.inputs()[1].value->meta.sizes, joint.outputs()[2].value->meta.sizes);
  expect_compiled_like_eager(f, {leaf({6})});
}

}  // namespace aot_24_tangent_layout_test
}  // namespace ahead::conformance
