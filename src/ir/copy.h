#pragma once

#include <vector>

#include "ahead/graph.h"

namespace ahead {

/// Where the values of one graph are in another, by Value::id().
using ValueMap = std::vector<Value*>;

/// The argument with every value replaced by what the map has for it.
Argument map_argument(const Argument& argument, const ValueMap& map);

/// Adds a copy of a node of another graph at the end, or before `before`. Its operands are found in
/// the map, and its results are put there.
Node* copy_node(Graph& to, const Node& node, ValueMap& map, Node* before = nullptr);

/// Adds the nodes of a graph before `before`, or at the end, with `operands` for its inputs.
/// Returns the copies of its outputs, null for undefined ones. The copied nodes keep their phase
/// and tags.
std::vector<Value*> inline_graph(Graph& to, const Graph& graph, const std::vector<Value*>& operands,
                                 Node* before = nullptr);

}  // namespace ahead
