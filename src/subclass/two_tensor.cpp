#include "ahead/two_tensor.h"

#include "ahead/errors.h"

namespace ahead {

at::Tensor TwoTensor::make(at::Tensor a, at::Tensor b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type() || a.device() != b.device()) {
    throw UserError("subclass",
                    "TwoTensor: its tensors have different shapes, dtypes or devices. Pass two "
                    "that look alike.");
  }
  const WrapperLook look = WrapperLook::of(a);
  return wrap(std::make_shared<const TwoTensor>(std::move(a), std::move(b)), look);
}

std::shared_ptr<const TwoTensor> TwoTensor::unflatten(WrapperParts parts) {
  return std::make_shared<const TwoTensor>(std::move(parts.inner.at(0)),
                                           std::move(parts.inner.at(1)));
}

bool TwoTensor::dispatch(const c10::OperatorHandle& op, torch::jit::Stack& stack) const {
  dispatch_to_each(op, stack);
  return true;
}

}  // namespace ahead
