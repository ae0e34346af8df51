#include "ir/layout_copy.h"

#include "ir/sizes/sized_constants.h"
#include "ir/tensor_meta.h"

namespace ahead {
namespace {

/// Adds calls at one place of a graph.
struct Calls {
  Graph& graph;
  Node* before;

  Value* add(const char* op, std::vector<Argument> args, const TensorMeta& meta) const {
    return graph.add_return(graph.add_node(*Operator::find(op), std::move(args), before), meta);
  }
};

}  // namespace

Value* add_layout_copy(Graph& graph, Value* value, const TensorMeta& layout, Node* before) {
  TensorMeta meta = layout;
  meta.offset = 0;
  meta.requires_grad = false;
  // clone keeps the strides of a dense value and closes the gaps of others; where the strides are
  // not those asked for, kernels may sum in another order.
  if (fill_of(meta) == Fill::Dense && value->meta.strides == meta.strides)
    return Calls{graph, before}.add("aten.clone", {value, c10::IValue()}, meta);
  return add_copy_into(graph, value, layout, before);
}

Value* add_copy_into(Graph& graph, Value* value, const TensorMeta& layout, Node* before) {
  const Calls calls{graph, before};
  const c10::IValue none;
  TensorMeta meta = layout;
  meta.offset = 0;
  meta.requires_grad = false;
  if (fill_of(meta) == Fill::Overlaps) {
    meta.strides = contiguous_strides(meta.sizes);
    return calls.add("aten.clone", {value, static_cast<int64_t>(at::MemoryFormat::Contiguous)},
                     meta);
  }
  Value* empty = calls.add("aten.empty_strided",
                           {to_constant(meta.sizes), to_constant(meta.strides),
                            static_cast<int64_t>(meta.dtype), none, c10::IValue(meta.device), none},
                           meta);
  return calls.add("aten.copy", {empty, value, false}, meta);
}

Value* add_layout_copy(Graph& graph, Value* value, Node* before) {
  return add_layout_copy(graph, value, value->meta, before);
}

}  // namespace ahead
