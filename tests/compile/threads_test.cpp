#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <thread>

#include "ahead/ahead.h"
#include "support/hits.h"

namespace ahead {
namespace threads_test {

at::Tensor function(const at::Tensor& x, const at::Tensor& w) {
  return torch::tanh(x.matmul(w)).sum(0) * x.size(0);
}

TEST(CompileThreads, OneCallableFromEightThreads) {
  at::set_num_threads(1);
  auto compiled = compile(function, {.fullgraph = true, .confirm = 0});
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int number = 0; number < 8; ++number) {
    threads.emplace_back([&, number] {
      for (int call = 0; call < 20; ++call) {
        // Three sizes, so that threads compile while others run.
        const at::Tensor x = at::randn({2 + (number + call) % 3, 4});
        const at::Tensor w = at::randn({4, 5}).set_requires_grad(true);
        const at::Tensor expected = torch::autograd::grad({function(x, w).sum()}, {w})[0];
        const at::Tensor actual = torch::autograd::grad({compiled(x, w).sum()}, {w})[0];
        if (!at::equal(expected, actual)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  const CompileStats stats = compiled.stats();
  EXPECT_EQ(stats.eager_calls, 0u);
  EXPECT_EQ(stats.calls, 8u * 20u);
  EXPECT_EQ(stats.observed_calls + stats.cache_hits, stats.calls);
  EXPECT_LE(stats.observed_calls, 3u * 8u);
  // Threads that meet new sizes at the same time compile for them each, and once.
  EXPECT_LE(stats.traces, stats.observed_calls);
  const std::vector<Program> programs = compiled.programs();
  const auto traced = std::count_if(programs.begin(), programs.end(),
                                    [](const Program& program) { return program.name == "trace"; });
  EXPECT_LE(static_cast<uint64_t>(traced), stats.traces);
}

TEST(CompileThreads, BackwardOnAnotherThread) {
  auto compiled = compiled_by_call(function, {.fullgraph = true}, at::randn({3, 4}),
                                   at::randn({4, 5}).set_requires_grad(true));
  const at::Tensor x = at::randn({3, 4}), w = at::randn({4, 5}).set_requires_grad(true);
  const at::Tensor expected = torch::autograd::grad({function(x, w).sum()}, {w})[0];
  const at::Tensor loss = compiled(x, w).sum();
  std::thread([&] { loss.backward(); }).join();
  EXPECT_TRUE(at::equal(w.grad(), expected));
  expect_hits(compiled);
}

}  // namespace threads_test
}  // namespace ahead
