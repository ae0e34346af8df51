#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <unordered_map>

namespace ahead::tracing {

/// Counts writes to tensors in lists, which raise no version counter while tracing, though they do
/// in eager.
class ListWrites {
 public:
  /// An operator writes to this traced tensor in a list.
  void note(const at::Tensor& traced) { ++counts_[traced.unsafeGetTensorImpl()]; }
  /// How often that has happened.
  uint64_t count(const at::Tensor& traced) const {
    const auto known = counts_.find(traced.unsafeGetTensorImpl());
    return known == counts_.end() ? 0 : known->second;
  }

 private:
  std::unordered_map<const c10::TensorImpl*, uint64_t> counts_;
};

}  // namespace ahead::tracing
