#pragma once

#include <vector>

#include "ahead/graph.h"

/// What the facts about an operator mean for one call of it.
namespace ahead::ops {

/// Whether a call with these arguments draws random numbers.
bool draws_random(const Operator& op, const std::vector<Argument>& args);

/// Whether the node, or one in its sub-graph, draws random numbers.
bool is_random(const Node& node);
/// Whether the node, or one in its sub-graph, does more than compute its results.
bool has_effect(const Node& node);
/// Whether the node must run exactly once, and in order with all others of which this holds.
bool is_ordered(const Node& node);
/// Whether the node reaches around its operand into the storage: another tensor with the same
/// elements would not do.
bool reads_storage(const Node& node);
/// Whether the node of a backward takes the memory of its first operand as it lies, so that it must
/// lie as it did in the trace.
bool reads_by_layout(const Node& node);
/// The value that this one is a view of, in one step; null if it is none.
Value* viewed_by(const Value* value);
/// The value that views lead back to.
Value* root_of(Value* value);
/// Whether the results are memory that nobody has written to.
bool is_uninitialised(const Node& node);

}  // namespace ahead::ops
