#pragma once

#include <torch/library.h>

#include "trace/eager/departures.h"

namespace ahead::tracing {

/// Registers functionalisation kernels for operators that write to arguments although their schema
/// does not say so: batch normalisation updates its running statistics.
void register_hidden_mutations(torch::Library& functionalize);

/// One for each operator that register_hidden_mutations() registers.
Departures hidden_mutation_departures();

}  // namespace ahead::tracing
