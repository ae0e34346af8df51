#include "conformance/aot_26_export.h"
#include "support/round_trip.h"

/// Joint graphs whose inputs and outputs are named: with a tangent for each result.
namespace ahead::conformance {
namespace aot_26_export_names_test {

using aot::ExportedModule;
using Names = std::vector<std::string>;
using Positions = GraphSignature::Names;
using InputKind = GraphSignature::InputKind;
using OutputKind = GraphSignature::OutputKind;

/// Runs an exported joint graph with tangents as a forward and a backward, and compares it with the
/// eager module: results, buffers, gradients.
template <class Holder>
void expect_joint_like_eager(Holder module, const Tensors& inputs) {
  const ExportedModule exported =
      aot::export_module(module, inputs, {.trace_joint = true, .no_tangents = false});
  expect_round_trip(exported.graph);
  Tensors arguments;
  for (const at::Tensor& tensor : exported.tensors) arguments.push_back(tensor.detach().clone());
  for (const at::Tensor& input : inputs) arguments.push_back(input.detach());
  const PartitionedGraphs halves =
      partition_min_cut(exported.graph, {.static_inputs = exported.signature.static_inputs()});
  const Tensors made = interpret(halves.forward, arguments);

  const std::vector<at::Tensor> results = ahead::flatten(module->forward(inputs[0])).leaves;
  Tensors expected, wanted, tangents, differentiated;
  for (const auto& [position, name] : exported.signature.buffers_to_mutate())
    expected.push_back(module->named_buffers()[name]);
  for (const at::Tensor& result : results) {
    expected.push_back(result.detach());
    if (!result.requires_grad()) continue;
    differentiated.push_back(result);
    tangents.push_back(torch::randn_like(result));
  }
  expect_same(expected,
              Tensors(made.begin(), made.begin() + static_cast<int64_t>(expected.size())));
  for (const auto& [position, name] : exported.signature.positions_of(OutputKind::Gradient))
    wanted.push_back(module->named_parameters()[name]);
  Tensors backward(made.end() - static_cast<int64_t>(halves.saved.size()), made.end());
  backward.insert(backward.end(), tangents.begin(), tangents.end());
  expect_same(torch::autograd::grad(differentiated, wanted, tangents),
              interpret(halves.backward, backward));
}

TEST(AotExport, test_simple_linear_module) {
  torch::nn::Linear module(3, 2);
  const at::Tensor x = torch::randn({4, 3});
  const ExportedModule exported =
      aot::export_module(module, {x}, {.trace_joint = true, .no_tangents = false});
  EXPECT_EQ(exported.signature.str(),
            "input parameter \"weight\"\n"
            "input parameter \"bias\"\n"
            "input user_input \"arg0\"\n"
            "input tangent \"out0\"\n"
            "output user_output \"out0\"\n"
            "output gradient \"weight\"\n"
            "output gradient \"bias\"\n");
  EXPECT_EQ(input_slots(exported.graph), "Primal 0, Primal 1, Primal 2, Tangent 0");
  EXPECT_EQ(output_slots(exported.graph), "Output 0, GradOf 0, GradOf 1");
  expect_joint_like_eager(module, {x});
}

TEST(AotExport, test_conv_bn_module) {
  ConvBn module;
  const at::Tensor x = torch::randn({2, 1, 3, 3});
  const ExportedModule exported =
      aot::export_module(module, {x}, {.trace_joint = true, .no_tangents = false});
  EXPECT_EQ(exported.signature.buffers().size(), 3u);
  EXPECT_EQ(
      exported.signature.buffers_to_mutate(),
      (Positions{{0, "bn.running_mean"}, {1, "bn.running_var"}, {2, "bn.num_batches_tracked"}}));
  EXPECT_EQ(input_slots(exported.graph),
            "Primal 0, Primal 1, Primal 2, Primal 3, Primal 4, Primal 5, Primal 6, Primal 7, "
            "Tangent 3");
  expect_joint_like_eager(module, {x});
}

TEST(AotExport, test_module_with_kwargs) {
  // C++ has default arguments instead.
  struct ScaledImpl : torch::nn::Module {
    ScaledImpl() { linear = register_module("linear", torch::nn::Linear(3, 2)); }
    at::Tensor forward(const at::Tensor& x, const std::optional<at::Tensor>& scale = {}) {
      const at::Tensor y = linear->forward(x);
      return scale ? y * *scale : y;
    }
    torch::nn::Linear linear{nullptr};
  };
  auto module = std::make_shared<ScaledImpl>();
  const at::Tensor x = torch::randn({4, 3}), scale = torch::rand({2});
  const ExportedModule exported =
      aot::export_module(module, {x, scale}, {.trace_joint = true, .no_tangents = false});
  EXPECT_EQ(exported.signature.user_inputs(), (Names{"arg0", "arg1"}));
  EXPECT_EQ(exported.signature.find_input("arg1"), 3);
  const at::Tensor tangent = torch::randn({4, 2}), y = module->forward(x, scale);
  const auto results = exported.prepare().run({x, scale}, {tangent});
  expect_same({y.detach()}, results.outputs);
  expect_same(torch::autograd::grad({y}, {module->linear->weight, module->linear->bias}, {tangent}),
              {results.gradients.at("linear.weight"), results.gradients.at("linear.bias")});
  const ExportedModule without = aot::export_module(module, {x});
  EXPECT_EQ(without.signature.user_inputs(), Names{"arg0"});
}

struct TwoHeadsImpl : torch::nn::Module {
  TwoHeadsImpl() {
    first = register_module("linear1", torch::nn::Linear(3, 2));
    second = register_module("linear2", torch::nn::Linear(3, 4));
  }
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x) {
    return {first->forward(x), second->forward(x)};
  }
  torch::nn::Linear first{nullptr}, second{nullptr};
};
TORCH_MODULE(TwoHeads);

TEST(AotExport, test_multiple_outputs_module) {
  TwoHeads module;
  const at::Tensor x = torch::randn({4, 3});
  const ExportedModule exported =
      aot::export_module(module, {x}, {.trace_joint = true, .no_tangents = false});
  EXPECT_EQ(exported.signature.names_of(InputKind::Tangent), (Names{"out0", "out1"}));
  EXPECT_EQ(exported.signature.gradients_to_parameters().size(), 4u);
  expect_joint_like_eager(module, {x});
}

TEST(AotExport, test_in_out_specs) {
  torch::nn::Sequential module(torch::nn::Linear(3, 2), torch::nn::Tanh());
  const at::Tensor x = torch::randn({4, 3});
  const ExportedModule exported =
      aot::export_module(module, {x}, {.trace_joint = true, .no_tangents = false});
  EXPECT_EQ(exported.signature.inputs.size(), exported.graph.inputs().size());
  EXPECT_EQ(exported.signature.outputs.size(), exported.graph.outputs().size());
  EXPECT_TRUE(exported.signature.buffers().empty());
  EXPECT_NO_THROW(exported.signature.check(exported.graph));
  const ExportedModule inference = aot::export_module(module, {x});
  expect_same({module->forward(x).detach()}, inference({x}));
}

TEST(AotExport, test_fx_utils_simple_linear) {
  torch::nn::Linear module(3, 2);
  const ExportedModule exported = aot::export_module(module, {torch::randn({4, 3})},
                                                     {.trace_joint = true, .no_tangents = false});
  const GraphSignature& signature = exported.signature;
  for (const char* name : {"weight", "bias"}) {
    const int64_t input = signature.find_input(name);
    ASSERT_GE(input, 0);
    EXPECT_EQ(exported.graph.find_output({Slot::Kind::GradOf, static_cast<int32_t>(input)}),
              signature.find_output(OutputKind::Gradient, name));
  }
  EXPECT_EQ(signature.find_output(OutputKind::Gradient, "arg0"), -1);
  const int64_t output = signature.find_output(OutputKind::UserOutput, "out0");
  EXPECT_GE(exported.graph.find_input({Slot::Kind::Tangent, static_cast<int32_t>(output)}), 0);
}

TEST(AotExport, test_fx_utils_conv_bn_module) {
  ConvBn module;
  const ExportedModule exported = aot::export_module(module, {torch::randn({2, 1, 3, 3})},
                                                     {.trace_joint = true, .no_tangents = false});
  EXPECT_EQ(exported.signature.inputs_to_parameters().size(), 4u);
  EXPECT_EQ(exported.signature.inputs_to_buffers().size(), 3u);
  EXPECT_EQ(exported.graph.inputs().size(), 9u);
}

TEST(AotExport, test_fx_utils_multiple_outputs) {
  TwoHeads module;
  const ExportedModule exported = aot::export_module(module, {torch::randn({4, 3})},
                                                     {.trace_joint = true, .no_tangents = false});
  for (const std::string& name : exported.signature.user_outputs()) {
    const int64_t output = exported.signature.find_output(OutputKind::UserOutput, name);
    const int64_t tangent =
        exported.graph.find_input({Slot::Kind::Tangent, static_cast<int32_t>(output)});
    ASSERT_GE(tangent, 0);
    EXPECT_EQ(exported.signature.inputs[static_cast<size_t>(tangent)].name, name);
  }
  EXPECT_EQ(exported.signature.user_outputs().size(), 2u);
  EXPECT_EQ(exported.graph.outputs().size(), 6u);
}

TEST(AotExport, test_fx_utils_node_consistency) {
  TwoHeads module;
  const ExportedModule exported = aot::export_module(module, {torch::randn({4, 3})},
                                                     {.trace_joint = true, .no_tangents = false});
  const GraphSignature& signature = exported.signature;
  for (const auto& [position, name] : signature.inputs_to_parameters()) {
    EXPECT_EQ(signature.find_input(name), position);
    EXPECT_EQ(exported.tensor(name).unsafeGetTensorImpl(),
              module->named_parameters()[name].unsafeGetTensorImpl());
  }
  for (const auto& [position, name] : signature.gradients_to_parameters())
    EXPECT_EQ(signature.find_output(OutputKind::Gradient, name), position);
}

TEST(AotExport, test_static_input_indices) {
  torch::nn::Linear module(3, 2);
  const ExportedModule exported = aot::export_module(module, {torch::randn({4, 3})}, {});
  EXPECT_EQ(exported.signature.static_inputs(), (std::vector<int64_t>{0, 1}));
}

// Places stand for annotations here.
TEST(AotExport, test_no_annotation_on_gradient_acc_nodes) {
  const JointGraph joint = trace_joint_with(
      {.record_places = true}, [](const at::Tensor& x) { return x.sin() * x.exp(); }, leaf({3}));
  size_t sums = 0;
  for (const Node& node : joint.nodes()) {
    const bool adds = node.phase == Phase::Backward && node.op().name() == "aten.add.Tensor";
    EXPECT_EQ(node.has(Tag::GradientAccumulation), adds) << joint.str();
    EXPECT_EQ(node.place == nullptr, adds) << joint.str();
    sums += adds ? 1 : 0;
  }
  EXPECT_EQ(sums, 1u);
}

}  // namespace aot_26_export_names_test
}  // namespace ahead::conformance
