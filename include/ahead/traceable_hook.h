#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "ahead/export.h"

namespace ahead {

/// Registers a hook on the gradient of a tensor, as `tensor.register_hook` does: it is called when
/// the gradient is there, and what it returns takes its place, unless that is undefined.
///
/// Compiled autograd calls other hooks between graphs, in each backward. This one may be traced: it
/// is called when a graph is captured, and what it computes becomes part of that graph. So it has
/// to do the same each time, with operators on its argument only, and nothing else. Where it uses
/// other tensors, its node runs as in eager.
///
/// Returns the position to be given to `tensor.remove_hook`. A hook that is registered anew for
/// each backward makes each of them another one, to be captured again.
AHEAD_API unsigned register_traceable_hook(const at::Tensor& tensor,
                                           std::function<at::Tensor(const at::Tensor&)> hook);

}  // namespace ahead
