#include "ahead/errors.h"
#include "ahead/graph.h"
#include "support/round_trip.h"

namespace ahead {
namespace build_test {

const Operator& op(const char* name) {
  return *Operator::find(name);
}

TensorMeta matrix() {
  return TensorMeta::contiguous({2, 3});
}

/// %0 -> relu -> %1; %1 + %1 -> %2; returns %2.
struct Chain {
  Graph graph;
  Value* input = graph.add_input({Slot::Kind::Primal, 0}, matrix());
  Node* relu = graph.add_node(op("aten.relu"), {input});
  Value* activated = graph.add_return(relu, matrix());
  Node* add = graph.add_node(op("aten.add.Tensor"), {activated, activated, 1});
  Value* sum = graph.add_return(add, matrix());

  Chain() { graph.add_output(sum, {Slot::Kind::Output, 0}); }
};

std::vector<const Node*> users(const Value* value) {
  return {value->users().begin(), value->users().end()};
}

TEST(GraphBuilding, RecordsWhoMakesAndWhoTakesAValue) {
  Chain c;
  EXPECT_EQ(c.activated->producer(), c.relu);
  EXPECT_EQ(c.input->producer(), nullptr);
  EXPECT_EQ(users(c.input), std::vector<const Node*>{c.relu});
  EXPECT_EQ(users(c.activated), (std::vector<const Node*>{c.add, c.add}));
  EXPECT_EQ(c.sum->output_uses(), 1u);
  EXPECT_EQ(c.graph.num_nodes(), 2u);
  EXPECT_EQ(c.graph.first(), c.relu);
  EXPECT_EQ(c.graph.last(), c.add);
  expect_round_trip(c.graph);
}

TEST(GraphBuilding, InsertsBeforeANode) {
  Chain c;
  Node* first = c.graph.add_node(op("aten.neg"), {c.input}, c.relu);
  c.graph.add_return(first, matrix());
  Node* middle = c.graph.add_node(op("aten.neg"), {c.activated}, c.add);
  c.graph.add_return(middle, matrix());
  std::vector<std::string> order;
  for (const Node& node : c.graph.nodes()) order.push_back(node.op().name());
  EXPECT_EQ(order,
            (std::vector<std::string>{"aten.neg", "aten.relu", "aten.neg", "aten.add.Tensor"}));
  expect_round_trip(c.graph);
}

TEST(GraphBuilding, KeepsListsAndUndefinedResults) {
  Chain c;
  Node* split = c.graph.add_node(op("aten.split.Tensor"), {c.sum, 1, 0});
  c.graph.add_return_list(split, {TensorMeta::contiguous({1, 3}), std::nullopt});
  EXPECT_EQ(split->return_lengths()[0], 2);
  EXPECT_EQ(split->result(0)->index(), 0u);
  EXPECT_EQ(split->result(1), nullptr);
  expect_round_trip(c.graph);
}

TEST(GraphBuilding, TakesNumbersAsConstantsNeverAsNullValues) {
  EXPECT_TRUE(Argument(0).constant().isInt());
  EXPECT_TRUE(Argument(false).constant().isBool());
  EXPECT_TRUE(Argument(0.0f).constant().isDouble());
  EXPECT_EQ(Argument(size_t{7}).constant().toInt(), 7);
}

TEST(GraphBuilding, RefusesNullOperandsAndForeignPlaces) {
  Chain c;
  Value* nothing = nullptr;
  EXPECT_THROW(c.graph.add_node(op("aten.relu"), {nothing}), InternalError);
  EXPECT_THROW(c.graph.set_argument(c.relu, 0, nothing), InternalError);
  EXPECT_THROW(c.graph.replace_uses(c.activated, nothing), InternalError);
  Chain other;
  EXPECT_THROW(c.graph.add_node(op("aten.relu"), {c.input}, other.relu), InternalError);
  expect_round_trip(c.graph);
}

TEST(GraphRewriting, ReplacesEveryUseOfAValue) {
  Chain c;
  c.graph.add_output(c.activated, {Slot::Kind::Output, 1});
  c.graph.replace_uses(c.activated, c.input);
  EXPECT_FALSE(c.activated->is_used());
  EXPECT_EQ(users(c.input), (std::vector<const Node*>{c.relu, c.add, c.add}));
  EXPECT_EQ(c.input->output_uses(), 1u);
  expect_round_trip(c.graph);
}

TEST(GraphRewriting, ReplacesInsideLists) {
  Chain c;
  Node* cat = c.graph.add_node(op("aten.cat"), {Argument::List{c.sum, c.activated, c.sum}, 0});
  c.graph.add_return(cat, TensorMeta::contiguous({6, 3}));
  c.graph.replace_uses(c.sum, c.activated);
  EXPECT_EQ(users(c.activated), (std::vector<const Node*>{c.add, c.add, cat, cat, cat}));
  expect_round_trip(c.graph);
}

TEST(GraphRewriting, SetsArgumentsAndOutputs) {
  Chain c;
  c.graph.set_argument(c.add, 1, c.input);
  c.graph.set_argument(c.add, 2, 3);
  c.graph.set_output(0, c.activated);
  EXPECT_EQ(users(c.activated), std::vector<const Node*>{c.add});
  EXPECT_EQ(c.sum->output_uses(), 0u);
  c.graph.set_output(0, nullptr);
  EXPECT_EQ(c.activated->output_uses(), 0u);
  expect_round_trip(c.graph);
}

TEST(GraphRewriting, ErasesWhatIsNotUsed) {
  Chain c;
  EXPECT_THROW(c.graph.erase(c.relu), InternalError);
  EXPECT_THROW(c.graph.erase(c.add), InternalError);
  c.graph.erase_output(0);
  c.graph.erase(c.add);
  EXPECT_FALSE(c.activated->is_used());
  c.graph.erase(c.relu);
  EXPECT_FALSE(c.input->is_used());
  EXPECT_EQ(c.graph.num_nodes(), 0u);
  EXPECT_EQ(c.graph.first(), nullptr);
  EXPECT_EQ(c.graph.last(), nullptr);
  EXPECT_THROW(c.graph.erase(c.relu), InternalError) << "erased twice";
  expect_round_trip(c.graph);
}

TEST(GraphRewriting, MayEraseTheNodeALoopIsAt) {
  Chain c;
  for (int i = 0; i < 6; ++i) {
    c.graph.add_return(c.graph.add_node(op("aten.neg"), {c.input}), matrix());
  }
  size_t visited = 0;
  for (Node& node : c.graph.nodes()) {
    ++visited;
    if (node.op().name() == "aten.neg") c.graph.erase(&node);
  }
  EXPECT_EQ(visited, 8u);
  EXPECT_EQ(c.graph.num_nodes(), 2u);
  expect_round_trip(c.graph);
}

Graph joint() {
  return Graph::parse(R"(
graph(%a: f32[2] Primal 0, %b: f32[2] Primal 1 requires_grad, %t: f32[2] Tangent 1):
  %m: f32[2] = aten.mul.Tensor(%b, %b)
  %g: f32[2] = aten.mul.Tensor(%t, %b) !backward
  return (%m Saved 0, %m Output 0, %g GradOf 1))");
}

TEST(GraphRewriting, ErasedPositionsMoveTheSlotsThatNameThem) {
  Graph graph = joint();
  graph.erase_input(0);
  EXPECT_EQ(graph.outputs()[2].slot, (Slot{Slot::Kind::GradOf, 0}));
  EXPECT_EQ(graph.inputs()[1].value->index(), 1u);
  graph.erase_output(0);
  EXPECT_EQ(graph.inputs()[1].slot, (Slot{Slot::Kind::Tangent, 0}));
  expect_round_trip(graph);
}

TEST(GraphRewriting, RefusesToErasePositionsThatSlotsName) {
  Graph graph = joint();
  EXPECT_THROW(graph.erase_output(1), InternalError) << "Tangent 1 is its gradient";
  EXPECT_THROW(graph.erase_input(1), InternalError) << "it is used";
  EXPECT_THROW(graph.erase_input(7), std::out_of_range);
  expect_round_trip(graph);

  Graph unused = Graph::parse(
      "graph(%0: f32[2] Primal 0, %1: f32[2] Primal 1): return (none GradOf 0, %1 Output 0)");
  EXPECT_THROW(unused.erase_input(0), InternalError) << "GradOf 0 names it";
  unused.erase_output(0);
  unused.erase_input(0);
  expect_round_trip(unused);
}

TEST(GraphRewriting, BackwardHalvesKeepThePositionsOfTheWhole) {
  Graph graph = Graph::parse(R"(
graph(%0: f32[2] Saved 0, %1: f32[2] Saved 1, %2: f32[2] Tangent 4):
  %3: f32[2] = aten.mul.Tensor(%2, %1) !backward
  return (none GradOf 2, %3 GradOf 7))");
  expect_round_trip(graph);
  graph.erase_input(0);
  graph.erase_output(0);
  EXPECT_EQ(graph.outputs()[0].slot, (Slot{Slot::Kind::GradOf, 7}));
  EXPECT_EQ(graph.inputs()[1].slot, (Slot{Slot::Kind::Tangent, 4}));
  expect_round_trip(graph);
}

TEST(GraphCopying, IsDeep) {
  Chain c;
  Graph copy = c.graph;
  const std::string before = c.graph.str();
  copy.replace_uses(copy.first()->result(), copy.inputs()[0].value);
  copy.erase(copy.first());
  copy.inputs()[0].value->meta.sizes[0] = 9;
  copy.add_output(nullptr, {Slot::Kind::Output, 1});
  EXPECT_EQ(c.graph.str(), before);
  EXPECT_NE(copy.str(), before);
  c.graph.verify();
  copy.verify();
}

TEST(GraphCopying, SkipsWhatWasErased) {
  Chain c;
  c.graph.replace_uses(c.activated, c.input);
  c.graph.erase(c.relu);
  Graph copy = c.graph;
  EXPECT_EQ(copy.value_capacity(), 2u);
  EXPECT_EQ(copy.str(), c.graph.str());
  expect_round_trip(c.graph);
}

TEST(GraphCopying, MovesKeepAddressesAndLeaveNothingBehind) {
  Chain c;
  Graph moved = std::move(c.graph);
  EXPECT_EQ(moved.first(), c.relu);
  EXPECT_EQ(c.graph.num_nodes(), 0u);  // NOLINT(bugprone-use-after-move): empty by contract
  EXPECT_TRUE(c.graph.inputs().empty());
  expect_round_trip(c.graph);
  expect_round_trip(moved);
  c.graph = moved;
  EXPECT_EQ(c.graph.str(), moved.str());
}

TEST(GraphCopying, JointGraphsAreGraphs) {
  JointGraph joint_graph(joint());
  const Node* first = joint_graph.first();
  JointGraph copy = joint_graph;
  EXPECT_EQ(copy.str(), joint_graph.str());
  Graph plain = std::move(joint_graph);
  EXPECT_EQ(plain.first(), first);
  JointGraph back(std::move(plain));
  EXPECT_EQ(back.first(), first);
  copy = back;
  expect_round_trip(copy);
}

TEST(GraphReading, FindsSlots) {
  Graph graph = joint();
  EXPECT_EQ(graph.find_input({Slot::Kind::Tangent, 1}), 2);
  EXPECT_EQ(graph.find_output({Slot::Kind::GradOf, 1}), 2);
  EXPECT_EQ(graph.find_output({Slot::Kind::GradOf, 0}), -1);
}

TEST(Operators, AreInternedByName) {
  EXPECT_EQ(&op("aten.add.Tensor"), &op("aten.add.Tensor"));
  EXPECT_NE(&op("aten.add.Tensor"), &op("aten.add.Scalar"));
  EXPECT_EQ(Operator::find("ahead.call"), &Operator::call_graph());
  EXPECT_EQ(Operator::find("aten.no_such"), nullptr);
  EXPECT_EQ(Operator::find("add"), nullptr);
  EXPECT_FALSE(Operator::call_graph().in_dispatcher());
  EXPECT_THROW(Operator::call_graph().schema(), InternalError);
}

const Operator& of(const char* qualified) {
  return Operator::of(c10::Dispatcher::singleton().findSchemaOrThrow(qualified, ""));
}

TEST(Operators, AreNotMixedUpWhenOneIsRemoved) {
  for (int i = 0; i < 20; ++i) {
    const std::string name = "ahead_test::temporary_" + std::to_string(i);
    torch::Library library(torch::Library::FRAGMENT, "ahead_test", std::nullopt, __FILE__,
                           __LINE__);
    library.def((name + "(Tensor x) -> Tensor").c_str());
    EXPECT_EQ(of(name.c_str()).name(), "ahead_test.temporary_" + std::to_string(i));
  }
}

TEST(Metadata, KnowsContiguousTensors) {
  auto contiguous = [](at::IntArrayRef sizes, at::IntArrayRef strides) {
    return TensorMeta::of(torch::empty_strided(sizes, strides)).is_contiguous();
  };
  EXPECT_TRUE(contiguous({2, 3}, {3, 1}));
  EXPECT_TRUE(contiguous({1, 3}, {77, 1}));
  EXPECT_TRUE(contiguous({0, 3}, {1, 5})) << "as LibTorch has it: nothing is contiguous";
  EXPECT_FALSE(contiguous({2, 3}, {1, 2}));
  EXPECT_EQ(TensorMeta::contiguous({2, 0, 3}), TensorMeta::of(torch::empty({2, 0, 3})));
}

}  // namespace build_test
}  // namespace ahead
