#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "support/eager.h"

/// Eager's kernels round complex products and quotients of single precision otherwise in place,
/// where the compiler could not know that operands do not overlap.
namespace ahead {
namespace complex_in_place_test {

using Tensors = std::vector<at::Tensor>;
using InPlace = std::function<void(const at::Tensor&, const at::Tensor&)>;

at::Tensor numbers(at::IntArrayRef sizes, at::ScalarType dtype = at::kComplexFloat) {
  return at::randn(sizes, dtype);
}

Tensors write(const InPlace& f, const at::Tensor& x, const at::Tensor& y) {
  const at::Tensor copy = at::empty_strided(x.sizes(), x.strides(), x.options()).copy_(x);
  f(copy, y);
  return {copy};
}

/// Whether it is refused; either way the compiled function must do what eager does.
bool is_refused(const InPlace& f, const at::Tensor& x, const at::Tensor& y) {
  const auto compiled = std::make_shared<Compiled<InPlace>>(f, Options{.confirm = 0});
  const InPlace run = [&](const at::Tensor& a, const at::Tensor& b) { (*compiled)(a, b); };
  for (int call = 0; call < 3; ++call) expect_same(write(f, x, y), write(run, x, y));
  const CompileStats stats = compiled->stats();
  EXPECT_EQ(stats.observed_calls, 1u);
  EXPECT_EQ(stats.eager_calls == 0 ? stats.cache_hits : stats.eager_calls, 2u);
  return stats.eager_calls != 0;
}

TEST(ComplexInPlace, QuotientsRunEagerly) {
  at::manual_seed(6);
  const InPlace f = [](const at::Tensor& x, const at::Tensor& y) { x.div_(y); };
  for (int64_t size : {2, 3, 7, 20, 70})
    EXPECT_TRUE(is_refused(f, numbers({size}), numbers({size})));
  EXPECT_THROW(trace([](const Tensors& in) { return Tensors{in[0].div_(in[1])}; },
                     Tensors{numbers({3}), numbers({3})}),
               Unsupported);
  EXPECT_FALSE(is_refused(f, numbers({7}, at::kComplexDouble), numbers({7}, at::kComplexDouble)));
  EXPECT_FALSE(is_refused(f, numbers({7}), at::rand({7}) + 1));
}

TEST(ComplexInPlace, ProductsRunEagerlyWhereTheyAreNotVectorised) {
  at::manual_seed(7);
  const InPlace f = [](const at::Tensor& x, const at::Tensor& y) { x.mul_(y); };
  for (int64_t size : {3, 7, 20}) {
    EXPECT_FALSE(is_refused(f, numbers({size}), numbers({size})));
    EXPECT_FALSE(is_refused(f, numbers({4, size}), numbers({size})));
    EXPECT_FALSE(is_refused(f, numbers({4, size}), numbers({4, 1})));
    EXPECT_FALSE(is_refused(f, numbers({size, size}).t(), numbers({size, size}).t()));
    EXPECT_TRUE(is_refused(f, numbers({size, size}), numbers({size, size}).t()));
    EXPECT_TRUE(is_refused(f, numbers({size}), numbers({2 * size}).slice(0, 0, 2 * size, 2)));
  }
  const InPlace strided = [](const at::Tensor& x, const at::Tensor& y) {
    x.slice(0, 0, 40, 2).mul_(y);
  };
  EXPECT_TRUE(is_refused(strided, numbers({40}), numbers({20})));
}

TEST(ComplexInPlace, SumsOfProducts) {
  at::manual_seed(8);
  const InPlace f = [](const at::Tensor& x, const at::Tensor& y) { x.addcmul_(y, y + 1, 1.5); };
  EXPECT_FALSE(is_refused(f, numbers({3, 5}), numbers({3, 5})));
  EXPECT_TRUE(is_refused(f, numbers({3, 5}), numbers({5})));
}

}  // namespace complex_in_place_test
}  // namespace ahead
