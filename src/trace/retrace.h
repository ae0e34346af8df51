#pragma once

#include <vector>

#include "ahead/executable.h"

namespace ahead::tracing {

/// Traces a function once more that does what `graph` does, without gradient, for inputs of another
/// layout: one description for each input of the graph. The new graph has the inputs and outputs of
/// the old one, and writes to inputs when it ends.
Graph retrace(const Graph& graph, const aot::FlatFunction& function,
              const std::vector<TensorMeta>& inputs);

}  // namespace ahead::tracing
