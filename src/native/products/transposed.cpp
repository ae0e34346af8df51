#include "native/products/transposed.h"

#include <utility>

namespace ahead::native {

Value* transposed(Graph& graph, Value* matrix, Node* before) {
  static const Operator* const transpose = Operator::find("aten.t");
  const Node* producer = matrix->producer();
  if (producer != nullptr && &producer->op() == transpose) return producer->args()[0].value();
  TensorMeta meta = matrix->meta;
  std::swap(meta.sizes[0], meta.sizes[1]);
  std::swap(meta.strides[0], meta.strides[1]);
  meta.requires_grad = false;
  Node* node = graph.add_node(*transpose, {matrix}, before);
  node->belong_to(*before);
  return graph.add_return(node, std::move(meta));
}

}  // namespace ahead::native
