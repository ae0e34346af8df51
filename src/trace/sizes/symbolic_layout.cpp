#include "trace/sizes/symbolic_layout.h"

#include <algorithm>
#include <numeric>

#include "ir/sizes/sized_constants.h"

namespace ahead::tracing {
namespace {

bool is_fixed_size(const c10::SymInt& size) {
  return size.maybe_as_int().has_value();
}

Dims to_dims(const std::vector<c10::SymInt>& integers) {
  Dims dims;
  for (const c10::SymInt& integer : integers) dims.push_back(to_dim(integer));
  return dims;
}

}  // namespace

SymbolicLayout SymbolicLayout::of(const at::Tensor& tensor) {
  return {tensor.sym_sizes().vec(), tensor.sym_strides().vec(), tensor.sym_storage_offset()};
}

SymbolicLayout SymbolicLayout::contiguous(std::vector<c10::SymInt> sizes) {
  SymbolicLayout layout{std::move(sizes), {}, 0};
  layout.strides.resize(layout.sizes.size(), 1);
  for (size_t i = layout.sizes.size(); i-- > 1;) {
    const c10::SymInt& size = layout.sizes[i];
    layout.strides[i - 1] = layout.strides[i] * (is_fixed_size(size) ? size.max(1) : size);
  }
  return layout;
}

SymbolicLayout SymbolicLayout::ordered_like(std::vector<c10::SymInt> sizes,
                                            const at::Tensor& like) {
  SymbolicLayout layout{std::move(sizes), {}, 0};
  layout.strides.resize(layout.sizes.size(), 1);
  const std::vector<size_t> order = dimensions_in_memory(like);
  c10::SymInt stride = 1;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    const c10::SymInt& size = layout.sizes[*dim];
    TORCH_CHECK(is_fixed_size(size) || size != 1, "a size that may change is one");
    layout.strides[*dim] = stride;
    stride = stride * (is_fixed_size(size) ? size.max(1) : size);
  }
  return layout;
}

bool SymbolicLayout::is_fixed() const {
  return std::all_of(sizes.begin(), sizes.end(), is_fixed_size) &&
         std::all_of(strides.begin(), strides.end(), is_fixed_size) && is_fixed_size(offset);
}

void SymbolicLayout::describe(TensorMeta& meta) const {
  if (is_fixed()) return;
  meta.sizes = to_dims(sizes);
  meta.strides = to_dims(strides);
  meta.offset = to_dim(offset);
}

bool SymbolicLayout::describes(const at::Tensor& tensor) const {
  if (sizes.size() != static_cast<size_t>(tensor.dim()) || peek(offset) != tensor.storage_offset())
    return false;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto dim = static_cast<int64_t>(i);
    if (peek(sizes[i]) != tensor.size(dim)) return false;
    // How far apart the elements of a dimension with one are does not matter.
    if (tensor.size(dim) > 1 && peek(strides[i]) != tensor.stride(dim)) return false;
  }
  return true;
}

std::vector<size_t> dimensions_in_memory(const at::Tensor& tensor) {
  std::vector<size_t> order(static_cast<size_t>(tensor.dim()));
  std::iota(order.begin(), order.end(), size_t{0});
  const c10::SymIntArrayRef strides = tensor.sym_strides();
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return peek(strides[a]) > peek(strides[b]); });
  return order;
}

}  // namespace ahead::tracing
