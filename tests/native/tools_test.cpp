#include <sys/stat.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstdlib>

#include "ahead/ahead.h"
#include "base/files.h"
#include "native/build/process.h"
#include "native/temporary_cache.h"

namespace ahead::native::tools_test {

using test::EnvironmentVariable;

at::Tensor twice_the_same(const at::Tensor& x, const at::Tensor& w) {
  const at::Tensor h = torch::tanh(x * 2 + 1).matmul(w);
  return torch::tanh(h * 2 + 1).matmul(w).exp().sum();
}

/// Trains a little, and prints what was counted.
TEST(ToolsWorker, Trains) {
  if (std::getenv("AHEAD_TEST_TOOLS_WORKER") == nullptr) GTEST_SKIP() << "run by other tests";
  torch::manual_seed(0);
  const at::Tensor x = torch::randn({16, 16}), w = torch::randn({16, 16}).requires_grad_();
  auto compiled = ahead::compile(twice_the_same, {.backend = "native"});
  const at::Tensor expected = torch::autograd::grad({twice_the_same(x, w)}, {w})[0];
  for (int i = 0; i < 4; ++i) {
    const at::Tensor actual = torch::autograd::grad({compiled(x, w)}, {w})[0];
    EXPECT_TRUE(at::allclose(actual, expected, 1e-4, 1e-5));
  }
  const CompileStats stats = compiled.stats();
  EXPECT_EQ(stats.eager_calls, 0u);
  std::cout << "kernels " << stats.kernels << ", compiled " << stats.kernels_compiled
            << ", from the cache " << stats.kernels_from_cache << ", failed "
            << stats.kernels_failed << std::endl;
}

/// What the worker prints with this cache.
std::string train(const std::string& cache) {
  const EnvironmentVariable folder("AHEAD_CACHE_DIR", cache);
  const EnvironmentVariable worker("AHEAD_TEST_TOOLS_WORKER", "1");
  const ProcessResult result = run_process("/proc/self/exe", {"--gtest_filter=ToolsWorker.*"});
  EXPECT_TRUE(result.ok()) << result.output;
  return result.output;
}

/// The number after a word in what the worker printed.
int count_of(const std::string& word, const std::string& output) {
  const size_t at = output.find(word + " ");
  EXPECT_NE(at, std::string::npos) << output;
  return at == std::string::npos ? -1 : std::atoi(output.c_str() + at + word.size() + 1);
}

TEST(Stats, CountKernels) {
  const test::TemporaryCache cache;
  const std::string first = train(cache.path()), second = train(cache.path());
  const int kernels = count_of("kernels", first), compiled = count_of("compiled", first);
  EXPECT_GE(kernels, 4) << first;
  EXPECT_GE(compiled, 2) << first;
  EXPECT_LT(compiled, kernels) << "the same operators twice are one kernel\n" << first;
  EXPECT_EQ(count_of("from the cache", first), 0);
  EXPECT_EQ(count_of("failed", first), 0);
  EXPECT_EQ(count_of("kernels", second), kernels);
  EXPECT_EQ(count_of("compiled", second), 0);
  EXPECT_EQ(count_of("from the cache", second), compiled);
}

TEST(Stats, AMachineWithoutACompilerUsesAFilledCache) {
  const test::TemporaryCache cache;
  const std::string filled = train(cache.path());
  const EnvironmentVariable none("AHEAD_CC", "/nonexistent/compiler");
  const std::string output = train(cache.path());
  EXPECT_EQ(count_of("kernels", output), count_of("kernels", filled));
  EXPECT_EQ(count_of("from the cache", output), count_of("compiled", filled));
  EXPECT_EQ(count_of("failed", output), 0);
  EXPECT_EQ(output.find("no C++ compiler"), std::string::npos) << output;
}

TEST(Stats, CountWhatDoesNotCompile) {
  const test::TemporaryCache cache;
  const std::string compiler = cache.path() + "/compiler";
  ASSERT_TRUE(write_file(compiler,
                         "#!/bin/sh\n"
                         "case \"$*\" in *\" -o \"*) echo out of order; exit 1;; esac\n"));
  ASSERT_EQ(::chmod(compiler.c_str(), 0700), 0);
  const EnvironmentVariable broken("AHEAD_CC", compiler);
  const std::string output = train(cache.path());
  EXPECT_EQ(count_of("kernels", output), 0);
  EXPECT_GE(count_of("failed", output), 4);
  EXPECT_NE(output.find("cannot be used: out of order"), std::string::npos) << output;
  EXPECT_NE(output.find("Its source is " + cache.path() + "/failed/"), std::string::npos) << output;
}

TEST(Stats, CountNoKernelsOfTheInterpreter) {
  auto compiled = ahead::compile(twice_the_same, {.backend = "interpreter"});
  const at::Tensor x = torch::randn({4, 4});
  for (int i = 0; i < 3; ++i) compiled(x, x);
  EXPECT_EQ(compiled.stats().kernels, 0u);
  EXPECT_EQ(compiled.stats().kernels_failed, 0u);
}

}  // namespace ahead::native::tools_test
