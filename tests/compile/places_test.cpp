#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "support/eager.h"
#include "support/hits.h"

/// Places are told by the names of functions, which must not be inlined.
#define AHEAD_OWN_FRAME __attribute__((noinline, noclone))

namespace ahead {
namespace places_test {

using at::Tensor;

AHEAD_OWN_FRAME Tensor sine_of(const Tensor& x) {
  Tensor y = x.sin();
  return y;
}

AHEAD_OWN_FRAME Tensor product_of(const Tensor& x, const Tensor& y) {
  Tensor z = x * y;
  return z;
}

AHEAD_OWN_FRAME void double_it(Tensor x) {
  x.mul_(2);
}

/// x is used twice, so that its gradients are added up.
AHEAD_OWN_FRAME Tensor function_of(const Tensor& x) {
  Tensor y = product_of(sine_of(x), x);
  return y;
}

const std::string* place_of(const Graph& graph, const std::string& op) {
  for (const Node& node : graph.nodes()) {
    if (node.op().name() == op) return node.place;
  }
  ADD_FAILURE() << op << "\n" << graph.str();
  return nullptr;
}

/// Whether these functions are named, innermost first, and this file.
void expect_place(const std::string* place, const std::vector<std::string>& functions) {
  ASSERT_NE(place, nullptr);
  EXPECT_NE(place->find("places_test.cpp:"), std::string::npos) << *place;
  size_t last = 0;
  for (const std::string& function : functions) {
    const size_t at = place->find(function, last);
    EXPECT_NE(at, std::string::npos) << function << " in " << *place;
    last = at == std::string::npos ? last : at;
  }
  for (const char* other : {"libtorch", "libahead", "/include/ahead/", "TestBody", "/ATen/"})
    EXPECT_EQ(place->find(other), std::string::npos) << *place;
}

/// Every node but those that add up gradients says where its operator was called.
void expect_places(const Graph& joint) {
  size_t sums = 0;
  for (const Node& node : joint.nodes()) {
    const bool adds = node.has(Tag::GradientAccumulation);
    EXPECT_EQ(node.place == nullptr, adds) << node.op().name() << "\n" << joint.str();
    sums += adds ? 1 : 0;
  }
  EXPECT_EQ(sums, 1u) << joint.str();
  expect_place(place_of(joint, "aten.sin"), {"sine_of", "function_of"});
  expect_place(place_of(joint, "aten.mul.Tensor"), {"product_of", "function_of"});
  EXPECT_EQ(place_of(joint, "aten.cos"), place_of(joint, "aten.sin"));
  EXPECT_EQ(place_of(joint, "aten.sin")->find("product_of"), std::string::npos);
}

Graph last_program(const auto& compiled, const std::string& name) {
  Graph graph;
  for (const Program& known : compiled.programs()) {
    if (known.name == name) graph = *known.graph;
  }
  EXPECT_NE(graph.num_nodes(), 0u) << name;
  return graph;
}

TEST(Places, OfATracedFunction) {
  const Tensor x = leaf({3});
  expect_places(trace_joint_with({.record_places = true}, function_of, x));
}

TEST(Places, AreOnlyRecordedOnRequest) {
  const JointGraph joint = trace_joint(function_of, leaf({3}));
  for (const Node& node : joint.nodes()) {
    EXPECT_EQ(node.place, nullptr);
    EXPECT_FALSE(node.has(Tag::GradientAccumulation));
  }
}

TEST(Places, OfACompiledFunction) {
  const Tensor x = leaf({3});
  for (const Confirm confirm : {Confirm(Confirm::Never), Confirm(Confirm::Doubling)}) {
    auto compiled = compile([](const Tensor& in) { return function_of(in); },
                            {.fullgraph = true, .confirm = confirm, .record_places = true});
    for (int call = 0; call < 3; ++call) {
      const Tensor expected = torch::autograd::grad({function_of(x).sum()}, {x})[0];
      EXPECT_TRUE(torch::autograd::grad({compiled(x).sum()}, {x})[0].equal(expected));
    }
    EXPECT_EQ(compiled.stats().eager_calls, 0u);
    expect_places(last_program(compiled, "trace"));
    const Graph backward = last_program(compiled, "partition.backward");
    expect_place(place_of(backward, "aten.cos"), {"sine_of", "function_of"});
  }
}

TEST(Places, OfAFunctionForACompilerOfTheUsers) {
  auto compiled = aot::function(
      [](const std::vector<Tensor>& in) -> std::vector<Tensor> { return {function_of(in[0])}; },
      {.options = {.fullgraph = true, .confirm = 0, .record_places = true}});
  compiled(std::vector<Tensor>{leaf({3})});
  EXPECT_EQ(compiled.stats().eager_calls, 0u);
  expect_places(last_program(compiled, "trace"));
}

// A write to an argument is called where the user's code wrote, and each argument is written to
// once.
TEST(Places, OfWritesToArguments) {
  const auto f = [](Tensor total, const Tensor& x) {
    double_it(total);
    double_it(total);
    return sine_of(x);
  };
  auto compiled = compile(f, {.fullgraph = true,
                              .confirm = 0,
                              .skip_passes = {"reinplace_mutations"},
                              .record_places = true});
  const Tensor x = leaf({3});
  Tensor total = at::ones({3}), expected = at::ones({3});
  for (int call = 0; call < 3; ++call) {
    compiled(total, x);
    f(expected, x);
    EXPECT_TRUE(total.equal(expected));
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0u);
  const Graph forward = last_program(compiled, "keep_mutations.forward");
  size_t writes = 0;
  for (const Node& node : forward.nodes()) writes += node.op().name() == "aten.copy_" ? 1 : 0;
  EXPECT_EQ(writes, 1u) << forward.str();
  expect_place(place_of(forward, "aten.copy_"), {"double_it"});
}

// Operators that others are made of, and those of a backward inside the function, are called where
// the user's code called the whole.
TEST(Places, OfWhatIsInsideOfOthers) {
  const auto f = [](const Tensor& x) {
    const Tensor y = function_of(x);
    return torch::autograd::grad({y.sum()}, {x}, {}, true, true)[0];
  };
  auto compiled = compile(f, {.fullgraph = true, .confirm = 0, .record_places = true});
  const Tensor x = leaf({3});
  for (int call = 0; call < 3; ++call) EXPECT_TRUE(compiled(x).equal(f(x)));
  EXPECT_EQ(compiled.stats().eager_calls, 0u);
  const Graph graph = last_program(compiled, "trace");
  for (const Node& node : graph.nodes()) {
    EXPECT_EQ(node.place == nullptr, node.has(Tag::GradientAccumulation)) << node.op().name();
  }
}

struct Scaled : torch::autograd::Function<Scaled> {
  AHEAD_OWN_FRAME static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x) {
    Tensor y = x * 3;
    return y;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0].exp()};
  }
};

