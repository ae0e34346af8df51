#pragma once

#include <c10/core/TensorImpl.h>

#include <memory>

#include "ahead/subclass.h"
#include "tensors/wrapper_keys.h"

namespace ahead::tensors {

/// The tensor that a wrapper is: it has no memory, but a storage that its views share, so that
/// LibTorch can tell who shares memory with whom. Operators reach its class at the Fake key.
class WrapperImpl final : public c10::TensorImpl {
 public:
  WrapperImpl(std::shared_ptr<const WrapperTensor> inside, const WrapperLook& look);

  const std::shared_ptr<const WrapperTensor>& inside() const { return inside_; }

  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(const c10::VariableVersion& version,
                                                         bool allow_change) const override;
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(c10::VariableVersion&& version,
                                                         bool allow_change) const override;
  void shallow_copy_from(const c10::intrusive_ptr<TensorImpl>& impl) override;

 private:
  const char* tensorimpl_type_name() const override;

  std::shared_ptr<const WrapperTensor> inside_;
};

/// Whether any wrapper was ever made: programs without pay nothing.
bool are_wrappers_in_use();

/// The wrapper that a tensor is.
inline WrapperImpl& as_wrapper(const at::Tensor& tensor) {
  return *static_cast<WrapperImpl*>(tensor.unsafeGetTensorImpl());
}

}  // namespace ahead::tensors
