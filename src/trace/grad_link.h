#pragma once

#include "trace/lifted.h"

/// How the autograd graph of a trace hangs on that of the world outside.
namespace ahead::tracing {

/// Gives the wrapper of a real tensor that requires grad its place in the autograd graph of the
/// trace: sets the link and its node. The wrapper of a view of something computed becomes a view
/// too. A leaf `is_own` if it is not to share the real one's accumulator; one with hooks never
/// does.
void link_gradient(Lifted& lifted, bool is_own);

/// Lays a path from a tensor from outside to another one that it was computed from, so that
/// differentiating by that one does not pass the first by. Nothing if the other one has been
/// written to since.
void tie_to_origin(const Lifted& made, const Lifted& origin);

}  // namespace ahead::tracing
