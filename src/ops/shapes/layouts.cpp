#include "ops/shapes/layouts.h"

#include <algorithm>
#include <numeric>

#include "ir/sizes/sized_constants.h"
#include "ir/tensor_meta.h"
#include "tensors/map_tensors.h"

namespace ahead::ops::shapes {
namespace {

/// The dimensions of a tensor in the order in which they lie in memory, the outermost first.
std::vector<size_t> dimensions_in_memory(const at::Tensor& tensor) {
  std::vector<size_t> order(static_cast<size_t>(tensor.dim()));
  std::iota(order.begin(), order.end(), size_t{0});
  const c10::SymIntArrayRef strides = tensor.sym_strides();
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return peek(strides[a]) > peek(strides[b]); });
  return order;
}

/// Whether it lies row by row for all sizes. How far apart the elements of a dimension with one
/// element are does not matter.
bool is_always_contiguous(const Layout& layout) {
  return layout.strides == contiguous_strides(layout.sizes);
}

/// Without gaps, the dimensions in the order in which they lie in memory in `like`. Sizes are noted
/// not to be one, since then the order would be any; unless it is that in which they are counted.
Layout ordered_like(const LayoutCall& call, Dims sizes, const at::Tensor& like) {
  const std::vector<size_t> order = dimensions_in_memory(like);
  if (std::is_sorted(order.begin(), order.end())) return Layout::contiguous(std::move(sizes));
  Layout layout{std::move(sizes), {}, 0};
  layout.strides.resize(layout.sizes.size(), 1);
  Dim stride = 1;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    const Dim size = layout.sizes[*dim];
    TORCH_CHECK(size.is_fixed() || !call.equal(size, 1), "a size that may change is one");
    layout.strides[*dim] = stride;
    if (size != 0) stride = stride * size;
  }
  return layout;
}

/// Notes that an operand's dimensions lie in this order. True if it has all of them, so that no
/// other order would do.
bool note_order(const LayoutCall& call, const at::Tensor& operand,
                const std::vector<size_t>& order) {
  const Layout layout = Layout::of(operand);
  const size_t added = order.size() - layout.strides.size();
  if (is_always_contiguous(layout) && std::is_sorted(order.begin(), order.end())) return added == 0;
  const Dim* outer = nullptr;
  bool is_decisive = added == 0;
  for (size_t dim : order) {
    if (dim < added) continue;
    const Dim& stride = layout.strides[dim - added];
    if (call.equal(layout.sizes[dim - added], 1) || stride == 0) {
      is_decisive = false;
      continue;
    }
    if (outer != nullptr && call.less(*outer, stride))
      call.refuse("its operands lie in different orders");
    if (outer != nullptr && call.equal(*outer, stride)) is_decisive = false;
    outer = &stride;
  }
  return is_decisive;
}

/// Notes in which order the dimensions of an operand lie, and whether without gaps.
void note_layout(const LayoutCall& call, const at::Tensor& operand) {
  if (!operand.defined() || !operand.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) return;
  const Layout layout = Layout::of(operand);
  if (is_always_contiguous(layout)) return;
  const Dim* outer = nullptr;
  for (size_t dim : dimensions_in_memory(operand)) {
    if (call.equal(layout.sizes[dim], 1)) continue;
    if (outer != nullptr) static_cast<void>(call.less(*outer, layout.strides[dim]));
    outer = &layout.strides[dim];
  }
  static_cast<void>(operand.is_non_overlapping_and_dense());
}

}  // namespace

Dim product_of(const Dims& sizes) {
  Dim product = 1;
  for (const Dim& size : sizes) product = product * size;
  return product;
}

Dims broadcast(const LayoutCall& call, const Dims& a, const Dims& b) {
  Dims result = a.size() < b.size() ? b : a;
  const Dims& other = a.size() < b.size() ? a : b;
  const size_t added = result.size() - other.size();
  for (size_t i = 0; i < other.size(); ++i) {
    Dim& size = result[i + added];
    if (size == other[i] || other[i] == 1) continue;
    if (call.equal(size, 1)) {
      size = other[i];
    } else if (!call.equal(other[i], 1)) {
      TORCH_CHECK(call.equal(size, other[i]), "sizes do not match");
    }
  }
  return result;
}

Layout in_order(const LayoutCall& call, Dims sizes, size_t result) {
  for (const c10::IValue& argument : call.arguments)
    tracing::for_each_tensor(argument,
                             [&](const at::Tensor& operand) { note_layout(call, operand); });
  return ordered_like(call, std::move(sizes), call.results[result]);
}

Layouts pointwise_layout(const LayoutCall& call) {
  Dims sizes;
  for (size_t i = 0; i < call.arguments.size(); ++i)
    if (call.has_tensor(i)) sizes = broadcast(call, sizes, call.sizes(i));
  const std::vector<size_t> order = dimensions_in_memory(call.results[0]);
  // Kernels lay the result out as their first operand lies, as far as that decides; then the next.
  for (size_t i = 0; i < call.arguments.size(); ++i)
    if (call.has_tensor(i) && note_order(call, call.tensor(i), order)) break;
  return {ordered_like(call, std::move(sizes), call.results[0])};
}

Layouts number_layout(const LayoutCall&) {
  return {Layout{}};
}

}  // namespace ahead::ops::shapes
