#pragma once

#include "ahead/graph.h"

namespace ahead::engine {

/// `ahead.accumulate_grad(variable, grad, new)`: what the `.grad` of a leaf becomes that is `grad`
/// now, or none, when `new` is added. The variable tells the layout. By LibTorch's own rules: `new`
/// is taken as it is where nobody else holds it, outside of grad mode; in grad mode the result has
/// a history. What is undefined adds nothing.
const Operator& accumulate_grad();

/// `ahead.accumulate_grad_(variable, grad, new)`: adds to `grad` in place.
const Operator& accumulate_grad_in_place();

/// `ahead.retain_grad(gradient, step, input)`: tells a tensor with retain_grad() its gradient,
/// which flows into that input of the node of that step of the backward that runs.
const Operator& retain_grad();

/// `ahead.call_hook(what, step, gradients)`: user code is called at that step of a backward, with
/// these gradients, and returns others. It stands for a call between two graphs that run; by itself
/// it cannot run, since what is called belongs to one backward.
const Operator& call_hook();

}  // namespace ahead::engine
