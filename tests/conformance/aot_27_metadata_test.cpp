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

bool is_of_this_file(const Node& node) {
  return node.place != nullptr &&
         node.place->find("aot_27_metadata_test.cpp:") != std::string::npos;
}

/// The places of functions that are inlined are those of the functions around them.
struct TwoLayers : torch::nn::Module {
  TwoLayers() : linear(register_module("linear", torch::nn::Linear(3, 3))) {}
  __attribute__((noinline, noclone)) at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = linear(x).relu();
    return y;
  }
  torch::nn::Linear linear;
};

const Options with_places{.fullgraph = true, .confirm = Confirm::Never, .record_places = true};

TEST(AotNodeMetadata, test_aot_module_simplified_preserves_stack_trace) {
  auto compiled = compile(std::make_shared<TwoLayers>(), with_places);
  compiled(at::randn({4, 3})).sum().backward();
  EXPECT_EQ(compiled.stats().eager_calls, 0u);
  for (const char* part : {"partition.forward", "partition.backward"}) {
    const Graph graph = program(compiled, part);
    EXPECT_NE(graph.num_nodes(), 0u);
    for (const Node& node : graph.nodes()) EXPECT_TRUE(is_of_this_file(node)) << graph.str();
  }
}

__attribute__((noinline, noclone)) void double_it(at::Tensor x) {
  x.mul_(2);
}

TEST(AotNodeMetadata, test_aot_module_simplified_preserves_stack_trace_from_mutation) {
  const auto compiled = compiled_once(
      [](const Tensors& in) -> Tensors {
        double_it(in[0]);
        return {in[1].sin()};
      },
      {at::randn({3}), leaf({3})}, with_places);
  EXPECT_EQ(compiled.stats().eager_calls, 0u);
  const Graph forward = program(compiled, "keep_mutations.forward");
  const Node *made = nullptr, *written = nullptr;
  for (const Node& node : forward.nodes()) {
    if (node.op().name() == "aten.mul.Scalar") made = &node;
    if (node.op().name() == "aten.copy_") written = &node;
  }
  ASSERT_NE(made, nullptr) << forward.str();
  ASSERT_NE(written, nullptr) << forward.str();
  EXPECT_TRUE(is_of_this_file(*written));
  EXPECT_EQ(written->place, made->place);
}

at::Tensor twice(const at::Tensor& x) {
  return x * 2;
}
TORCH_LIBRARY(ahead_places_test, m) {
  m.def("twice(Tensor x) -> Tensor");
}
TORCH_LIBRARY_IMPL(ahead_places_test, CPU, m) {
  m.impl("twice", twice);
}

__attribute__((noinline, noclone)) at::Tensor call_twice(const at::Tensor& x) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("ahead_places_test::twice", "")
                             .typed<at::Tensor(const at::Tensor&)>();
  at::Tensor y = op.call(x);
  return y;
}

TEST(AotNodeMetadata, test_custom_op_stack_trace) {
  const auto compiled =
      compiled_once([](const Tensors& in) -> Tensors { return {call_twice(in[0])}; },
                    {at::randn({3})}, with_places);
  EXPECT_EQ(compiled.stats().eager_calls, 0u);
  const Graph graph = program(compiled, "inference");
  ASSERT_EQ(graph.num_nodes(), 1u) << graph.str();
  EXPECT_EQ(graph.first()->op().name(), "ahead_places_test.twice");
  EXPECT_TRUE(is_of_this_file(*graph.first())) << graph.str();
  EXPECT_NE(graph.first()->place->find("call_twice"), std::string::npos) << graph.str();
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
