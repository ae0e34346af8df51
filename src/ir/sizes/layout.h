#pragma once

#include <c10/core/SymInt.h>

#include <memory>
#include <vector>

#include "ahead/graph.h"
#include "ir/sizes/size_guards.h"

namespace ahead {

/// How a tensor lies in memory, where that may differ from run to run.
struct Layout {
  Dims sizes;
  Dims strides;
  Dim offset = 0;

  /// That of a traced, fake or plain tensor.
  static Layout of(const at::Tensor& tensor);
  /// Row by row, without gaps.
  static Layout contiguous(Dims sizes);

  /// Whether it is the same in all runs.
  bool is_fixed() const { return sizes.is_fixed() && strides.is_fixed() && offset.is_fixed(); }
  /// Whether it is that of `tensor` for these sizes. How far apart the elements of a dimension with
  /// one element are does not matter.
  bool describes(const at::Tensor& tensor, c10::ArrayRef<int64_t> sizes) const;
  /// Says in a description how the tensor lies.
  void describe(TensorMeta& meta) const;
};

/// The integers of which LibTorch's formulas made these.
Dim to_dim(const c10::SymInt& integer);
Dims to_dims(c10::ArrayRef<c10::SymInt> integers);
/// The integers as LibTorch's formulas take them, which note there what they decide. Without
/// guards: as they stand among the arguments of nodes.
c10::SymInt to_sym_int(Dim dim, const std::shared_ptr<SizeGuards>& guards);
std::vector<c10::SymInt> to_sym_ints(const Dims& dims, const std::shared_ptr<SizeGuards>& guards);

}  // namespace ahead
