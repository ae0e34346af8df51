#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

#include "ahead/clip.h"
#include "optim/comparison.h"

namespace ahead::test {
namespace clip_test {

Tensors gradients_of(const Tensors& parameters) {
  Tensors gradients;
  for (const at::Tensor& parameter : parameters) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  return gradients;
}

Tensors make_parameters() {
  Tensors parameters;
  for (int64_t size = 1; size < 5; ++size)
    parameters.push_back(at::randn({size, 3}).set_requires_grad(true));
  return parameters;
}

TEST(Clip, NormsAreLibTorchs) {
  for (const double type : {2.0, 1.0, 3.5, 0.0, std::numeric_limits<double>::infinity()}) {
    for (const double most : {0.01, 1.0, 100.0}) {
      torch::manual_seed(2);
      const Tensors ours = make_parameters(), theirs = copies_of(ours);
      give_gradients(ours, theirs);
      ours[1].mutable_grad() = theirs[1].mutable_grad() = at::Tensor();
      const auto version = ours[0].grad()._version();
      const at::Tensor norm = clip_grad_norm_(ours, most, type);
      EXPECT_EQ(norm.item<double>(), torch::nn::utils::clip_grad_norm_(theirs, most, type));
      EXPECT_EQ(ours[0].grad()._version(), version);
      expect_equal(gradients_of(ours), gradients_of(theirs));
    }
  }
}

TEST(Clip, OneParameterOrNone) {
  torch::manual_seed(2);
  const at::Tensor ours = at::randn({4}).set_requires_grad(true), theirs = copies_of({ours})[0];
  EXPECT_EQ(clip_grad_norm_(ours, 1.0).item<double>(), 0);
  EXPECT_EQ(clip_grad_norm_(Tensors(), 1.0).item<double>(), 0);
  give_gradients({ours}, {theirs});
  EXPECT_EQ(clip_grad_norm_(ours, 0.1).item<double>(),
            torch::nn::utils::clip_grad_norm_(theirs, 0.1));
  EXPECT_TRUE(at::equal(ours.grad(), theirs.grad()));
  clip_grad_value_(ours, 0.02);
  torch::nn::utils::clip_grad_value_(theirs, 0.02);
  EXPECT_TRUE(at::equal(ours.grad(), theirs.grad()));
}

TEST(Clip, WhatIsNotFiniteStaysSo) {
  const at::Tensor weight = at::ones({2}).set_requires_grad(true);
  weight.mutable_grad() = at::full({2}, INFINITY);
  EXPECT_TRUE(std::isinf(clip_grad_norm_(weight, 1.0).item<double>()));
  EXPECT_TRUE(weight.grad().isnan().all().item<bool>());
}

}  // namespace clip_test
}  // namespace ahead::test
