#pragma once

#include "ahead/graph.h"
#include "ops/facts/facts.h"

namespace ahead::ops {

/// Whether the node may write to its operands, as its schema says or not. Of what is no operator of
/// the dispatcher's, such as a call of a graph, nothing is known.
inline bool may_write(const Node& node) {
  if (!node.op().in_dispatcher()) return true;
  const OpFacts& known = facts(node.op());
  return !known.writes.empty() || !known.hidden_writes.empty();
}

}  // namespace ahead::ops
