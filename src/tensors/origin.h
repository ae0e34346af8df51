#pragma once

#include <ATen/core/Tensor.h>

namespace ahead::tracing {

/// Says that outside a differentiable view, made just now in a trace, was made of another tensor of
/// the trace, which the trace does not show. To differentiate it by that one is refused.
void note_origin(const at::Tensor& view, const at::Tensor& origin);

[[noreturn]] void throw_for_origin();

}  // namespace ahead::tracing
