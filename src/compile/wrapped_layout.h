#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "ahead/tree_spec.h"
#include "subclass/bridge.h"

/// How the arguments of calls with wrappers (ahead/subclass.h) are made of plain tensors.
namespace ahead::detail {

/// How each argument of a call is made; a tensor that is passed twice is made once.
class WrappedLayout {
 public:
  explicit WrappedLayout(const std::vector<at::Tensor>& outer);
  /// Whether arguments are made in this way.
  bool holds(const std::vector<at::Tensor>& outer) const;

  const std::vector<std::shared_ptr<const subclass::Exchange>>& exchanges() const {
    return exchanges_;
  }
  /// The first argument that is the same tensor as this one.
  size_t first_of(size_t argument) const { return first_[argument]; }
  /// Whether traces work on another tensor in place of this argument: a wrapper put together, or
  /// one through which gradients are led.
  bool is_remade(size_t argument) const {
    return requires_grad_[argument] || !exchanges_[argument]->tensor.is_plain();
  }
  /// Whether the argument is a wrapper that is a view, as autograd knows it.
  bool is_view(size_t argument) const { return is_view_[argument]; }
  /// Lets the gradient of an argument be made in another way.
  void set_gradient(size_t argument, subclass::Recipe gradient);

  /// The plain tensors of all arguments, and where those of each begin.
  struct Apart {
    std::vector<at::Tensor> plain;
    std::vector<size_t> begins;
  };
  Apart take_apart(const std::vector<at::Tensor>& outer) const;

 private:
  std::vector<std::shared_ptr<const subclass::Exchange>> exchanges_;
  std::vector<size_t> first_;
  std::vector<bool> requires_grad_, is_view_;
};

/// Whether one of them is a wrapper.
bool has_wrappers(const std::vector<at::Tensor>& tensors);
/// Arguments with the plain tensors inside of wrappers in their place, without history.
FlatTree with_plain_leaves(const FlatTree& inputs);

}  // namespace ahead::detail
