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

/// Computes equal calls once. Random and effectful calls are never equal, nor is memory that nobody
/// wrote; 1 and 1.0 differ. A backward node may be merged into a forward one, which a partitioner
/// then saves or computes again, but not the reverse.
AHEAD_API size_t eliminate_common_subexpressions(Graph& graph);

/// Turns tensors full of one number into that number, where the operator that takes them gives the
/// same bits, and drops arithmetic that gives its operand back (x * 1, x / 1, x - 0). What fills a
/// tensor like another one of known sizes does so without that one.
AHEAD_API size_t fold_constants(Graph& graph);

/// Drops views that change nothing, alone or taken together (expand to the same sizes, transpose
/// twice, detach), makes equal views once, shortens chains, and drops copies nobody can tell from
/// their originals.
AHEAD_API size_t clean_views(Graph& graph);

/// Where a graph writes to an input itself (`aten.copy_`), lets the operators that make the new
/// contents from the old ones work in place, if nothing else reads the old ones afterwards.
AHEAD_API size_t reinplace_mutations(Graph& graph);

/// Lets a graph that writes to an input itself (`aten.copy_`) do so as soon as the new contents are
/// made and nothing reads the old ones any more, so that the new ones do not live until its end.
AHEAD_API size_t write_inputs_early(Graph& graph);

/// Puts the nodes of sub-graphs in place of the calls (`ahead.call`) that run them.
AHEAD_API size_t inline_calls(Graph& graph);

/// Puts, for every operator in the table, what its function does in place of each call. Functions
/// may call operators that are in the table; an operator inside its own decomposition is left as it
/// is. Results are those of the functions, laid out as the operator's, and are new memory where the
/// operator's are. Calls that depend on sizes which change stay as they are. Throws UserError if a
/// function returns other shapes or dtypes.
AHEAD_API size_t decompose(Graph& graph, const DecompositionTable& table);

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
