#pragma once

#include "ahead/graph.h"

namespace ahead::native {

/// The transpose of a matrix; without a node if it is one already, else by one before `before`.
Value* transposed(Graph& graph, Value* matrix, Node* before);

}  // namespace ahead::native
