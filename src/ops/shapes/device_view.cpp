#include "ops/shapes/device_view.h"

#include <c10/core/TensorOptions.h>

#include "ops/shape_rules.h"

namespace ahead::ops::shapes {

at::Tensor as_on_device(const at::Tensor& meta) {
  if (!meta.defined()) return meta;
  at::Device device = rule_device();
  auto memory = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), 0,
                                                      at::DataPtr(nullptr, device), nullptr, false);
  auto key = c10::computeDispatchKey(meta.scalar_type(), at::kStrided, device);
  auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(std::move(memory)),
                                                   c10::DispatchKeySet(key), meta.dtype());
  impl->set_sizes_and_strides(meta.sizes(), meta.strides(), meta.storage_offset());
  return at::Tensor(std::move(impl));
}

}  // namespace ahead::ops::shapes
