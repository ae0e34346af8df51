#pragma once

#include <ATen/core/Tensor.h>

#include "ahead/graph.h"

namespace ahead {

/// The strides of a tensor of these sizes, stored row by row without gaps.
TensorMeta::Dims contiguous_strides(const TensorMeta::Dims& sizes);

/// How a tensor's elements lie in its memory: each in a place of its own without gaps between them,
/// with gaps, or several in one place.
enum class Fill : uint8_t { Dense, Gaps, Overlaps };
Fill fill_of(const TensorMeta& meta);

/// Whether a tensor of these sizes has these strides, where there is more than one element.
bool lies_like(const at::Tensor& tensor, const TensorMeta& meta);

}  // namespace ahead
