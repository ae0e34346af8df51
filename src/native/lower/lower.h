#pragma once

#include "ahead/graph.h"
#include "native/loops/kernel.h"

namespace ahead::native {

/// The kernel that computes a graph of operators that share loops: its arguments are the graph's
/// inputs, its results the graph's outputs. Each operation is rounded by itself if it is `strict`.
/// Throws InternalError if they do not share any.
Kernel lower(const Graph& graph, bool strict = false);

}  // namespace ahead::native
