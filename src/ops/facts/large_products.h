#pragma once

#include "ahead/graph.h"

namespace ahead::ops {

/// Whether the node multiplies batches of thin matrices on the CPU, as attention does with queries
/// and keys: the products are larger than what they are made of, and than caches.
inline bool is_large_product(const Node& node) {
  constexpr int64_t large = int64_t{4} << 20;
  static const Operator* const batched = Operator::find("aten.bmm");
  if (&node.op() != batched || node.result() == nullptr) return false;
  const TensorMeta &product = node.result()->meta, &left = node.args()[0].value()->meta,
                   &right = node.args()[1].value()->meta;
  if (!product.is_fixed() || !left.is_fixed() || !right.is_fixed() || !product.device.is_cpu())
    return false;
  const int64_t elements = product.numel().fixed();
  const int64_t operands = left.numel().fixed() + right.numel().fixed();
  const auto bytes = elements * static_cast<int64_t>(c10::elementSize(product.dtype));
  return product.sizes[0].fixed() > 1 && bytes >= large && 2 * elements > 3 * operands;
}

}  // namespace ahead::ops
