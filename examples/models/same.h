#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace models {

/// Whether two tensors have the same numbers, but for this share of the largest one, or of 1:
/// kernels round otherwise than eager's operators do (docs/accuracy.md).
bool same(const at::Tensor& a, const at::Tensor& b, double tolerance = 1e-5);
/// Whether that is so for all pairs. Undefined tensors are the same as each other.
bool same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b,
          double tolerance = 1e-5);

}  // namespace models
