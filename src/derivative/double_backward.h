#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ahead/detail/compiled_core.h"
#include "ahead/partition.h"
#include "runtime/call/call_plan.h"
#include "trace/joint_trace.h"

namespace ahead::compiling {

/// What the gradient of a compiled function is made of, as a function of its inputs and tangents:
/// the forward part of the joint graph runs again, under autograd. What was random is taken from
/// the first run.
struct BackwardRecipe {
  using Need = runtime::DifferentiableBackward::Need;

  Graph forward;
  std::vector<Need> needs;  ///< what is passed for each input of the graph
  /// For each gradient, its input among those of the graph; -1: the outputs do not depend on it.
  std::vector<int32_t> grad_arguments;
  /// Why it would give another gradient; empty: it does not.
  std::string why_not;
};

/// Where it would give another gradient, throws Unsupported; with Options::fullgraph only once
/// somebody asks for it. The graphs may take sizes.
BackwardRecipe recipe_of(const JointGraph& joint, const PartitionedGraphs& graphs,
                         const tracing::JointTrace& trace, const runtime::Epilogue& epilogue,
                         const Options& options);

/// The gradient, compiled like any other function once somebody asks for it; so there are
/// derivatives of every order. The graph takes no sizes.
std::shared_ptr<runtime::DifferentiableBackward> make_double_backward(
    const BackwardRecipe& recipe, const Options& options, const detail::Compilers& compilers);

}  // namespace ahead::compiling
