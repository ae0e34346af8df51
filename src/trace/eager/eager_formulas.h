#pragma once

#include <ATen/core/stack.h>
#include <torch/csrc/autograd/function.h>

#include "trace/dispatch/traced_op.h"
#include "trace/eager/departures.h"

/// Some of LibTorch's gradient formulas read values in eager, and take another path for tensors
/// without data. Where the two differ in the last bit, in layout or in what they refuse, the trace
/// follows eager.
namespace ahead::tracing {

class Tracer;

/// If the call on the stack is part of such a formula, leaves on the stack what eager would compute
/// in its place and returns true.
bool follow_eager_formula(const TracedOp& op, const Tracer& tracer, torch::jit::Stack& stack);

/// Throws Unsupported for a node whose formula throws in eager. A backward() runs it even if it
/// leads to no tensor from outside, which a trace does not.
void check_eager_formula(const torch::autograd::Node& node);

/// One for each autograd node whose formula is followed or checked.
Departures formula_departures();

}  // namespace ahead::tracing
