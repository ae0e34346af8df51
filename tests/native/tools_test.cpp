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
  const ProcessResult result = test::run_worker("ToolsWorker.*");
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

/// How many lines begin so.
int lines_with(const std::string& start, const std::string& output) {
  int count = 0;
  for (size_t at = output.find("\n" + start); at != std::string::npos;
       at = output.find("\n" + start, at + 1))
    ++count;
  return count;
}

TEST(Logs, ExplainWhatIsFused) {
  const test::TemporaryCache cache;
  const EnvironmentVariable logs("AHEAD_LOGS", "fusion");
  const std::string output = train(cache.path());
  const std::string forward = "[ahead fusion] CompiledFunction.forward: ";
  EXPECT_GE(lines_with(forward + "fused aten.tanh with aten.add.Scalar", output), 2) << output;
  EXPECT_GE(lines_with(forward + "left aten.mm to ATen: a library multiplies such matrices", output), 2)
      << output;
  EXPECT_GE(lines_with("[ahead fusion] CompiledFunction.backward: ", output), 3) << output;
  EXPECT_EQ(lines_with("[ahead kernels]", output), 0);
  EXPECT_EQ(lines_with("[ahead memory]", output), 0);
}

TEST(Logs, ExplainKernelsAndMemory) {
  const test::TemporaryCache cache;
  const EnvironmentVariable logs("AHEAD_LOGS", "kernels,memory,madness");
  const std::string first = train(cache.path()), second = train(cache.path());
  const int kernels = count_of("\nkernels", first);
  EXPECT_EQ(lines_with("[ahead kernels]", first), kernels) << first;
  // Two of 16 x 16 float32: what tanh is of, and what it gives.
  EXPECT_NE(first.find(" for 1 rows of 256; it reads 1.0 kB of 1 tensor and writes 1.0 kB of 1 "),
            std::string::npos)
      << first;
  EXPECT_NE(first.find("(compiled) computes aten.mul.Scalar, aten.add.Scalar, aten.tanh"),
            std::string::npos)
      << first;
  EXPECT_NE(first.find("(was there)"), std::string::npos) << first;
  EXPECT_EQ(second.find("(compiled)"), std::string::npos) << second;
  EXPECT_NE(second.find("(found in the cache)"), std::string::npos) << second;
  EXPECT_NE(first.find("keeps 2.0 kB of 2 intermediates in registers"), std::string::npos) << first;
  EXPECT_GE(lines_with("[ahead memory] CompiledFunction.forward: results and", first), 1) << first;
  EXPECT_EQ(lines_with("[ahead fusion]", first), 0);
  EXPECT_NE(first.find("nothing called \"madness\" to log"), std::string::npos) << first;
}

TEST(Switches, LimitTheNumberOfKernels) {
  const test::TemporaryCache cache;
  const EnvironmentVariable logs("AHEAD_LOGS", "kernels");
  for (const int limit : {0, 1, 3}) {
    const EnvironmentVariable limited("AHEAD_FUSE_LIMIT", std::to_string(limit));
    const std::string output = train(cache.path());
    EXPECT_EQ(lines_with("kernels " + std::to_string(limit) + ",", output), 1) << output;
    EXPECT_NE(output.find("left to ATen: "), std::string::npos) << output;
    EXPECT_NE(output.find("AHEAD_FUSE_LIMIT is reached"), std::string::npos) << output;
    EXPECT_EQ(count_of("failed", output), 0);
  }
  const EnvironmentVariable senseless("AHEAD_FUSE_LIMIT", "-1");
  EXPECT_NE(train(cache.path()).find("AHEAD_FUSE_LIMIT: \"-1\" is no number"), std::string::npos);
}

TEST(Switches, LeaveOperatorsToATen) {
  const test::TemporaryCache cache;
  const EnvironmentVariable logs("AHEAD_LOGS", "kernels,fusion");
  for (const char* names : {"tanh,aten.tanh_backward", "aten.tanh tanh_backward"}) {
    const EnvironmentVariable skipped("AHEAD_NATIVE_SKIP", names);
    const std::string output = train(cache.path());
    EXPECT_NE(output.find("left aten.tanh to ATen: AHEAD_NATIVE_SKIP names it"), std::string::npos)
        << output;
    EXPECT_GE(lines_with("[ahead kernels]", output), 1) << output;
    for (size_t at = output.find("[ahead kernels]"); at != std::string::npos;
         at = output.find("[ahead kernels]", at + 1)) {
      const std::string line = output.substr(at, output.find('\n', at) - at);
      EXPECT_EQ(line.find("tanh"), std::string::npos) << line;
    }
  }
}

TEST(Stats, CountNoKernelsOfTheInterpreter) {
  auto compiled = ahead::compile(twice_the_same, {.backend = "interpreter"});
  const at::Tensor x = torch::randn({4, 4});
  for (int i = 0; i < 3; ++i) compiled(x, x);
  EXPECT_EQ(compiled.stats().kernels, 0u);
  EXPECT_EQ(compiled.stats().kernels_failed, 0u);
}

}  // namespace ahead::native::tools_test
