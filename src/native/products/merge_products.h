#pragma once

#include "ahead/graph.h"

namespace ahead::native {

/// Makes one large product of matrices of many small ones, which libraries multiply faster: a sum
/// of products becomes the product of their operands, put side by side, and products with one right
/// operand become the product of their left operands, put one below the other. Loops over time
/// have both. Returns how many products are gone.
size_t merge_products(Graph& graph);

}  // namespace ahead::native
