#pragma once

namespace ahead::tracing {

/// Registers Ahead's kernels with the dispatcher when the first trace of the process begins. Throws
/// UserError if another library owns one of the keys.
void ensure_fallbacks_registered();

}  // namespace ahead::tracing
