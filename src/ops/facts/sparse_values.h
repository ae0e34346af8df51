#pragma once

#include <vector>

#include "ahead/graph.h"

namespace ahead::ops {

/// Whether the operator makes a sparse tensor of two others, which stand next to each other among
/// its arguments.
bool makes_sparse(const Operator& op);

/// The values of a graph that are sparse tensors, or sums with such. Values are described as
/// strided tensors, which these are not: only gradients may be sparse, and nothing may read them
/// but sums of gradients. Knows the values that were there when it was made.
class SparseValues {
 public:
  explicit SparseValues(const Graph& graph);

  bool contains(const Value* value) const {
    return value->id() < is_sparse_.size() && is_sparse_[value->id()];
  }
  bool is_any() const { return is_any_; }

 private:
  std::vector<bool> is_sparse_;  ///< by Value::id(); empty if there are none
  bool is_any_ = false;
};

}  // namespace ahead::ops
