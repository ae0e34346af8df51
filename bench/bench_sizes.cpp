// What it costs that sizes change: calls of a program for many sizes against one for the sizes at
// hand, its compilation, and calls whose sizes never come again.

#include <ahead/ahead.h>
#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>
#include <random>

#include "compare.h"
#include "models/models.h"
#include "models/timing.h"

namespace {

using at::Tensor;
using Tensors = std::vector<at::Tensor>;
using Loss = std::function<Tensor(const Tensors&)>;

/// A loss, and arguments for a batch of any size.
struct Model {
  Loss loss;
  std::function<Tensors(int64_t)> inputs;
  int steps;
};

Model tiny() {
  const Tensor w = torch::randn({4, 4}).requires_grad_();
  return {[w](const Tensors& in) { return in[0].matmul(w).tanh().sum(); },
          [](int64_t n) {
            return Tensors{torch::randn({n, 4})};
          },
          200};
}

Model mlp() {
  models::Mlp net;
  return {[net](const Tensors& in) mutable { return net(in[0], in[1]); },
          [](int64_t n) {
            return Tensors{torch::randn({n, 64}), torch::randint(10, {n}, at::kLong)};
          },
          20};
}

Model gpt12() {
  models::Gpt net(models::GptOptions{.layers = 12, .width = 64, .heads = 4, .context = 16});
  return {[net](const Tensors& in) mutable { return net(in[0], in[1]); },
          [](int64_t n) {
            return Tensors{torch::randint(512, {n, 16}, at::kLong),
                           torch::randint(512, {n, 16}, at::kLong)};
          },
          1};
}

/// Steps of one size by a program for many, against those by a program for that size alone.
void hit(benchmark::State& state, const Model& model) {
  const auto fixed = std::make_shared<ahead::Compiled<Loss>>(
      ahead::compile(model.loss, {.dynamic = ahead::Dynamic::Static}));
  const auto sized = std::make_shared<ahead::Compiled<Loss>>(ahead::compile(model.loss));
  for (int64_t round = 0; round < 3; ++round) {
    for (int64_t size = 6; size < 10; ++size) (*sized)(model.inputs(size)).backward();
    (*fixed)(model.inputs(8)).backward();
  }
  if (sized->stats().compilations != 1) state.SkipWithError("there is no program for many sizes");
  const Tensors inputs = model.inputs(8);
  const auto step = [&inputs](const auto& f) -> Step {
    return [f, &inputs] { (*f)(inputs).backward(); };
  };
  compare(state, step(fixed), step(sized), model.steps);
  if (sized->stats().eager_calls != 0) state.SkipWithError("calls ran eagerly");
}

/// The stages behind the trace, for many sizes against one choice of them.
void compilation(benchmark::State& state, const Model& model) {
  std::vector<double> ratios;
  for (auto _ : state) {
    auto fixed = ahead::compile(model.loss, {.dynamic = ahead::Dynamic::Static});
    auto sized = ahead::compile(model.loss);
    for (int call = 0; call < 2; ++call) fixed(model.inputs(8)).backward();
    // The first is observed, the second remembered, the third compiled.
    for (int64_t size = 6; size < 8; ++size) sized(model.inputs(size)).backward();
    const double before = sized.stats().compile_seconds;
    sized(model.inputs(8)).backward();
    if (sized.stats().compilations != 1) state.SkipWithError("nothing was compiled");
    const double taken = sized.stats().compile_seconds - before;
    ratios.push_back(taken / fixed.stats().compile_seconds);
    state.SetIterationTime(taken);
  }
  state.counters["ratio"] = models::median(ratios);
}

/// Calls on crops of images, no two of the same size, against eager ones.
void crops(benchmark::State& state) {
  at::set_num_threads(1);
  torch::NoGradGuard no_grad;
  torch::nn::Conv2d convolution(torch::nn::Conv2dOptions(3, 4, 3));
  const auto net = [&](const Tensor& x) { return torch::relu(convolution(x)).mean(); };
  std::vector<Tensor> images;
  for (int64_t i = 0; i < 10000; ++i)
    images.push_back(torch::randn({1, 3, 24 + i % 100, 24 + i / 100}));
  std::shuffle(images.begin(), images.end(), std::mt19937(3));
  models::Pairs pairs{models::thread_clock};
  for (auto _ : state) {
    auto compiled = ahead::compile(net);
    pairs.run(
        [&] {
          for (const Tensor& image : images) net(image);
        },
        [&] {
          for (const Tensor& image : images) compiled(image);
        });
    state.SetIterationTime((pairs.first.back() + pairs.second.back()) * 1e-3);
  }
  state.counters["ratio"] = models::median(pairs.ratios);
}

}  // namespace

int main(int argc, char** argv) {
  const auto add = [](const char* name, auto run) {
    benchmark::RegisterBenchmark(name, run)->UseManualTime()->Unit(benchmark::kMillisecond);
  };
  add("sized_hit/tiny", [](benchmark::State& state) { hit(state, tiny()); });
  add("sized_hit/mlp", [](benchmark::State& state) { hit(state, mlp()); });
  add("sized_hit/gpt12", [](benchmark::State& state) { hit(state, gpt12()); });
  add("sized_compile/gpt12", [](benchmark::State& state) { compilation(state, gpt12()); });
  add("sized_crops", crops);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
