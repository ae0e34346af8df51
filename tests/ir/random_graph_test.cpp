#include <chrono>

#include "ahead/graph.h"
#include "support/random_graph.h"
#include "support/round_trip.h"

namespace ahead {
namespace random_graph_test {

TEST(RandomGraphs, GoThroughTextUnchanged) {
  for (uint64_t seed = 0; seed < 300 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    expect_round_trip(random_graph(seed));
  }
}

TEST(RandomGraphs, SurviveRewriting) {
  for (uint64_t seed = 0; seed < 100 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Graph graph = random_graph(seed);
    // What nothing uses goes away from the back; what is left must still be a program.
    for (Node* node = graph.last(); node != nullptr; node = node->prev()) {
      bool used = false;
      for (const Value* result : node->results())
        used = used || (result != nullptr && result->is_used());
      if (!used) graph.erase(node);
    }
    expect_round_trip(graph);
    for (Node& node : graph.nodes()) {
      if (node.op().name() != "aten.clone" || node.result()->meta != node.args()[0].value()->meta)
        continue;
      graph.replace_uses(node.result(), node.args()[0].value());
    }
    expect_round_trip(graph);
  }
}

TEST(RandomGraphs, OfTwentyThousandNodesTakeLessThanASecond) {
  const Graph graph = random_graph(1, 20000);
  const auto start = std::chrono::steady_clock::now();
  const std::string text = graph.str();
  const Graph parsed = Graph::parse(text);
  parsed.verify();
  EXPECT_EQ(parsed.hash(), graph.hash());
  const Graph copy = parsed;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  RecordProperty("seconds", std::to_string(seconds.count()));
  EXPECT_LT(seconds.count(), 4.0) << "all five steps together; a sanitizer may slow them down";
}

TEST(GraphDot, ShowsNodesInputsAndOutputs) {
  const std::string dot = Graph::parse(R"(graph(%0: f32[2] Primal 0, %1: f32[1] Tangent 0):
  [%2: f32[1], %3: f32[1]] = aten.split.Tensor(%0, 1, 0)
  %4: f32[1] = aten.mul.Tensor(%1, %3) !backward
  return (%2 Output 0, %4 GradOf 0, none Output 1))")
                              .dot();
  for (const char* part :
       {"digraph", "cluster_forward", "cluster_backward", "i0 [", "Primal 0\\nf32[2]", "Tangent 0",
        "n0 [label=\"aten.split.Tensor\\n%2: f32[1]\\n%3: f32[1]\"]",
        "aten.mul.Tensor\\n%4: f32[1]", "i0 -> n0;", "i1 -> n1;", "n0 -> n1 [label=\"%3\"];",
        "n1 -> o1;", "Output 1\\nundefined"}) {
    EXPECT_NE(dot.find(part), std::string::npos) << part << " is not in\n" << dot;
  }
  EXPECT_EQ(dot.find("-> o2"), std::string::npos);
  EXPECT_EQ(std::count(dot.begin(), dot.end(), '{'), std::count(dot.begin(), dot.end(), '}'));
}

}  // namespace random_graph_test
}  // namespace ahead
