#pragma once

#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "trace/joint_trace.h"
#include "trace/open_trace.h"

namespace ahead::tracing {

/// What a traced function returned and did to the tensors from outside, before its gradient is
/// traced. Graph inputs are known by their values, since their positions may still change.
struct FunctionMeta {
  /// Whether results that share memory were told apart; else every result is a graph output.
  bool is_sorted = false;
  std::vector<ResultFacts> results;
  std::unordered_map<const Value*, InputFacts> inputs;
  /// For each result, the graph input that it is or views; null: none.
  std::vector<const Value*> result_inputs;
  /// Graph inputs to which set_() gave other memory. Each has one more of `results`, at their end.
  std::vector<const Value*> reset_inputs;
  /// Results that are leaves made inside.
  std::unordered_set<const c10::TensorImpl*> returned_leaves;
  /// A graph output through which a gradient flows.
  struct Differentiable {
    at::Tensor output;
    int32_t position;
  };
  std::vector<Differentiable> differentiable;
  /// The tangents are ones that the graph makes itself, rather than inputs of it.
  bool has_implicit_tangents = false;
  /// How often each tensor from outside had been written to.
  std::vector<uint64_t> mutation_counts;
  /// Grad mode as the function left it.
  bool grad_mode_after = true;
};

/// Sorts the results of a function by what they share memory with, and adds the outputs that a
/// compiled function needs to its graph.
FunctionMeta analyse(OpenTrace& open);

/// Makes every result of a function an output of its graph.
FunctionMeta list_results(OpenTrace& open);

/// Throws AliasedWrite if the function has written to a tensor from outside that shares its memory
/// with another one: such tensors are traced as if they did not.
void check_no_aliased_writes(const Outside& outside);

}  // namespace ahead::tracing
