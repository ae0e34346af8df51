#pragma once

#include <vector>

#include "ahead/graph.h"

namespace ahead::compiling {

/// The backward graph for operators that are called one by one, on tangents of whatever layout:
/// what was a view of a tangent by chance is a reshape, and what reads memory finds it as in the
/// trace.
Graph for_any_tangent_layout(const Graph& backward);

/// The backward graph for tangents of another layout than it was traced for: what its operators
/// give, and how they round, may depend on strides. One description for each Tangent, in order.
/// Throws Unsupported if there is no such graph.
Graph with_tangent_layouts(const Graph& backward, const std::vector<TensorMeta>& tangents);

}  // namespace ahead::compiling
