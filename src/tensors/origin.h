#pragma once

#include <ATen/core/Tensor.h>

namespace ahead::tracing {

/// Notes that a differentiable view, made just now in a trace, was computed outside from `origin`,
/// another tensor of the trace, which no autograd node of the trace shows. Differentiating the view
/// with respect to the origin is refused.
void note_origin(const at::Tensor& view, const at::Tensor& origin);

/// Refuses the gradient with respect to an origin.
[[noreturn]] void throw_for_origin();

}  // namespace ahead::tracing
