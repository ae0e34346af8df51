#pragma once

#include <cstddef>

#include "ahead/graph.h"

namespace ahead::native {

/// Takes batch norms in training apart whose images lie with their channels innermost: into means
/// and sums over all pixels, and what is done to each pixel with those, so that both share loops
/// with their neighbours. Kernels for whole norms need the pixels of a channel together. Returns
/// how many it took apart.
size_t split_norms(Graph& graph);

}  // namespace ahead::native
