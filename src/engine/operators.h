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

}  // namespace ahead::engine
