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
/// Whether the node must run exactly once, and in order with all other ordered nodes.
bool is_ordered(const Node& node);
/// Whether the node gives a graph input new contents when the backward ends.
bool is_backward_write(const Node& node);
/// Whether the node reads the storage of its operand beyond the operand's elements, so that a copy
/// of the operand would not do.
bool reads_storage(const Node& node);
/// Whether the result of the node, one of a backward, depends on the strides of its first operand,
/// which must then be those of the trace.
bool reads_by_layout(const Node& node);
/// The value that this one is a view of, or may be, by one node; null if there is none.
Value* viewed_by(const Value* value);
/// The value at the end of a chain of viewed_by().
Value* root_of(Value* value);
/// Whether the results are memory that nobody has written to.
bool is_uninitialised(const Node& node);
/// Whether a random operator takes its first argument for its shape only.
bool fills_first_argument(const Operator& op);
/// Whether the results are memory that nobody has written to, and that is only filled with random
/// numbers whose state is named (see random/random_form.h): other memory would do as well.
bool is_only_filled(const Node& node);

}  // namespace ahead::ops
