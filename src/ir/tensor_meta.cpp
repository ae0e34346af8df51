#include "ir/tensor_meta.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <numeric>

namespace ahead {

TensorMeta::Dims contiguous_strides(const TensorMeta::Dims& sizes) {
  TensorMeta::Dims strides(sizes.size(), 1);
  Dim stride = 1;
  for (size_t dim = sizes.size(); dim-- > 0;) {
    strides[dim] = stride;
    // Sizes that change are taken not to be 0: their graphs are for such sizes only.
    if (!sizes[dim].is_fixed() || sizes[dim].fixed() > 1) stride = stride * sizes[dim];
  }
  return strides;
}

namespace {

Fill fill_of_fixed(at::IntArrayRef sizes, at::IntArrayRef strides) {
  std::vector<size_t> dims(sizes.size());
  std::iota(dims.begin(), dims.end(), size_t{0});
  std::sort(dims.begin(), dims.end(), [&](size_t a, size_t b) { return strides[a] < strides[b]; });
  Fill fill = Fill::Dense;
  int64_t past_end = 1;
  for (size_t dim : dims) {
    if (sizes[dim] == 1) continue;
    if (strides[dim] < past_end) return Fill::Overlaps;
    if (strides[dim] > past_end) fill = Fill::Gaps;
    past_end = strides[dim] * sizes[dim];
  }
  return fill;
}

}  // namespace

// Without order among strides: elements lie without gaps if each dimension begins where the ones
// inside it end.
Fill fill_of(const TensorMeta& meta) {
  if (meta.is_fixed()) return fill_of_fixed(meta.sizes, meta.strides);
  std::vector<bool> is_placed(meta.sizes.size());
  Dim past_end = 1;
  for (size_t placed = 0; placed < meta.sizes.size(); ++placed) {
    size_t next = 0;
    while (next < meta.sizes.size() &&
           (is_placed[next] || (meta.sizes[next] != 1 && meta.strides[next] != past_end)))
      ++next;
    if (next == meta.sizes.size()) {
      const bool repeats =
          std::find(meta.strides.begin(), meta.strides.end(), Dim(0)) != meta.strides.end();
      return repeats ? Fill::Overlaps : Fill::Gaps;
    }
    is_placed[next] = true;
    past_end = past_end * meta.sizes[next];
  }
  return Fill::Dense;
}

TensorMeta TensorMeta::of(const at::Tensor& tensor) {
  TensorMeta meta;
  meta.dtype = tensor.scalar_type();
  meta.device = tensor.device();
  meta.sizes = tensor.sizes();
  meta.strides = tensor.strides();
  meta.offset = tensor.storage_offset();
  meta.requires_grad = tensor.requires_grad();
  return meta;
}

TensorMeta TensorMeta::contiguous(at::IntArrayRef sizes, at::ScalarType dtype, at::Device device) {
  TensorMeta meta;
  meta.dtype = dtype;
  meta.device = device;
  meta.sizes = sizes;
  meta.strides = contiguous_strides(meta.sizes);
  return meta;
}

Dim TensorMeta::numel() const {
  Dim count = 1;
  for (const Dim& size : sizes) count = count * size;
  return count;
}

bool TensorMeta::is_contiguous() const {
  if (numel() == 0) return true;
  Dim expected = 1;
  for (size_t dim = sizes.size(); dim-- > 0;) {
    if (sizes[dim] != 1 && strides[dim] != expected) return false;
    expected = expected * sizes[dim];
  }
  return true;
}

bool TensorMeta::operator==(const TensorMeta& other) const {
  return dtype == other.dtype && device == other.device && sizes == other.sizes &&
         strides == other.strides && offset == other.offset && requires_grad == other.requires_grad;
}

bool lies_like(const at::Tensor& tensor, const TensorMeta& meta) {
  for (size_t i = 0; i < meta.sizes.size(); ++i) {
    const auto dim = static_cast<int64_t>(i);
    if (tensor.size(dim) > 1 && tensor.stride(dim) != meta.strides[i]) return false;
  }
  return true;
}

}  // namespace ahead
