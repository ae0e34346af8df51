#include "ir/sizes/layout.h"

#include <ATen/core/Tensor.h>

#include "ir/sizes/expression_node.h"
#include "ir/tensor_meta.h"

namespace ahead {

Layout Layout::of(const at::Tensor& tensor) {
  return {to_dims(tensor.sym_sizes()), to_dims(tensor.sym_strides()),
          to_dim(tensor.sym_storage_offset())};
}

Layout Layout::contiguous(Dims sizes) {
  Layout layout{std::move(sizes), {}, 0};
  layout.strides = contiguous_strides(layout.sizes);
  return layout;
}

bool Layout::describes(const at::Tensor& tensor, c10::ArrayRef<int64_t> values) const {
  if (sizes.size() != static_cast<size_t>(tensor.dim()) ||
      offset.at(values) != tensor.storage_offset())
    return false;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto dim = static_cast<int64_t>(i);
    if (sizes[i].at(values) != tensor.size(dim)) return false;
    if (tensor.size(dim) > 1 && strides[i].at(values) != tensor.stride(dim)) return false;
  }
  return true;
}

void Layout::describe(TensorMeta& meta) const {
  meta.sizes = sizes;
  meta.strides = strides;
  meta.offset = offset;
}

Dim to_dim(const c10::SymInt& integer) {
  if (const auto known = integer.maybe_as_int()) return *known;
  const SizeNode* node = SizeNode::in(integer);
  TORCH_CHECK(node != nullptr, "a symbolic size of somebody else");
  return Dim::of(node->expression());
}

Dims to_dims(c10::ArrayRef<c10::SymInt> integers) {
  Dims dims;
  for (const c10::SymInt& integer : integers) dims.push_back(to_dim(integer));
  return dims;
}

c10::SymInt to_sym_int(Dim dim, const std::shared_ptr<SizeGuards>& guards) {
  return dim.is_fixed() ? c10::SymInt(dim.fixed()) : SizeNode::make(dim.expression(), guards);
}

std::vector<c10::SymInt> to_sym_ints(const Dims& dims, const std::shared_ptr<SizeGuards>& guards) {
  std::vector<c10::SymInt> integers;
  for (const Dim& dim : dims) integers.push_back(to_sym_int(dim, guards));
  return integers;
}

}  // namespace ahead
