#include <ATen/autocast_mode.h>

#include <set>

#include "conformance/aot_support.h"

namespace ahead::conformance {
namespace aot_27_metadata_test {

TEST(AotNodeMetadata, test_aot_sequence_nr) {
  torch::nn::Sequential module(torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 4, 3).padding(1)),
                               torch::nn::BatchNorm2d(4), torch::nn::ReLU(), torch::nn::Flatten(),
                               torch::nn::Linear(64, 4));
  const JointGraph joint = trace_joint(
      [module](const at::Tensor& x) mutable { return module->forward(x).square().sum(); },
      leaf({1, 4, 4, 4}));
  std::set<int64_t> forward, backward;
  for (const Node& node : joint.nodes()) {
    if (node.phase == Phase::Forward) {
      forward.insert(node.sequence);
    } else {
      EXPECT_NE(node.provenance, nullptr) << node.op().name();
      backward.insert(node.sequence);
    }
  }
  EXPECT_GE(backward.size(), 5u);
  for (const int64_t sequence : backward) EXPECT_EQ(forward.count(sequence), 1u) << sequence;

  // Each backward node belongs to the forward operator whose gradient it is.
  const auto sequence_of = [&](const std::string& op) {
    for (const Node& node : joint.nodes()) {
      if (node.op().name() == op) return node.sequence;
    }
    ADD_FAILURE() << op;
    return int64_t{-1};
  };
  EXPECT_EQ(sequence_of("aten.convolution"), sequence_of("aten.convolution_backward"));
  EXPECT_EQ(sequence_of("aten.relu"), sequence_of("aten.threshold_backward"));
}

TEST(AotMetadata, WritesToInputsBelongToWhatMadeTheContents) {
  const auto compiled = compiled_once(
      [](const Tensors& in) -> Tensors {
        const at::Tensor y = in[0].sin();
        in[1].copy_(y.detach().exp());
        return {y.cos()};
      },
      {leaf({3}), at::randn({3})});
  const Graph forward = program(compiled, "keep_mutations.forward");
  int64_t made = -1, written = -2;
  for (const Node& node : forward.nodes()) {
    if (node.op().name() == "aten.copy") made = node.sequence;
    if (node.op().name() == "aten.copy_") written = node.sequence;
  }
  EXPECT_GE(made, 0);
  EXPECT_EQ(made, written);
}

TEST(AotMetadata, FunctionsThatSwitchAutocastRunEagerly) {
  const auto f = [](const at::Tensor& x) {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    return x.mm(x);
  };
  auto compiled = compile(f);
  for (int call = 0; call < 4; ++call) {
    EXPECT_EQ(compiled(at::randn({3, 3})).scalar_type(), at::kBFloat16);
    EXPECT_TRUE(at::autocast::is_autocast_enabled(at::kCPU));
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
  expect_runs_eagerly(compiled, 2);
  auto strict = compile(f, {.fullgraph = true, .confirm = 0});
  const std::string error = error_of([&] { strict(at::randn({3, 3})); });
  EXPECT_NE(
      error.find("AOTAutograd does not support tracing graphs that mutate the autocast state"),
      std::string::npos)
      << error;
  EXPECT_TRUE(at::autocast::is_autocast_enabled(at::kCPU)) << "the call itself has run";
  at::autocast::set_autocast_enabled(at::kCPU, false);
}

}  // namespace aot_27_metadata_test
}  // namespace ahead::conformance
