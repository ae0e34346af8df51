#pragma once

#include <cstddef>

#include "ahead/graph.h"

namespace ahead::passes {

/// A run ends where a value that the graph expects (`ahead.expect`) is another one, and the call is
/// made otherwise: nothing may have happened by then. Puts all that the expected values are made of
/// before the first effect; the order of effects stays. Returns the number of effects that it
/// moved. Throws Unsupported if an expected value is made by an effect.
size_t read_values_first(Graph& graph);

}  // namespace ahead::passes
