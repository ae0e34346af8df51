#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <unordered_map>

#include "trace/dispatch/traced_call.h"

namespace ahead::tracing {

/// Counts writes to tensors in lists, which raise no version counter while tracing, though they do
/// in eager.
class ListWrites {
 public:
  /// An operator is about to be called that writes to tensors in lists.
  void before(const TracedCall& call);
  /// How often a traced tensor has been written to in a list.
  uint64_t count(const at::Tensor& traced) const {
    const auto known = counts_.find(traced.unsafeGetTensorImpl());
    return known == counts_.end() ? 0 : known->second;
  }

 private:
  std::unordered_map<const c10::TensorImpl*, uint64_t> counts_;
};

}  // namespace ahead::tracing
