#pragma once

#include "runtime/call/call_plan.h"
#include "trace/joint_trace.h"

namespace ahead::compiling {

/// What surrounds the forward graph in a call.
struct CallFrame {
  runtime::Prologue prologue;
  runtime::Epilogue epilogue;
  /// For each result that is made by the call, its sizes; empty for others.
  std::vector<Dims> result_sizes = {};
};

/// Decides, from the facts of a trace that was begun in the grad mode there is now, what surrounds
/// its graph. Throws Unsupported where a result cannot be made again outside the graph.
CallFrame frame_of(const tracing::JointTrace& trace);

}  // namespace ahead::compiling
