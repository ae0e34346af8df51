#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

#include "ahead/ahead.h"
#include "support/eager.h"
#include "support/hits.h"

/// Eager's gradient of prod looks for zeros and has another formula where it finds some.
namespace ahead {
namespace prod_gradient_test {

using Tensors = std::vector<at::Tensor>;
using torch::autograd::grad;

constexpr float infinity = std::numeric_limits<float>::infinity();

at::ScalarType wider(const at::Tensor& x) {
  return x.is_complex() ? at::kComplexDouble : at::kDouble;
}

struct Overload {
  const char* name;
  std::function<at::Tensor(const at::Tensor&)> call;
};

std::vector<Overload> overloads() {
  return {
      {"all", [](const at::Tensor& x) { return x.prod(); }},
      {"all, dtype", [](const at::Tensor& x) { return x.prod(wider(x)); }},
      {"rows", [](const at::Tensor& x) { return x.prod(1); }},
      {"kept columns", [](const at::Tensor& x) { return x.prod(-2, true); }},
      {"rows, dtype", [](const at::Tensor& x) { return x.prod(1, false, wider(x)); }},
      {"one number", [](const at::Tensor& x) { return x.select(0, 0).narrow(0, 1, 1).prod(); }},
      {"rows of one", [](const at::Tensor& x) { return x.narrow(1, 2, 1).prod(1); }},
      {"transposed", [](const at::Tensor& x) { return x.t().prod(); }},
      {"no elements", [](const at::Tensor& x) { return x.narrow(0, 0, 0).prod(0); }},
      {"twice", [](const at::Tensor& x) { return x.prod(1).prod() * x.prod(0); }},
  };
}

struct Content {
  const char* name;
  std::function<void(at::Tensor&)> write;
};

std::vector<Content> contents() {
  return {
      {"no zero", [](at::Tensor&) {}},
      {"one zero", [](at::Tensor& x) { x.select(0, 1).select(0, 2).zero_(); }},
      {"a row with two", [](at::Tensor& x) { x.select(0, 2).narrow(0, 0, 2).zero_(); }},
      {"zeros in rows and columns", [](at::Tensor& x) { x.diagonal().zero_(); }},
      {"negative zeros", [](at::Tensor& x) { x.select(0, 0).narrow(0, 1, 2).fill_(-0.0); }},
      {"only zeros", [](at::Tensor& x) { x.zero_(); }},
  };
}

std::vector<at::ScalarType> dtypes() {
  return {at::kFloat, at::kDouble, at::kComplexFloat, at::kBFloat16};
}

at::Tensor input(const Content& content, at::ScalarType dtype) {
  at::Tensor x = at::randn({3, 4}, dtype);
  content.write(x);
  return x.requires_grad_();
}

Tensors accumulate(const aot::FlatFunction& f, const at::Tensor& x) {
  x.mutable_grad() = at::Tensor();
  for (int call = 0; call < 3; ++call) {
    const at::Tensor y = f({x})[0];
    y.backward(at::ones_like(y) * 3);
  }
  return {x.grad()};
}

TEST(ProdGradient, IsEagersToTheBit) {
  at::manual_seed(3);
  for (const Overload& overload : overloads()) {
    const aot::FlatFunction f = [&](const Tensors& in) { return Tensors{overload.call(in[0])}; };
    auto compiled = compile(f, {.fullgraph = true, .confirm = 0});
    for (at::ScalarType dtype : dtypes()) compiled(Tensors{input(contents()[0], dtype)});
    for (at::ScalarType dtype : dtypes()) {
      for (const Content& content : contents()) {
        SCOPED_TRACE(std::string(overload.name) + ", " + content.name + ", " + toString(dtype));
        const at::Tensor x = input(content, dtype);
        const Tensors eager = accumulate(f, x);
        expect_same(eager, accumulate([&](const Tensors& in) { return compiled(in); }, x));
      }
    }
    expect_hits(compiled, dtypes().size());
  }
}

TEST(ProdGradient, BesideInfinitiesAndNaN) {
  const auto f = [](const at::Tensor& x) { return x.prod(); };
  auto compiled = compiled_by_call(f, {.fullgraph = true}, leaf({3}));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::vector<float>& numbers : std::vector<std::vector<float>>{
           {0, infinity, 2}, {0, 0, infinity}, {0, 0, nan}, {nan, 1, 2}, {infinity, 3, -2}}) {
    const at::Tensor x = at::tensor(numbers).requires_grad_();
    expect_same(grad({f(x)}, {x}), grad({compiled(x)}, {x}));
  }
  expect_hits(compiled);
}

/// The derivatives of a function, each of a sum that tells the elements apart.
template <class F>
Tensors weighed_derivatives(F&& f, const at::Tensor& x, int order) {
  Tensors all{f(x)};
  for (int i = 0; i < order; ++i) {
    const at::Tensor& last = all.back();
    const at::Tensor weighed = last * at::arange(1, last.numel() + 1).view(last.sizes());
    const at::Tensor loss = weighed.is_complex() ? at::real(weighed).sum() : weighed.sum();
    all.push_back(grad({loss}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0]);
  }
  return all;
}

TEST(ProdGradient, SecondDerivatives) {
  at::manual_seed(4);
  for (const Overload& overload : overloads()) {
    auto compiled = compile(overload.call, {.fullgraph = true, .confirm = 0});
    for (at::ScalarType dtype : {at::kDouble, at::kComplexFloat}) {
      SCOPED_TRACE(std::string(overload.name) + ", " + toString(dtype));
      for (int call = 0; call < 2; ++call) {
        const at::Tensor x = input(contents()[0], dtype);
        expect_same(weighed_derivatives(overload.call, x, 2), weighed_derivatives(compiled, x, 2));
      }
    }
    expect_hits(compiled, 2);
  }
}

TEST(ProdGradient, SecondDerivativesBesideZeros) {
  at::manual_seed(5);
  for (const Overload& overload : overloads()) {
    // Of one number eager's gradient has no derivative where it is zero.
    if (std::string(overload.name).find("one") != std::string::npos) continue;
    auto compiled =
        compiled_by_call(overload.call, {.fullgraph = true}, input(contents()[0], at::kDouble));
    for (const Content& content : contents()) {
      SCOPED_TRACE(std::string(overload.name) + ", " + content.name);
      const at::Tensor x = input(content, at::kDouble);
      const Tensors eager = weighed_derivatives(overload.call, x, 2);
      const Tensors actual = weighed_derivatives(compiled, x, 2);
      for (size_t i = 0; i < eager.size(); ++i) EXPECT_TRUE(at::allclose(eager[i], actual[i]));
    }
    expect_hits(compiled);
  }
}

TEST(ProdGradient, DerivativesInside) {
  // Eager looks for zeros there: it reads whether there are any, or their number decides a size.
  at::manual_seed(6);
  for (const Overload& overload : overloads()) {
    if (std::string(overload.name).find("one") != std::string::npos) continue;
    const auto f = [&](const at::Tensor& x) { return weighed_derivatives(overload.call, x, 2); };
    auto compiled = compile(f, {.confirm = 0});
    for (int call = 0; call < 4; ++call) {
      for (const Content& content : contents()) {
        SCOPED_TRACE(std::string(overload.name) + ", " + content.name + ", " +
                     std::to_string(call));
        const at::Tensor x = input(content, at::kDouble);
        expect_same(f(x), compiled(x));
      }
    }
    const CompileStats stats = compiled.stats();
    EXPECT_EQ(stats.calls, stats.observed_calls + stats.cache_hits + stats.eager_calls);
    EXPECT_GT(stats.cache_hits + stats.eager_calls, stats.calls / 2) << overload.name;
  }
  const auto f = [](const at::Tensor& x) {
    return weighed_derivatives([](const at::Tensor& y) { return y.prod(); }, x, 2);
  };
  auto compiled = compile(f, {.fullgraph = true, .confirm = 0});
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = input(contents()[0], at::kDouble);
    expect_same(f(x), compiled(x));
  }
  EXPECT_GT(compiled.stats().cache_hits, 0u);
}

TEST(ProdGradient, OfACapturedParameterUnderGradientPenalty) {
  const at::Tensor w = leaf({4});
  const auto f = [&](const at::Tensor& x) {
    const at::Tensor y = (x * w).prod();
    const at::Tensor slope = grad({y}, {x}, {}, true, true)[0];
    return y + slope.pow(2).sum() + x.prod();
  };
  auto compiled = compile(f, {.confirm = 0});
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = leaf({4});
    expect_same(grad({f(x)}, {x, w}), grad({compiled(x)}, {x, w}));
  }
  EXPECT_GT(compiled.stats().cache_hits, 0u);
}

}  // namespace prod_gradient_test
}  // namespace ahead
