#include "observe/recorder/place.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/clone.h>
#include <torch/csrc/autograd/variable.h>

#include "base/hash.h"
#include "observe/recorder/recorder.h"
#include "observe/state/entry_state.h"

namespace ahead::observe {

bool has_place(const at::Tensor& tensor) {
  return tensor.has_storage() && tensor.layout() == at::kStrided && tensor.storage();
}

uint64_t place_of(const at::Tensor& tensor) {
  uint64_t hash = hash_combine(static_cast<uint64_t>(tensor.storage_offset()),
                               static_cast<uint64_t>(tensor.scalar_type()));
  for (int64_t size : tensor.sizes()) hash = hash_combine(hash, static_cast<uint64_t>(size));
  for (int64_t stride : tensor.strides()) hash = hash_combine(hash, static_cast<uint64_t>(stride));
  return hash;
}

bool has_flag(const at::Tensor& tensor) {
  const auto* meta = peek_meta(tensor);
  return meta != nullptr && meta->requires_grad_;
}

at::Tensor copy_of(const at::Tensor& tensor) {
  const RecordingPause pause;
  at::AutoDispatchBelowADInplaceOrView below;
  return tensor.clone();
}

}  // namespace ahead::observe
