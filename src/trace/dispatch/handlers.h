#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace ahead::tracing {

/// The boxed fallback above everything: lifts tensors from outside into the trace.
void handle_lift(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                 torch::jit::Stack* stack);

/// The boxed fallback below autograd and functionalisation: infers shapes and records the call.
void handle_fake(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                 torch::jit::Stack* stack);

}  // namespace ahead::tracing
