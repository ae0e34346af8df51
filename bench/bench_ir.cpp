// What can be done with a graph once it is there: print, parse, verify, hash and copy.

#include <ahead/ahead.h>
#include <benchmark/benchmark.h>

#include "models/models.h"
#include "models/timing.h"

namespace {

ahead::JointGraph trace_gpt(models::GptOptions options) {
  models::Workload workload = models::gpt_workload(options);
  return ahead::trace_joint(workload.loss, workload.inputs);
}

const ahead::Graph& gpt12() {
  static const ahead::Graph graph = trace_gpt({});
  return graph;
}

const ahead::Graph& twenty_thousand_nodes() {
  static const ahead::Graph graph =
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

using Bench = void (*)(benchmark::State&, const ahead::Graph&);

void print(benchmark::State& state, const ahead::Graph& graph) {
  repeat(state, graph, [&] { benchmark::DoNotOptimize(graph.str()); });
}

void parse(benchmark::State& state, const ahead::Graph& graph) {
  const std::string text = graph.str();
  repeat(state, graph, [&] { benchmark::DoNotOptimize(ahead::Graph::parse(text)); });
}

void verify(benchmark::State& state, const ahead::Graph& graph) {
  repeat(state, graph, [&] { graph.verify(); });
}

void hash(benchmark::State& state, const ahead::Graph& graph) {
  repeat(state, graph, [&] { benchmark::DoNotOptimize(graph.hash()); });
}

void copy(benchmark::State& state, const ahead::Graph& graph) {
  repeat(state, graph, [&] { benchmark::DoNotOptimize(ahead::Graph(graph)); });
}

void add(const std::string& name, Bench bench) {
  auto add_for = [&](const std::string& graph_name, const ahead::Graph& (*graph)()) {
    auto run = [bench, graph](benchmark::State& state) { bench(state, graph()); };
    benchmark::RegisterBenchmark((name + "/" + graph_name).c_str(), run)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  };
  add_for("gpt12", gpt12);
  add_for("20k_nodes", twenty_thousand_nodes);
}

}  // namespace

int main(int argc, char** argv) {
  add("print", print);
  add("parse", parse);
  add("verify", verify);
  add("hash", hash);
  add("copy", copy);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