AHEAD_OWN_FRAME Tensor scaled(const Tensor& x) {
  Tensor y = Scaled::apply(x);
  return y;
}

TEST(Places, OfCustomAutogradFunctions) {
  auto compiled = compile([](const Tensor& x) { return scaled(x).sin(); },
                          {.fullgraph = true, .confirm = 0, .record_places = true});
  const Tensor x = leaf({3});
  const Tensor expected = torch::autograd::grad({scaled(x).sin().sum()}, {x})[0];
  for (int call = 0; call < 3; ++call)
    EXPECT_TRUE(torch::autograd::grad({compiled(x).sum()}, {x})[0].equal(expected));
  EXPECT_EQ(compiled.stats().eager_calls, 0u);
  const Graph graph = last_program(compiled, "trace");
  expect_place(place_of(graph, "aten.mul.Scalar"), {"Scaled::forward", "scaled"});
  EXPECT_EQ(place_of(graph, "aten.exp"), place_of(graph, "aten.mul.Scalar"));
}

TEST(Places, AreReadBackFromTheText) {
  const JointGraph joint = trace_joint_with({.record_places = true}, function_of, leaf({3}));
  const std::string text = joint.str();
  const Graph read = Graph::parse(text);
  EXPECT_EQ(read.str(), text);
  EXPECT_EQ(read.first()->place, joint.first()->place);
  EXPECT_NE(text.find(" at=\""), std::string::npos) << text;
  EXPECT_NE(text.find("!gradient_accumulation"), std::string::npos) << text;
}

}  // namespace places_test
}  // namespace ahead
