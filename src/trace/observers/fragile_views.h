#pragma once

#include <ATen/core/Tensor.h>

#include <unordered_map>

#include "ahead/graph.h"
#include "trace/tensor/functional.h"

namespace ahead::tracing {

/// Knows the memory of which there is a view that was given another shape in place, or that
/// as_strided made of another view: autograd could not follow a write to it.
class FragileViews {
 public:
  /// An operator makes such a view of this traced tensor, or of it, if it is a view.
  void note(const at::Tensor& traced, const Operator& op) {
    if (!functional_wrapper(traced).view_metas().empty())
      storages_.emplace(functional_memory(traced), &op);
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
