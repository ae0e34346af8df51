#pragma once

#include <optional>
#include <unordered_set>
#include <vector>

#include "ahead/graph.h"

namespace ahead::native {

using NodeSet = std::unordered_set<const Node*>;

/// A graph in which some operators are computed again, or later than they were.
struct LateGraph {
  Graph graph;
  /// The copies of operators, each before the first that reads it. They are to be in one kernel
  /// with what reads them, not with what makes their operands.
  NodeSet late;
};

/// Lets kernels compute what they need of another kernel's operands, where that kernel would write
/// more for them than what it reads of these: until they run, its operands are kept instead of its
/// results. What a backward computes again then lies in memory step by step rather than at once.
/// Each operator that is computed twice is about as cheap as reading its result. `groups`: which
/// nodes of the graph become kernels together; `late`: those that are late already. Nothing if
/// there is nothing to gain.
std::optional<LateGraph> compute_late(const Graph& graph,
                                      const std::vector<std::vector<const Node*>>& groups,
                                      const NodeSet& late = {});

}  // namespace ahead::native
