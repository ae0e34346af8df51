// Traces five models together with their gradients, runs the graphs, and compares them with eager
// LibTorch: the numbers must be the same to the last bit.
//
//   01_trace [--quick]      --quick: measures for a shorter time

#include <ahead/ahead.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "models/models.h"
#include "models/progress.h"
#include "models/timing.h"
#include "report.h"

namespace {

using ahead::Slot;
using at::Tensor;
using models::Progress;
using models::Workload;

/// Runs the model's code once without computing anything, forward and backward, and returns what it
/// would have done. The first trace of a process also fills caches, so the time is that of repeats.
ahead::JointGraph trace(const Workload& workload, Row& row) {
  ahead::JointGraph graph = ahead::trace_joint(workload.loss, workload.inputs);
  std::vector<double> times(5);
  for (double& time : times) {
    time = models::milliseconds([&] { ahead::trace_joint(workload.loss, workload.inputs); });
  }
  row.trace_ms = models::median(times);
  row.nodes = graph.num_nodes();
  return graph;
}

/// The program as text, which Graph::parse reads back, and as a drawing for Graphviz.
void write(const ahead::Graph& graph, const std::string& name) {
  std::filesystem::create_directories("out");
  std::ofstream("out/" + name + ".graph") << graph.str();
  std::ofstream("out/" + name + ".dot") << graph.dot();
}

double largest_difference(const Tensor& a, const Tensor& b) {
  if (!a.defined() && !b.defined()) return 0;
  if (!a.defined() || !b.defined() || a.sizes() != b.sizes()) return INFINITY;
  if (a.equal(b)) return 0;
  return (a - b).abs().max().item<double>();
}

/// The tensor that was the graph's input when it was traced.
const Tensor& input_tensor(const ahead::Graph& graph, const Workload& workload, int32_t position) {
  const ahead::Graph::Input& input = graph.inputs()[static_cast<size_t>(position)];
  const bool captured = input.slot.kind == Slot::Kind::Captured;
  return captured ? input.captured : workload.inputs[static_cast<size_t>(input.slot.index)];
}

/// Runs the graph, then eager. What the graph returned is told apart by slots: the loss, gradients,
/// and what batch normalisation would have written to its buffers.
void compare(const ahead::Graph& graph, const Workload& workload, Row& row) {
  std::vector<Tensor> results = ahead::interpret(graph, models::joint_arguments(workload));
  Tensor loss = models::eager_step(workload);
  for (size_t i = 0; i < results.size(); ++i) {
    const Slot slot = graph.outputs()[i].slot;
    if (slot.kind == Slot::Kind::Output) {
      row.loss_difference = largest_difference(results[i], loss);
      continue;
    }
    const Tensor& input = input_tensor(graph, workload, slot.index);
    const Tensor& expected = slot.kind == Slot::Kind::GradOf ? input.grad() : input;
    row.gradient_difference =
        std::max(row.gradient_difference, largest_difference(results[i], expected));
  }
}

void measure(const ahead::Graph& graph, const Workload& workload, double seconds, Row& row) {
  const ahead::Interpreter step(graph);
  const std::vector<Tensor> arguments = models::joint_arguments(workload);
  models::Pairs pairs;
  // Each step lets go of the gradients of the one before and leaves new ones behind.
  std::vector<Tensor> results;
  auto graph_step = [&] {
    results.clear();
    results = step(std::vector<Tensor>(arguments));
  };
  auto run_both = [&] { pairs.run([&] { models::eager_step(workload); }, graph_step); };
  for (double spent = 0; pairs.ratios.size() < 4 || spent < 1e3 * seconds;) {
    spent += models::milliseconds(run_both);
  }
  row.eager_ms = models::median(pairs.first);
  row.graph_ms = models::median(pairs.second);
  row.ratio = models::median(pairs.ratios);
}

Row demonstrate(const Workload& workload, double seconds, Progress& progress) {
  Row row{workload.name};
  progress.stage(workload.name + ": tracing");
  ahead::JointGraph graph = trace(workload, row);
  write(graph, workload.name);
  progress.stage(workload.name + ": comparing " + std::to_string(row.nodes) + " nodes with eager");
  compare(graph, workload, row);
  progress.stage(workload.name + ": timing steps");
  measure(graph, workload, seconds, row);
  return row;
}

}  // namespace

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::string_view(argv[1]) == "--quick";
  std::vector<Row> rows;
  {
    Progress progress;
    progress.stage("building the models");
    for (const Workload& workload : models::workloads()) {
      rows.push_back(demonstrate(workload, quick ? 0.2 : 2, progress));
    }
  }
  print_table(rows);
  std::printf("Wrote each graph to out/<model>.graph and out/<model>.dot.\n");

  const bool same = std::all_of(rows.begin(), rows.end(), [](const Row& row) {
    return row.loss_difference == 0 && row.gradient_difference == 0;
  });
  if (!same) std::fprintf(stderr, "A graph computes something else than eager.\n");
  return same ? 0 : 1;
}
