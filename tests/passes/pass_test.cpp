#include "passes/pass_test.h"

#include "models/models.h"
#include "support/halves.h"

namespace ahead {

void expect_rewritten(PassFunction pass, const std::string& before, const std::string& after,
                      size_t changes) {
  Graph graph = Graph::parse(before);
  graph.verify();
  EXPECT_EQ(pass(graph), changes);
  graph.verify();
  EXPECT_EQ(graph.str(), after);
  EXPECT_EQ(pass(graph), 0U);
}

void expect_unchanged(PassFunction pass, const std::string& text) {
  expect_rewritten(pass, text, Graph::parse(text).str(), 0);
}

namespace {

TEST(Passes, AreFoundByName) {
  Graph graph = Graph::parse(R"(
graph(%x: f32[2] Primal 0):
  %y: f32[2] = aten.sin(%x)
  return (%x Output 0)
)");
  EXPECT_EQ(passes::run_pass("eliminate_dead_code", graph), 1U);
  for (const passes::Pass& pass : passes::all()) {
    EXPECT_EQ(passes::run_pass(pass.name, graph), 0U) << pass.name;
    EXPECT_FALSE(pass.description.empty()) << pass.name;
  }
  try {
    passes::run_pass("inline", graph);
    FAIL();
  } catch (const UserError& error) {
    const std::string start = "[passes] \"inline\": there is no such pass. Use one of ";
    EXPECT_EQ(std::string(error.what_without_backtrace()).substr(0, start.size()), start);
  }
}

TEST(Passes, KeepTheResultsOfEveryModel) {
  for (const models::Workload& workload : models::workloads()) {
    const JointGraph joint = trace_joint(workload.loss, workload.inputs);
    const auto args = with_captured(joint, models::joint_arguments(workload));
    Graph after_all = joint;
    for (const passes::Pass& pass : passes::all()) {
      Graph graph = joint;
      pass.run(graph);
      EXPECT_EQ(results_difference(joint, graph, args), "") << pass.name << ", " << workload.name;
      EXPECT_EQ(pass.run(graph), 0U) << pass.name << ", " << workload.name;
      pass.run(after_all);
    }
    EXPECT_EQ(results_difference(joint, after_all, args), "") << workload.name;
    EXPECT_LE(after_all.num_nodes(), joint.num_nodes());
  }
}

}  // namespace
}  // namespace ahead
