#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace ahead::engine {

/// Calls `ahead::accumulate_grad`: adds a gradient to the `.grad` of the leaf whose step in the
/// running backward this is. In a trace it becomes a node with that effect.
void accumulate_grad(const at::Tensor& gradient, int64_t step);

}  // namespace ahead::engine
