#pragma once

#include <ATen/core/Tensor.h>

#include <unordered_map>

#include "ahead/graph.h"
#include "trace/dispatch/traced_call.h"
#include "trace/tensor/functional.h"

namespace ahead::tracing {

/// Knows the memory of which there is a view that was given another shape in place, or that
/// as_strided made of another view: autograd could not follow a write to it.
class FragileViews {
 public:
  /// An operator is about to be called that reaches its first argument by where it lies in memory,
  /// or gives it another shape in place.
  void before(const TracedCall& call) {
    const at::Tensor* self = call.traced_self();
    if (self == nullptr || functional_wrapper(*self).view_metas().empty()) return;
    storages_.emplace(functional_memory(*self), call.op.op);
  }
  /// The operator noted for the memory of this tensor; null if there is none.
  const Operator* find(const at::Tensor& traced) const {
    const auto found = storages_.find(functional_memory(traced));
    return found == storages_.end() ? nullptr : found->second;
  }

 private:
  std::unordered_map<const c10::StorageImpl*, const Operator*> storages_;
};

}  // namespace ahead::tracing
