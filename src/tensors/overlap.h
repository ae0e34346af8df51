#pragma once

#include <ATen/core/Tensor.h>

namespace ahead {

/// Whether two strided tensors have an element's memory in common. Exact for tensors of moderate
/// size; of large ones that are interleaved it may say yes wrongly.
bool overlap(const at::Tensor& a, const at::Tensor& b);

}  // namespace ahead
