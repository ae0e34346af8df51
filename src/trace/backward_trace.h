#pragma once

#include <torch/csrc/autograd/edge.h>

#include <memory>
#include <optional>

#include "base/autocast.h"
#include "trace/analysis/function_meta.h"
#include "trace/joint_trace.h"
#include "trace/open_trace.h"

namespace ahead::tracing {

/// Traces the gradient of a function, under `autocast` (none: under the autocast there is), if the
/// trace is a joint one, and closes the trace. A tensor that the function stores outside itself is
/// refused.
JointTrace trace_backward(std::unique_ptr<OpenTrace> open, FunctionMeta meta,
                          const std::optional<AutocastState>& autocast = {});

/// Where the gradient of a function begins: at the histories of its outputs that have a tangent, in
/// their order. From here on the graph's nodes are of the backward.
torch::autograd::edge_list begin_backward(OpenTrace& open, FunctionMeta meta);

}  // namespace ahead::tracing
