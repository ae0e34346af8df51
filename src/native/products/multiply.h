#pragma once

#include <ATen/core/Tensor.h>

#include "native/products/choose_products.h"

namespace ahead::native {

/// out = left · right, for each matrix of a batch; large float32 matrices by `multiplier`.
void multiply_batches(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right,
                      Multiplier multiplier);

}  // namespace ahead::native
