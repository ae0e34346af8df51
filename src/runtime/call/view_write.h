#pragma once

#include <ATen/core/Tensor.h>

namespace ahead::runtime {

/// Gives a view new contents that have a gradient, and the history that eager's in-place operators
/// would give it: the gradient by the contents takes the place of the gradient by the view, to the
/// signs of zeros. Grad mode has to be on.
void write_to_view(const at::Tensor& view, const at::Tensor& contents);

}  // namespace ahead::runtime
