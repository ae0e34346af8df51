#pragma once

#include "ahead/executable.h"

namespace ahead::passes {

/// An executable that takes and returns what its caller knows of, made of one for a graph that
/// functionalize_random() has given slots: it reads the default generators before each run and sets
/// them afterwards. The slots are the last inputs and outputs of the graph.
///
/// Runs of such executables wait for each other, so that no two of them draw the same numbers.
aot::Executable with_random_states(aot::Executable executable, const Graph& graph);

}  // namespace ahead::passes
