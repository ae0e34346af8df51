#include "ops/facts/sparse_values.h"

namespace ahead::ops {

bool makes_sparse(const Operator& op) {
  static const Operator* const of_parts =
      Operator::find("aten._sparse_coo_tensor_with_dims_and_tensors");
  static const Operator* const of_gradient = Operator::find("ahead.padded_rows");
  return &op == of_parts || &op == of_gradient;
}

SparseValues::SparseValues(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    bool is_sparse = makes_sparse(node.op());
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
