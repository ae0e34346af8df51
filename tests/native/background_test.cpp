#include <sys/stat.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "ahead/ahead.h"
#include "base/files.h"
#include "native/build/process.h"
#include "native/build/target.h"
#include "native/temporary_cache.h"

namespace ahead::native::background_test {

using at::Tensor;
using test::EnvironmentVariable;

const Options in_background{
    .backend = "native", .compile_mode = CompileMode::Background, .confirm = Confirm::Never};

Tensor function(const Tensor& x) {
  return at::tanh(x * 2 + 1).exp() * at::sigmoid(x);
}

/// Waits until kernels are ready, or could not be had.
template <class Compiled>
bool wait_for_kernels(const Compiled& compiled, uint64_t count) {
  for (int i = 0; i < 60'000; ++i) {
    const CompileStats stats = compiled.stats();
    if (stats.kernels + stats.kernels_failed >= count) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

/// What runs in processes of its own, as the variable says.
TEST(BackgroundWorker, Runs) {
  const char* task = std::getenv("AHEAD_TEST_BACKGROUND_WORKER");
  if (task == nullptr) GTEST_SKIP() << "run by other tests";
  torch::manual_seed(0);
  const Tensor x = torch::randn({5, 7}).requires_grad_();
  const Tensor expected = function(x);
  const Tensor expected_gradient = torch::autograd::grad({expected.sum()}, {x}, {}, true)[0];
  auto compiled = ahead::compile(function, in_background);
  const auto is_right = [&](bool is_exact) {
    const Tensor y = compiled(x), gradient = torch::autograd::grad({y.sum()}, {x})[0];
    const double off = is_exact ? 0 : 1e-5;
    return at::allclose(y, expected, off, off) &&
           at::allclose(gradient, expected_gradient, off, off);
  };
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(is_right(/*is_exact=*/true)) << i;
  EXPECT_EQ(compiled.stats().kernels, 0u);
  EXPECT_EQ(compiled.stats().cache_hits, 5u);
  EXPECT_EQ(compiled.stats().runs_before_kernels, 10u) << "forward and backward of each hit";
  if (task == std::string("leaves")) std::exit(0);
  if (task == std::string("forks")) {
    const pid_t child = ::fork();
    if (child == 0) {
      auto other =
          ahead::compile([](const Tensor& t) { return at::sigmoid(t * 3) + 1; }, in_background);
      for (int i = 0; i < 4; ++i) other(x);
      const bool has_kernels = wait_for_kernels(other, 1) && other.stats().kernels == 1;
      ::_exit(has_kernels && at::allclose(other(x), at::sigmoid(x * 3) + 1) && is_right(true) ? 0
                                                                                              : 1);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  ASSERT_TRUE(wait_for_kernels(compiled, 2));
  const uint64_t before = compiled.stats().runs_before_kernels;
  ASSERT_TRUE(is_right(/*is_exact=*/task == std::string("fails")));
  // The switch comes right after the count.
  for (int i = 0; i < 1000 && compiled.stats().runs_before_kernels > before; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const uint64_t after = compiled.stats().runs_before_kernels;
  ASSERT_TRUE(is_right(/*is_exact=*/task == std::string("fails")));
  EXPECT_EQ(compiled.stats().runs_before_kernels, after);
  const uint64_t failed = compiled.stats().kernels_failed;
  EXPECT_EQ(failed, task == std::string("fails") ? 2u : 0u);
  std::cout << "kernels " << compiled.stats().kernels << std::endl;
}

/// Runs the worker with a compiler that takes its time, and then does this.
ProcessResult run_worker(const std::string& task, const std::string& then) {
  const test::TemporaryCache cache;
  const std::string compiler = cache.path() + "/compiler";
  EXPECT_TRUE(write_file(compiler, "#!/bin/sh\ncase \"$*\" in *\" -o \"*) " + then +
                                       ";; esac\nexec " + host_target().compiler + " \"$@\"\n"));
  EXPECT_EQ(::chmod(compiler.c_str(), 0700), 0);
  const EnvironmentVariable slow("AHEAD_CC", compiler);
  const EnvironmentVariable folder("AHEAD_CACHE_DIR", cache.path());
  const EnvironmentVariable worker("AHEAD_TEST_BACKGROUND_WORKER", task);
  return test::run_worker("BackgroundWorker.*");
}

TEST(Background, RunsWithoutKernelsUntilTheyAreReady) {
  const ProcessResult result = run_worker("stays", "sleep 4");
  EXPECT_TRUE(result.ok()) << result.output;
  EXPECT_NE(result.output.find("kernels 2"), std::string::npos) << result.output;
}

TEST(Background, GoesOnWithoutKernelsThatDoNotCompile) {
  const ProcessResult result = run_worker("fails", "sleep 4; exit 1");
  EXPECT_TRUE(result.ok()) << result.output;
  EXPECT_NE(result.output.find("kernels 0"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("cannot be used"), std::string::npos) << result.output;
}

TEST(Background, EndsWhileItCompiles) {
  const auto start = std::chrono::steady_clock::now();
  const ProcessResult result = run_worker("leaves", "sleep 300");
  EXPECT_TRUE(result.ok()) << result.output;
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(200));
  EXPECT_EQ(result.output.find("cannot be used"), std::string::npos) << result.output;
}

TEST(Background, ChildrenOfAForkCompileForThemselves) {
  const ProcessResult result = run_worker("forks", "sleep 4");
  EXPECT_TRUE(result.ok()) << result.output;
}

}  // namespace ahead::native::background_test
