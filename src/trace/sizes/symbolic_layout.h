#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymInt.h>

#include <optional>
#include <vector>

#include "ahead/graph.h"

namespace ahead::tracing {

/// The layout of a tensor whose sizes may differ from run to run.
struct SymbolicLayout {
  std::vector<c10::SymInt> sizes;
  std::vector<c10::SymInt> strides;
  c10::SymInt offset = 0;

  /// That of a traced, fake or plain tensor.
  static SymbolicLayout of(const at::Tensor& tensor);
  /// Row by row, without gaps.
  static SymbolicLayout contiguous(std::vector<c10::SymInt> sizes);
  /// Without gaps, the dimensions in the order in which they lie in memory in `like`. For an
  /// operator that chooses the order by that of its arguments; sizes are noted not to be one, since
  /// then the order would be any.
  static SymbolicLayout ordered_like(std::vector<c10::SymInt> sizes, const at::Tensor& like);

  /// Whether it is the same for all sizes.
  bool is_fixed() const;
  /// Says in a description what may change.
  void describe(TensorMeta& meta) const;
  /// Whether it is that of `tensor` for the sizes for which is traced.
  bool describes(const at::Tensor& tensor) const;
};

/// The dimensions of a tensor in the order in which they lie in memory, the outermost first.
std::vector<size_t> dimensions_in_memory(const at::Tensor& tensor);

}  // namespace ahead::tracing
