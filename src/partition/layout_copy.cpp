#include "partition/layout_copy.h"

#include "ir/tensor_meta.h"

namespace ahead::partition {
namespace {

Value* add_call(Graph& graph, const char* op, std::vector<Argument> args, const TensorMeta& meta) {
  return graph.add_return(graph.add_node(*Operator::find(op), std::move(args)), meta);
}

std::vector<int64_t> to_list(const TensorMeta::Dims& dims) {
  return {dims.begin(), dims.end()};
}

}  // namespace

Value* add_layout_copy(Graph& graph, Value* value) {
  TensorMeta meta = value->meta;
  meta.offset = 0;
  meta.requires_grad = false;
  const c10::IValue none;
  switch (fill_of(meta)) {
    case Fill::Dense:
      return add_call(graph, "aten.clone", {value, none}, meta);
    case Fill::Overlaps:
      meta = TensorMeta::contiguous(meta.sizes, meta.dtype, meta.device);
      return add_call(graph, "aten.clone",
                      {value, static_cast<int64_t>(at::MemoryFormat::Contiguous)}, meta);
    case Fill::Gaps:
      break;
  }
  // clone would close the gaps, and kernels may sum in another order where the strides differ.
  Value* empty = add_call(graph, "aten.empty_strided",
                          {c10::IValue(to_list(meta.sizes)), c10::IValue(to_list(meta.strides)),
                           static_cast<int64_t>(meta.dtype), none, c10::IValue(meta.device), none},
                          meta);
  return add_call(graph, "aten.copy", {empty, value, false}, meta);
}

}  // namespace ahead::partition
