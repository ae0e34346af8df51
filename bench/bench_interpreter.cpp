// A training step run from its joint graph, against the same step in eager LibTorch. With one
// thread, that thread's processor time is taken; with several, the time on the wall.

#include <ahead/ahead.h>
#include <benchmark/benchmark.h>

#include "models/models.h"
#include "models/timing.h"

namespace {

using at::Tensor;
using models::Workload;

void step(benchmark::State& state, const Workload& workload, int threads) {
  at::set_num_threads(threads);
  const ahead::Interpreter run(ahead::trace_joint(workload.loss, workload.inputs));
  const std::vector<Tensor> arguments = models::joint_arguments(workload);
  auto eager_step = [&] { models::eager_step(workload); };
  auto graph_step = [&] { run(std::vector<Tensor>(arguments)); };
  eager_step();
  graph_step();

  models::Pairs pairs{threads == 1 ? models::thread_clock : models::wall_clock};
  for (auto _ : state) {
    pairs.run(eager_step, graph_step);
    state.SetIterationTime((pairs.first.back() + pairs.second.back()) * 1e-3);
  }
  state.counters["eager_ms"] = models::median(pairs.first);
  state.counters["graph_ms"] = models::median(pairs.second);
  state.counters["ratio"] = models::median(pairs.ratios);
}

/// Fifty operators on so few numbers that only the overhead of calling them is left.
Workload pointwise_chain() {
  torch::manual_seed(0);
  Tensor weight = torch::randn({16}).requires_grad_();
  auto loss = [weight](const std::vector<Tensor>& in) {
    Tensor x = in[0] * weight;
    for (int i = 0; i < 24; ++i) x = torch::sin(x) * 1.01;
    return std::vector<Tensor>{x.sum()};
  };
  return {"chain", {weight}, {torch::randn({16})}, loss};
}

void add(std::function<Workload()> make, const std::string& name) {
  for (int threads : {1, 2}) {
    auto run = [make, threads](benchmark::State& state) { step(state, make(), threads); };
    const std::string full_name = "step/" + name + "/threads:" + std::to_string(threads);
    benchmark::RegisterBenchmark(full_name.c_str(), run)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  }
}

}  // namespace

int main(int argc, char** argv) {
  add(models::mlp_workload, "mlp");
  add([] { return models::gpt_workload(); }, "gpt12");
  add(models::resnet_workload, "resnet8");
  add(models::lstm_workload, "lstm");
  add(models::pinn_workload, "pinn");
  add(pointwise_chain, "chain");
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
