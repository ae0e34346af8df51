#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ahead/graph.h"
#include "runtime/call/call_plan.h"

namespace ahead::compiling {

/// Throws Unsupported if the forward looks with as_strided beyond an input that it writes to, and
/// that is a view with a gradient: in eager the result has the history of the base then, whose
/// gradient the graph does not return. `inputs` are those of the graph.
void check_strided_views(const Graph& graph, const std::vector<runtime::Epilogue::Write>& writes,
                         const std::vector<at::Tensor>& inputs);

}  // namespace ahead::compiling
