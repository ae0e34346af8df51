#include "partition/layout_copy.h"

#include <algorithm>
#include <numeric>

namespace ahead::partition {
namespace {

/// Whether every element has a place of its own and no place is left out.
bool is_dense(const TensorMeta& meta) {
  std::vector<size_t> dims(meta.sizes.size());
  std::iota(dims.begin(), dims.end(), size_t{0});
  std::sort(dims.begin(), dims.end(),
            [&](size_t a, size_t b) { return meta.strides[a] < meta.strides[b]; });
  int64_t expected = 1;
  for (size_t dim : dims) {
    if (meta.sizes[dim] == 1) continue;
    if (meta.strides[dim] != expected) return false;
    expected *= meta.sizes[dim];
  }
  return true;
}

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
  if (is_dense(meta)) return add_call(graph, "aten.clone", {value, none}, meta);
  // clone would close the gaps, and kernels may sum in another order where the strides differ.
  Value* empty = add_call(graph, "aten.empty_strided",
                          {c10::IValue(to_list(meta.sizes)), c10::IValue(to_list(meta.strides)),
                           static_cast<int64_t>(meta.dtype), none, c10::IValue(meta.device), none},
                          meta);
  return add_call(graph, "aten.copy", {empty, value, false}, meta);
}

}  // namespace ahead::partition
