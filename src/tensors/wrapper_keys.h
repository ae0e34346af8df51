#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>

namespace ahead::tensors {

/// Whether a tensor is a wrapper (ahead/subclass.h). No other tensor has the Fake key and no
/// kernels.
inline bool is_wrapper(const at::Tensor& tensor) {
  const c10::DispatchKeySet keys = tensor.key_set();
  return keys.has(c10::DispatchKey::Fake) && keys.has_backend(c10::BackendComponent::MetaBit) &&
         !keys.has(c10::DispatchKey::Dense);
}

}  // namespace ahead::tensors
