#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

/// Results of pointwise operators, laid out as LibTorch's TensorIterator lays them out.
namespace ahead::ops::shapes {

using Operands = at::ArrayRef<std::reference_wrapper<const at::Tensor>>;

/// The dtype that a pointwise operator over these operands computes in.
at::ScalarType promoted(Operands operands);

/// The operand as it takes part in a computation in `dtype`: on the CPU, one of another dtype is
/// converted first, and thereby packed.
at::Tensor converted(const at::Tensor& operand, at::ScalarType dtype);

/// A tensor of the operands' sizes broadcast, with strides in the order of the operands' strides.
/// Throws if the sizes do not broadcast.
at::Tensor lay_out(Operands operands, at::ScalarType dtype);

/// The result of a pointwise operator: lay_out of the operands, converted to the common dtype.
at::Tensor make_pointwise(Operands operands, at::ScalarType dtype);
inline at::Tensor make_pointwise(Operands operands) {
  return make_pointwise(operands, promoted(operands));
}
/// The rule of operators with two operands.
inline at::Tensor binary(const at::Tensor& a, const at::Tensor& b) {
  return make_pointwise({a, b});
}

}  // namespace ahead::ops::shapes
