#include "conformance/aot_support.h"
#include "ir/copy.h"
#include "support/halves.h"

namespace ahead::conformance {
namespace aot_17_partitioners_test {

TEST(AotPartitioners, test_recompute_partitioning) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors { return {in[0].sin().sin() + in[1]}; },
      {leaf({3, 3}), leaf({3, 3})});
}

TEST(AotPartitioners, test_partitioned_backward_nodes_are_backward_tagged) {
  JointGraph joint =
      trace_joint([](const at::Tensor& x) { return x.sin().cos().sum(); }, leaf({4}));
  for (Node& node : joint.nodes()) {
    if (node.phase == Phase::Forward && node.op().name() == "aten.sin")
      node.set(Tag::MustRecompute);
  }
  const PartitionedGraphs graphs = partition_default(joint);
  size_t computed_again = 0;
  for (const Node& node : graphs.backward.nodes()) {
    if (node.phase == Phase::Forward) {
      // Computed again, which the phase still tells.
      ++computed_again;
    }
  }
  EXPECT_EQ(computed_again, 1u);
  for (const Node& node : graphs.forward.nodes()) EXPECT_EQ(node.phase, Phase::Forward);
}

TEST(AotPartitioners, test_meta_tensor_inplace_op) {
  torch::nn::Linear linear(8, 8);
  auto f = [linear](const at::Tensor& x) mutable { return at::gelu(linear->forward(x)).mul_(2); };
  const PartitionedGraphs graphs = partition_default(trace_joint(f, leaf({2, 8})));
  for (const Node& node : graphs.forward.nodes()) {
    for (const Value* result : node.results()) {
      if (result == nullptr) continue;
      EXPECT_GT(result->meta.numel().fixed(), 0) << node.op().name();
    }
  }
}

/// Counts inputs and outputs: (in, out).
std::pair<size_t, size_t> arity(const Graph& graph) {
  return {graph.inputs().size(), graph.outputs().size()};
}

TEST(AotPartitioners, test_default_partitioner_getitem) {
  // layer_norm is one operator here; its mean and rstd are saved, as in eager.
  const PartitionedGraphs graphs = partition_default(
      trace_joint([](const at::Tensor& x, const at::Tensor& weight,
                     const at::Tensor& bias) { return at::layer_norm(x, {10}, weight, bias); },
                  leaf({10, 10}), leaf({10}), leaf({10})));
  EXPECT_EQ(arity(graphs.forward), std::make_pair(size_t{3}, 1 + graphs.saved.size()));
  EXPECT_EQ(arity(graphs.backward), std::make_pair(graphs.saved.size() + 1, size_t{3}));
  EXPECT_EQ(graphs.saved.size(), 5u);
}

TEST(AotPartitioners, test_custom_partitioner_fn) {
  int calls = 0;
  const PartitionFunction partitioner = [&calls](const JointGraph& joint) {
    ++calls;
    JointGraph tagged = joint;
    for (Node& node : tagged.nodes()) {
      if (node.phase == Phase::Forward) node.set(Tag::MustRecompute);
    }
    return partition_default(tagged);
  };
  auto compiled = compiled_by_call([](const at::Tensor& x) { return x.cos().cos(); },
                                   {.fullgraph = true, .partitioner = partitioner}, leaf({3}));
  const at::Tensor x = leaf({3}), y = x.detach().clone().set_requires_grad(true);
  compiled(x).sum().backward();
  y.cos().cos().sum().backward();
  EXPECT_EQ(tensor_difference(y.grad(), x.grad()), "");
  expect_hits(compiled);
  EXPECT_EQ(calls, 1);
  // Only the argument is saved, which the caller has anyway.
  EXPECT_EQ(output_slots(program(compiled, "partition.forward")), "Output 0");
  EXPECT_EQ(count(program(compiled, "partition.backward"), "aten.cos"), 1u);
}

TEST(AotPartitioners, test_default_partitioner_output_tensor_shape_tensor) {
  auto compiled = compile(
      [](const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, const at::Tensor& d) {
        const at::Tensor x = at::cat({a.expand(b.sizes()), c});
        return std::make_tuple(x, x.sizes().vec(), d, x * d.sum());
      },
      {.fullgraph = true, .confirm = 0});
  for (int call = 0; call < 3; ++call) {
    const Tensors in = {leaf({1, 4}), leaf({3, 4}), leaf({2, 4}), leaf({5})};
    const auto [x, sizes, d, product] = compiled(in[0], in[1], in[2], in[3]);
    EXPECT_EQ(sizes, std::vector<int64_t>({5, 4}));
    EXPECT_TRUE(d.is_same(in[3]));
    const at::Tensor expected = at::cat({in[0].expand({3, 4}), in[2]});
    EXPECT_EQ(tensor_difference(expected, x), "");
    EXPECT_EQ(tensor_difference(expected * d.sum(), product), "");
    product.sum().backward();
    EXPECT_TRUE(in[0].grad().defined() && !in[1].grad().defined() && in[3].grad().defined());
  }
  expect_hits(compiled);
}

