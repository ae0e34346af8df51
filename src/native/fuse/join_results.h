#pragma once

#include <vector>

#include "ahead/graph.h"

namespace ahead::native {

/// Where all that a `cat` or `stack` takes are results of one of these calls of kernels that nobody
/// else reads, lets the call return the tensor that they make: its sub-graph ends with that
/// operator, and its kernel writes each result where it belongs. Returns how many there were.
size_t join_results(Graph& graph, std::vector<Node*> calls);

/// The part of a joined tensor that an operand is: how it lies there, and where it begins.
struct JoinedPart {
  size_t operand;
  TensorMeta meta;
};
/// The parts of the result of a `cat` or `stack`; none if the node is no such call with operands
/// that lie in the result as in memory of their own, element beside element.
std::vector<JoinedPart> joined_parts(const Node& node);

}  // namespace ahead::native
