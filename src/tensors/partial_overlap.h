#pragma once

#include <ATen/core/Tensor.h>

namespace ahead::tracing {

/// Whether two views of one storage have an element in common without being the same elements in
/// the same order. Decided from sizes, strides and offsets; yes where that would take too long.
bool overlaps_partly(const at::Tensor& a, const at::Tensor& b);

}  // namespace ahead::tracing
