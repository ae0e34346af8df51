#pragma once

#include <string>
#include <vector>

#include "ahead/graph.h"
#include "native/fuse/compute_late.h"
#include "native/switches.h"

namespace ahead::native {

/// A graph in which operators that share loops are together, and why.
struct FusedGraph {
  /// Each group of operators is one call of a sub-graph (`ahead.call`), whose results are new
  /// memory; everything else is as it was. Nodes with effects, random ones and writes stay in
  /// order.
  Graph graph;
  /// A line for each decision, in the order in which they were made.
  std::vector<std::string> decisions;
};

/// Puts operators of a graph together that are better computed by one kernel: each goes to the
/// operators that make its operands, where they can share loops and nothing between them has to
/// wait for both. What the switches say is left to ATen, and if `strict`, what kernels compute
/// otherwise than to its bits. `late`: which nodes are (see LateGraph).
FusedGraph fuse(const Graph& graph, const Switches& switches = {}, bool strict = false,
                const NodeSet& late = {});

}  // namespace ahead::native
