// Steps with the native backend's kernels, without an update, against eager ones in turns.

#include <ahead/ahead.h>
#include <benchmark/benchmark.h>

#include <string>

#include "compare.h"
#include "models/models.h"

namespace {

using at::Tensor;
using Tensors = std::vector<at::Tensor>;

ahead::Options native() {
  return {.backend = "native", .fullgraph = true, .confirm = ahead::Confirm::Never};
}

/// Runs a loss and its backward both ways.
template <class Loss>
void compare_steps(benchmark::State& state, const Tensors& parameters, const Loss& loss,
                   int threads, int steps) {
  const auto step = [&parameters](const auto& loss_of) {
    for (const Tensor& parameter : parameters) parameter.mutable_grad() = Tensor();
    loss_of().backward();
  };
  auto compiled = ahead::compile(loss, native());
  for (int i = 0; i < 3; ++i) step(compiled);
  compare(
      state, [&] { step(loss); }, [&] { step(compiled); }, steps, threads);
}

void model(benchmark::State& state, const models::Workload& workload, int threads) {
  const auto loss = [&] { return workload.loss(workload.inputs)[0]; };
  compare_steps(state, workload.parameters, loss, threads, /*steps=*/1);
}

/// Six blocks of layer norm, gelu and residual over 4096 rows of 1024.
void norm_chain(benchmark::State& state, int threads) {
  constexpr int64_t width = 1024;
  Tensors parameters = {torch::randn({4096, width}).requires_grad_()};
  for (int i = 0; i < 6; ++i) {
    parameters.push_back(torch::rand({width}).requires_grad_());
    parameters.push_back(torch::randn({width}).requires_grad_());
  }
  const auto loss = [&] {
    Tensor h = parameters[0];
    for (size_t i = 0; i < 6; ++i)
      h = h +
          torch::gelu(torch::layer_norm(h, {width}, parameters[2 * i + 1], parameters[2 * i + 2]));
    return torch::softmax(h, -1).pow(2).mean();
  };
  compare_steps(state, parameters, loss, threads, /*steps=*/1);
}

/// Four by four: what a call costs.
void tiny(benchmark::State& state) {
  const Tensor x = torch::randn({4, 4});
  const Tensors parameters = {torch::randn({4, 4}).requires_grad_(),
                              torch::randn({4}).requires_grad_()};
  const auto loss = [&] {
    return torch::tanh(torch::matmul(x, parameters[0]) + parameters[1]).pow(2).mean();
  };
  compare_steps(state, parameters, loss, /*threads=*/1, /*steps=*/100);
}

/// The same with the gradient taken inside.
void tiny_inside(benchmark::State& state) {
  const Tensor x = torch::randn({4, 4}), w = torch::randn({4, 4}).requires_grad_(),
               b = torch::randn({4}).requires_grad_();
  const auto step = [](const Tensor& x, const Tensor& w, const Tensor& b) {
    const Tensor loss = torch::tanh(torch::matmul(x, w) + b).pow(2).mean();
    Tensors results = torch::autograd::grad({loss}, {w, b});
    results.push_back(loss.detach());
    return results;
  };
  auto compiled = ahead::compile(step, native());
  for (int i = 0; i < 3; ++i) compiled(x, w, b);
  compare(
      state, [&] { step(x, w, b); }, [&] { compiled(x, w, b); });
}

}  // namespace

int main(int argc, char** argv) {
  const auto add = [](const std::string& name, const std::function<void(benchmark::State&)>& run) {
    benchmark::RegisterBenchmark(name.c_str(), run)->UseManualTime()->Unit(benchmark::kMillisecond);
  };
  const std::vector<models::Workload> workloads = models::workloads();
  for (const models::Workload& workload : workloads)
    add("native/" + workload.name, [&](benchmark::State& state) { model(state, workload, 2); });
  add("native/norm_chain", [](benchmark::State& state) { norm_chain(state, 2); });
  add("native/tiny", tiny);
  add("native/tiny_inside", tiny_inside);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
