#pragma once

#include <ATen/core/Tensor.h>

namespace ahead::tracing {

/// `ahead.padded_rows`: the sparse gradient that an embedding gives a table of so many rows, where
/// one row is padding and gets none. Values decide how many there are, so that graphs cannot have
/// them as a value of their own.
at::Tensor padded_rows(const at::Tensor& gradient, const at::Tensor& indices, c10::SymInt rows,
                       c10::SymInt padding);

}  // namespace ahead::tracing
