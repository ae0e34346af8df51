// Backwards with compiled autograd on, against the same backwards in the eager engine. One thread;
// its processor time is taken. The forward is eager on both sides and not measured.

#include <ahead/ahead.h>
#include <benchmark/benchmark.h>

#include <algorithm>

#include "models/models.h"
#include "models/timing.h"

namespace {

namespace ca = ahead::compiled_autograd;
using at::Tensor;
using models::Workload;

double backward_ms(const Workload& workload) {
  for (Tensor parameter : workload.parameters) parameter.mutable_grad().reset();
  const Tensor loss = workload.loss(workload.inputs)[0];
  return models::milliseconds([&] { loss.backward(); }, models::thread_clock);
}

void backward(benchmark::State& state, const Workload& workload) {
  at::set_num_threads(1);
  ca::reset();
  std::vector<double> eager, compiled, ratios;
  const auto run_compiled = [&] {
    ca::Enable on;
    return backward_ms(workload);
  };
  backward_ms(workload);
  run_compiled();
  const ca::Stats first = ca::stats();
  for (auto _ : state) {
    eager.push_back(backward_ms(workload));
    compiled.push_back(run_compiled());
    ratios.push_back(compiled.back() / eager.back());
    state.SetIterationTime((eager.back() + compiled.back()) * 1e-3);
  }
  state.counters["eager_ms"] = models::median(eager);
  state.counters["compiled_ms"] = models::median(compiled);
  state.counters["ratio"] = models::median(ratios);
  state.counters["capture_ms"] = first.capture_seconds * 1e3;
}

/// Nodes on so few numbers that only the overhead of running them is left.
Workload chain(int length) {
  torch::manual_seed(0);
  Tensor weight = torch::randn({16}).requires_grad_();
  auto loss = [weight, length](const std::vector<Tensor>& in) {
    Tensor x = in[0] * weight;
    for (int i = 0; i < length / 2 - 1; ++i) x = torch::sin(x) * 1.01;
    return std::vector<Tensor>{x.sum()};
  };
  return {"chain", {weight}, {torch::randn({16})}, loss};
}

/// With a hook on the gradient of every parameter, as people have them to clip or to look.
Workload with_hooks(Workload workload) {
  for (const Tensor& parameter : workload.parameters)
    parameter.register_hook([](const Tensor& gradient) { return gradient; });
  return workload;
}

/// How long it takes to find the graph of a backward of 1,000 nodes again, one step after the
/// other.
void look_up(benchmark::State& state) {
  at::set_num_threads(1);
  ca::reset();
  const Workload workload = chain(1000);
  std::vector<double> lookups;
  ca::Enable on;
  backward_ms(workload);
  for (auto _ : state) {
    const double before = ca::stats().lookup_seconds;
    state.SetIterationTime(1e-3 * backward_ms(workload));
    lookups.push_back(1e6 * (ca::stats().lookup_seconds - before));
  }
  state.counters["least_us"] = *std::min_element(lookups.begin(), lookups.end());
  state.counters["median_us"] = models::median(lookups);
}

/// How often backwards of batches of 2 to 9 are captured, and what a new batch size costs then.
void batch_sizes(benchmark::State& state) {
  at::set_num_threads(1);
  torch::manual_seed(0);
  torch::nn::Sequential net(torch::nn::Linear(64, 256), torch::nn::GELU(),
                            torch::nn::LayerNorm(torch::nn::LayerNormOptions({256})),
                            torch::nn::Linear(256, 10));
  const auto backward_of = [&](int64_t size) {
    const Tensor loss = net->forward(torch::randn({size, 64})).pow(2).mean();
    ca::Enable on;
    return models::milliseconds([&] { loss.backward(); }, models::thread_clock);
  };
  double captures = 0, first = 0, second = 0, later = 0;
  for (auto _ : state) {
    ca::reset();
    first = backward_of(2);
    second = backward_of(3);
    std::vector<double> others;
    for (int64_t size = 4; size <= 9; ++size) others.push_back(backward_of(size));
    captures = static_cast<double>(ca::stats().captures);
    later = models::median(others);
    state.SetIterationTime(1e-3 * (first + second + later));
  }
  state.counters["captures"] = captures;
  state.counters["first_ms"] = first;
  state.counters["second_ms"] = second;
  state.counters["later_ms"] = later;
}

void add(std::function<Workload()> make, const std::string& name) {
  auto run = [make](benchmark::State& state) { backward(state, make()); };
  benchmark::RegisterBenchmark(("backward/" + name).c_str(), run)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

}  // namespace

int main(int argc, char** argv) {
  add(models::mlp_workload, "mlp");
  add([] { return models::gpt_workload(); }, "gpt12");
  add([] { return with_hooks(models::gpt_workload()); }, "gpt12_hooks");
  add(models::resnet_workload, "resnet8");
  add(models::lstm_workload, "lstm");
  add([] { return chain(200); }, "chain200");
  benchmark::RegisterBenchmark("backward/look_up", look_up)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark("backward/batch_sizes", batch_sizes)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
