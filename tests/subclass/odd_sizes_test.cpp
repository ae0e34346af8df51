#include "sizes/training.h"
#include "subclass/wrapped_check.h"

/// Functions with wrappers of many sizes that do not do the same in each call, or that tell sizes
/// and numbers apart.
namespace ahead::wrapped::odd_sizes_test {

const Options on_interpreter{.backend = "interpreter"};

/// A tensor and a factor that is metadata: products with numbers call no operator.
class Scaled final : public WrapperTensorOf<Scaled> {
 public:
  static constexpr const char* class_name = "Scaled";
  static at::Tensor make(at::Tensor inner, double factor) {
    const WrapperLook look = WrapperLook::of(inner);
    return wrap(std::make_shared<const Scaled>(std::move(inner), factor), look);
  }
  Scaled(at::Tensor inner, double factor) : inner_(std::move(inner)), factor_(factor) {}
  WrapperParts flatten() const override { return {{inner_}, factor_}; }
  static std::shared_ptr<const Scaled> unflatten(WrapperParts parts) {
    return std::make_shared<const Scaled>(parts.inner.at(0), parts.metadata.toDouble());
  }
  bool dispatch(const c10::OperatorHandle& op, torch::jit::Stack& stack) const override {
    const bool is_product = op.operator_name().name == "aten::mul" && stack.size() == 2;
    if (is_product && stack[1].isTensor() && stack[1].toTensor().dim() == 0 &&
        stack[1].toTensor().unsafeGetTensorImpl()->is_wrapped_number()) {
      const double by = stack[1].toTensor().item<double>();
      stack = {make(inner_, factor_ * by)};
      return true;
    }
    dispatch_to_each(op, stack);
    return true;
  }
  double factor() const { return factor_; }

