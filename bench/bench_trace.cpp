// How long it takes to trace a model together with its gradient. Tracing happens on one thread, so
// what counts is that thread's processor time: other programs hardly change it.

#include <ahead/ahead.h>
#include <benchmark/benchmark.h>

#include <memory>
#include <optional>

#include "models/models.h"
#include "models/timing.h"

namespace {

using models::Workload;

void trace(benchmark::State& state, const Workload& workload) {
  const size_t nodes = ahead::trace_joint(workload.loss, workload.inputs).num_nodes();
  std::vector<double> times;
  for (auto _ : state) {
    std::optional<ahead::JointGraph> graph;
    auto once = [&] { graph.emplace(ahead::trace_joint(workload.loss, workload.inputs)); };
    times.push_back(models::milliseconds(once, models::thread_clock));
    state.SetIterationTime(times.back() * 1e-3);
  }
  // The least is what the work itself takes; everything above it is somebody else's.
  const double least = *std::min_element(times.begin(), times.end());
  state.counters["nodes"] = static_cast<double>(nodes);
  state.counters["min_ms"] = least;
  state.counters["min_us_per_node"] = 1e3 * least / static_cast<double>(nodes);
}

/// A transformer whose tensors are small: tracing does not depend on their size, only memory does.
Workload narrow_gpt(int64_t layers) {
  return models::gpt_workload(
      {.layers = layers, .width = 32, .heads = 2, .vocabulary = 32, .context = 8});
}

/// One whose tensors hold next to nothing, so that only the work of LibTorch's autograd is left.
Workload hollow_gpt(int64_t layers) {
  return models::gpt_workload(
      {.layers = layers, .width = 2, .heads = 1, .vocabulary = 2, .context = 1});
}

constexpr int64_t kFewLayers = 11, kTimes = 16;  // 1,236 nodes, and 19,386

/// How many times as long something takes for a model of sixteen times the layers. The small model
/// has as many turns as it takes to do the work of the large one, so that both meet the same
/// machine.
template <class Make, class Work>
void growth(benchmark::State& state, Make&& make, Work&& work) {
  const Workload few = make(kFewLayers), many = make(kTimes * kFewLayers);
  const auto time = [&](const Workload& workload) {
    // Taking down what the work leaves behind is not part of it.
    decltype(work(workload)) left;
    return models::milliseconds([&] { left = work(workload); }, models::thread_clock);
  };
  time(few), time(many);
  std::vector<double> small, large, ratios;
  for (auto _ : state) {
    double sum = 0;
    for (int64_t i = 0; i < kTimes; ++i) sum += time(few);
    small.push_back(sum / kTimes);
    large.push_back(time(many));
    ratios.push_back(large.back() / small.back());
    state.SetIterationTime((sum + large.back()) * 1e-3);
  }
  state.counters["few_ms"] = models::median(small);
  state.counters["many_ms"] = models::median(large);
  state.counters["ratio"] = models::median(ratios);
}

void add_growth() {
  auto trace = [](const Workload& workload) {
    return std::make_unique<ahead::JointGraph>(ahead::trace_joint(workload.loss, workload.inputs));
  };
  // What LibTorch makes and takes down for the same model without a trace.
  auto eager = [](const Workload& workload) { return models::eager_step(workload); };
  auto of_trace = [=](benchmark::State& state) { growth(state, narrow_gpt, trace); };
  auto of_eager = [=](benchmark::State& state) { growth(state, hollow_gpt, eager); };
  for (auto* benchmark : {benchmark::RegisterBenchmark("growth/trace", of_trace),
                          benchmark::RegisterBenchmark("growth/eager", of_eager)})
    benchmark->UseManualTime()->Unit(benchmark::kMillisecond);
}

void add(const std::string& name, std::function<Workload()> make) {
  auto run = [make](benchmark::State& state) { trace(state, make()); };
  benchmark::RegisterBenchmark(name.c_str(), run)->UseManualTime()->Unit(benchmark::kMillisecond);
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  add("trace/mlp", models::mlp_workload);
  add("trace/gpt12", [] { return models::gpt_workload(); });
  add("trace/resnet8", models::resnet_workload);
  add("trace/lstm", models::lstm_workload);
  add("trace/pinn", models::pinn_workload);
  add_growth();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
