#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"

namespace ahead {
namespace {

constexpr const char* complaint = "modified by an inplace operation";

/// What the backward of `result` complains of; empty: nothing.
std::string error_of_backward(const at::Tensor& result) {
  try {
    result.sum().backward();
  } catch (const c10::Error& error) {
    return error.msg();
  }
  return "";
}

/// In eager a hook sees what was written since the forward; a compiled one must not see less.
template <class Function>
void expect_notices_write(Function function, const at::Tensor& scale) {
  for (const Partitioner partitioner : {Partitioner::Default, Partitioner::MinCut}) {
    auto compiled = compile(function, Options{.fullgraph = true, .partitioner = partitioner});
    for (int call = 0; call < 3; ++call) {
      const at::Tensor x = torch::ones({4}).requires_grad_();
      const auto [y, result] = compiled(x, scale);
      result.mul_(3);
      EXPECT_NE(error_of_backward(y).find(complaint), std::string::npos) << call;
    }
  }
}

TEST(LateReads, WritesToWhatHooksReadAreNoticed) {
  expect_notices_write(
      [](const at::Tensor& x, const at::Tensor& scale) {
        at::Tensor y = x * 1;
        y.register_hook([value = scale.detach()](const at::Tensor& gradient) {
          return gradient * value.sum();
        });
        return std::make_tuple(y, scale);
      },
      torch::full({8}, 2.0));
}

TEST(LateReads, WritesToResultsThatHooksReadAreNoticed) {
  expect_notices_write(
      [](const at::Tensor& x, const at::Tensor& scale) {
        const at::Tensor product = scale.exp();
        at::Tensor y = x * 1;
        y.register_hook([product](const at::Tensor& gradient) { return gradient * product.sum(); });
        return std::make_tuple(y, product);
      },
      torch::full({8}, 2.0));
}

TEST(LateReads, ViewsOfOverwrittenArgumentsInTheMiddleOfTheirMemory) {
  auto function = [](const at::Tensor& x) {
    const at::Tensor y = x * 1;
    y.register_hook([value = x.detach().view({2, 4}).t().clone()](const at::Tensor& gradient) {
      return gradient + value.sum();
    });
    x.mul_(0.5);
    return y;
  };
  const auto gradient = [](auto& callable) {
    const at::Tensor leaf = torch::arange(80.0).div(7).requires_grad_();
    const at::Tensor base = leaf * 1;
    callable(base.narrow(0, 32, 8)).sum().backward();
    return leaf.grad();
  };
  const at::Tensor expected = gradient(function);
  for (const Partitioner partitioner : {Partitioner::Default, Partitioner::MinCut}) {
    auto compiled = compile(function, Options{.fullgraph = true, .partitioner = partitioner});
    for (int call = 0; call < 3; ++call)
      EXPECT_TRUE(at::equal(gradient(compiled), expected)) << call;
  }
}

}  // namespace
}  // namespace ahead
