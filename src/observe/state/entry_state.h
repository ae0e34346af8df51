#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "base/libtorch.h"
#include "observe/tape/tape.h"

namespace torch::autograd {
struct AutogradMeta;
struct DifferentiableViewMeta;
}  // namespace torch::autograd

namespace ahead::observe {

/// The history, `.grad` and layout that a tensor from outside had when user code met it first.
class EntryState {
 public:
  /// The state of now, but for `.grad`, which the code may have changed before.
  EntryState(const at::Tensor& tensor, const at::Tensor& grad);
  /// The same, for a `.grad` that may be gone: then `shell_of_grad` takes its place.
  EntryState(const at::Tensor& tensor, WeakTensor grad, at::Tensor shell_of_grad);

  const WeakTensor& tensor() const { return tensor_; }
  /// Gives the tensor this state. A storage without memory takes the place of one that is gone. A
  /// tensor that is still the same is not touched: other threads may use it meanwhile.
  void enter();
  /// Gives the tensor the state back that it had before enter().
  void leave();

 private:
  bool is_unchanged(const at::Tensor& tensor) const;
  bool lies_as_it_did(const at::Tensor& tensor) const;
  /// Exchanges this state and that of the tensor.
  void exchange(const at::Tensor& tensor);

  WeakTensor tensor_;
  WeakTensor grad_;
  at::Tensor shell_of_grad_;
  NodePtr history_;
  uint32_t output_nr_ = 0;
  uint32_t attr_version_ = 0;
  bool requires_grad_ = false;
  bool is_view_ = false;
  c10::weak_intrusive_ptr<c10::StorageImpl> storage_{c10::intrusive_ptr<c10::StorageImpl>()};
  size_t nbytes_ = 0;
  std::vector<int64_t> sizes_, strides_;
  int64_t offset_ = 0;
  // Between enter() and leave(): the tensor's `.grad` and storage after the call.
  bool is_exchanged_ = false;
  at::Tensor grad_at_end_;
  c10::Storage storage_at_end_;

  void exchange_layout(const at::Tensor& tensor);
};

/// For a scope, gives tensors from outside the state that they had when the call began, so that the
/// call can be traced when it is over.
class AtEntry {
 public:
  explicit AtEntry(std::vector<EntryState>& states);
  ~AtEntry();
  AtEntry(const AtEntry&) = delete;
  AtEntry& operator=(const AtEntry&) = delete;

 private:
  std::vector<EntryState>& states_;
};

/// The autograd meta data of a tensor; null if it has none. Nothing is made or brought up to date.
torch::autograd::AutogradMeta* peek_meta(const at::Tensor& tensor);
/// The same for a tensor that autograd knows as a view; null for others.
torch::autograd::DifferentiableViewMeta* view_meta(const at::Tensor& tensor);
/// The grad_fn of a tensor as it is noted there; that of a view is not brought up to date.
torch::autograd::Node* peek_history(const at::Tensor& tensor);
/// The `.grad` of a tensor; null if it has none.
c10::TensorImpl* peek_grad(const at::Tensor& tensor);
/// How many hooks of the user's a tensor has.
size_t count_hooks(const at::Tensor& tensor);
at::Tensor lock(const WeakTensor& tensor);
/// A tensor with the metadata of another one and no memory.
at::Tensor shell_of(const at::Tensor& tensor);

}  // namespace ahead::observe
