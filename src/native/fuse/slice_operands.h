#pragma once

#include "native/fuse/compute_late.h"

namespace ahead::native {

/// Where all that is wanted of a large result of pointwise operators are separate slices of it
/// (`select`, `slice`), which others read in loops, computes each slice of slices of the operands,
/// with those others. The slice of a `stack` or `cat` is one of its operands. What slices an
/// intermediate then reads it in registers. Returns the operators that compute slices, which are
/// late (see LateGraph).
NodeSet slice_operands(Graph& graph);

}  // namespace ahead::native
