#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

/// The few ways in which shape rules make their results. None of them goes through the dispatcher.
namespace ahead::ops::shapes {

/// A meta tensor with exactly these strides.
inline at::Tensor make_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                               at::ScalarType dtype) {
  return at::Tensor(at::detail::empty_strided_meta(sizes, strides, dtype));
}

/// A contiguous meta tensor, or one in the given memory format.
inline at::Tensor make(at::IntArrayRef sizes, at::ScalarType dtype,
                       at::MemoryFormat format = at::MemoryFormat::Contiguous) {
  return at::Tensor(at::detail::empty_meta(sizes, dtype, format));
}

/// A meta tensor laid out as at::empty_like does: the same strides if self is dense and does not
/// overlap, else in the order of its strides, packed. (Pointwise results: see pointwise.h.)
at::Tensor make_like(const at::Tensor& self, at::ScalarType dtype);
inline at::Tensor make_like(const at::Tensor& self) {
  return make_like(self, self.scalar_type());
}

/// The dtype in which reductions over `dtype` accumulate: float for the 16-bit types.
at::ScalarType accumulate_type(at::ScalarType dtype);

}  // namespace ahead::ops::shapes