 private:
  at::Tensor inner_;
  double factor_;
};

double factor_of(const at::Tensor& tensor) {
  return inside_of<Scaled>(tensor)->factor();
}

TEST(SubclassOddSizes, NumbersAmongTheArguments) {
  const auto step = [](const at::Tensor& x, const at::Tensor& gradient, double rate) {
    return x.sub(gradient, rate).mul(2);
  };
  auto compiled = compile(step, on_interpreter);
  int64_t call = 0;
  for (const int64_t n : rounds_of(2, 12, 4)) {
    const double rate = 0.25 + 0.03125 * static_cast<double>(++call);
    const at::Tensor x = two({n, 3}), gradient = two({n, 3});
    ASSERT_EQ(difference(step(x, gradient, rate), compiled(x, gradient, rate)), "") << call;
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  EXPECT_EQ(compiled.stats().compilations, 1U);
  EXPECT_GE(compiled.stats().cache_hits, 20U);
}

TEST(SubclassOddSizes, NumbersThatBecomeMetadata) {
  const auto scale = [](const at::Tensor& x, double factor) { return (x * factor).sin(); };
  auto compiled = compile(scale, on_interpreter);
  int64_t call = 0;
  for (const int64_t n : rounds_of(2, 10, 6)) {
    const double factor = 1.5 + static_cast<double>(++call % 3);
    const at::Tensor x = Scaled::make(at::randn({n}), 0.5);
    const at::Tensor expected = scale(x, factor), actual = compiled(x, factor);
    ASSERT_EQ(difference(expected, actual), "") << call;
    ASSERT_EQ(factor_of(expected), factor_of(actual)) << call;
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  EXPECT_GE(compiled.stats().cache_hits, 1U);
}

TEST(SubclassOddSizes, HiddenNumbersThatBecomeMetadata) {
  for (const bool counts : {false, true}) {
    const auto expected_count = std::make_shared<double>(1), count = std::make_shared<double>(1);
    const auto make = [&](const std::shared_ptr<double>& number) {
      return [number, counts](const at::Tensor& x) {
        if (counts) *number += 1;
        // Else a table by size.
        return (x * (counts ? *number : 1.0 / static_cast<double>(x.size(0) * x.size(0)))).sin();
      };
    };
    const auto eager = make(expected_count);
    auto compiled = compile(make(count), on_interpreter);
    for (const int64_t n : rounds_of(2, 8, 5)) {
      const at::Tensor x = Scaled::make(at::randn({n}), 2);
      const at::Tensor expected = eager(x), actual = compiled(x);
      ASSERT_EQ(difference(expected, actual), "") << n;
      ASSERT_EQ(factor_of(expected), factor_of(actual)) << n;
    }
    if (counts) continue;
    EXPECT_EQ(compiled.stats().eager_calls, 0U);
    EXPECT_EQ(compiled.stats().compilations, 1U);
    EXPECT_GE(compiled.stats().cache_hits, 12U);
  }
}

TEST(SubclassOddSizes, ParametersThatAreReplaced) {
  const auto weight = std::make_shared<at::Tensor>(two({4, 3}, true));
  const auto apply = [weight](const at::Tensor& x) { return x.matmul(*weight).tanh(); };
  auto compiled = compile(apply, on_interpreter);
  for (int round = 0; round < 4; ++round) {
    for (const int64_t n : rounds_of(2, 10, 4)) {
      const at::Tensor x = at::randn({n, 4});
      ASSERT_EQ(difference(apply(x), compiled(x)), "") << round << " " << n;
    }
    *weight = two({4, 3}, true);
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  EXPECT_LE(compiled.stats().compilations, 2U);
  EXPECT_GE(compiled.stats().cache_hits, 40U);
}

/// Whether a leaf has a gradient is no operator: it counts once a call was observed that used one.
TEST(SubclassOddSizes, GradientsThatDecide) {
  const at::Tensor weight = at::ones({3}).requires_grad_();
  const auto apply = [weight](const at::Tensor& x) {
    const at::NoGradGuard no_grad;
    return weight.grad().defined() ? x * weight.grad() : x * weight * 5;
  };
  auto compiled = compile(apply, on_interpreter);
  for (int call = 0; call < 160; ++call) {
    const bool has_gradient = call / 20 % 2 == 1;
    weight.mutable_grad() = has_gradient ? at::full({3}, 2.0) : at::Tensor();
    const at::Tensor x = two({2 + call % 2, 3});
    const at::Tensor expected = apply(x), actual = compiled(x);
    if (call < 40) continue;
    ASSERT_EQ(difference(expected, actual), "") << call;
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  EXPECT_GE(compiled.stats().cache_hits, 40U);
}

/// Each size has a parameter of its own.
TEST(SubclassOddSizes, ParametersOfEachSize) {
  Tensors weights;
  for (int i = 0; i < 3; ++i) weights.push_back(two({4}, true));
  const auto apply = [weights](const at::Tensor& x) {
    return (x * weights[static_cast<size_t>(x.size(0) % 3)]).exp();
  };
  auto compiled = compile(apply, on_interpreter);
  for (const int64_t n : rounds_of(2, 10, 3)) {
    const at::Tensor x = at::randn({n, 4});
    Tensors grads[2];
    for (const bool eager : {true, false}) {
      const at::Tensor y = eager ? apply(x) : compiled(x);
      const at::Tensor& weight = weights[static_cast<size_t>(n % 3)];
      grads[eager ? 0 : 1] = torch::autograd::grad({y}, {weight}, {at::ones_like(y.detach())});
      grads[eager ? 0 : 1].push_back(y.detach());
    }
    for (size_t i = 0; i < 2; ++i) ASSERT_EQ(difference(grads[0][i], grads[1][i]), "") << n;
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  EXPECT_EQ(compiled.stats().compilations, 1U);
}

/// Values decide sizes of plain tensors beside wrappers.
TEST(SubclassOddSizes, SizesThatValuesDecide) {
  const auto pick = [](const Tensors& in) -> Tensors {
    const at::Tensor kept = in[1].masked_select(in[1] > 0);
    return {in[0].sin(), kept * 2, kept.sum() * in[0]};
  };
  auto compiled = compile(aot::FlatFunction(pick), on_interpreter);
  torch::manual_seed(5);
  for (int64_t call = 0; call < 120; ++call) {
    const Tensors in{two({2 + call % 2, 3}), at::randn({4})};
    const Tensors expected = pick(in), actual = compiled(in);
    for (size_t i = 0; i < 3; ++i) ASSERT_EQ(difference(expected[i], actual[i]), "") << call;
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  EXPECT_LE(compiled.stats().compilations, 4U);
  EXPECT_GE(compiled.stats().cache_hits, 60U);
}

/// Only sizes of plain tensors are trusted.
TEST(SubclassOddSizes, NewSizesAreObservedWhereSizesAreTrusted) {
  Options options = on_interpreter;
  options.dynamic = Dynamic::Trusting;
  auto compiled = compile([](const at::Tensor& x) { return x * 2; }, options);
  for (int64_t n = 2; n < 40; ++n) {
    const at::Tensor x = two({n, 3}), plain = at::randn({n, 2});
    ASSERT_EQ(difference(x * 2, compiled(x)), "") << n;
    ASSERT_EQ(difference(plain * 2, compiled(plain)), "") << n;
  }
  const CompileStats stats = compiled.stats();
  EXPECT_EQ(stats.eager_calls, 0U);
  EXPECT_LE(stats.compilations, 2U);
  EXPECT_GE(stats.observed_calls, 38U);
  EXPECT_GE(stats.cache_hits, 20U);
}

/// But for the rounding of kernels.
void expect_close(const at::Tensor& expected, const at::Tensor& actual) {
  ASSERT_EQ(classes_of(expected), classes_of(actual));
  const Tensors a = plain_tensors(expected), b = plain_tensors(actual);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(same_values(a[i], b[i], kernel_rounding)) << i;
}

TEST(SubclassOddSizes, KernelsServeManySizes) {
  auto compiled = compile(
      [](const at::Tensor& x, const at::Tensor& w) { return (x.matmul(w).tanh() * 2).sum(1); },
      {.backend = "native", .fullgraph = true});
  for (const int64_t n : rounds_of(1, 24, 2)) {
    const at::Tensor x = two({n, 8}, true), w = leaf({8, 6});
    const at::Tensor y = compiled(x, w), expected = (x.matmul(w).tanh() * 2).sum(1);
    const at::Tensor tangent = at::ones_like(y.detach());
    const Tensors ours = torch::autograd::grad({y}, {x, w}, {tangent});
    const Tensors theirs = torch::autograd::grad({expected}, {x, w}, {tangent});
    expect_close(expected.detach(), y.detach());
    for (size_t i = 0; i < 2; ++i) expect_close(theirs[i], ours[i]);
  }
  expect_few_programs(compiled.stats(), 3, 24, 10);
}

}  // namespace ahead::wrapped::odd_sizes_test
