#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace ahead::tracing {

/// Over which dimension prod multiplies.
struct ProdDimension {
  int64_t dim;
  bool keepdim;
};

/// Gives a result of prod, over one dimension or over all, the gradient that eager would compute
/// for it: by division where no element is zero. LibTorch never divides tensors without data.
/// Results without history stay as they are.
void follow_prod_gradient(const at::Tensor& result, std::optional<ProdDimension> over);

}  // namespace ahead::tracing
