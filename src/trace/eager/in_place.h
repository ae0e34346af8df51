#pragma once

#include <ATen/core/stack.h>

#include "trace/dispatch/traced_op.h"
#include "trace/eager/departures.h"
#include "trace/tracer.h"

namespace ahead::tracing {

/// Functionalisation tries every in-place operator on plain meta tensors, to hear whether it
/// accepts the shapes, before it calls the out-of-place twin. True if this is such a call.
bool is_in_place_trial(const TracedOp& op, const torch::jit::Stack& stack);

/// Answers such a call, also for operators that cannot run on meta tensors, and lets the tracer
/// know that the twin comes next.
void try_in_place(TracedOp& op, Tracer* tracer, torch::jit::Stack& stack);

/// In which order, and how many, random numbers are drawn depends on the layout of what is filled;
/// the out-of-place twin of an in-place operator chooses a layout of its own. If the call on the
/// stack is the twin of a random operator and its tensor is not contiguous, records the in-place
/// operator on a new tensor of the same layout and returns true.
bool draw_in_place(const TracedOp& op, torch::jit::Stack& stack);

/// In place, eager multiplies a number by a tensor, and rounds the number to the tensor's type;
/// out of place a tensor by a number, which it does not round. If the call on the stack is the twin
/// of such a product in half precision, records it in eager's order and returns true.
bool multiply_in_place(const TracedOp& op, torch::jit::Stack& stack);

/// Refuses to write complex products and quotients in place where eager's kernels round otherwise
/// than out of place: a compiler makes two versions of them, one for operands that may overlap.
void check_complex_rounding(const TracedOp& op, const at::Tensor& traced,
                            c10::ArrayRef<c10::IValue> arguments);

/// What is done otherwise for in-place operators.
Departures in_place_departures();

}  // namespace ahead::tracing
