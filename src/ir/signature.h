#pragma once

#include <ATen/core/function_schema.h>

#include <string>

#include "ahead/graph.h"

/// Whether a node's arguments and results are those its operator has. Problems are told in words
/// that follow the operator's name; an empty text means that all is well.
namespace ahead {

/// Looks at one argument: a value or a number where a tensor is due, a list where tensors are due,
/// else a constant of the argument's type.
std::string argument_problem(const c10::Argument& expected, const Argument& argument);

/// Looks at the number and the kind of the node's arguments.
std::string arguments_problem(const Node& node);

/// The arguments that the operator writes to according to its schema. A node of such an operator
/// owns the tensors it writes to: it has, after the operator's returns, one more result for each,
/// which is that argument afterwards.
c10::SmallVector<size_t, 2> written_arguments(const Operator& op);

/// Looks at the number of results, at which of them are lists, and that only tensors are values.
std::string results_problem(const Node& node);

}  // namespace ahead
