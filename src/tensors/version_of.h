#pragma once

#include <ATen/core/Tensor.h>

namespace ahead {

/// How often a tensor was written to; of inference tensors, which do not count, 0.
inline uint32_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : static_cast<uint32_t>(tensor._version());
}

}  // namespace ahead
