#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ahead/export.h"

namespace ahead {

/// Says that this dimension of an argument has other sizes in other calls: the second size is
/// enough to make a program for many, and new ones are observed though they may never come again. A
/// mark says what may change, not that it is trusted. Negative dimensions count from the end.
AHEAD_API void mark_dynamic(const at::Tensor& tensor, int64_t dim);

/// Says that each size of this dimension of an argument is to have a program of its own: it is
/// never taken for one that changes.
AHEAD_API void mark_static(const at::Tensor& tensor, int64_t dim);

/// The dimensions that are marked as changing, in ascending order: by mark_dynamic(), or because
/// the tensor is a result of a program for many sizes that has other sizes there.
AHEAD_API std::vector<int64_t> dynamic_dims(const at::Tensor& tensor);

}  // namespace ahead
