#include "ops/facts/sparse_values.h"

namespace ahead::ops {

bool makes_sparse(const Node& node) {
  static const Operator* const make =
      Operator::find("aten._sparse_coo_tensor_with_dims_and_tensors");
  return &node.op() == make;
}

SparseValues::SparseValues(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    bool is_sparse = makes_sparse(node);
    if (!is_sparse && !is_any_) continue;
    node.for_each_operand([&](const Value* value) { is_sparse |= contains(value); });
    if (!is_sparse) continue;
    is_any_ = true;
    is_sparse_.resize(graph.value_capacity());
    for (const Value* result : node.results()) {
      if (result != nullptr) is_sparse_[result->id()] = true;
    }
  }
}

}  // namespace ahead::ops
