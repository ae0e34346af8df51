#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "tensors/map_tensors.h"
#include "tensors/wrapper_impl.h"

namespace ahead::tensors {

/// Whether a wrapper is among the arguments of an operator.
inline bool has_wrapper(c10::ArrayRef<c10::IValue> arguments) {
  if (!are_wrappers_in_use()) return false;
  bool found = false;
  for (const c10::IValue& argument : arguments)
    tracing::for_each_tensor(argument,
                             [&](const at::Tensor& tensor) { found |= is_wrapper(tensor); });
  return found;
}

/// While it exists, operators skip functionalisation, which has to happen to the tensors inside of
/// wrappers instead: those that a wrapper's operator calls, until Resumed.
class SuspendedFunctionalization {
 public:
  SuspendedFunctionalization();
  ~SuspendedFunctionalization();
  SuspendedFunctionalization(const SuspendedFunctionalization&) = delete;
  SuspendedFunctionalization& operator=(const SuspendedFunctionalization&) = delete;

  /// Whether it is in effect on this thread.
  static bool is_active();

 private:
  c10::impl::ExcludeDispatchKeyGuard guard_{c10::DispatchKey::Functionalize};
  bool before_;
};

/// While it exists, functionalisation is in effect again.
class ResumedFunctionalization {
 public:
  /// `inside_wrapper`: so are tracing and versions, but not autograd: a class calls operators.
  explicit ResumedFunctionalization(bool inside_wrapper);
  ~ResumedFunctionalization();
  ResumedFunctionalization(const ResumedFunctionalization&) = delete;
  ResumedFunctionalization& operator=(const ResumedFunctionalization&) = delete;

 private:
  c10::impl::LocalDispatchKeySet before_;
  bool was_suspended_;
};

/// Lets the class of a wrapper among the arguments do what an operator does, and gives the results
/// the identity and the storage that the operator's schema says. Throws Unsupported if no class
/// can.
void call_wrapper(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace ahead::tensors
