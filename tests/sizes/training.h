#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "ahead/ahead.h"
#include "support/eager.h"

/// Trainings whose calls have other sizes each time, eagerly and compiled side by side.
namespace ahead {

/// The numbers from `first` to `last` in an order that is the same in every run.
inline std::vector<int64_t> shuffled(int64_t first, int64_t last, unsigned seed = 7) {
  std::vector<int64_t> numbers(static_cast<size_t>(last - first + 1));
  std::iota(numbers.begin(), numbers.end(), first);
  std::shuffle(numbers.begin(), numbers.end(), std::mt19937(seed));
  return numbers;
}

/// Parameters and buffers of a module, and the gradients of the parameters.
inline std::vector<at::Tensor> everything_in(const torch::nn::Module& module) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& parameter : module.parameters()) {
    all.push_back(parameter.detach());
    all.push_back(parameter.grad());
  }
  for (const at::Tensor& buffer : module.buffers()) all.push_back(buffer);
  return all;
}

/// Calls both with equal arguments, after equal seeds, and compares results and gradients.
template <class Eager, class Compiled>
void compare(Eager&& eager, Compiled&& compiled, const at::Tensor& x, uint64_t seed = 3) {
  const at::Tensor a = x.detach().clone().requires_grad_(), b = x.detach().clone().requires_grad_();
  torch::manual_seed(seed);
  const at::Tensor expected = eager(a);
  torch::manual_seed(seed);
  const at::Tensor actual = compiled(b);
  expect_same({expected.detach()}, {actual.detach()});
  EXPECT_EQ(expected.requires_grad(), actual.requires_grad());
  if (!expected.requires_grad()) return;
  expected.pow(2).sum().backward();
  actual.pow(2).sum().backward();
  expect_same({a.grad()}, {b.grad()});
}

/// Trains two equal modules for some steps, one of them compiled, and expects all of it to be the
/// same to the bit. `inputs_of` gives the arguments for a size. Returns what the compiled one
/// counted.
template <class Holder>
CompileStats train_side_by_side(const std::function<Holder()>& make,
                                const std::function<std::vector<at::Tensor>(int64_t)>& inputs_of,
                                const std::vector<int64_t>& sizes, Options options = {}) {
  torch::manual_seed(1);
  Holder eager = make();
  torch::manual_seed(1);
  Holder model = make();
  auto compiled = compile(model, std::move(options));
  torch::optim::SGD eager_optimizer(eager->parameters(), 0.01);
  torch::optim::SGD optimizer(model->parameters(), 0.01);
  for (size_t step = 0; step < sizes.size(); ++step) {
    SCOPED_TRACE("step " + std::to_string(step) + ", size " + std::to_string(sizes[step]));
    torch::manual_seed(step);
    const std::vector<at::Tensor> inputs = inputs_of(sizes[step]);
    torch::manual_seed(100 + step);
    const at::Tensor expected = eager->forward(inputs);
    expected.backward();
    torch::manual_seed(100 + step);
    const at::Tensor actual = compiled(inputs);
    actual.backward();
    expect_same({expected.detach()}, {actual.detach()});
    expect_same(everything_in(*eager), everything_in(*model));
    if (testing::Test::HasFailure()) break;
    eager_optimizer.step();
    optimizer.step();
    eager_optimizer.zero_grad();
    optimizer.zero_grad();
  }
  return compiled.stats();
}

/// Expects that nothing ran eagerly, that so many programs were made at most, and that each size
/// was observed once, but for so many calls.
inline void expect_few_programs(const CompileStats& stats, uint64_t programs, size_t num_sizes,
                                uint64_t observed_again) {
  EXPECT_EQ(stats.eager_calls, 0U);
  EXPECT_LE(stats.compilations, programs);
  EXPECT_LE(stats.observed_calls, num_sizes + observed_again);
  EXPECT_EQ(stats.calls, stats.observed_calls + stats.cache_hits);
}

/// All sizes, several times, each round in another order.
inline std::vector<int64_t> rounds_of(int64_t first, int64_t last, unsigned rounds) {
  std::vector<int64_t> all;
  for (unsigned round = 0; round < rounds; ++round) {
    const std::vector<int64_t> next = shuffled(first, last, round);
    all.insert(all.end(), next.begin(), next.end());
  }
  return all;
}

}  // namespace ahead
