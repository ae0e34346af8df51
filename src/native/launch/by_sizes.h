#pragma once

#include <functional>

#include "ahead/executable.h"

namespace ahead::native {

/// An executable for a graph that is given sizes (Slot::Kind::Sizes): for each choice of sizes it
/// runs what `compile` makes of the graph at these sizes, and keeps what was used last. Kernels
/// take sizes as arguments, so that other sizes rarely need others.
aot::Executable by_sizes(const Graph& graph,
                         std::function<aot::Executable(const Graph& at_sizes)> compile);

}  // namespace ahead::native
