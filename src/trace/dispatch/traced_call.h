#pragma once

#include <ATen/core/stack.h>

#include "tensors/map_tensors.h"
#include "trace/dispatch/traced_op.h"
#include "trace/tensor/fake_tensor.h"

namespace ahead::tracing {

/// One call of an operator as the topmost handler and the observers see it: before the call its
/// arguments are on the stack, after it its results.
struct TracedCall {
  TracedOp& op;
  torch::jit::Stack& stack;

  size_t first_argument() const { return stack.size() - static_cast<size_t>(op.num_args); }
  size_t first_result() const { return stack.size() - static_cast<size_t>(op.num_returns); }
  c10::ArrayRef<c10::IValue> arguments() const {
    return c10::ArrayRef<c10::IValue>(stack).slice(first_argument());
  }
  c10::ArrayRef<c10::IValue> results() const {
    return c10::ArrayRef<c10::IValue>(stack).slice(first_result());
  }
  c10::IValue& argument(size_t index) const { return stack[first_argument() + index]; }
  /// The first argument; null unless it is a traced tensor.
  const at::Tensor* traced_self() const {
    if (op.num_args == 0 || !argument(0).isTensor()) return nullptr;
    const at::Tensor& self = argument(0).toTensor();
    return is_traced(self) ? &self : nullptr;
  }
};

/// Calls visit(tensor) for every defined tensor in an operator's arguments or results.
template <class Visit>
void for_each_tensor(c10::ArrayRef<c10::IValue> values, Visit&& visit) {
  for (const c10::IValue& value : values) for_each_tensor(value, visit);
}

/// The same for every traced one.
template <class Visit>
void for_each_traced(c10::ArrayRef<c10::IValue> values, Visit&& visit) {
  for_each_tensor(values, [&](const at::Tensor& tensor) {
    if (is_traced(tensor)) visit(tensor);
  });
}

}  // namespace ahead::tracing
