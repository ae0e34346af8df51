#pragma once

#include <ATen/core/stack.h>

#include "trace/dispatch/traced_op.h"
#include "trace/tracer.h"

namespace ahead::tracing {

/// Whether this is LibTorch saying, in one of its two ways, that an operator cannot run on meta
/// tensors.
bool is_missing_meta_kernel(const c10::Error& error);

/// Replaces the operator's arguments on the stack, whose tensors are on the meta device, by its
/// results, likewise: by Ahead's rule, LibTorch's Meta kernel, or the real kernel on zeros.
void infer_results(TracedOp& op, at::Device device, Tracer& tracer, torch::jit::Stack& stack);

}  // namespace ahead::tracing
