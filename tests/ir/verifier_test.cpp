#include "ahead/errors.h"
#include "ahead/graph.h"
#include "support/random_graph.h"
#include "support/round_trip.h"

namespace ahead {
namespace verifier_test {

std::string error_of(const Graph& graph) {
  try {
    graph.verify();
  } catch (const InternalError& error) {
    return error.what_without_backtrace();
  }
  return "well formed";
}

std::string first_line(const Graph& graph) {
  const std::string text = error_of(graph);
  return text.substr(0, text.find('\n'));
}

std::string first_line(const std::string& text) {
  return first_line(Graph::parse(text));
}

/// Tests break what no public function can break.
template <class T>
T& mutable_of(const T& part) {
  return const_cast<T&>(part);
}

const Operator& op(const char* name) {
  return *Operator::find(name);
}

Graph chain(int length = 8) {
  Graph graph;
  Value* value = graph.add_input({Slot::Kind::Primal, 0}, TensorMeta::contiguous({2}));
  for (int i = 0; i < length; ++i) {
    value = graph.add_return(graph.add_node(op("aten.relu"), {value}), TensorMeta::contiguous({2}));
  }
  graph.add_output(value, {Slot::Kind::Output, 0});
  return graph;
}

Node* node_at(const Graph& graph, int position) {
  Node* node = graph.first();
  for (; position > 0; --position) node = node->next();
  return node;
}

TEST(Verifier, AcceptsRandomGraphs) {
  for (uint64_t seed = 0; seed < 20; ++seed) EXPECT_EQ(error_of(random_graph(seed)), "well formed");
}

TEST(Verifier, EveryInputIsWrittenToOnce) {
  const auto writing = [](const char* second) {
    return std::string(
               "graph(%x: f32[2] Primal 0, %y: f32[2] Primal 1):\n"
               "  _, %a: f32[2] = aten.copy_(%x, %y, false) !effect\n"
               "  _, %b: f32[2] = aten.copy_(") +
           second + ", false) !effect\n  return ()\n";
  };
  EXPECT_EQ(first_line(writing("%y, %x")), "well formed");
  EXPECT_NE(first_line(writing("%x, %y")).find("was written to by another copy_ already"),
            std::string::npos);
}

TEST(Verifier, ShowsTheNodesAroundTheCulprit) {
  Graph graph = chain();
  node_at(graph, 4)->result()->meta.sizes[0] = -2;
  EXPECT_EQ(error_of(graph),
            "[verify] aten.relu: result 0: a size is negative.\n"
            "     %2: f32[2] = aten.relu(%1)\n"
            "     %3: f32[2] = aten.relu(%2)\n"
            "     %4: f32[2] = aten.relu(%3)\n"
            "  >> %5: f32[-2] = aten.relu(%4)\n"
            "     %6: f32[2] = aten.relu(%5)\n"
            "     %7: f32[2] = aten.relu(%6)\n"
            "     %8: f32[2] = aten.relu(%7)");
}

TEST(Verifier, ShowsTheInputsAndOutputsAroundTheCulprit) {
  EXPECT_EQ(error_of(Graph::parse("graph(%0: f32[2] Primal 0, %1: f32[2] Output 1): return ()")),
            "[verify] input 1, Output 1: a slot of this kind does not go here.\n"
            "     %0: f32[2] Primal 0\n"
            "  >> %1: f32[2] Output 1");
  EXPECT_EQ(error_of(Graph::parse("graph(): return (none Output 0, none Primal 1, none Output 2)")),
            "[verify] output 1, Primal 1: a slot of this kind does not go here.\n"
            "     none Output 0\n"
            "  >> none Primal 1\n"
            "     none Output 2");
}

TEST(Verifier, ChecksMetadata) {
  auto broken = [](auto&& damage) {
    Graph graph = chain(1);
    damage(graph.inputs()[0].value->meta);
    return first_line(graph);
  };
  EXPECT_EQ(broken([](TensorMeta& meta) { meta.strides.push_back(1); }),
            "[verify] input 0, Primal 0: it has 1 sizes, but 2 strides.");
  EXPECT_EQ(broken([](TensorMeta& meta) { meta.strides[0] = -1; }),
            "[verify] input 0, Primal 0: a stride is negative.");
  EXPECT_EQ(broken([](TensorMeta& meta) { meta.offset = -1; }),
            "[verify] input 0, Primal 0: its offset is negative.");
  EXPECT_EQ(broken([](TensorMeta& meta) { meta.dtype = at::ScalarType::Undefined; }),
            "[verify] input 0, Primal 0: its dtype is undefined.");
}

TEST(Verifier, ChecksThatOperandsAreDefinedBeforeUse) {
  const char* problem =
      "[verify] aten.relu: it takes a value that no input and no earlier node of this graph "
      "defines.";
  Graph later = chain();
  later.set_argument(node_at(later, 2), 0, node_at(later, 5)->result());
  EXPECT_EQ(first_line(later), problem);

  Graph itself = chain();
  itself.set_argument(node_at(itself, 2), 0, node_at(itself, 2)->result());
  EXPECT_EQ(first_line(itself), problem);

  Graph foreign = chain();
  Graph other = chain(20);
  foreign.set_argument(node_at(foreign, 2), 0, node_at(other, 1)->result());
  EXPECT_EQ(first_line(foreign), problem);
  EXPECT_NE(error_of(foreign).find(">> %3: f32[2] = aten.relu(%?)"), std::string::npos);

  Graph output = chain();
  output.set_output(0, other.inputs()[0].value);
  EXPECT_EQ(first_line(output),
            "[verify] output 0, Output 0: no input and no node of this graph defines its value.");
}

TEST(Verifier, ChecksPhases) {
  EXPECT_EQ(
      first_line(R"(graph(%0: f32[2] Primal 0):
  %1: f32[2] = aten.neg(%0) !backward
  %2: f32[2] = aten.relu(%1)
  return ())"),
      "[verify] aten.relu: a node of the forward phase takes a result of aten.neg, which is of the "
      "backward phase.");
}

TEST(Verifier, ChecksTags) {
  Graph graph = chain();
  graph.first()->set_tags(0x8000);
  EXPECT_EQ(first_line(graph), "[verify] aten.relu: it has a tag that does not exist.");
}

TEST(Verifier, ChecksArguments) {
  auto with = [](const char* name, std::vector<Argument> more) {
    Graph graph = chain(1);
    more.insert(more.begin(), graph.inputs()[0].value);
    graph.add_return(graph.add_node(op(name), std::move(more)), TensorMeta::contiguous({2}));
    return first_line(graph);
  };
  EXPECT_EQ(with("aten.relu", {}), "well formed");
  EXPECT_EQ(with("aten.relu", {1}), "[verify] aten.relu: it takes 1 argument, the node has 2.");
  EXPECT_EQ(with("aten.add.Tensor", {2.5, 1}), "well formed") << "a wrapped number";
  EXPECT_EQ(with("aten.add.Tensor", {c10::IValue(), 1}), "well formed") << "an undefined tensor";
  EXPECT_EQ(with("aten.add.Tensor", {c10::IValue("x"), 1}),
            "[verify] aten.add.Tensor: argument 'other' must be Tensor, not the constant \"x\".");
  EXPECT_EQ(with("aten.add.Tensor", {c10::IValue(torch::ones({2})), 1}),
            "[verify] aten.add.Tensor: argument 'other' must be Tensor, not the constant "
            "opaque(\"Tensor\").")
      << "tensors with data are inputs";
  EXPECT_EQ(with("aten.dropout", {1, true}),
            "[verify] aten.dropout: argument 'p' must be float, not the constant 1.");
  EXPECT_EQ(with("aten.view", {c10::IValue(std::vector<double>{1})}),
            "[verify] aten.view: argument 'size' must be SymInt[], not the constant [1.0].");
  EXPECT_EQ(with("aten.view", {c10::IValue(c10::List<double>())}),
            "[verify] aten.view: argument 'size' must be SymInt[], not the constant [].");
  EXPECT_EQ(with("aten.view", {Argument::List{1, 2}}),
            "[verify] aten.view: argument 'size' must be SymInt[], not a list of tensors.")
      << "a list of integers is one constant";
  EXPECT_EQ(with("aten.index.Tensor", {Argument::List{c10::IValue(), c10::IValue()}}),
            "well formed");
  EXPECT_EQ(
      with("aten.index.Tensor", {c10::IValue(c10::List<std::optional<at::Tensor>>())}),
      "[verify] aten.index.Tensor: argument 'indices' must be Tensor?[], not the constant [].");
  EXPECT_EQ(with("aten.relu", {std::make_shared<const Graph>()}),
            "[verify] aten.relu: it takes 1 argument, the node has 2.");
}

TEST(Verifier, ChecksResults) {
  auto with = [](const char* name, std::vector<Argument> more, auto&& announce) {
    Graph graph = chain(0);
    more.insert(more.begin(), graph.inputs()[0].value);
    Node* node = graph.add_node(op(name), std::move(more));
    announce(graph, node);
    return first_line(graph);
  };
  const TensorMeta meta = TensorMeta::contiguous({2});
  EXPECT_EQ(with("aten.relu", {}, [](Graph&, Node*) {}),
            "[verify] aten.relu: it returns 1 value, the node has 0.");
  EXPECT_EQ(
      with("aten.relu", {}, [&](Graph& graph, Node* node) { graph.add_return_list(node, {meta}); }),
      "[verify] aten.relu: return 0 is a list, but the operator returns Tensor.");
  EXPECT_EQ(
      with("aten.split.Tensor", {1, 0},
           [&](Graph& graph, Node* node) { graph.add_return(node, meta); }),
      "[verify] aten.split.Tensor: return 0 is a plain tensor, but the operator returns Tensor[].");
  EXPECT_EQ(
      with("aten.size.int", {0}, [&](Graph& graph, Node* node) { graph.add_return(node, meta); }),
      "[verify] aten.size.int: return 0 is a value, but the operator returns int, which must stand "
      "as undefined.");
}

TEST(Verifier, ChecksThatResultsKnowTheirPlace) {
  Graph graph = chain();
  std::swap(mutable_of(node_at(graph, 1)->results())[0],
            mutable_of(node_at(graph, 2)->results())[0]);
  EXPECT_EQ(first_line(graph), "[verify] aten.relu: result 0 says that it is made elsewhere.");

  Graph lengths = chain();
  mutable_of(lengths.first()->return_lengths())[0] = 3;
  EXPECT_EQ(first_line(lengths),
            "[verify] aten.relu: its returns add up to 3 tensors, but it has 1 results.");

  Graph inputs = chain();
  mutable_of(inputs.inputs())[0].value = inputs.first()->result();
  EXPECT_EQ(first_line(inputs),
            "[verify] input 0, Primal 0: its value says that it is made elsewhere.");
  mutable_of(inputs.inputs())[0].value = nullptr;
  EXPECT_EQ(first_line(inputs), "[verify] input 0, Primal 0: it has no value.");
}

TEST(Verifier, ChecksUses) {
  Graph missing = chain();
  mutable_of(node_at(missing, 1)->result()->users()).clear();
  EXPECT_EQ(
      first_line(missing),
      "[verify] aten.relu: nodes take %2 1 times, but its list of users names others, 0 of them.");

  Graph wrong = chain();
  mutable_of(wrong.inputs()[0].value->users())[0] = wrong.last();
  EXPECT_EQ(
      first_line(wrong),
      "[verify] input 0, Primal 0: nodes take %0 1 times, but its list of users names others, 1 of "
      "them.");

  Graph count = chain();
  mutable_of(count.outputs()).clear();
  EXPECT_EQ(first_line(count), "[verify] aten.relu: %8 is a graph output 0 times, but counts 1.");

  Graph permuted = chain();
  Value* input = permuted.inputs()[0].value;
  permuted.set_argument(permuted.last(), 0, input);
  std::swap(mutable_of(input->users())[0], mutable_of(input->users())[1]);
  EXPECT_EQ(error_of(permuted), "well formed") << "the order of users has no meaning";
}

TEST(Verifier, ChecksTheListOfNodes) {
  // A place in another graph's list damages both.
  Graph graph = chain(4);
  Graph other = chain(4);
  graph.add_node(op("aten.relu"), {graph.inputs()[0].value}, node_at(other, 2));
  EXPECT_EQ(first_line(graph), "[verify] node list: it holds 4 of 5 nodes.");
  EXPECT_EQ(first_line(other), "[verify] node list: it is longer than the number of nodes, 4.");
}

TEST(Verifier, ChecksSlots) {
  EXPECT_EQ(first_line("graph(%0: f32[2] Primal 0, %1: f32[2] Primal 0): return ()"),
            "[verify] input 0, Primal 0: another one has the same slot.");
  EXPECT_EQ(first_line("graph(%0: f32[2] Primal 0): return (%0 Output 0, none Output 0)"),
            "[verify] output 0, Output 0: another one has the same slot.");
  EXPECT_EQ(first_line("graph(%0: f32[2] Primal -1): return ()"),
            "[verify] input 0, Primal -1: its index is negative.");
  EXPECT_EQ(
      first_line("graph(%0: f32[2] Saved 0, %1: f32[2] Token 0): return (%0 Saved 0, %1 Token 0)"),
      "well formed");
}

TEST(Verifier, ChecksPositionsThatSlotsName) {
  EXPECT_EQ(first_line("graph(%0: f32[2] Primal 0): return (%0 Output 0, %0 GradOf 1)"),
            "[verify] output 1, GradOf 1: it names a position among 1 inputs.");
  EXPECT_EQ(first_line("graph(%0: f32[2] Primal 0): return (%0 MutatedInput 1)"),
            "[verify] output 0, MutatedInput 1: it names a position among 1 inputs.");
  EXPECT_EQ(first_line("graph(%0: f32[2] Primal 0): return (%0 AccumulatedGrad 5)"),
            "[verify] output 0, AccumulatedGrad 5: it names a position among 1 inputs.");
  EXPECT_EQ(first_line("graph(%0: f32[2] Primal 0, %1: f32[2] Tangent 1): return (%0 Output 0)"),
            "[verify] input 1, Tangent 1: it names a position among 1 outputs.");
  EXPECT_EQ(first_line("graph(%0: f32[2] Tangent 1): return (%0 GradOf 7)"), "well formed")
      << "the backward half of a joint graph";
}

TEST(Verifier, ChecksCalls) {
  auto call = [](const std::string& results, const std::string& graph, const std::string& args) {
    return error_of(Graph::parse("graph(%0: f32[2] Primal 0, %1: f32[3] Primal 1):\n  " + results +
                                 " = ahead.call(" + graph + ": { return (%x Output 0) }, " + args +
                                 ")\n  return ()"));
  };
  EXPECT_EQ(call("%2: f32[2]", "graph(%x: f32[2]  Primal 0)", "%0"), "well formed");
  EXPECT_EQ(call("%2: f32[2]", "graph(%x: f32[2]+4  Primal 0)", "%0"), "well formed");
  EXPECT_EQ(call("%2: f32[2]", "graph(%x: f32[2] Primal 0)", "%1"),
            "[verify] ahead.call: input 0 is f32[3], in the sub-graph f32[2].\n"
            "  >> %2: f32[2] = ahead.call(graph(…), %1)");
  EXPECT_EQ(call("%2: i64[2]", "graph(%x: f32[2] Primal 0)", "%0"),
            "[verify] ahead.call: output 0 is i64[2], in the sub-graph f32[2].\n"
            "  >> %2: i64[2] = ahead.call(graph(…), %0)");
  EXPECT_EQ(
      call("%2: f32[2]", "graph(%x: f32[2] Output 0)", "%0"),
      "[verify] sub-graph of node 0, input 0, Output 0: a slot of this kind does not go here.\n"
      "  >> %0: f32[2] Output 0");

  Graph graph = chain(1);
  auto identity = std::make_shared<const Graph>(chain(0));
  graph.add_node(Operator::call_graph(), {std::shared_ptr<const Graph>()});
  EXPECT_EQ(first_line(graph), "[verify] ahead.call: its first argument must be a graph.");
  graph.erase(graph.last());
  graph.add_node(Operator::call_graph(), {identity, 1});
  EXPECT_EQ(first_line(graph),
            "[verify] ahead.call: argument 1 must be a value, not the constant 1.");
  graph.erase(graph.last());
  graph.add_return(graph.add_node(Operator::call_graph(), {identity, graph.inputs()[0].value}),
                   std::nullopt);
  EXPECT_EQ(first_line(graph),
            "[verify] ahead.call: result 0 is undefined in either the node or its graph only.");
}

}  // namespace verifier_test
}  // namespace ahead
