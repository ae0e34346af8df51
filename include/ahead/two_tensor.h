#pragma once

#include <memory>

#include "ahead/subclass.h"

namespace ahead {

/// The simplest class of wrappers: two tensors of the same shape, with both of which everything is
/// done. To test code that is to work with wrappers.
class AHEAD_API TwoTensor final : public WrapperTensorOf<TwoTensor> {
 public:
  static constexpr const char* class_name = "TwoTensor";

  /// A wrapper that looks like `a`. Throws UserError if `b` has another shape, dtype or device.
  static at::Tensor make(at::Tensor a, at::Tensor b);

  TwoTensor(at::Tensor a, at::Tensor b) : a_(std::move(a)), b_(std::move(b)) {}
  const at::Tensor& a() const { return a_; }
  const at::Tensor& b() const { return b_; }

  WrapperParts flatten() const override { return {{a_, b_}, {}}; }
  static std::shared_ptr<const TwoTensor> unflatten(WrapperParts parts);
  bool dispatch(const c10::OperatorHandle& op, torch::jit::Stack& stack) const override;

 private:
  at::Tensor a_, b_;
};

}  // namespace ahead
