#include "trace/tensor/fake_tensor.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <c10/core/Allocator.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/TensorOptions.h>

#include "trace/tensor/functional.h"
#include "trace/tracer.h"

namespace ahead::tracing {
namespace {

c10::DispatchKeySet fake_keys(const at::Tensor& meta, at::Device device) {
  using c10::DispatchKey;
  const DispatchKey backend = c10::computeDispatchKey(meta.scalar_type(), meta.layout(), device);
  const c10::BackendComponent component = c10::toBackendComponent(backend);
  c10::DispatchKeySet keys{backend, DispatchKey::Fake, DispatchKey::ADInplaceOrView};
  // Lazy conjugation and negation are resolved above the tracer, by LibTorch's own fallbacks.
  const c10::DispatchKeySet bits{DispatchKey::Conjugate, DispatchKey::Negative};
  return keys | (meta.key_set() & bits) | c10::getAutogradRelatedKeySetFromBackend(component) |
         c10::getAutocastRelatedKeySetFromBackend(component);
}

/// A meta tensor with the layout, the number flag and the lazy bits of another on this storage.
at::Tensor make_meta(c10::Storage storage, const c10::TensorImpl& like, bool stands_for_number) {
  const c10::DispatchKeySet bits{c10::DispatchKey::Conjugate, c10::DispatchKey::Negative};
  auto meta = c10::make_intrusive<c10::TensorImpl>(
      c10::TensorImpl::VIEW, std::move(storage),
      c10::DispatchKeySet(c10::DispatchKey::Meta) | (like.key_set() & bits), like.dtype());
  meta->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  if (stands_for_number) meta->set_wrapped_number(true);
  return at::Tensor(std::move(meta));
}

}  // namespace

FakeTensor::FakeTensor(at::Tensor meta, at::Device device, Value* value,
                       c10::intrusive_ptr<Tracer> tracer, std::shared_ptr<const Layout> symbolic)
    : TensorImpl(c10::Storage(meta.storage()), fake_keys(meta, device), meta.dtype()),
      value_(value),
      tracer_(std::move(tracer)),
      holder_(tracer_->live_tensors().note_fake(value)),
      stands_for_number_(meta.unsafeGetTensorImpl()->is_wrapped_number()),
      symbolic_(std::move(symbolic)) {
  device_opt_ = device;
  sizes_and_strides_.set_sizes(meta.sizes());
  sizes_and_strides_.set_strides(meta.strides());
  storage_offset_ = meta.storage_offset();
  refresh_numel();
  refresh_contiguous();
  if (!is_symbolic()) return;
  fixed_ = std::move(meta);
  const std::shared_ptr<SizeGuards>& guards = tracer_->outside().guards();
  set_sizes_and_strides(to_sym_ints(symbolic_->sizes, guards),
                        to_sym_ints(symbolic_->strides, guards),
                        to_sym_int(symbolic_->offset, guards));
}

at::Tensor FakeTensor::meta() const {
  return is_symbolic() ? fixed_ : make_meta(c10::Storage(storage_), *this, stands_for_number_);
}

// Possibly on one of the engine's threads, while the trace looks what is left.
FakeTensor::~FakeTensor() {
  holder_.store(nullptr, std::memory_order_release);
}

c10::intrusive_ptr<c10::TensorImpl> FakeTensor::copy(c10::VariableVersion version,
                                                     bool allow_change) const {
  auto copy = c10::make_intrusive<FakeTensor>(meta(), *device_opt_, value_, tracer_, symbolic_);
  copy->set_version_counter(std::move(version));
  copy->set_allow_tensor_metadata_change(allow_change);
  return copy;
}

c10::intrusive_ptr<c10::TensorImpl> FakeTensor::shallow_copy_and_detach(
    const c10::VariableVersion& version, bool allow_change) const {
  return copy(version, allow_change);
}

c10::intrusive_ptr<c10::TensorImpl> FakeTensor::shallow_copy_and_detach(
    c10::VariableVersion&& version, bool allow_change) const {
  return copy(std::move(version), allow_change);
}

const char* FakeTensor::tensorimpl_type_name() const {
  return "ahead::FakeTensor";
}

at::Tensor make_fake(at::Tensor meta, at::Device device, Value* value,
                     const c10::intrusive_ptr<Tracer>& tracer,
                     std::shared_ptr<const Layout> symbolic) {
  return at::Tensor(
      c10::make_intrusive<FakeTensor>(std::move(meta), device, value, tracer, std::move(symbolic)));
}

at::Tensor meta_copy(const at::Tensor& real) {
  const size_t bytes = real.has_storage() ? real.storage().nbytes() : real.nbytes();
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, c10::GetAllocator(at::kMeta),
                       /*resizable=*/true);
  const c10::TensorImpl& impl = *real.unsafeGetTensorImpl();
  return make_meta(std::move(storage), impl, impl.is_wrapped_number());
}

Value* value_of(const at::Tensor& traced) {
  at::functionalization::impl::sync(traced);
  return as_fake(functional_wrapper(traced).value()).value();
}

}  // namespace ahead::tracing
