#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace ahead::observe {

/// A gradient hook that user code registered, with what it captured, as it was then. Tensors that
/// belong to the call are left out, so that they are not kept: each call has others.
class HookClosure {
 public:
  using Function = std::function<at::TensorBase(const at::TensorBase&)>;

  /// `variable_of` tells which variable of the call a tensor is, by its address; -1: none.
  HookClosure(const Function& hook, const std::function<int32_t(const void*)>& variable_of);

  /// The variables that it captured, in order; one may be there several times.
  std::vector<int32_t> variables() const;
  /// Whether it captured a tensor from outside by value, as far as its address tells.
  bool holds(const void* tensor) const;
  /// The hook of a call in which these are the variables that it captured.
  Function function(const std::vector<at::Tensor>& variables) const;
  /// Whether it is the same code with the same values captured, byte by byte. Never true where the
  /// standard library does not tell.
  bool is_same(const HookClosure& other) const;

 private:
  struct Handle {
    size_t offset;
    int32_t variable;
  };

  Function function_;
  std::vector<Handle> handles_;
};

}  // namespace ahead::observe
