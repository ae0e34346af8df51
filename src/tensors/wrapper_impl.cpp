#include "tensors/wrapper_impl.h"

#include <ATen/EmptyTensor.h>

#include <atomic>

namespace ahead::tensors {
namespace {

std::atomic<bool> is_any_made = false;

/// The Meta bit makes LibTorch's gradient formulas treat it as a subclass: they do not write it
/// into plain tensors of their own.
c10::DispatchKeySet wrapper_keys(at::Device device) {
  const c10::BackendComponent real =
      c10::toBackendComponent(c10::computeDispatchKey(at::kFloat, at::kStrided, device));
  return c10::DispatchKeySet{c10::DispatchKey::Fake, c10::DispatchKey::ADInplaceOrView} |
         c10::DispatchKeySet(c10::BackendComponent::MetaBit) |
         c10::getAutogradRelatedKeySetFromBackend(c10::BackendComponent::MetaBit) |
         c10::getAutocastRelatedKeySetFromBackend(real);
}

/// As large as the memory would be, so that reading it is an error rather than a null pointer.
c10::Storage storage_without_memory(const WrapperLook& look) {
  const size_t bytes = at::detail::computeStorageNbytes(
      look.sizes, look.strides, c10::elementSize(look.dtype), static_cast<size_t>(look.offset));
  return {c10::Storage::use_byte_size_t(), bytes, c10::DataPtr(nullptr, look.device),
          /*allocator=*/nullptr, /*resizable=*/false};
}

}  // namespace

WrapperImpl::WrapperImpl(std::shared_ptr<const WrapperTensor> inside, const WrapperLook& look)
    : TensorImpl(storage_without_memory(look), wrapper_keys(look.device),
                 c10::scalarTypeToTypeMeta(look.dtype)),
      inside_(std::move(inside)) {
  is_any_made.store(true, std::memory_order_relaxed);
  device_opt_ = look.device;
  set_sizes_and_strides(look.sizes, look.strides, look.offset);
}

c10::intrusive_ptr<c10::TensorImpl> WrapperImpl::shallow_copy_and_detach(
    const c10::VariableVersion& version, bool allow_change) const {
  auto copy = c10::make_intrusive<WrapperImpl>(
      inside_, WrapperLook{{}, {}, 0, c10::typeMetaToScalarType(dtype()), device()});
  copy_tensor_metadata(this, copy.get(), version, allow_change);
  return copy;
}

c10::intrusive_ptr<c10::TensorImpl> WrapperImpl::shallow_copy_and_detach(
    c10::VariableVersion&& version, bool allow_change) const {
  auto copy = c10::make_intrusive<WrapperImpl>(
      inside_, WrapperLook{{}, {}, 0, c10::typeMetaToScalarType(dtype()), device()});
  copy_tensor_metadata(this, copy.get(), std::move(version), allow_change);
  return copy;
}

void WrapperImpl::shallow_copy_from(const c10::intrusive_ptr<TensorImpl>& impl) {
  copy_tensor_metadata(impl.get(), this, version_counter(), allow_tensor_metadata_change());
  inside_ = static_cast<const WrapperImpl&>(*impl).inside_;
}

bool are_wrappers_in_use() {
  return is_any_made.load(std::memory_order_relaxed);
}

const char* WrapperImpl::tensorimpl_type_name() const {
  return "ahead::WrapperTensor";
}

}  // namespace ahead::tensors
