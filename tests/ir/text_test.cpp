#include <filesystem>
#include <fstream>

#include "ahead/graph.h"
#include "base/intern.h"
#include "ir/constants.h"
#include "support/round_trip.h"
#include "support/test_data.h"

namespace ahead {
namespace text_test {

Graph parse(const std::string& text) {
  Graph graph = Graph::parse(text);
  expect_round_trip(graph);
  return graph;
}

/// Reads one call that takes %0 and returns a tensor.
const c10::IValue& constant(Graph& graph, const std::string& call, size_t argument) {
  graph = parse("graph(%0: f32[2, 3] Primal 0):\n  %1: f32[2, 3] = " + call + "\n  return ()\n");
  return graph.first()->args().at(argument).constant();
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(GraphText, GoldenFilesPrintBackByteByByte) {
  size_t count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(test_data) + "/ir/golden")) {
    SCOPED_TRACE(entry.path());
    const std::string text = read_file(entry.path());
    EXPECT_EQ(parse(text).str(), text);
    ++count;
  }
  EXPECT_GE(count, 5u);
}

TEST(GraphText, NamesValuesByPosition) {
  Graph graph =
      parse("graph(%x: f32[2] Primal 0): %y.1: f32[2] = aten.relu(%x) return (%y.1 Output 0)");
  EXPECT_EQ(graph.str(),
            "graph(%0: f32[2] Primal 0):\n"
            "  %1: f32[2] = aten.relu(%0)\n"
            "  return (%1 Output 0)\n");
}

TEST(GraphText, IgnoresCommentsAndLineEnds) {
  Graph graph = parse("# a comment\ngraph(): # another\r\n\treturn\n(\n) # the end");
  EXPECT_EQ(graph.str(), "graph():\n  return ()\n");
}

TEST(GraphText, PutsManyInputsOnLinesOfTheirOwn) {
  Graph graph;
  for (int i = 0; i < 150; ++i) {
    Value* value = graph.add_input({Slot::Kind::Primal, i}, TensorMeta::contiguous({i, 2}));
    graph.add_output(value, {Slot::Kind::Output, i});
  }
  const std::string text = graph.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 302);
  EXPECT_EQ(text.substr(0, 38), "graph(\n    %0: f32[0, 2] Primal 0,\n   ");
  expect_round_trip(graph);
}

TEST(GraphText, WritesMetadata) {
  auto written = [](const at::Tensor& tensor) { return TensorMeta::of(tensor).str(); };
  EXPECT_EQ(written(torch::empty({2, 3})), "f32[2, 3]");
  EXPECT_EQ(written(torch::empty({})), "f32[]");
  EXPECT_EQ(written(torch::empty({2, 3}).t()), "f32[3, 2]{1, 3}");
  EXPECT_EQ(written(torch::empty({2, 3})[1]), "f32[3]+3");
  EXPECT_EQ(written(torch::empty({2, 3}, at::kMeta).requires_grad_()),
            "f32[2, 3] @meta requires_grad");
  EXPECT_EQ(written(torch::empty_strided({1, 3}, {7, 1})), "f32[1, 3]{7, 1}");
  EXPECT_EQ(written(torch::empty_strided({0}, {4})), "f32[0]{4}");
  EXPECT_EQ(written(torch::empty({2, 0, 3})), "f32[2, 0, 3]");
}

TEST(GraphText, ReadsBackEveryDtype) {
  for (int i = 0; i < static_cast<int>(at::ScalarType::NumOptions); ++i) {
    const auto dtype = static_cast<at::ScalarType>(i);
    if (dtype == at::ScalarType::Undefined) continue;
    Graph graph;
    Value* input = graph.add_input({Slot::Kind::Primal, 0}, TensorMeta::contiguous({3}, dtype));
    Node* cast = graph.add_node(
        *Operator::find("aten._to_copy"),
        {input, i, c10::IValue(), c10::IValue(), c10::IValue(), false, c10::IValue()});
    graph.add_return(cast, TensorMeta::contiguous({3}, dtype));
    expect_round_trip(graph);
    Graph parsed = Graph::parse(graph.str());
    EXPECT_EQ(parsed.inputs()[0].value->meta, input->meta);
    EXPECT_EQ(parsed.first()->args()[1].constant().toInt(), i);
  }
}

