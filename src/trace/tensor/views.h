#pragma once

#include <ATen/core/Tensor.h>

namespace ahead::tracing {

/// Has autograd recover a view of a traced tensor as it does in eager, by its layout, when the
/// tensor has been written to. LibTorch would replay the operators that made the view, which gives
/// gradients another layout and other roundings.
void recover_by_layout(const at::Tensor& view);

/// Whether its sizes or strides may change from run to run.
bool is_symbolic(const at::Tensor& tensor);

/// The first position in memory behind the last element.
int64_t end_of(const at::Tensor& tensor);

}  // namespace ahead::tracing
