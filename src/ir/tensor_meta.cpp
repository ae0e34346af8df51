#include "ir/tensor_meta.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <numeric>

namespace ahead {

TensorMeta::Dims contiguous_strides(const TensorMeta::Dims& sizes) {
  TensorMeta::Dims strides(sizes.size());
  uint64_t stride = 1;  // unsigned: absurd sizes in a text must not overflow
  for (size_t dim = sizes.size(); dim-- > 0;) {
    strides[dim] = static_cast<int64_t>(stride);
    stride *= static_cast<uint64_t>(std::max<int64_t>(sizes[dim], 1));
  }
  return strides;
}

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

int64_t TensorMeta::numel() const {
  int64_t count = 1;
  for (int64_t size : sizes) count *= size;
  return count;
}

bool TensorMeta::is_contiguous() const {
  if (numel() == 0) return true;
  int64_t expected = 1;
  for (size_t dim = sizes.size(); dim-- > 0;) {
    if (sizes[dim] != 1 && strides[dim] != expected) return false;
    expected *= sizes[dim];
  }
  return true;
}

bool TensorMeta::operator==(const TensorMeta& other) const {
  return dtype == other.dtype && device == other.device && sizes == other.sizes &&
         strides == other.strides && offset == other.offset && requires_grad == other.requires_grad;
}

}  // namespace ahead
