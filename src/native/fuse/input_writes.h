#pragma once

#include <vector>

#include "ahead/graph.h"
#include "native/groups.h"

namespace ahead::native {

/// Lets operators that write to inputs in place return the new contents instead, and copies these
/// to the inputs behind them, so that kernels can compute them with others.
///
///     _, %4 = aten.add_.Tensor(%0, %3, -0.1)   ──►   %4 = aten.add.Tensor(%0, %3, -0.1)
///                                                    aten.copy_(%0, %4)
void write_by_copies(Graph& graph);

/// Lets operators of a fused graph write in place again that no kernel computes with others.
void write_in_place(Graph& fused);

/// Finds out which results of kernels are copied to inputs that the kernels may write to at once:
/// see Group::targets.
void find_targets(const Graph& fused, std::vector<Group>& groups);

}  // namespace ahead::native
