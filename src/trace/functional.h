#pragma once

#include <ATen/FunctionalTensorWrapper.h>

namespace ahead::tracing {

/// The wrapper that a traced tensor is.
inline at::FunctionalTensorWrapper& functional_wrapper(const at::Tensor& traced) {
  return *at::functionalization::impl::unsafeGetFunctionalWrapper(traced);
}

}  // namespace ahead::tracing