TEST(GraphText, ReadsBackEveryDeviceAndSlot) {
  Graph graph;
  for (const char* device :
       {"cpu", "cpu:0", "cuda", "cuda:3", "meta", "mps", "xpu:1", "privateuseone:1"}) {
    const auto index = static_cast<int32_t>(graph.inputs().size());
    graph.add_input({Slot::Kind::Captured, index},
                    TensorMeta::contiguous({2}, at::kFloat, at::Device(device)));
  }
  for (auto kind :
       {Slot::Kind::Primal, Slot::Kind::SyntheticBase, Slot::Kind::Seed, Slot::Kind::Offset,
        Slot::Kind::Token, Slot::Kind::Sizes, Slot::Kind::Tangent}) {
    graph.add_input({kind, 1}, TensorMeta::contiguous({2}));
  }
  for (auto kind : {Slot::Kind::Output, Slot::Kind::MutatedInput, Slot::Kind::GradOf,
                    Slot::Kind::AccumulatedGrad, Slot::Kind::IntermediateBase, Slot::Kind::Saved,
                    Slot::Kind::Token}) {
    graph.add_output(graph.inputs()[0].value, {kind, 1}, kind == Slot::Kind::Output);
  }
  expect_round_trip(graph);
  const Graph parsed = Graph::parse(graph.str());
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    EXPECT_EQ(parsed.inputs()[i].value->meta, graph.inputs()[i].value->meta);
    EXPECT_EQ(parsed.inputs()[i].slot, graph.inputs()[i].slot);
  }
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    EXPECT_EQ(parsed.outputs()[i].slot, graph.outputs()[i].slot);
    EXPECT_EQ(parsed.outputs()[i].requires_grad, graph.outputs()[i].requires_grad);
  }
}

TEST(GraphText, KeepsTagsPhaseSequenceAndProvenance) {
  Graph graph = parse(
      "graph(%0: f32[2] Primal 0): %1: f32[2] = aten.relu(%0) at=\"a.cpp:3 f(\\\"\\\")\" "
      "from=\"a \\\"b\\\"\\n\" !effect "
      "!random "
      "!must_recompute !must_save !must_be_in_backward !must_be_in_forward !autocast !no_grad "
      "!backward seq=12 return ()");
  const Node& node = *graph.first();
  EXPECT_EQ(node.tags(), 0xff);
  EXPECT_EQ(node.phase, Phase::Backward);
  EXPECT_EQ(node.sequence, 12);
  EXPECT_EQ(node.provenance, intern("a \"b\"\n"));
  EXPECT_EQ(node.place, intern("a.cpp:3 f(\"\")"));
  EXPECT_NE(
      graph.str().find("aten.relu(%0) !backward !no_grad !autocast !must_be_in_forward "
                       "!must_be_in_backward !must_save !must_recompute !random !effect seq=12 "
                       "from=\"a \\\"b\\\"\\n\" at=\"a.cpp:3 f(\\\"\\\")\"\n"),
      std::string::npos);
}

