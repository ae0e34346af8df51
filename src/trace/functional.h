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

}  // namespace ahead::tracing