TEST(AotPartitioners, test_contiguous) {
  auto compiled = compiled_by_call(
      [](const at::Tensor& x) {
        return x.view({2, 3}).t();
      },
      {.fullgraph = true}, leaf({6}));
  const at::Tensor x = leaf({6});
  const at::Tensor tangent = at::randn({2, 3}).t();
  const at::Tensor gradient = torch::autograd::grad({compiled(x)}, {x}, {tangent})[0];
  EXPECT_TRUE(same_values(gradient, tangent.t().reshape({6})));
  expect_hits(compiled);
}

/// Five calls with both partitioners, as users of memory-efficient fusion make them.
void expect_fused_like_eager(const aot::FlatFunction& f, const Tensors& inputs) {
  for (const Partitioner partitioner : {Partitioner::Default, Partitioner::MinCut}) {
    auto compiled = compile(f, {.fullgraph = true, .partitioner = partitioner, .confirm = 0});
    for (int call = 0; call < 5; ++call) {
      const Tensors eager_in = with_grad(inputs), own_in = with_grad(inputs);
      const at::Tensor expected = f(eager_in)[0], actual = compiled(own_in)[0];
      EXPECT_EQ(tensor_difference(expected, actual), "");
      const at::Tensor tangent = at::randn(expected.sizes());
      expected.backward(tangent);
      actual.backward(tangent);
      for (size_t i = 0; i < inputs.size(); ++i)
        EXPECT_EQ(tensor_difference(eager_in[i].grad(), own_in[i].grad()), "") << "input " << i;
    }
    expect_hits(compiled);
  }
}

TEST(AotPartitioners, test_gelu_bias) {
  expect_fused_like_eager(
      [](const Tensors& in) -> Tensors {
        const at::Tensor x = in[1] + in[0];
        return {x * 0.5 * (1.0 + at::tanh(0.79788456 * x * (1 + 0.044715 * x * x)))};
      },
      {at::randn({4, 32}), at::randn({32})});
}

TEST(AotPartitioners, test_mish) {
  expect_fused_like_eager(
      [](const Tensors& in) -> Tensors { return {in[0].mul(at::softplus(in[0]).tanh())}; },
      {at::randn({4, 32})});
}

TEST(AotPartitioners, test_swish) {
  expect_fused_like_eager([](const Tensors& in) -> Tensors { return {in[0] * in[0].sigmoid()}; },
                          {at::randn({4, 32})});
}

TEST(AotPartitioners, test_hard_sigmoid) {
  expect_fused_like_eager(
      [](const Tensors& in) -> Tensors { return {(in[0] + 3).clamp(0, 6).div(6)}; },
      {at::randn({4, 32})});
}

TEST(AotPartitioners, test_hard_swish) {
  expect_fused_like_eager(
      [](const Tensors& in) -> Tensors { return {in[0] * (in[0] + 3).clamp(0, 6).div(6)}; },
      {at::randn({4, 32})});
}

TEST(AotPartitioners, test_rmsnorm) {
  expect_fused_like_eager(
      [](const Tensors& in) -> Tensors {
        const at::Tensor variance = in[0].pow(2).mean(-1, /*keepdim=*/true);
        return {in[1] * (in[0] * at::rsqrt(variance + 1e-6))};
      },
      {at::randn({4, 32}), at::randn({32})});
}

/// A backward graph as one that can be cut again: the first gradient is what the forward gives.
JointGraph cut_again(const Graph& backward) {
  JointGraph joint;
  std::vector<Value*> operands;
  for (const Graph::Input& input : backward.inputs()) {
    const auto position = static_cast<int32_t>(operands.size());
    operands.push_back(joint.add_input({Slot::Kind::Primal, position}, input.value->meta));
  }
  const std::vector<Value*> gradients = inline_graph(joint, backward, operands);
  joint.add_output(gradients[0], {Slot::Kind::Output, 0});
  for (size_t i = 1; i < gradients.size(); ++i) {
    joint.add_output(gradients[i], {Slot::Kind::GradOf, static_cast<int32_t>(i)});
  }
  return joint;
}

TEST(AotPartitioners, test_extract_fwd_bwd_modules_omit_aot_autograd_runtime) {
  const JointGraph joint =
      trace_joint([](const at::Tensor& x, const at::Tensor& weight,
                     const at::Tensor& bias) { return at::linear(x, weight, bias).relu(); },
                  leaf({4, 3}), leaf({5, 3}), leaf({5}));
  const Graph backward = partition_default(joint).backward;
  ASSERT_EQ(output_slots(backward), "GradOf 0, GradOf 1, GradOf 2");
  const JointGraph whole = cut_again(backward);
  whole.verify();
  Tensors args;
  for (const Graph::Input& input : backward.inputs()) {
    const TensorMeta& meta = input.value->meta;
    args.push_back(at::empty_strided(meta.sizes, meta.strides).normal_());
  }
  EXPECT_EQ(results_difference(backward, whole, args), "");
  for (const PartitionedGraphs& graphs : {partition_default(whole), partition_min_cut(whole)}) {
    EXPECT_EQ(halves_problem(whole, graphs, args), "");
    for (const Graph* half : {&graphs.forward, &graphs.backward}) {
      EXPECT_EQ(count(*half, "aten.mm"), 1u);
      for (const Graph::Input& input : half->inputs()) {
        EXPECT_NE(input.slot.kind, Slot::Kind::Tangent);
      }
    }
  }
}

}  // namespace aot_17_partitioners_test
}  // namespace ahead::conformance
