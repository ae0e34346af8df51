#pragma once

#include <functional>

#include "ahead/executable.h"

namespace ahead::native {

/// Makes an executable of a graph at some sizes; `count` others were made before.
using CompileAtSizes = std::function<aot::Executable(const Graph& at_sizes, size_t count)>;

/// An executable for a graph that is given sizes (Slot::Kind::Sizes): for each choice of sizes it
/// runs what `compile` makes of the graph at these sizes, and keeps what was used last. Kernels
/// take sizes as arguments, so that other sizes rarely need others.
aot::Executable by_sizes(const Graph& graph, CompileAtSizes compile);

}  // namespace ahead::native
