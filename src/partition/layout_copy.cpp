#include "partition/layout_copy.h"

#include <algorithm>
#include <numeric>

namespace ahead::partition {
namespace {

enum class Fill { Dense, Gaps, Overlaps };

/// Whether every element has a place of its own, and no place between them is left out.
Fill fill_of(const TensorMeta& meta) {
  std::vector<size_t> dims(meta.sizes.size());
  std::iota(dims.begin(), dims.end(), size_t{0});
  std::sort(dims.begin(), dims.end(),
            [&](size_t a, size_t b) { return meta.strides[a] < meta.strides[b]; });
  Fill fill = Fill::Dense;
  int64_t past_end = 1;
  for (size_t dim : dims) {
    if (meta.sizes[dim] == 1) continue;
    if (meta.strides[dim] < past_end) return Fill::Overlaps;
    if (meta.strides[dim] > past_end) fill = Fill::Gaps;
    past_end = meta.strides[dim] * meta.sizes[dim];
  }
  return fill;
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
