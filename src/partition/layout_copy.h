#pragma once

#include "ahead/graph.h"

namespace ahead::partition {

/// Adds nodes at the end that copy a value into memory of its own, with the same sizes and, unless
/// elements of it overlap, the same strides.
Value* add_layout_copy(Graph& graph, Value* value);

}  // namespace ahead::partition
