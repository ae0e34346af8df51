// Whole steps of training, from taking away the gradients to the update, and the optimizers in
// them: eager with LibTorch's, compiled with Ahead's.

#include <ahead/ahead.h>
#include <benchmark/benchmark.h>

#include <string>

#include "compare.h"
#include "models/models.h"

namespace {

using at::Tensor;
using Tensors = std::vector<at::Tensor>;

/// The update of all parameters of a model.
void adamw_gpt(benchmark::State& state) {
  const models::Workload workload = models::gpt_workload();
  for (const Tensor& parameter : workload.parameters)
    parameter.mutable_grad() = torch::randn_like(parameter.detach());
  torch::optim::AdamW plain(workload.parameters, 1e-4);
  ahead::optim::AdamW fused(workload.parameters, 1e-4);
  compare(
      state, [&] { plain.step(); }, [&] { fused.step(); }, /*steps=*/1);
}

/// A step with LibTorch's optimizer and clipping.
template <class Optimizer, class Loss>
auto eager_step(Optimizer& optimizer, const Tensors& parameters, const Loss& loss_of) {
  return [&optimizer, parameters, loss_of] {
    optimizer.zero_grad();
    const Tensor loss = loss_of();
    loss.backward();
    torch::nn::utils::clip_grad_norm_(parameters, 1.0);
    optimizer.step();
    return loss.detach();
  };
}

/// The same with Ahead's, compiled.
template <class Optimizer, class Loss>
auto compiled_step(Optimizer& optimizer, const Tensors& parameters, const Loss& loss_of) {
  const auto step = [&optimizer, parameters, loss_of] {
    optimizer.zero_grad();
    const Tensor loss = loss_of();
    loss.backward();
    ahead::clip_grad_norm_(parameters, 1.0);
    optimizer.step();
    return loss.detach();
  };
  return ahead::compile(step, {.fullgraph = true, .confirm = ahead::Confirm::Never});
}

/// The first calls make what optimizers keep, and the first gradients.
template <class F>
void warm_up(F& step) {
  for (int i = 0; i < 5; ++i) step();
}

/// Says so if a call since `before` did not run from graphs.
void expect_hits(benchmark::State& state, const ahead::CompileStats& before,
                 const ahead::CompileStats& after) {
  if (after.calls - before.calls != after.cache_hits - before.cache_hits)
    state.SkipWithError("a call did not run from graphs");
}

void train_tiny(benchmark::State& state) {
  torch::nn::Linear linear(4, 4);
  const Tensor x = torch::randn({4, 4});
  const auto loss = [&] { return linear(x).tanh().sum(); };
  torch::optim::Adam plain(linear->parameters(), 1e-4);
  ahead::optim::Adam fused(linear->parameters(), 1e-4);
  auto compiled = compiled_step(fused, linear->parameters(), loss);
  warm_up(compiled);
  const ahead::CompileStats before = compiled.stats();
  compare(state, eager_step(plain, linear->parameters(), loss), [&] { compiled(); });
  expect_hits(state, before, compiled.stats());
}

/// One side only: in one process the memory that one side holds spares the other the pages that it
/// would have to ask for.
void train_alone(benchmark::State& state, const Step& step) {
  std::vector<double> times;
  for (auto _ : state) {
    times.push_back(models::milliseconds(step, models::wall_clock));
    state.SetIterationTime(times.back() * 1e-3);
  }
  state.counters["median_ms"] = models::median(times);
}

void train_gpt(benchmark::State& state, int threads, bool is_compiled) {
  at::set_num_threads(threads);
  const models::Workload workload = models::gpt_workload();
  const auto loss = [&] { return workload.loss(workload.inputs)[0]; };
  if (is_compiled) {
    ahead::optim::AdamW optimizer(workload.parameters, 1e-4);
    auto compiled = compiled_step(optimizer, workload.parameters, loss);
    warm_up(compiled);
    const ahead::CompileStats before = compiled.stats();
    train_alone(state, [&] { compiled(); });
    expect_hits(state, before, compiled.stats());
  } else {
    torch::optim::AdamW optimizer(workload.parameters, 1e-4);
    const auto step = eager_step(optimizer, workload.parameters, loss);
    warm_up(step);
    train_alone(state, [&] { step(); });
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto add = [](const std::string& name, const std::function<void(benchmark::State&)>& run) {
    benchmark::RegisterBenchmark(name.c_str(), run)->UseManualTime()->Unit(benchmark::kMillisecond);
  };
  add("optim/adamw", adamw_gpt);
  add("train/tiny", train_tiny);
  for (const int threads : {1, 2}) {
    const std::string name = "alone/gpt12/threads:" + std::to_string(threads);
    for (const bool is_compiled : {false, true}) {
      const auto run = [=](benchmark::State& state) { train_gpt(state, threads, is_compiled); };
      add(name + (is_compiled ? "/ahead" : "/eager"), run);
    }
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
