#pragma once

#include <cstddef>

#include "ahead/graph.h"

namespace ahead::native {

/// Prepares products with a short side (lower/small_product.h) for kernels: sums are taken apart
/// from what is added to them, and the short operand is copied where its elements would not lie
/// together along the innermost loop. Returns how many there are.
size_t prepare_small_products(Graph& graph);

}  // namespace ahead::native
