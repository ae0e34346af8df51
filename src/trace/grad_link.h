#pragma once

#include "trace/lifted.h"

/// How the autograd graph of a trace is linked to the autograd graph outside.
namespace ahead::tracing {

/// Gives the wrapper of a real tensor that requires grad its place in the autograd graph of the
/// trace: sets the link and its node. The wrapper of a view of something computed becomes a view
/// too. A leaf `is_own` if it is not to share the real leaf's accumulator; a leaf with hooks never
/// shares it.
void link_gradient(Lifted& lifted, bool is_own);

/// Adds an edge from `made` to `origin`, both from outside, where `made` was computed from
/// `origin`, so that a gradient by `origin` includes the paths through `made`. Does nothing if
/// `origin` has been written to since.
void tie_to_origin(const Lifted& made, const Lifted& origin);

}  // namespace ahead::tracing
