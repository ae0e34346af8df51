// How long it takes to rewrite a joint graph and to cut it in two.

#include <ahead/ahead.h>
#include <benchmark/benchmark.h>

#include <algorithm>

#include "models/models.h"
#include "models/timing.h"

namespace {

ahead::JointGraph trace_gpt(models::GptOptions options) {
  models::Workload workload = models::gpt_workload(options);
  return ahead::trace_joint(workload.loss, workload.inputs);
}

const ahead::JointGraph& gpt12() {
  static const ahead::JointGraph graph = trace_gpt({});
  return graph;
}

const ahead::JointGraph& twenty_thousand_nodes() {
  static const ahead::JointGraph graph =
      trace_gpt({.layers = 192, .width = 32, .heads = 2, .vocabulary = 32, .context = 8});
  return graph;
}

template <class Function>
void repeat(benchmark::State& state, const ahead::Graph& graph, Function&& function) {
  std::vector<double> times;
  for (auto _ : state) {
    times.push_back(models::milliseconds(function, models::thread_clock));
    state.SetIterationTime(times.back() * 1e-3);
  }
  const double least = *std::min_element(times.begin(), times.end());
  state.counters["nodes"] = static_cast<double>(graph.num_nodes());
  state.counters["min_ms"] = least;
  state.counters["min_ns_per_node"] = 1e6 * least / static_cast<double>(graph.num_nodes());
}

template <class Run>
void add(const std::string& name, Run run) {
  auto add_for = [&](const std::string& graph_name, const ahead::JointGraph& (*graph)()) {
    auto bench = [run, graph](benchmark::State& state) {
      repeat(state, graph(), [&] { benchmark::DoNotOptimize(run(graph())); });
    };
    benchmark::RegisterBenchmark((name + "/" + graph_name).c_str(), bench)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  };
  add_for("gpt12", gpt12);
  add_for("20k_nodes", twenty_thousand_nodes);
}

auto min_cut(double budget) {
  return [budget](const ahead::JointGraph& joint) {
    ahead::PartitionOptions options;
    options.memory_budget = budget;
    return ahead::partition_min_cut(joint, options);
  };
}

}  // namespace

int main(int argc, char** argv) {
  // The time of a pass includes that of the copy it works on, which bench_ir measures.
  for (const ahead::passes::Pass& pass : ahead::passes::all()) {
    add(std::string(pass.name), [run = pass.run](const ahead::JointGraph& joint) {
      ahead::Graph graph = joint;
      return run(graph);
    });
  }
  add("partition_default", ahead::partition_default);
  add("partition_min_cut", min_cut(1.0));
  add("partition_min_cut_half", min_cut(0.5));
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
