#pragma once

#include <ATen/core/Tensor.h>

namespace ahead {

/// Whether two strided tensors have an element's memory in common. Exact for tensors of moderate
/// size; for large ones that interleave the answer may be a wrong yes.
bool overlap(const at::Tensor& a, const at::Tensor& b);

}  // namespace ahead
