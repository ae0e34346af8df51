#pragma once

#include <torch/library.h>

#include "trace/eager/departures.h"

namespace ahead::tracing {

/// Registers functionalisation kernels for operators that write to lists of tensors any of which
/// may be empty, such as `_fused_adam_` without amsgrad. LibTorch's own refuse empty lists.
void register_list_mutations(torch::Library& functionalize);

/// One for each operator that register_list_mutations() registers.
Departures list_mutation_departures();

}  // namespace ahead::tracing
