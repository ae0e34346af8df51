#include "support/engine_check.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <typeinfo>

namespace ahead::test {
namespace {

std::vector<at::Tensor> run(const BackwardProgram& program) {
  torch::manual_seed(123);
  return program();
}

/// The type and the message.
std::string error_of(const BackwardProgram& program) {
  try {
    run(program);
  } catch (const c10::Error& error) {
    return std::string(typeid(error).name()) + ": " + error.msg();
  } catch (const std::exception& error) {
    return std::string(typeid(error).name()) + ": " + error.what();
  }
  return "no error";
}

}  // namespace

std::string all_reasons() {
  std::string text;
  for (const std::string& reason : compiled_autograd::reasons()) text += reason + "\n";
  return text;
}

std::vector<at::Tensor> grads_of(const torch::nn::Module& module) {
  std::vector<at::Tensor> grads;
  for (const at::Tensor& parameter : module.parameters()) grads.push_back(parameter.grad());
  return grads;
}

compiled_autograd::Stats compare_with_eager(const BackwardProgram& program, int runs,
                                            compiled_autograd::Options options) {
  const std::vector<at::Tensor> expected = run(program);
  compiled_autograd::reset();
  for (int i = 0; i < runs; ++i) {
    SCOPED_TRACE("run " + std::to_string(i));
    compiled_autograd::Enable on(options);
    const std::vector<at::Tensor> got = run(program);
    EXPECT_EQ(got.size(), expected.size());
    for (size_t k = 0; k < std::min(got.size(), expected.size()); ++k) {
      SCOPED_TRACE("tensor " + std::to_string(k));
      EXPECT_EQ(tensor_difference(expected[k], got[k], CompareLayout::EveryStride), "");
      EXPECT_EQ(got[k].defined() && got[k].requires_grad(),
                expected[k].defined() && expected[k].requires_grad());
    }
  }
  return compiled_autograd::stats();
}

compiled_autograd::Stats expect_as_eager(const BackwardProgram& program, int runs,
                                         compiled_autograd::Options options) {
  const compiled_autograd::Stats stats = compare_with_eager(program, runs, std::move(options));
  EXPECT_GT(stats.captures, 0u) << all_reasons();
  return stats;
}

void expect_one_graph(const BackwardProgram& program) {
  const compiled_autograd::Stats stats = expect_as_eager(program);
  EXPECT_EQ(stats.captures, 1u) << all_reasons();
  EXPECT_EQ(stats.compiles, 1u) << all_reasons();
  EXPECT_EQ(stats.cache_misses, 1u);
  EXPECT_EQ(stats.eager_fallbacks, 0u);
}

void expect_error_as_eager(const BackwardProgram& program) {
  const std::string expected = error_of(program);
  ASSERT_NE(expected, "no error");
  for (int i = 0; i < 2; ++i) {
    compiled_autograd::Enable on;
    EXPECT_EQ(error_of(program), expected);
  }
}

}  // namespace ahead::test
