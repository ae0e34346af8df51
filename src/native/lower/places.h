#pragma once

#include <optional>

#include "native/lower/rule.h"

namespace ahead::native {

/// Where a tensor of these sizes lies in a space that it is broadcast to; nothing if it cannot be.
std::optional<Work::Place> broadcast_place(const Dims& sizes,
                                           const c10::SmallVectorImpl<int64_t>& space);

/// A work over the dimensions of a tensor, in which all tensor arguments are broadcast to it. It
/// has no results yet.
std::optional<Work> work_over(const Node& node, const TensorMeta& meta);

/// The place of a tensor that has all dimensions of the space but those in `gone`, which it lacks,
/// or has with one element if `kept`.
Work::Place place_without(size_t num_dims, uint32_t gone, bool kept);

/// The dimensions that a list of numbers (or none: all) names, as bits; counted from the end where
/// negative.
uint32_t dims_in(const Argument& argument, size_t num_dims);

}  // namespace ahead::native
