// The most memory that a training step takes at once, beyond what is there before it, and the
// gradients that it leaves behind among it: eagerly, with the interpreter, with kernels.

#include <ahead/ahead.h>
#include <benchmark/benchmark.h>

#include "models/memory.h"
#include "models/speed_models.h"

namespace {

/// In megabytes, of the last of a few steps.
template <class Loss>
double peak(const models::Workload& workload, const Loss& loss) {
  models::MemoryCounter counter;
  int64_t peak = 0;
  for (int step = 0; step < 4; ++step) {
    for (const at::Tensor& parameter : workload.parameters) parameter.mutable_grad().reset();
    for (const at::Tensor& input : workload.inputs) {
      if (input.requires_grad()) input.mutable_grad().reset();
    }
    peak = counter.peak([&] { loss(workload.inputs)[0].backward(); });
  }
  return static_cast<double>(peak) * 1e-6;
}

void peaks(benchmark::State& state, const models::Workload& workload) {
  for (auto _ : state) {
    state.SetIterationTime(1);  // once is enough
    state.counters["eager_mb"] = peak(workload, workload.loss);
    for (const char* backend : {"interpreter", "native"}) {
      const auto compiled = ahead::compile(
          workload.loss, {.backend = backend, .fullgraph = true, .confirm = ahead::Confirm::Never});
      state.counters[std::string(backend) + "_mb"] = peak(workload, compiled);
      if (compiled.stats().cache_hits == 0) state.SkipWithError("no step ran from graphs");
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  for (const std::string& name : models::speed_models()) {
    benchmark::RegisterBenchmark(("peak/" + name).c_str(), [name](benchmark::State& state) {
      peaks(state, models::speed_workload(name));
    })->UseManualTime();
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
