#pragma once

#include <ATen/core/TensorBase.h>

#include <functional>

namespace ahead::observe {

/// A gradient hook that user code registered, with what it captured, as it was then.
class HookClosure {
 public:
  using Function = std::function<at::TensorBase(const at::TensorBase&)>;

  explicit HookClosure(const Function& hook);

  /// A hook to be registered: it may change what it captured by value.
  const Function& function() const { return function_; }
  /// Whether it is the same code with the same values captured, byte by byte. Never true where the
  /// standard library does not tell.
  bool is_same(const HookClosure& other) const;

 private:
  Function function_;
};

}  // namespace ahead::observe
