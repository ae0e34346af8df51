#pragma once

#include <vector>

#include "ahead/partition.h"
#include "runtime/call/call_plan.h"
#include "trace/joint_trace.h"

namespace ahead::compiling {

/// Copies saved inputs whose version a call raises without giving them other contents: the next
/// call would, as it seems, overwrite them.
void copy_raised_inputs(PartitionedGraphs& halves,
                        const std::vector<runtime::Epilogue::Write>& writes);

/// Throws Unsupported if an input is saved that a call makes larger: its memory is moved and
/// written to.
void check_grown_unsaved(const PartitionedGraphs& halves,
                         const std::vector<runtime::Epilogue::Reset>& resets);

/// What the autograd node saves and where it leads: all but the programs it runs. Saved values that
/// the caller has anyway are removed from the forward graph's outputs.
runtime::BackwardPlan plan_backward(PartitionedGraphs& halves, const tracing::JointTrace& trace);

}  // namespace ahead::compiling
