#include <gtest/gtest.h>

#include <limits>

#include "support/eager.h"

/// The comparisons that all other tests rely on notice what they should.
namespace ahead {
namespace same_as_eager_test {

using at::Tensor;

bool differ(const Tensor& a, const Tensor& b, CompareLayout layout = CompareLayout::Meaningful) {
  EXPECT_EQ(tensor_difference(a, a, layout), "");
  EXPECT_EQ(tensor_difference(b, b, layout), "");
  return !tensor_difference(a, b, layout).empty();
}

TEST(SameAsEager, ComparesBits) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(differ(at::tensor({0.0F}), at::tensor({-0.0F})));
  EXPECT_TRUE(differ(at::tensor({nan}), at::tensor({1.0F})));
  EXPECT_FALSE(differ(at::tensor({nan}), at::tensor({-nan})));
  EXPECT_TRUE(differ(at::ones({2}, at::kComplexFloat), -at::ones({2}, at::kComplexFloat)));
  EXPECT_TRUE(differ(at::ones({2}, at::kBool), at::zeros({2}, at::kBool)));
  EXPECT_EQ(tensor_difference(at::tensor({1.0F, 2.0F}), at::tensor({1.0F, 3.0F})),
            "f32[2]: 1 of 2 elements differ; the first, at 1, is 3 instead of 2");
}

TEST(SameAsEager, ComparesPresenceAndMetadata) {
  const Tensor x = at::zeros({2, 3});
  EXPECT_TRUE(differ(x, {}));
  EXPECT_TRUE(differ(x, x.to(at::kDouble)));
  EXPECT_TRUE(differ(x, at::zeros({3, 2})));
  EXPECT_TRUE(differ(x, at::zeros({3, 2}).t()));
  EXPECT_TRUE(differ(x, x.to_sparse()));
  EXPECT_TRUE(differ(x, at::zeros({2, 3}, at::kMeta)));
}

TEST(SameAsEager, ComparesTheLayoutThatIsAskedFor) {
  const Tensor row = at::zeros({1, 3}), other = row.as_strided({1, 3}, {7, 1});
  EXPECT_FALSE(differ(row, other));
  EXPECT_TRUE(differ(row, other, CompareLayout::EveryStride));
  const Tensor later = at::zeros({6}).narrow(0, 3, 3), first = at::zeros({3});
  EXPECT_TRUE(differ(first, later));
  EXPECT_FALSE(differ(first, later, CompareLayout::EveryStride));
  const Tensor complex = at::zeros({2}, at::kComplexFloat);
  EXPECT_TRUE(differ(complex, complex.conj(), CompareLayout::EveryStride));
}

TEST(SameAsEager, ComparesFlags) {
  const auto kinds = [](const Tensor& a, const Tensor& b, bool versions) {
    std::string text;
    for (const Difference& found : flag_differences(TensorFlags(a), TensorFlags(b), versions))
      text += found.what + " ";
    return text;
  };
  const Tensor x = leaf({2});
  EXPECT_EQ(kinds(x, x.detach(), true), "requires_grad ");
  EXPECT_EQ(kinds(x, x * 1, false), "is_leaf ");
  const Tensor fresh = at::zeros({2}), written = at::zeros({2}).add_(1);
  EXPECT_EQ(kinds(fresh, written, true), "version ");
  EXPECT_EQ(kinds(fresh, written, false), "");
  const c10::InferenceMode inference;
  EXPECT_EQ(kinds(fresh, at::zeros({2}), true), "is_inference ");
}

TEST(SameAsEager, SnapshotsNoticeWhatIsTouched) {
  const Tensor plain = at::zeros({4}), part = plain.narrow(0, 0, 2), x = leaf({2});
  const TensorSnapshot before(part), of_leaf(x);
  EXPECT_EQ(before.change(part), "");
  plain.data_ptr<float>()[3] = 1;
  EXPECT_EQ(before.change(part), "contents");
  EXPECT_EQ(TensorSnapshot(plain).change(plain.view({2, 2})), "metadata");
  const TensorSnapshot unwritten(plain);
  plain.mul_(1);
  EXPECT_EQ(unwritten.change(plain), "version");
  x.register_hook([](const Tensor&) {});
  EXPECT_EQ(of_leaf.change(x), "hooks");
  x.sum().backward();
  EXPECT_EQ(of_leaf.change(x), ".grad");
}

TEST(SameAsEager, LeavesAndThoseThatAreNone) {
  const Tensor x = leaf({3}), y = as_non_leaf(x);
  EXPECT_TRUE(x.is_leaf() && x.requires_grad());
  EXPECT_TRUE(!y.is_leaf() && !y.is_view() && y.is_alias_of(x));
  y.mul_(2).sum().backward();
  EXPECT_EQ(tensor_difference(at::full({3}, 2.0F), x.grad()), "");
}

TEST(SameAsEager, TellsWhatIsThrown) {
  EXPECT_EQ(error_of([] {}), "");
  EXPECT_EQ(error_of([] { throw std::runtime_error("no"); }), "no");
  EXPECT_EQ(error_of([] { throw std::runtime_error(""); }), "unknown");
  EXPECT_EQ(error_of([] { TORCH_CHECK(false, "not so"); }), "not so");
}

}  // namespace same_as_eager_test
}  // namespace ahead
