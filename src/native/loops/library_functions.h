#pragma once

#include "native/loops/term.h"

namespace ahead::native {

/// Whether strict kernels can call the function of MKL that ATen calls for this operation, and it
/// gives for each number the same bits whatever stands beside it.
bool is_exact_by_library(Op op, Type type);

/// Whether strict kernels call a library for this operation.
bool is_by_library(Op op);

}  // namespace ahead::native
