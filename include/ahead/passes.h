#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ahead/export.h"
#include "ahead/graph.h"

namespace ahead {

/// What takes the place of an operator: called with the arguments of one call in the order of the
/// schema, it returns all tensors the operator returns, lists flattened. Tensors are traced, so it
/// must not read their values, and it must not write to them.
using Decomposition =
    std::function<std::vector<at::Tensor>(const std::vector<c10::IValue>& arguments)>;
/// Decompositions by operator name as in the text of a graph, for example `aten.gelu`.
using DecompositionTable = std::unordered_map<std::string, Decomposition>;

/// Rewritings of a graph, joint, forward or backward.
///
/// Each takes a well-formed graph and leaves it well formed, with the same inputs and outputs, the
/// same random numbers drawn, the same effects, and results equal to the bit. What is new memory to
/// the caller stays so: no two outputs, and no input and output, share memory that did not before.
/// Each returns the number of changes it made; 0 means that the graph is as it was. A graph that a
/// pass has left does not change when the pass runs again.
namespace passes {

/// Removes nodes whose results nobody uses, unless they draw random numbers or have effects.
AHEAD_API size_t eliminate_dead_code(Graph& graph);

/// A pass that needs nothing but the graph.
struct Pass {
  std::string_view name;
  size_t (*run)(Graph&);
  std::string_view description;
};

/// All passes that need nothing but the graph, in the order in which they are best run.
AHEAD_API const std::vector<Pass>& all();
/// Runs the pass with this name. Throws UserError, with the names there are, if there is none.
AHEAD_API size_t run_pass(std::string_view name, Graph& graph);

}  // namespace passes
}  // namespace ahead
