#pragma once

#include <c10/util/SmallVector.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "ahead/graph.h"
#include "native/products/choose_products.h"

namespace ahead::native {

/// One dimension of a tensor that slices divide. The matrices of a batch are counted along all of
/// these, the last one fastest.
struct SlicedDim {
  int64_t dim, size;
  int64_t inner;  ///< matrices in one element of it
  bool is_last;   ///< a slice has several elements of the last one, and one of the others

  bool operator==(const SlicedDim& other) const {
    return dim == other.dim && size == other.size && inner == other.inner;
  }
};
/// The dimensions of one tensor that slices divide; empty: each slice takes all of it.
using Cut = c10::SmallVector<SlicedDim, 2>;

/// How a result is put together of slices.
struct SlicedResult {
  Cut cut;
  /// A slice does not return its part of the result but the two operands of the product (bmm) that
  /// makes it, which is computed where the result lies.
  bool is_product = false;
  /// Of these operands, whether the matrices that are returned are to be transposed.
  std::array<bool, 2> is_transposed = {};
};

/// A sub-graph that does the same with each matrix of a batch, and can do so slice by slice.
struct SlicedCall {
  std::shared_ptr<const Graph> whole;
  Graph slice;                               ///< the sub-graph, of one slice
  int64_t batch, step;                       ///< the matrices, and how many of them a slice has
  Multiplier multiplier = Multiplier::ATen;  ///< computes products where results lie
  std::vector<Cut> inputs;
  std::vector<SlicedResult> outputs;
};

/// A graph and those of its sub-graphs that run slice by slice.
struct SlicedGraph {
  Graph graph;
  std::vector<SlicedCall> calls;
};

/// Products of two thin matrices are large, and what attention does with them gives something small
/// again. Puts each such product, what is made of it and what takes that into a sub-graph, so that
/// of the large tensors only slices are there at a time, in the cache. Those that oneDNN multiplies
/// are single matrices, since it knows no batches.
SlicedGraph slice_batches(const Graph& graph, Multiplier multiplier);

}  // namespace ahead::native
