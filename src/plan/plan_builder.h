#pragma once

#include <memory>
#include <string>

#include "ahead/partition.h"
#include "runtime/call/call_plan.h"
#include "trace/capture.h"

namespace ahead::compiling {

/// Decides what happens on a call of a captured function: everything but the programs themselves,
/// which the pipeline puts in. Throws Unsupported where a result cannot be made again outside the
/// graph.
runtime::CallPlan plan_call(const tracing::Capture& capture);

/// Copies saved inputs whose version a call raises without giving them other contents: the next
/// call would, as it seems, overwrite them.
void copy_raised_inputs(PartitionedGraphs& graphs, const runtime::CallPlan& plan);

/// Adds to the plan how the backward gets what it needs. Saved values that the caller has anyway
/// are removed from the forward graph's outputs.
void plan_backward(runtime::CallPlan& plan, PartitionedGraphs& graphs);

/// Notes which inputs only some of the differentiable outputs lead to. To be called after
/// plan_backward.
void find_partly_reached(runtime::CallPlan& plan, const tracing::Capture& capture);

}  // namespace ahead::compiling
