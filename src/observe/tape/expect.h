#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <exception>

namespace ahead::observe {

/// Thrown by a graph when a value that the user's code would read is another one than it was made
/// for. Nothing has been written yet.
class ValueMismatch : public std::exception {
 public:
  const char* what() const noexcept override {
    return "ahead: a value that the function reads is not the one that its graph was made for";
  }
};

/// Calls `ahead::expect`, which throws ValueMismatch unless the one element of a tensor is this
/// number. In a trace it becomes a node with that effect.
void expect(const at::Tensor& value, const c10::Scalar& expected);
/// The same for whether two tensors are equal.
void expect_equal(const at::Tensor& a, const at::Tensor& b, bool expected);
/// The same for the sizes of a tensor that values decide. All that uses the tensor has to come
/// after it.
void expect_sizes(const at::Tensor& sized, at::IntArrayRef expected);

}  // namespace ahead::observe
