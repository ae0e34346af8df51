#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>

namespace ahead::observe {

/// The most bytes of a tensor made by the host that are compared between calls.
constexpr size_t most_compared_bytes = size_t{1} << 20;

/// The most bytes of a tensor from outside that the first call already copies: it may be a number.
constexpr size_t most_constant_bytes = 64;

/// Whether a tensor is strided and has a storage, so that place_of() can be asked.
bool has_place(const at::Tensor& tensor);
/// A hash of the tensor's offset, dtype, sizes and strides: where in its storage it lies.
uint64_t place_of(const at::Tensor& tensor);

/// Whether a tensor requires grad by a flag of its own, rather than by its grad_fn.
bool has_flag(const at::Tensor& tensor);

/// A copy that neither the recorder nor autograd notices.
at::Tensor copy_of(const at::Tensor& tensor);

}  // namespace ahead::observe
