#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include "trace/dispatch/traced_op.h"

namespace ahead::tracing {

/// Records one call of an operator that is called as one (OpFacts::is_whole), on traced tensors.
/// Its kernel does not run.
void record_whole(TracedOp& op, torch::jit::Stack& stack);

/// Teaches functionalisation an operator that writes to its arguments and that LibTorch's own
/// functionalisation refuses: operators outside `aten`, and a few forgotten ones inside. The
/// operator then runs on clones of the arguments it writes to, whose new contents are copied back.
/// Does nothing for other operators and for those that have a kernel of their own.
void ensure_functionalizable(TracedOp& op);

}  // namespace ahead::tracing
