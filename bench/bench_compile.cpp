// What a compiled function costs: each call, against eager; its guards; its compilation; its
// memory.

#include <ahead/ahead.h>
#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <new>

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

const ahead::Options kWhole{.fullgraph = true};

using Step = std::function<void()>;

/// Runs a step of each kind in turns. A step is so short that one sample has many.
void compare(benchmark::State& state, Step eager, Step compiled) {
  at::set_num_threads(1);
  constexpr int steps = 100;
  auto many = [](Step& step) {
    return [&step] {
      for (int i = 0; i < steps; ++i) step();
    };
  };
  many(eager)();
  many(compiled)();
  models::Pairs pairs{models::thread_clock};
  for (auto _ : state) {
    pairs.run(many(eager), many(compiled));
    state.SetIterationTime((pairs.first.back() + pairs.second.back()) * 1e-3);
  }
  state.counters["eager_ms"] = models::median(pairs.first) / steps;
  state.counters["ahead_ms"] = models::median(pairs.second) / steps;
  state.counters["ratio"] = models::median(pairs.ratios);
}

void tanh_of_a_product(benchmark::State& state) {
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
  auto compiled = ahead::compile(loss, kWhole);
  compare(state, step(loss), step(compiled));
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
}

/// The look-up of the program for a call with many tensors, whose guards all hold.
void guards(benchmark::State& state) {
  ahead::FlatTree inputs;
  for (int64_t i = 0; i < state.range(0); ++i) inputs.leaves.push_back(torch::randn({4, 4}));
  const ahead::aot::FlatFunction function = [](const Tensors& in) {
    return Tensors{in.front() + in.back()};
  };
  const auto prototype = [] { return std::shared_ptr<const void>(); };
  ahead::detail::CompiledCore core(kWhole);
  for (int i = 0; i < 3; ++i) core.prepare(inputs, function, prototype);
  const ahead::detail::CompiledCore::MakePrototype make_prototype = prototype;
  const int64_t before = allocations;
  std::vector<double> times;
  constexpr int looks = 1000;
  for (auto _ : state) {
    const auto look = [&] {
      for (int i = 0; i < looks; ++i) core.prepare(inputs, function, make_prototype);
    };
    times.push_back(models::milliseconds(look, models::thread_clock) / looks);
    state.SetIterationTime(times.back() * 1e-3 * looks);
  }
  state.counters["min_ms"] = *std::min_element(times.begin(), times.end());
  state.counters["allocations"] =
      static_cast<double>(allocations - before) / static_cast<double>(looks * times.size());
}

/// Trace, analysis, joint graph, passes, partition and plans of both halves: what the first call
/// takes longer than the second. Sequences are short, since compiling does not depend on them.
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

/// The most memory of one training step, eager and for several budgets. The model is narrow and its
/// sequences are long, so that activations outweigh gradients.
void memory(benchmark::State& state) {
  at::set_num_threads(1);
  const models::Workload workload =
      models::gpt_workload({.layers = 6, .width = 128, .heads = 4, .context = 256});
  models::MemoryCounter counter;
  const auto peak = [&](auto&& loss) {
    const auto reset = [&] {
      for (const Tensor& parameter : workload.parameters) parameter.mutable_grad().reset();
    };
    const auto step = [&] { loss(workload.inputs)[0].backward(); };
    for (int i = 0; i < 2; ++i) reset(), step();
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
    for (const double budget : {1.0, 0.5, 0.2}) {
      auto compiled = ahead::compile([&](const Tensors& in) { return workload.loss(in); },
                                     {.fullgraph = true, .memory_budget = budget});
      state.counters["budget_" + std::to_string(budget).substr(0, 3) + "_mb"] = peak(compiled);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto add = [](const char* name, void (*run)(benchmark::State&)) {
    return benchmark::RegisterBenchmark(name, run)->UseManualTime()->Unit(benchmark::kMillisecond);
  };
  add("call/tanh", tanh_of_a_product);
  add("call/chain", pointwise_chain);
  add("call/mutation", mutation_and_aliases);
  add("guards", guards)->Arg(150);
  add("compile/gpt12", compile_gpt);
  add("memory/gpt6", memory)->Iterations(1);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
