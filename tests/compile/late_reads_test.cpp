#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "support/eager.h"
#include "support/hits.h"

namespace ahead {
namespace late_reads_test {

using Tensors = std::vector<at::Tensor>;

constexpr const char* complaint = "modified by an inplace operation";

/// Reads a tensor in its backward that LibTorch does not know to be saved.
struct Reading : torch::autograd::Function<Reading> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& value) {
    context->saved_data["value"] = value;
    return x * 1;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0] * context->saved_data["value"].toTensor().sum(), at::Tensor()};
  }
};

/// The same, but LibTorch knows.
struct Saving : torch::autograd::Function<Saving> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& value) {
    context->save_for_backward({value});
    return x * 1;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0] * context->get_saved_variables()[0].sum(), at::Tensor()};
  }
};

/// In eager a backward sees what was written since the forward; a compiled one must not see less.
template <class Function>
void expect_notices_write(Function function, const at::Tensor& scale) {
  for (const Partitioner partitioner : {Partitioner::Default, Partitioner::MinCut}) {
    auto compiled = compiled_by_call(function, {.fullgraph = true, .partitioner = partitioner},
                                     torch::ones({4}).requires_grad_(), scale.clone());
    for (int call = 0; call < 3; ++call) {
      const at::Tensor x = torch::ones({4}).requires_grad_();
      const auto [y, result] = compiled(x, scale);
      result.mul_(3);
      EXPECT_NE(error_of([&] { y.sum().backward(); }).find(complaint), std::string::npos) << call;
    }
    expect_hits(compiled);
  }
}

TEST(LateReads, WritesToWhatABackwardReadsAreNoticed) {
  expect_notices_write(
      [](const at::Tensor& x, const at::Tensor& scale) {
        return std::make_tuple(Reading::apply(x, scale), scale);
      },
      torch::full({8}, 2.0));
  expect_notices_write(
      [](const at::Tensor& x, const at::Tensor& scale) {
        return std::make_tuple(Saving::apply(x, scale.detach()), scale);
      },
      torch::full({8}, 2.0));
}

TEST(LateReads, WritesToResultsThatABackwardReadsAreNoticed) {
  expect_notices_write(
      [](const at::Tensor& x, const at::Tensor& scale) {
        const at::Tensor product = scale.exp();
        return std::make_tuple(Saving::apply(x, product), product);
      },
      torch::full({8}, 2.0));
  expect_notices_write(
      [](const at::Tensor& x, const at::Tensor& scale) {
        const at::Tensor product = scale.exp();
        return std::make_tuple(Reading::apply(x, product), product);
      },
      torch::full({8}, 2.0));
}

TEST(LateReads, HooksReadWhatEagersDo) {
  const auto function = [](const at::Tensor& x, const at::Tensor& scale) {
    at::Tensor y = x * 1;
    y.register_hook(
        [value = scale.detach()](const at::Tensor& gradient) { return gradient * value.sum(); });
    return std::make_tuple(y, scale);
  };
  const auto gradient = [](auto& callable) {
    const at::Tensor x = torch::ones({4}).requires_grad_();
    const auto [y, result] = callable(x, torch::full({8}, 2.0));
    result.mul_(3);
    y.sum().backward();
    return x.grad();
  };
  auto compiled = compile(function, {.confirm = 0});
  for (int call = 0; call < 5; ++call)
    EXPECT_TRUE(at::equal(gradient(compiled), gradient(function))) << call;
  expect_hits(compiled);
}

TEST(LateReads, ViewsOfOverwrittenArgumentsInTheMiddleOfTheirMemory) {
  const auto function = [](const at::Tensor& x) {
    const at::Tensor y = Saving::apply(x * 1, x.detach().view({2, 4}).t().clone());
    x.mul_(0.5);
    return y;
  };
  const auto hooked = [](const at::Tensor& x) {
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
  for (const Partitioner partitioner : {Partitioner::Default, Partitioner::MinCut}) {
    auto compiled =
        compile(function, {.fullgraph = true, .partitioner = partitioner, .confirm = 0});
    for (int call = 0; call < 3; ++call)
      EXPECT_TRUE(at::equal(gradient(compiled), gradient(function))) << call;
    expect_hits(compiled);
  }
  auto hooks = compile(hooked, {.confirm = 0});
  for (int call = 0; call < 5; ++call)
    EXPECT_TRUE(at::equal(gradient(hooks), gradient(hooked))) << call;
  expect_hits(hooks);
}

TEST(LateReads, HookThatReadsAnArgumentWrittenToBeforeTheBackward) {
  const auto f = [](const Tensors& in) -> Tensors {
    const at::Tensor y = in[0] * 1;
    y.register_hook(
        [x = in[1].detach()](const at::Tensor& gradient) { return gradient + x.sum(); });
    return {y};
  };
  auto compiled = compile(aot::FlatFunction(f), {.confirm = 0});
  for (int call = 0; call < 5; ++call) {
    const at::Tensor x = leaf({3}), read = at::randn({2});
    const at::Tensor y = compiled(Tensors{x, read})[0];
    for (int backward = 0; backward < 2; ++backward) {
      const at::Tensor gradient =
          torch::autograd::grad({y.sum()}, {x}, {}, /*retain_graph=*/true)[0];
      EXPECT_TRUE(at::equal(gradient, at::ones({3}) + read.sum()));
      read.mul_(2);
    }
  }
  expect_hits(compiled);
}

}  // namespace late_reads_test
}  // namespace ahead
