#pragma once

#include <memory>

#include "ahead/partition.h"
#include "runtime/call/call_plan.h"
#include "trace/differentiable_trace.h"

namespace ahead::compiling {

/// What the derivatives of a function need, whatever its open trace may find: all that its backward
/// saves, and the inputs from which the rest of the forward can be computed.
std::vector<runtime::DifferentiableBackward::Need> open_trace_needs(
    const JointGraph& joint, const PartitionedGraphs& graphs);

/// The backward of a function whose gradient is not that of the operators it calls, as a function
/// that can be differentiated itself, to any order: each derivative that is asked for is read off
/// the autograd graph of the trace and compiled once. `traced` is the graph that the
/// open trace matches, `joint` a copy of it in which operators may have been decomposed.
/// Derivatives are taken under `autocast`; none: under the one there is.
///
/// A derivative is an Unsupported if it would have to run something random or effectful again, or
/// needs an input that was overwritten; neither is so where find_lost() finds nothing. `needs`:
/// open_trace_needs(); if null, those of them that the trace has met.
std::shared_ptr<runtime::DifferentiableBackward> make_open_trace_gradient(
    std::unique_ptr<tracing::DifferentiableTrace> trace, const Graph& traced,
    const JointGraph& joint, const PartitionedGraphs& graphs, const aot::GraphCompiler& compiler,
    const std::optional<AutocastState>& autocast,
    const std::vector<runtime::DifferentiableBackward::Need>* needs = nullptr);

}  // namespace ahead::compiling
