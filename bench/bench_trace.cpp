// How long it takes to trace a model together with its gradient. Tracing happens on one thread, so
// what counts is that thread's processor time: other programs hardly change it.

#include <ahead/ahead.h>
#include <benchmark/benchmark.h>

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

/// What LibTorch itself takes for a forward and a backward on tensors without data, with no trace: how
/// that grows with the layers is how any tracer's time must grow that lets LibTorch make the graph.
void autograd_alone(benchmark::State& state) {
  const auto options = torch::dtype(at::kFloat).device(at::kMeta);
  std::vector<at::Tensor> weights;
  for (int64_t i = 0; i < 6 * state.range(0); ++i)
    weights.push_back(torch::empty({32, 32}, options).requires_grad_());
  const at::Tensor input = torch::empty({4, 32}, options);
  const auto step = [&] {
    at::Tensor x = input;
    for (const at::Tensor& weight : weights) {
      const at::Tensor y = torch::gelu(torch::mm(x, weight.t()));
      x = x + y.view({2, 2, 32}).transpose(0, 1).reshape({4, 32});
    }
    x.sum().backward();
  };
  std::vector<double> times;
  for (auto _ : state) {
    for (const at::Tensor& weight : weights) weight.mutable_grad().reset();
    times.push_back(models::milliseconds(step, models::thread_clock));
    state.SetIterationTime(times.back() * 1e-3);
  }
  state.counters["nodes"] = 0;
  state.counters["min_ms"] = *std::min_element(times.begin(), times.end());
}

void add(const std::string& name, std::function<Workload()> make) {
  auto run = [make](benchmark::State& state) { trace(state, make()); };
  benchmark::RegisterBenchmark(name.c_str(), run)->UseManualTime()->Unit(benchmark::kMillisecond);
}

}  // namespace

int main(int argc, char** argv) {
  add("trace/mlp", models::mlp_workload);
  add("trace/gpt12", [] { return models::gpt_workload(); });
  add("trace/resnet8", models::resnet_workload);
  add("trace/lstm", models::lstm_workload);
  add("trace/pinn", models::pinn_workload);
  for (int64_t layers : {11, 176}) {  // 1,236 and 19,386 nodes
    add("trace_layers/" + std::to_string(layers), [layers] { return narrow_gpt(layers); });
  }
  benchmark::RegisterBenchmark("autograd_layers", autograd_alone)
      ->Arg(11)
      ->Arg(176)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
