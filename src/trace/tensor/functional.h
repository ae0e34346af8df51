#pragma once

#include <ATen/FunctionalStorageImpl.h>
#include <ATen/FunctionalTensorWrapper.h>

namespace ahead::tracing {

/// The wrapper that a traced tensor is.
inline at::FunctionalTensorWrapper& functional_wrapper(const at::Tensor& traced) {
  return *at::functionalization::impl::unsafeGetFunctionalWrapper(traced);
}

/// The memory of a traced tensor, which views of it share.
inline at::functionalization::FunctionalStorageImpl* functional_memory(const at::Tensor& traced) {
  return static_cast<at::functionalization::FunctionalStorageImpl*>(
      traced.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
}

/// Makes every access to the memory of a traced tensor throw rather than return null. LibTorch
/// itself refuses typed access to memory that was never allocated; this refuses the rest but
/// untyped reading, which LibTorch needs to know the device.
inline void seal_storage(const at::Tensor& traced) {
  functional_memory(traced)->set_throw_on_mutable_data_ptr();
}

}  // namespace ahead::tracing
