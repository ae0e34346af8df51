#include <gtest/gtest.h>

#include "ahead/ahead.h"
#include "ir/copy.h"
#include "support/eager.h"
#include "support/hits.h"
#include "support/journal.h"

namespace ahead {
namespace tokens_test {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using Lines = std::vector<std::string>;

const char* const forward_text = R"(graph(%0: f32[2] Primal 0, %1: f32[2] Primal 1):
  ahead.print("a {}", [%0]) !effect
  %2: f32[2] = aten.mul.Tensor(%0, %1)
  %3: f32[2] = aten.sin(%2) !effect
  _, %4: f32[2] = aten.copy_(%1, %2, false) !effect
  return (none MutatedInput 1, %3 Output 0)
)";

TEST(EffectTokens, AreFirstAmongInputsAndOutputs) {
  Graph graph = Graph::parse(forward_text);
  EXPECT_EQ(lift_effect_tokens(graph), 2u);
  graph.verify();
  EXPECT_EQ(Graph::parse(graph.str()).str(), graph.str());
  EXPECT_EQ(graph.inputs()[0].slot.str(), "Token 0");
  EXPECT_EQ(graph.inputs()[1].slot.str(), "Primal 0");
  EXPECT_EQ(graph.outputs()[0].slot.str(), "Token 0");
  EXPECT_EQ(graph.outputs()[1].slot.str(), "MutatedInput 2") << "positions move";
  EXPECT_EQ(graph.outputs()[2].slot.str(), "Output 0");
  EXPECT_EQ(lift_effect_tokens(graph), 0u) << "a second run changes something";
}

TEST(EffectTokens, AreThreadedThroughEffects) {
  Graph graph = Graph::parse(forward_text);
  lift_effect_tokens(graph);
  const Value* token = graph.inputs()[0].value;
  size_t calls = 0;
  for (const Node& node : graph.nodes()) {
    if (node.op().in_dispatcher()) continue;
    ++calls;
    EXPECT_EQ(node.args()[1].value(), token);
    EXPECT_TRUE(node.has(Tag::Effect));
    EXPECT_EQ(node.args()[0].graph()->num_nodes(), 1u);
    token = node.result(0);
  }
  EXPECT_EQ(calls, 2u) << graph.str();
  EXPECT_EQ(graph.outputs()[0].value, token);
}

TEST(EffectTokens, AreLastInBackwards) {
  Graph graph = Graph::parse(R"(graph(%0: f32[2] Saved 0, %1: f32[2] Tangent 0):
  ahead.print("{}", [%1]) !effect !backward
  %2: f32[2] = aten.mul.Tensor(%0, %1) !backward
  return (%2 GradOf 0)
)");
  const uint64_t before = graph.hash();
  EXPECT_EQ(lift_effect_tokens(graph), 1u);
  graph.verify();
  EXPECT_EQ(graph.inputs()[2].slot.str(), "Token 0");
  EXPECT_EQ(graph.outputs()[1].slot.str(), "Token 0");
  EXPECT_EQ(graph.outputs()[0].slot.str(), "GradOf 0");
  EXPECT_EQ(remove_effect_tokens(graph), 1u);
  EXPECT_EQ(graph.hash(), before) << graph.str();
}

TEST(EffectTokens, SubGraphsHaveOne) {
  Graph graph = Graph::parse(R"(graph(%0: f32[2] Primal 0):
  %1: f32[2] = ahead.call(graph(%0: f32[2] Primal 0): {
    ahead.print("a {}", [%0]) !effect
    ahead.print("b", []) !effect
    %1: f32[2] = aten.sin(%0)
    return (%1 Output 0)
  }, %0) !effect
  return (%1 Output 0)
)");
  const uint64_t before = graph.hash();
  EXPECT_EQ(lift_effect_tokens(graph), 1u);
  graph.verify();
  EXPECT_EQ(graph.num_nodes(), 1u);
  const Tensor x = torch::ones({2});
  std::vector<Tensor> results;
  EXPECT_EQ(journal::printed([&] {
              results = interpret(graph, {torch::empty({0}), x});
            }),
            "a  1\n 1\n[ CPUFloatType{2} ]\nb\n");
  EXPECT_TRUE(at::equal(results[1], x.sin()));
  EXPECT_EQ(remove_effect_tokens(graph), 1u);
  EXPECT_EQ(graph.hash(), before) << graph.str();
}

TEST(EffectTokens, AreMadeInside) {
  Graph graph = Graph::parse(forward_text);
  const uint64_t before = graph.hash();
  lift_effect_tokens(graph);
  EXPECT_EQ(unlift_effect_tokens(graph), 1u);
  graph.verify();
  EXPECT_EQ(graph.first()->op().name(), "ahead.make_token");
  EXPECT_EQ(graph.last()->op().name(), "ahead.sink_token");
  EXPECT_EQ(graph.find_input({Slot::Kind::Token, 0}), -1);
  EXPECT_EQ(graph.outputs()[0].slot.str(), "MutatedInput 1");
  EXPECT_EQ(unlift_effect_tokens(graph), 0u);
  EXPECT_EQ(lift_effect_tokens(graph), 0u);
  EXPECT_EQ(remove_effect_tokens(graph), 2u);
  graph.verify();
  EXPECT_EQ(graph.hash(), before) << graph.str();
}

TEST(EffectTokens, AreInNoGraphWithoutEffects) {
  const std::string text =
      "graph(%0: f32[2] Primal 0):\n  %1: f32[2] = aten.sin(%0)\n  return (%1 Output 0)\n";
  Graph graph = Graph::parse(text);
  EXPECT_EQ(lift_effect_tokens(graph) + unlift_effect_tokens(graph) + remove_effect_tokens(graph),
            0u);
  EXPECT_EQ(graph.str(), text);
}

TEST(EffectTokens, GoInAndComeOut) {
  Graph graph = Graph::parse("graph(%0: f32[0] Token 0):\n  return ()\n");
  const std::string error = error_of([&] { unlift_effect_tokens(graph); });
  EXPECT_NE(error.find("takes a token and returns none"), std::string::npos) << error;
  Graph other = Graph::parse("graph(%0: f32[0] Primal 0):\n  return (%0 Token 0)\n");
  const std::string reverse = error_of([&] { remove_effect_tokens(other); });
  EXPECT_NE(reverse.find("returns a token that it was not given"), std::string::npos) << reverse;
}

/// Runs a graph by need: what no output is made of does not run, and the rest runs as late as
/// operands allow, last operands first.
class ByNeed {
 public:
  ByNeed(const Graph& graph, const Tensors& args) : values_(graph.value_capacity()) {
    for (size_t i = 0; i < args.size(); ++i) values_[graph.inputs()[i].value->id()] = args[i];
    for (const Node& node : graph.nodes()) {
      if (node.op().name() == "ahead.sink_token") run(node);
    }
    for (const Graph::Output& output : graph.outputs())
      outputs_.push_back(output.value == nullptr ? Tensor() : value(output.value));
  }
  Tensors outputs() const { return outputs_; }

