#pragma once

#include <cstddef>

#include "ahead/graph.h"

namespace ahead::passes {

/// Takes away operands that a call does not read, given its other arguments, so that a partitioner
/// does not save them: the running statistics of batch normalisation in training. Returns the
/// number of calls that changed.
size_t forget_unread_operands(Graph& graph);

}  // namespace ahead::passes
