#include "observe/state/entry_state.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "tensors/wrapper_keys.h"

namespace ahead::observe {
namespace {

namespace impl = torch::autograd::impl;

/// A storage of this size without memory, whose elements must not be touched.
c10::Storage storage_without_memory(size_t nbytes, at::Device device) {
  return {c10::Storage::use_byte_size_t(), nbytes, c10::DataPtr(nullptr, device),
          /*allocator=*/nullptr, /*resizable=*/false};
}

WeakTensor weak_tensor(const at::Tensor& tensor) {
  return WeakTensor(tensor.getIntrusivePtr());
}

}  // namespace

torch::autograd::DifferentiableViewMeta* view_meta(const at::Tensor& tensor) {
  auto* meta = impl::get_view_autograd_meta(tensor);
  return meta != nullptr && meta->has_bw_view() ? meta : nullptr;
}

torch::autograd::AutogradMeta* peek_meta(const at::Tensor& tensor) {
  return impl::get_autograd_meta(tensor);
}

torch::autograd::Node* peek_history(const at::Tensor& tensor) {
  const auto* meta = peek_meta(tensor);
  return meta == nullptr ? nullptr : meta->grad_fn_.get();
}

c10::TensorImpl* peek_grad(const at::Tensor& tensor) {
  const auto* meta = peek_meta(tensor);
  return meta == nullptr || !meta->grad_.defined() ? nullptr : meta->grad_.unsafeGetTensorImpl();
}

size_t count_hooks(const at::Tensor& tensor) {
  const auto* meta = peek_meta(tensor);
  if (meta == nullptr || meta->cpp_hooks_list_ == nullptr) return 0;
  const auto& hooks = *meta->cpp_hooks_list_;
  return static_cast<size_t>(
      std::count_if(hooks.begin(), hooks.end(), [](const auto& hook) { return hook != nullptr; }));
}

at::Tensor lock(const WeakTensor& tensor) {
  auto held = tensor.lock();
  return held ? at::Tensor(std::move(held)) : at::Tensor();
}

at::Tensor shell_of(const at::Tensor& tensor) {
  const c10::DispatchKeySet keys = tensors::is_wrapper(tensor)
                                       ? c10::DispatchKeySet(tensor.options().computeDispatchKey())
                                       : tensor.key_set();
  auto shell = c10::make_intrusive<c10::TensorImpl>(
      storage_without_memory(tensor.storage().nbytes(), tensor.device()), keys, tensor.dtype());
  shell->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  return at::Tensor(std::move(shell));
}

EntryState::EntryState(const at::Tensor& tensor, const at::Tensor& grad)
    : EntryState(tensor, weak_tensor(grad), at::Tensor()) {}

EntryState::EntryState(const at::Tensor& tensor, WeakTensor grad, at::Tensor shell_of_grad)
    : tensor_(weak_tensor(tensor)),
      grad_(std::move(grad)),
      shell_of_grad_(std::move(shell_of_grad)) {
  if (const auto* meta = peek_meta(tensor)) {
    history_ = meta->grad_fn_;
    output_nr_ = meta->output_nr_;
    requires_grad_ = meta->requires_grad_;
  }
  if (const auto* view = view_meta(tensor)) {
    is_view_ = true;
    attr_version_ = view->get_attr_version();
  }
  if (!tensor.has_storage()) return;
  storage_ = tensor.storage().getWeakStorageImpl();
  nbytes_ = tensor.storage().nbytes();
  sizes_ = tensor.sizes().vec();
  strides_ = tensor.strides().vec();
  offset_ = tensor.storage_offset();
}

void EntryState::enter() {
  const at::Tensor tensor = lock(tensor_);
  if (tensor.defined() && !is_unchanged(tensor)) exchange(tensor);
}

void EntryState::leave() {
  const at::Tensor tensor = lock(tensor_);
  if (tensor.defined() && is_exchanged_) exchange(tensor);
}

bool EntryState::is_unchanged(const at::Tensor& tensor) const {
  const auto* meta = peek_meta(tensor);
  const at::Tensor grad = lock(grad_);
  const c10::TensorImpl* had = grad.defined() ? grad.unsafeGetTensorImpl() : nullptr;
  if (meta == nullptr) {
    if (history_ || requires_grad_ || had != nullptr || shell_of_grad_.defined()) return false;
  } else {
    const c10::TensorImpl* has =
        meta->grad_.defined() ? meta->grad_.unsafeGetTensorImpl() : nullptr;
    if (meta->grad_fn_ != history_ || meta->output_nr_ != output_nr_ ||
        meta->requires_grad_ != requires_grad_ || has != had ||
        (had == nullptr && shell_of_grad_.defined()))
      return false;
  }
  const auto* view = view_meta(tensor);
  if (view != nullptr && view->get_attr_version() != static_cast<uint32_t>(tensor._version()))
    return false;
  if (!tensor.has_storage()) return true;
  const bool has_same_memory =
      tensor.storage().unsafeGetStorageImpl() == storage_._unsafe_get_target();
  return has_same_memory && lies_as_it_did(tensor);
}

bool EntryState::lies_as_it_did(const at::Tensor& tensor) const {
  return tensor.sizes() == at::IntArrayRef(sizes_) &&
         tensor.strides() == at::IntArrayRef(strides_) && tensor.storage_offset() == offset_;
}

void EntryState::exchange(const at::Tensor& tensor) {
  const bool had_meta =
      history_ || requires_grad_ || grad_.use_count() != 0 || shell_of_grad_.defined();
  if (peek_meta(tensor) != nullptr || had_meta) {
    auto* meta = impl::materialize_autograd_meta(tensor);
    std::swap(meta->grad_fn_, history_);
    std::swap(meta->output_nr_, output_nr_);
    std::swap(meta->requires_grad_, requires_grad_);
    at::Tensor grad = lock(grad_);
    if (!grad.defined() && !is_exchanged_) grad = shell_of_grad_;
    grad_ = weak_tensor(meta->grad_);
    grad_at_end_ = std::exchange(meta->grad_, std::move(grad));
    if (auto* view = view_meta(tensor); view != nullptr && is_view_) {
      const uint32_t now = view->get_attr_version();
      // So that autograd does not make its grad_fn anew.
      view->set_attr_version(is_exchanged_ ? attr_version_
                                           : static_cast<uint32_t>(tensor._version()));
      attr_version_ = now;
    }
  }
  is_exchanged_ = !is_exchanged_;
  exchange_layout(tensor);
}

void EntryState::exchange_layout(const at::Tensor& tensor) {
  if (!tensor.has_storage()) return;
  c10::TensorImpl& tensor_impl = *tensor.unsafeGetTensorImpl();
  auto memory = c10::Storage(tensor.storage());
  if (memory.unsafeGetStorageImpl() != storage_._unsafe_get_target()) {
    auto before = storage_.lock();
    c10::Storage other =
        before ? c10::Storage(std::move(before)) : storage_without_memory(nbytes_, tensor.device());
    storage_ = memory.getWeakStorageImpl();
    storage_at_end_ = memory;
    tensor_impl.set_storage_keep_dtype(std::move(other));
  }
  if (lies_as_it_did(tensor)) return;
  std::vector<int64_t> sizes = tensor.sizes().vec(), strides = tensor.strides().vec();
  const int64_t offset = tensor.storage_offset();
  tensor_impl.set_sizes_and_strides(sizes_, strides_, offset_);
  sizes_ = std::move(sizes);
  strides_ = std::move(strides);
  offset_ = offset;
}

AtEntry::AtEntry(std::vector<EntryState>& states) : states_(states) {
  for (EntryState& state : states_) state.enter();
}

AtEntry::~AtEntry() {
  for (auto state = states_.rbegin(); state != states_.rend(); ++state) state->leave();
}

}  // namespace ahead::observe
