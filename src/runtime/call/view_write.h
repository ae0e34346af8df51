#pragma once

#include <ATen/core/Tensor.h>

namespace ahead::runtime {

/// Copies contents that require grad into a view, and gives the view the history that eager's
/// in-place operators would: the gradient of the contents takes the place of that of the view, down
/// to the signs of zeros. Grad mode has to be on.
void write_to_view(const at::Tensor& view, const at::Tensor& contents);

}  // namespace ahead::runtime
