#pragma once

#include <torch/library.h>

namespace ahead::tracing {

/// Registers functionalisation kernels for operators that write to arguments although their schema
/// does not say so: batch normalisation updates its running statistics.
void register_hidden_mutations(torch::Library& functionalize);

}  // namespace ahead::tracing
