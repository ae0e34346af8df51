#pragma once

#include <ATen/core/stack.h>

#include "trace/traced_op.h"
#include "trace/tracer.h"

namespace ahead::tracing {

/// Functionalisation tries every in-place operator on plain meta tensors, to hear whether it
/// accepts the shapes, before it calls the out-of-place twin. True if this is such a call.
bool is_in_place_trial(const TracedOp& op, const torch::jit::Stack& stack);

/// Answers such a call, also for operators that cannot run on meta tensors, and lets the tracer
/// know that the twin comes next.
void try_in_place(TracedOp& op, Tracer* tracer, torch::jit::Stack& stack);

/// `bernoulli_` fills a tensor in the order of its memory, its twin in the order of its dimensions.
/// If the call on the stack is the twin standing in for `bernoulli_`, calls it on the permuted
/// tensor and returns true.
bool draw_in_memory_order(const TracedOp& op, torch::jit::Stack& stack);

}  // namespace ahead::tracing
