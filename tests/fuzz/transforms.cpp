#include "fuzz/transforms.h"

#include "ahead/ahead.h"
#include "native/fuse/fuse.h"
#include "native/lower/lower.h"
#include "support/eager.h"
#include "support/halves.h"
#include "support/memory_sharing.h"

namespace ahead::fuzz {
namespace {

std::string passes_problem(const Graph& graph, const Tensors& args) {
  Graph all = graph;
  for (const passes::Pass& pass : passes::all()) {
    Graph one = graph;
    for (Graph* rewritten : {&one, &all}) {
      pass.run(*rewritten);
      std::string problem = results_difference(graph, *rewritten, args);
      if (problem.empty()) problem = sharing_difference(graph, *rewritten, args);
      if (problem.empty() && pass.run(*rewritten) != 0) problem = "it changes its own result";
      if (!problem.empty())
        return std::string(pass.name) + (rewritten == &all ? " after others: " : ": ") + problem +
               "\n" + rewritten->str();
    }
  }
  return "";
}

/// What the native backend puts together gives the same, operator by operator, and has loops; where
/// these are not found again, as may be with square matrices, ATen runs the operators.
std::string fusion_problem(Graph graph, const Tensors& args) {
  // Backends get the halves of a graph, in which phases mean nothing.
  for (Node& node : graph.nodes()) node.phase = Phase::Forward;
  const native::FusedGraph fused = native::fuse(graph);
  std::string problem = results_difference(graph, fused.graph, args);
  if (problem.empty()) problem = sharing_difference(graph, fused.graph, args);
  for (const Node& node : fused.graph.nodes()) {
    if (node.op().in_dispatcher() || !problem.empty()) continue;
    problem = error_of([&] { native::lower(*node.args()[0].graph()); });
    if (problem.find("these operators share no loops") != std::string::npos) problem.clear();
  }
  return problem.empty() ? "" : "fuse: " + problem + "\n" + fused.graph.str();
}

std::string halves_text(const PartitionedGraphs& halves) {
  return "\n" + halves.forward.str() + halves.backward.str();
}

std::string partitions_problem(const JointGraph& joint, const Tensors& args) {
  PartitionedGraphs halves = partition_default(joint);
  std::string problem = halves_problem(joint, halves, args);
  if (!problem.empty()) return "partition_default: " + problem + halves_text(halves);
  PartitionOptions options;
  for (double budget : {1.0, 0.5, 0.0}) {
    options.memory_budget = budget;
    PartitionedGraphs smaller = partition_min_cut(joint, options);
    problem = halves_problem(joint, smaller, args);
    if (smaller.saved_bytes() > halves.saved_bytes()) problem = "it saves more than before";
    if (smaller.peak_bytes() > halves.peak_bytes()) problem = "its peak is higher than before";
    halves = std::move(smaller);
    if (problem.empty()) continue;
    return "partition_min_cut, " + std::to_string(budget) + ": " + problem + halves_text(halves);
  }
  return "";
}

}  // namespace

std::string transforms_problem(const Graph& graph, const Tensors& args) {
  std::string problem = passes_problem(graph, args);
  if (problem.empty()) problem = fusion_problem(graph, args);
  if (!problem.empty()) return problem;
  return partitions_problem(JointGraph(graph), args);
}

}  // namespace ahead::fuzz
