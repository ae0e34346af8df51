#pragma once

#include "ahead/graph.h"

namespace ahead {

/// Adds nodes before `before`, or at the end, that copy a value into memory of its own, with the
/// same sizes and, unless elements of it overlap, the same strides.
Value* add_layout_copy(Graph& graph, Value* value, Node* before = nullptr);

/// The same with the strides of `layout`, whose sizes and dtype must be those of the value.
Value* add_layout_copy(Graph& graph, Value* value, const TensorMeta& layout,
                       Node* before = nullptr);

/// The same for a value that may arrive in a run with other strides than the graph says.
Value* add_copy_into(Graph& graph, Value* value, const TensorMeta& layout, Node* before = nullptr);

}  // namespace ahead
