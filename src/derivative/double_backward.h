#pragma once

#include <memory>
#include <string>

#include "ahead/detail/compiled_core.h"
#include "ahead/partition.h"
#include "runtime/call/call_plan.h"
#include "trace/joint_trace.h"

namespace ahead::compiling {

/// The gradient of a compiled function as a function of its inputs and tangents, compiled like any
/// other function once somebody asks for it; so there are derivatives of every order.
///
/// It runs the forward part of the joint graph again, under autograd. What was random is taken from
/// the first run. Where that would give another gradient, throws Unsupported; with
/// Options::fullgraph only once somebody asks for it.
std::shared_ptr<runtime::DifferentiableBackward> make_double_backward(
    const JointGraph& joint, const PartitionedGraphs& graphs, const tracing::JointTrace& trace,
    const runtime::Epilogue& epilogue, const Options& options, const detail::Compilers& compilers);

}  // namespace ahead::compiling
