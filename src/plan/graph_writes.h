#pragma once

#include <cstddef>
#include <vector>

#include "ahead/graph.h"
#include "runtime/call/call_plan.h"

namespace ahead::compiling {

/// Lets a forward graph write new contents to its inputs itself (`aten.copy_`), where
/// that makes no difference to the caller; the output MutatedInput is undefined then. `inputs` are
/// the tensors that the call passes. Returns the number of writes that the graph does now.
size_t write_in_graph(Graph& forward, std::vector<runtime::Epilogue::Write>& writes,
                      const runtime::BackwardPlan& backward, const std::vector<at::Tensor>& inputs);

}  // namespace ahead::compiling