TEST(GraphText, ReadsNumbersExactly) {
  Graph graph;
  auto number = [&](const std::string& text) {
    return constant(graph, "aten.add.Scalar(%0, " + text + ", 1)", 1);
  };
  EXPECT_EQ(number("-9223372036854775808").toInt(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(number("9223372036854775807").toInt(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(number("18446744073709551615").toUInt(), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(number("0.1").toDouble(), 0.1);
  EXPECT_EQ(number("2.0").toDouble(), 2.0);
  EXPECT_EQ(number("5e-324").toDouble(), 5e-324);
  EXPECT_EQ(number("-inf").toDouble(), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(number("inf").toDouble(), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(number("nan").toDouble()));
  EXPECT_TRUE(std::signbit(number("-0.0").toDouble()));
  EXPECT_TRUE(number("true").isBool());
  EXPECT_EQ(number("complex(1.5, -0.0)").toComplexDouble().real(), 1.5);
}

TEST(GraphText, GivesConstantsTheTypeOfTheArgument) {
  Graph graph;
  EXPECT_TRUE(constant(graph, "aten.leaky_relu(%0, 1)", 1).isInt()) << "a Scalar stays as written";
  EXPECT_TRUE(constant(graph, "aten.dropout(%0, 0, true)", 1).isDouble());
  EXPECT_TRUE(constant(graph, "aten.sum.dim_IntList(%0, [])", 1).isIntList());
  EXPECT_TRUE(constant(graph, "aten.sum.dim_IntList(%0, none)", 1).isNone());
  EXPECT_TRUE(constant(graph, "aten.view(%0, [3, 2])", 1).isIntList()) << "SymInt[]";
  EXPECT_TRUE(constant(graph, "aten.upsample_nearest2d.vec(%0, none, [2, 3.5])", 2).isDoubleList());
  EXPECT_TRUE(constant(graph, "aten.roll(%0, [1], [])", 2).isIntList());
  EXPECT_TRUE(constant(graph, "aten.div.Tensor_mode(%0, %0, \"floor\")", 2).isString());
  EXPECT_TRUE(constant(graph, "aten.to.device(%0, device(\"cuda:1\"), dtype.f16)", 1).isDevice());
  EXPECT_TRUE(constant(graph, "aten.add.Tensor(%0, 2.5, 1)", 1).isDouble()) << "a wrapped number";
  EXPECT_EQ(constant(graph, "aten.to.device(%0, device(\"cpu\"), dtype.f16)", 2).toInt(),
            static_cast<int64_t>(at::kHalf));
}

TEST(GraphText, FillsInDefaults) {
  Graph graph = parse("graph(%0: f32[2] Primal 0): %1: f32[2] = aten.add.Tensor(%0, %0) return ()");
  EXPECT_EQ(graph.first()->args().at(2).constant().toInt(), 1);
}

TEST(GraphText, TellsListsOfTensorsFromConstants) {
  Graph graph = parse(R"(graph(%0: f32[2] Primal 0):
  %1: f32[2] = aten.index.Tensor(%0, [none, %0])
  %2: f32[0] = aten.cat([], 0)
  %3: f32[2] = aten.index.Tensor(%0, [none])
  return ())");
  const Node* index = graph.first();
  EXPECT_TRUE(index->args()[1].is_list());
  EXPECT_TRUE(index->args()[1].list()[0].constant().isNone());
  EXPECT_EQ(index->args()[1].list()[1].value(), graph.inputs()[0].value);
  EXPECT_TRUE(index->next()->args()[0].is_list());
  EXPECT_TRUE(graph.last()->args()[1].is_list());
}

TEST(GraphText, KnowsDefaultGeneratorsAndHidesOthers) {
  Graph graph;
  EXPECT_TRUE(constant(graph, "aten.bernoulli(%0, generator(\"cpu\"))", 1)
                  .isSameIdentity(at::detail::getDefaultCPUGenerator()));

  graph.set_argument(graph.first(), 1, c10::IValue(at::make_generator<at::CPUGeneratorImpl>()));
  EXPECT_NE(graph.str().find("opaque(\"Generator\")"), std::string::npos);
  expect_round_trip(graph);
  Graph parsed = Graph::parse(graph.str());
  EXPECT_NE(OpaqueConstant::in(parsed.first()->args()[1].constant()), nullptr);

  // A device that is not there keeps its text.
  constant(graph, "aten.bernoulli(%0, generator(\"xpu:7\"))", 1);
  EXPECT_NE(graph.str().find("generator(\"xpu:7\")"), std::string::npos);
}

TEST(GraphText, OpaqueConstantsCannotRun) {
  Graph graph;
  c10::IValue generator = constant(graph, "aten.bernoulli(%0, opaque(\"Generator\"))", 1);
  torch::jit::Stack stack{torch::rand({2, 3}), generator};
  EXPECT_THROW(graph.first()->op().handle().callBoxed(stack), c10::Error);
}

TEST(GraphText, ParsedConstantsRun) {
  Graph graph = parse(R"(graph(%0: f32[2, 3] Primal 0):
  %1: f32[2, 3] = aten._to_copy(%0, dtype.f64, layout.strided, device("cpu"), false, false, format.contiguous)
  %2: f32[3] = aten.sum.dim_IntList(%0, [0], false, dtype.f64)
  %3: f32[2, 3] = aten.clamp(%0, 0, none)
  return ())");
  const at::Tensor input = torch::randn({2, 3});
  for (const Node& node : graph.nodes()) {
    torch::jit::Stack stack{input};
    for (size_t i = 1; i < node.args().size(); ++i) stack.push_back(node.args()[i].constant());
    node.op().handle().callBoxed(stack);
    EXPECT_TRUE(stack.at(0).toTensor().defined());
  }
}

TEST(GraphText, NestsSubGraphs) {
  Graph graph = parse(R"(graph(%x: f32[2] Primal 0):
  %y: f32[2], _ = ahead.call(graph(%x: f32[2] Primal 0): {
    %z: f32[2] = ahead.call(graph(%a: f32[2] Primal 0): { return (%a Output 0) }, %x)
    return (%z Output 0, none Output 1)
  }, %x)
  return (%y Output 0))");
  EXPECT_EQ(graph.str(),
            "graph(%0: f32[2] Primal 0):\n"
            "  %1: f32[2], _ = ahead.call(graph(%0: f32[2] Primal 0): {\n"
            "    %1: f32[2] = ahead.call(graph(%0: f32[2] Primal 0): {\n"
            "      return (%0 Output 0)\n"
            "    }, %0)\n"
            "    return (%1 Output 0, none Output 1)\n"
            "  }, %0)\n"
            "  return (%1 Output 0)\n");
}

TEST(GraphText, StandsForReturnsThatAreNoTensors) {
  parse(R"(graph(%q: f32[1, 1, 8, 8] Primal 0):
  %o: f32[1, 1, 8, 8], %l: f32[1, 1, 8], _, _, _, _, %s: i64[2], %u: i64[], _ = aten._scaled_dot_product_flash_attention(%q, %q, %q)
  return (%o Output 0))");
}

TEST(Interning, GivesOneAddressPerText) {
  EXPECT_EQ(intern("MmBackward0"), intern(std::string("MmBackward") + "0"));
  EXPECT_NE(intern("a"), intern("b"));
}

}  // namespace text_test
}  // namespace ahead
