#pragma once

#include "ahead/graph.h"

namespace ahead::native {

/// Where all that is wanted of a large result of pointwise operators are separate slices of it
/// (`select`, `slice`), which others read in loops, computes each slice of slices of the operands,
/// with those others. The slice of a `stack` or `cat` is one of its operands. What slices an
/// intermediate then reads it in registers. Returns how many large results are gone.
size_t slice_operands(Graph& graph);

}  // namespace ahead::native
