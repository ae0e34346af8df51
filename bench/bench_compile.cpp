// What a compiled function costs: each call from a graph, against eager; a call that is observed;
// its guards; its compilation; its memory.

#include <ahead/ahead.h>
#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <new>

#include "compare.h"
#include "models/memory.h"
#include "models/models.h"
#include "models/timing.h"

namespace {

using at::Tensor;
using Tensors = std::vector<at::Tensor>;

std::atomic<int64_t> allocations{0};

}  // namespace

__attribute__((noinline)) void* operator new(std::size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* memory) noexcept {
  std::free(memory);
}
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace {

/// The first call is observed and compiled; all others run from graphs.
const ahead::Options kWhole{.fullgraph = true, .confirm = ahead::Confirm::Never};
/// All calls are observed.
const ahead::Options kWatched{.confirm = ahead::Confirm::EveryCall};

/// Says that the calls were of the wanted kind: not one other than the first.
void expect_calls(benchmark::State& state, const ahead::CompileStats& stats, uint64_t of_the_kind) {
  if (of_the_kind + 1 < stats.calls) state.SkipWithError("calls were not what they should be");
}

void tanh_of_a_product(benchmark::State& state, const ahead::Options& options) {
  auto loss = [](const Tensor& x, const Tensor& w, const Tensor& b) {
    return torch::tanh(x.matmul(w) + b).sum();
  };
  const Tensor x = torch::randn({4, 4});
  const Tensor w = torch::randn({4, 4}).requires_grad_(), b = torch::randn({4}).requires_grad_();
  auto step = [&](auto& f) -> Step {
    return [&, x, w, b] {
      w.mutable_grad().reset();
      b.mutable_grad().reset();
      f(x, w, b).backward();
    };
  };
  auto compiled = ahead::compile(loss, options);
  compare(state, step(loss), step(compiled));
  const ahead::CompileStats stats = compiled.stats();
  const bool is_watched = options.confirm == ahead::Confirm::EveryCall;
  expect_calls(state, stats, is_watched ? stats.observed_calls : stats.cache_hits);
}

void pointwise_chain(benchmark::State& state) {
  auto loss = [](const Tensor& x, const Tensor& w) {
    Tensor y = x * w;
    for (int i = 0; i < 24; ++i) y = torch::sin(y) * 1.01;
    return y.sum();
  };
  const Tensor x = torch::randn({16}), w = torch::randn({16}).requires_grad_();
  auto step = [&](auto& f) -> Step {
    return [&, x, w] {
      w.mutable_grad().reset();
      f(x, w).backward();
    };
  };
  auto compiled = ahead::compile(loss, kWhole);
  compare(state, step(loss), step(compiled));
  expect_calls(state, compiled.stats(), compiled.stats().cache_hits);
}

void mutation_and_aliases(benchmark::State& state) {
  at::NoGradGuard no_grad;
  auto function = [](const Tensor& x, const Tensor& y) {
    x.mul_(-1);
    return Tensors{x.view({-1}), x + y, y.t()};
  };
  const Tensor x = torch::ones({4, 4}), y = torch::randn({4, 4});
  auto step = [&](auto& f) -> Step { return [&, x, y] { f(x, y); }; };
  auto compiled = ahead::compile(function, kWhole);
  compare(state, step(function), step(compiled));
  expect_calls(state, compiled.stats(), compiled.stats().cache_hits);
}

/// A step of a training, from the loss to the gradients.
template <class Loss>
Step training_step(const models::Workload& workload, Loss& loss) {
  return [&] {
    for (const Tensor& parameter : workload.parameters) parameter.mutable_grad().reset();
    loss(workload.inputs)[0].backward();
  };
}

/// Steps of a model all of which are observed.
void observed_gpt(benchmark::State& state) {
  const models::Workload workload = models::gpt_workload();
  auto loss = [&](const Tensors& in) { return workload.loss(in); };
  auto compiled = ahead::compile(loss, kWatched);
  compare(state, training_step(workload, loss), training_step(workload, compiled), /*steps=*/1);
  expect_calls(state, compiled.stats(), compiled.stats().observed_calls);
}

/// The very first step of a model, in which it is compiled as well. Those of other functions have
/// filled caches of the process before.
void first_gpt(benchmark::State& state) {
  const models::Workload workload = models::gpt_workload();
  auto loss = [&](const Tensors& in) { return workload.loss(in); };
  const Step first = [&] {
    auto compiled = ahead::compile(loss, kWhole);
    training_step(workload, compiled)();
    if (compiled.stats().traces != 1) state.SkipWithError("the first call was not compiled");
  };
  compare(state, training_step(workload, loss), first, /*steps=*/1);
}

/// The look-up of what is known about a call with many tensors, whose guards all hold. What is
/// known is that it runs eagerly, so that nothing else is done.
void guards(benchmark::State& state) {
  using ahead::detail::CompiledCore;
  ahead::FlatTree inputs;
  for (int64_t i = 0; i < state.range(0); ++i) inputs.leaves.push_back(torch::randn({4, 4}));
  CompiledCore core({.confirm = ahead::Confirm::Never});
  {
    const ahead::detail::Served first = core.serve(inputs, {});
    const ahead::FlatTree outputs{{inputs.leaves.front() + inputs.leaves.back()}, {}};
    core.finish(*first.observation,
                {.outputs = outputs, .is_reference = false, .keeps_arguments = false},
                [] { return std::shared_ptr<const void>(); });
  }
  const int64_t before = allocations;
  std::vector<double> times;
  constexpr int looks = 1000;
  for (auto _ : state) {
    const auto look = [&] {
      for (int i = 0; i < looks; ++i) core.serve(inputs, {});
    };
    times.push_back(models::milliseconds(look, models::thread_clock) / looks);
    state.SetIterationTime(times.back() * 1e-3 * looks);
  }
  state.counters["min_ms"] = *std::min_element(times.begin(), times.end());
  state.counters["allocations"] =
      static_cast<double>(allocations - before) / static_cast<double>(looks * times.size());
  if (core.stats().eager_calls != looks * times.size()) state.SkipWithError("guards did not hold");
}

/// Recording, trace, analysis, joint graph, passes, partition and plans of both halves: what the
/// first call takes longer than the second. Sequences are short, since compiling does not depend on
/// them.
void compile_gpt(benchmark::State& state) {
  at::set_num_threads(1);
  const models::Workload workload = models::gpt_workload({.context = 8});
  std::vector<double> times;
  for (auto _ : state) {
    auto compiled = ahead::compile([&](const Tensors& in) { return workload.loss(in); },
                                   {.fullgraph = true, .confirm = 0, .lazy_backward = false});
    const auto call = [&] { compiled(workload.inputs); };
    const double first = models::milliseconds(call, models::thread_clock);
    times.push_back(first - models::milliseconds(call, models::thread_clock));
    state.SetIterationTime(times.back() * 1e-3);
  }
  state.counters["min_ms"] = *std::min_element(times.begin(), times.end());
}

/// The most memory of one training step: eager, observed, the first one, and for several budgets.
/// The model is narrow and its sequences are long, so that activations outweigh gradients.
void memory(benchmark::State& state) {
  at::set_num_threads(1);
  const models::Workload workload =
      models::gpt_workload({.layers = 6, .width = 128, .heads = 4, .context = 256});
  models::MemoryCounter counter;
  const auto peak = [&](auto&& loss, int steps_before = 2) {
    const auto reset = [&] {
      for (const Tensor& parameter : workload.parameters) parameter.mutable_grad().reset();
    };
    const auto step = [&] { loss(workload.inputs)[0].backward(); };
    for (int i = 0; i < steps_before; ++i) reset(), step();
    reset();
    return static_cast<double>(counter.peak(step)) * 1e-6;
  };
  for (auto _ : state) {
    state.SetIterationTime(1e-3);
    state.counters["eager_mb"] = peak(workload.loss);
    {
      ahead::compiled_autograd::Enable on({.fullgraph = true});
      state.counters["captured_mb"] = peak(workload.loss);
    }
    {
      auto compiled =
          ahead::compile([&](const Tensors& in) { return workload.loss(in); }, kWatched);
      state.counters["observed_mb"] = peak(compiled);
      expect_calls(state, compiled.stats(), compiled.stats().observed_calls);
    }
    {
      auto compiled = ahead::compile([&](const Tensors& in) { return workload.loss(in); }, kWhole);
      state.counters["first_mb"] = peak(compiled, /*steps_before=*/0);
      if (compiled.stats().traces != 1) state.SkipWithError("the first call was not compiled");
    }
    for (const double budget : {1.0, 0.5, 0.2}) {
      ahead::Options options = kWhole;
      options.memory_budget = budget;
      auto compiled = ahead::compile([&](const Tensors& in) { return workload.loss(in); }, options);
      state.counters["budget_" + std::to_string(budget).substr(0, 3) + "_mb"] = peak(compiled);
      if (compiled.stats().cache_hits != 2) state.SkipWithError("a step ran without graphs");
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto add = [](const char* name, const std::function<void(benchmark::State&)>& run) {
    return benchmark::RegisterBenchmark(name, run)->UseManualTime()->Unit(benchmark::kMillisecond);
  };
  add("call/tanh", [](benchmark::State& state) { tanh_of_a_product(state, kWhole); });
  add("call/chain", pointwise_chain);
  add("call/mutation", mutation_and_aliases);
  add("observed/tanh", [](benchmark::State& state) { tanh_of_a_product(state, kWatched); });
  add("observed/gpt12", observed_gpt);
  add("first/gpt12", first_gpt);
  add("guards", guards)->Arg(150);
  add("compile/gpt12", compile_gpt);
  add("memory/gpt6", memory)->Iterations(1);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
