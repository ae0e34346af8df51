// What a call of a compiled function of wrapper tensors costs, against the function itself.

#include <ahead/ahead.h>
#include <benchmark/benchmark.h>
#include <torch/torch.h>

#include "compare.h"

namespace {

using ahead::TwoTensor;
using at::Tensor;

Tensor two(at::IntArrayRef sizes, bool requires_grad) {
  return TwoTensor::make(torch::randn(sizes), torch::randn(sizes)).requires_grad_(requires_grad);
}

/// A forward, and a backward where gradients are wanted.
void two_tensors(benchmark::State& state, bool differentiates) {
  auto loss = [](const Tensor& x, const Tensor& w, const Tensor& b) {
    return torch::tanh(x.matmul(w) + b).sum();
  };
  const Tensor x = two({4, 4}, false);
  const Tensor w = two({4, 4}, differentiates), b = two({4}, differentiates);
  const auto step = [&](auto& f) -> Step {
    return [&, differentiates] {
      w.mutable_grad().reset();
      b.mutable_grad().reset();
      const Tensor result = f(x, w, b);
      if (differentiates) result.backward();
    };
  };
  auto compiled = ahead::compile(loss, {.fullgraph = true, .confirm = ahead::Confirm::Never});
  compare(state, step(loss), step(compiled));
  if (compiled.stats().eager_calls != 0) state.SkipWithError("calls ran eagerly");
}

}  // namespace

int main(int argc, char** argv) {
  const auto add = [](const char* name, bool differentiates) {
    benchmark::RegisterBenchmark(
        name, [differentiates](benchmark::State& state) { two_tensors(state, differentiates); })
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  };
  add("call/two_tensor", false);
  add("call/two_tensor_training", true);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
