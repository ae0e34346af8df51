#include "models/same.h"

#include <ATen/ops/abs.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/max.h>

#include <algorithm>

namespace models {

bool same(const at::Tensor& a, const at::Tensor& b, double tolerance) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (a.sizes() != b.sizes() || a.dtype() != b.dtype()) return false;
  if (a.numel() == 0) return true;
  const double largest = b.detach().abs().max().item().toDouble();
  return at::allclose(a.detach(), b.detach(), 0, tolerance * std::max(largest, 1.0));
}

bool same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b, double tolerance) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(),
      [&](const at::Tensor& one, const at::Tensor& other) { return same(one, other, tolerance); });
}

}  // namespace models
