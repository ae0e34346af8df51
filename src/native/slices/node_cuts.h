#pragma once

#include <optional>
#include <vector>

#include "ahead/graph.h"
#include "native/slices/slices.h"

namespace ahead::native {

/// How the tensors of one node are cut so that it does with each slice what it does with all.
struct NodeCuts {
  std::vector<Cut> arguments;  ///< by position; of no meaning for what is no tensor
  Cut result;
  int64_t common;            ///< slices must have a divisor of so many matrices
  bool takes_sizes = false;  ///< its second argument is the sizes of the result
};

/// The cuts of a node over a batch of so many matrices; nothing if it mixes them, or if nobody
/// knows.
std::optional<NodeCuts> cuts_of(const Node& node, int64_t batch);

}  // namespace ahead::native
