#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

/// Steps of optimizers of both libraries, side by side.
namespace ahead::test {

using Tensors = std::vector<at::Tensor>;

/// The distance between what two optimizers made of a parameter, in units of eps of max(|p|, lr).
inline double distance(const at::Tensor& a, const at::Tensor& b, double rate) {
  if (a.numel() == 0) return 0;
  const double eps = a.scalar_type() == at::kDouble     ? 0x1p-52
                     : a.scalar_type() == at::kFloat    ? 0x1p-23
                     : a.scalar_type() == at::kBFloat16 ? 0x1p-7
                                                        : 0x1p-10;
  const at::Tensor x = a.detach().to(at::kDouble), y = b.detach().to(at::kDouble);
  return ((x - y).abs() / y.abs().clamp_min(rate)).max().item<double>() / eps;
}

/// Expects parameters to be as near as `steps` steps with fused kernels leave them.
inline void expect_near(const Tensors& ours, const Tensors& theirs, double rate, int steps) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    ASSERT_EQ(ours[i].sizes(), theirs[i].sizes());
    EXPECT_LE(distance(ours[i], theirs[i], rate), 4.0 * steps) << "parameter " << i;
  }
}

inline void expect_equal(const Tensors& ours, const Tensors& theirs) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t i = 0; i < ours.size(); ++i)
    EXPECT_TRUE(at::equal(ours[i], theirs[i])) << "parameter " << i;
}

/// The same values in other leaves.
inline Tensors copies_of(const Tensors& parameters) {
  Tensors copies;
  for (const at::Tensor& parameter : parameters)
    copies.push_back(parameter.detach().clone().set_requires_grad(true));
  return copies;
}

/// Gives both the same random gradients.
inline void give_gradients(const Tensors& a, const Tensors& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (!a[i].defined()) continue;
    a[i].mutable_grad() = at::randn_like(a[i].detach());
    b[i].mutable_grad() = a[i].grad().clone();
  }
}

/// What an optimizer saves, as the other one would read it.
template <class Optimizer>
std::string archive_of(const Optimizer& optimizer) {
  std::ostringstream stream;
  torch::save(optimizer, stream);
  return stream.str();
}

}  // namespace ahead::test
