#include <gtest/gtest.h>

#include "ahead/ahead.h"

namespace ahead {
namespace decompose_test {

using at::Tensor;
using Tensors = std::vector<at::Tensor>;
using Values = std::vector<c10::IValue>;

Graph decomposed(const std::string& text, const DecompositionTable& table, size_t changes = 1) {
  Graph graph = Graph::parse(text);
  EXPECT_EQ(passes::decompose(graph, table), changes);
  graph.verify();
  return graph;
}

std::string error_of(const std::string& text, const DecompositionTable& table) {
  Graph graph = Graph::parse(text);
  try {
    passes::decompose(graph, table);
  } catch (const UserError& error) {
    return error.what_without_backtrace();
  }
  return "";
}

const std::string one_call = R"(
graph(%x: f32[2, 3] Primal 0):
  %y: f32[2, 3] = aten.silu(%x) !no_grad
  %z: f32[2, 3] = aten.neg(%y)
  return (%z Output 0)
)";

TEST(Decompose, PutsTheFunctionInPlaceOfTheCall) {
  const Graph graph = decomposed(one_call, {{"aten.silu", [](const Values& in) -> Tensors {
                                               const Tensor x = in[0].toTensor();
                                               return {x * x.sigmoid()};
                                             }}});
  EXPECT_EQ(graph.str(), R"(graph(%0: f32[2, 3] Primal 0):
  %1: f32[2, 3] = aten.sigmoid(%0) !no_grad
  %2: f32[2, 3] = aten.mul.Tensor(%0, %1) !no_grad
  %3: f32[2, 3] = aten.neg(%2)
  return (%3 Output 0)
)");
}

TEST(Decompose, GoesOnInsideButNotForEver) {
  const Graph graph = decomposed(
      one_call,
      {{"aten.silu",
        [](const Values& in) -> Tensors { return {at::silu(in[0].toTensor()).sigmoid()}; }},
       {"aten.sigmoid",
        [](const Values& in) -> Tensors { return {at::silu(in[0].toTensor()).cos()}; }}},
      2);
  EXPECT_EQ(graph.str(), R"(graph(%0: f32[2, 3] Primal 0):
  %1: f32[2, 3] = aten.silu(%0) !no_grad
  %2: f32[2, 3] = aten.silu(%1) !no_grad
  %3: f32[2, 3] = aten.cos(%2) !no_grad
  %4: f32[2, 3] = aten.neg(%3)
  return (%4 Output 0)
)");
}

TEST(Decompose, TakesListsNumbersAndSeveralResults) {
  const Graph graph = decomposed(
      R"(
graph(%x: f32[4] Primal 0, %t: f32[4] Tangent 0):
  %a: f32[4] = aten.add.Tensor(%x, 2.0, 3) !backward
  %c: f32[8] = aten.cat([%a, %x], 0) !backward
  [%d: f32[4], %e: f32[4]+4] = aten.split.Tensor(%c, 4, 0) !backward
  %f: f32[4] = aten.mul.Tensor(%d, %e) !backward
  return (%x Output 0, %f GradOf 0)
)",
      {{"aten.add.Tensor",
        [](const Values& in) -> Tensors {
          return {in[0].toTensor() - in[1].toTensor() * in[2].toScalar()};
        }},
       {"aten.cat",
        [](const Values& in) -> Tensors { return {at::stack(in[0].toTensorVector()).view({8})}; }},
       {"aten.split.Tensor",
        [](const Values& in) -> Tensors {
          const Tensor x = in[0].toTensor();
          return {x.narrow(0, 0, 4), x.narrow(0, 4, 4)};
        }}},
      3);
  for (const Node& node : graph.nodes()) EXPECT_EQ(node.phase, Phase::Backward);
  const Tensor x = torch::randn({4});
  EXPECT_TRUE(interpret(graph, {x, x})[1].equal((x - 2.0 * 3) * x));
}

TEST(Decompose, KeepsLayoutsAndNewMemory) {
  const Decomposition identity = [](const Values& in) -> Tensors { return {in[0].toTensor()}; };
  const Graph graph = decomposed(R"(
graph(%x: f32[2, 3] Primal 0):
  %y: f32[2, 3]{1, 2} = aten.relu(%x)
  %z: f32[2, 3] = aten.silu(%x)
  return (%y Output 0, %z Output 1)
)",
                                 {{"aten.relu", identity}, {"aten.silu", identity}}, 2);
  const Tensor x = torch::randn({2, 3});
  const Tensors results = interpret(graph, {x});
  EXPECT_EQ(results[0].strides(), at::IntArrayRef({1, 2}));
  for (const Tensor& result : results) {
    EXPECT_TRUE(result.equal(x));
    EXPECT_FALSE(result.is_alias_of(x));
  }
}

TEST(Decompose, CapturesWhatTheFunctionReaches) {
  const Tensor table = torch::randn({3});
  const Graph graph = decomposed(one_call, {{"aten.silu", [&](const Values& in) -> Tensors {
                                               return {in[0].toTensor() * table + table};
                                             }}});
  ASSERT_EQ(graph.inputs().size(), 2U);
  EXPECT_TRUE(graph.inputs()[1].captured.is_same(table));
  const Tensor x = torch::randn({2, 3});
  EXPECT_TRUE(interpret(graph, {x})[0].equal(-(x * table + table)));
}

TEST(Decompose, LeavesCallsOfChangingSizesAlone) {
  const DecompositionTable table{{"aten.silu", [](const Values& in) -> Tensors {
                                    return {in[0].toTensor() * in[0].toTensor().sigmoid()};
                                  }}};
  const Graph graph = decomposed(R"(
graph(%x: f32[s0, 3] Primal 0, %y: f32[2] Primal 1, %s: i64[1] Sizes 0):
  %a: f32[s0, 3] = aten.silu(%x)
  %b: f32[2] = aten.silu(%y)
  return (%a Output 0, %b Output 1)
)",
                                 table);
  EXPECT_NE(graph.str().find("f32[s0, 3] = aten.silu"), std::string::npos) << graph.str();
}

TEST(Decompose, RefusesFunctionsThatDoNotFit) {
  EXPECT_EQ(
      error_of(one_call, {{"aten.silu",
                           [](const Values& in) -> Tensors { return {in[0].toTensor().sum()}; }}}),
      "[decompose] aten.silu: result 0 of its decomposition is f32[], the operator's f32[2, "
      "3].");
  EXPECT_EQ(error_of(one_call, {{"aten.silu", [](const Values&) -> Tensors { return {}; }}}),
            "[decompose] aten.silu: its decomposition returns 0 tensors, the operator 1. It must "
            "not write to its arguments either.");
  EXPECT_EQ(error_of(one_call,
                     {{"aten.silu",
                       [](const Values& in) -> Tensors { return {in[0].toTensor().mul_(2)}; }}}),
            "[decompose] aten.silu: its decomposition returns 2 tensors, the operator 1. It must "
            "not write to its arguments either.");
}

}  // namespace decompose_test
}  // namespace ahead
