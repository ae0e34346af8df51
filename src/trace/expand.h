#pragma once

#include <torch/library.h>

namespace ahead::tracing {

/// Replaces LibTorch's functionalisation of `expand` while tracing, which rounds what is written
/// through it: where nothing is made larger, an expand is a `view`, and is recorded as one.
void register_expand(torch::Library& functionalize);

}  // namespace ahead::tracing
