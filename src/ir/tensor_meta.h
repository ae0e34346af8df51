#pragma once

#include "ahead/graph.h"

namespace ahead {

/// The strides of a tensor of these sizes, stored row by row without gaps.
TensorMeta::Dims contiguous_strides(const TensorMeta::Dims& sizes);

}  // namespace ahead