 private:
  Tensor value(const Value* value) {
    if (!values_[value->id()].defined() && value->producer() != nullptr) run(*value->producer());
    return values_[value->id()];
  }

  void run(const Node& node) {
    std::vector<const Value*> operands;
    node.for_each_operand([&](const Value* operand) { operands.push_back(operand); });
    for (auto operand = operands.rbegin(); operand != operands.rend(); ++operand) value(*operand);
    Graph one;
    ValueMap map(values_.size(), nullptr);
    Tensors args;
    for (const Value* operand : operands) {
      if (map[operand->id()] != nullptr) continue;
      const auto index = static_cast<int32_t>(args.size());
      map[operand->id()] = one.add_input({Slot::Kind::Primal, index}, operand->meta);
      args.push_back(values_[operand->id()]);
    }
    const Node* copy = copy_node(one, node, map);
    int32_t index = 0;
    for (Value* result : copy->results()) one.add_output(result, {Slot::Kind::Output, index++});
    const Tensors results = interpret(one, args);
    for (size_t i = 0; i < results.size(); ++i) {
      if (node.result(i) != nullptr) values_[node.result(i)->id()] = results[i];
    }
  }

  Tensors values_;
  Tensors outputs_;
};

/// What the last graphs were, as a backend sees them.
struct Seen {
  std::string name;
  std::string inputs, outputs;
  std::vector<bool> static_inputs, donated;
  size_t num_inputs = 0;
};
std::vector<Seen>& seen() {
  static std::vector<Seen> all;
  return all;
}

aot::Executable compile_by_need(const aot::CompileRequest& request) {
  Seen now{request.name, "", "", request.static_inputs, request.donated, request.inputs.size()};
  for (const auto& input : request.graph.inputs()) now.inputs += input.slot.str() + "; ";
  for (const auto& output : request.graph.outputs()) now.outputs += output.slot.str() + "; ";
  seen().push_back(now);
  auto graph = std::make_shared<const Graph>(request.graph);
  return [graph](Tensors&& args) { return ByNeed(*graph, args).outputs(); };
}

void register_backends() {
  static const bool once = [] {
    register_backend("by_need", compile_by_need);
    register_backend("by_need_tokens", compile_by_need, {.effect_tokens = EffectTokens::Arguments});
    register_backend("by_need_inside", compile_by_need, {.effect_tokens = EffectTokens::Inside});
    register_backend("wrong_token",
                     [](const aot::CompileRequest& request) -> aot::Executable {
                       auto graph = std::make_shared<const Graph>(request.graph);
                       return [graph](Tensors&& args) {
                         Tensors outputs = interpret(*graph, args);
                         outputs[0] = torch::ones({1});
                         return outputs;
                       };
                     },
                     {.effect_tokens = EffectTokens::Arguments});
    return true;
  }();
  (void)once;
}

Tensor train(const Tensor& x, const Tensor& w) {
  journal::note("x", x);
  journal::mark("between");
  const Tensor y = journal::NoteGradient::apply(x * w, "late");
  journal::note("y", y);
  const Tensor z = journal::NoteGradient::apply(y.sin(), "early");
  journal::note("z", z);
  return z.sum();
}

Lines hits_with(const std::string& backend, Tensors& shown) {
  auto f = compiled_by_call(&train, {.backend = backend, .fullgraph = true},
                            torch::ones({2}).requires_grad_(), torch::ones({2}));
  journal::take();
  for (int call = 0; call < 3; ++call) {
    const Tensor x = torch::full({2}, 0.5 * call).requires_grad_();
    const Tensor loss = f(x, torch::full({2}, 2.0));
    loss.backward();
    shown.push_back(loss.detach());
    shown.push_back(x.grad());
  }
  expect_hits(f);
  return journal::take();
}

TEST(EffectTokens, LetABackendKeepTheOrder) {
  register_backends();
  Tensors expected, without, with, inside;
  const Lines order = hits_with("interpreter", expected);
  EXPECT_EQ(order.size(), 3u * 6);
  EXPECT_NE(hits_with("by_need", without), order) << "this backend needs no tokens";
  EXPECT_EQ(hits_with("by_need_tokens", with), order);
  EXPECT_EQ(hits_with("by_need_inside", inside), order);
  expect_same(expected, with);
  expect_same(expected, inside);
}

TEST(EffectTokens, HaveTheirPlacesInRequests) {
  register_backends();
  seen().clear();
  Tensors shown;
  hits_with("by_need_tokens", shown);
  ASSERT_GE(seen().size(), 2u);
  const Seen &forward = seen()[0], &backward = seen()[1];
  EXPECT_EQ(forward.inputs, "Token 0; Primal 0; Primal 1; ");
  EXPECT_TRUE(forward.outputs.starts_with("Token 0; Output 0; ")) << forward.outputs;
  EXPECT_EQ(forward.num_inputs, 3u);
  EXPECT_EQ(forward.static_inputs.size(), 3u);
  EXPECT_TRUE(backward.inputs.ends_with("Tangent 0; Token 0; ")) << backward.inputs;
  EXPECT_TRUE(backward.outputs.ends_with("Token 0; ")) << backward.outputs;
  EXPECT_EQ(backward.donated.size(), backward.num_inputs);
}

TEST(EffectTokens, StaticInputsMoveWithTheToken) {
  register_backends();
  seen().clear();
  auto counter = torch::zeros({2});
  auto f = compiled_by_call(
      [counter](const Tensor& x) {
        journal::mark("m");
        return x + counter;
      },
      {.backend = "by_need_tokens"}, torch::ones({2}));
  f(torch::ones({2}));
  ASSERT_FALSE(seen().empty());
  EXPECT_EQ(seen()[0].inputs, "Token 0; Primal 0; Captured 0; ");
  EXPECT_EQ(seen()[0].static_inputs, (std::vector<bool>{false, false, true}));
  expect_hits(f);
  journal::take();
}

TEST(EffectTokens, HaveNoElements) {
  register_backends();
  auto f = compiled_by_call(
      [](const Tensor& x) {
        journal::mark("m");
        return x * 2;
      },
      {.backend = "wrong_token"}, torch::ones({2}));
  const std::string error = error_of([&] { f(torch::ones({2})); });
  EXPECT_NE(error.find("A token is a tensor without elements"), std::string::npos) << error;
  journal::take();
}

}  // namespace tokens_test
}  // namespace ahead
