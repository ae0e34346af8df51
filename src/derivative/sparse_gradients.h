#pragma once

#include <memory>

#include "ahead/executable.h"
#include "ahead/graph.h"

namespace ahead::compiling {

/// A backward graph some of whose gradients are sparse, cut in two: a graph of dense values, which
/// returns what these gradients are made of, and what is done with that behind it.
class SparseGradients {
 public:
  explicit SparseGradients(const Graph& backward);

  /// Whether a gradient is sparse, or a sum with such.
  static bool are_in(const Graph& backward);
  /// Throws Unsupported if a partitioner lets the forward compute one.
  static void check_none_in(const Graph& forward);

  /// The dense part. Gradients that are made behind it are undefined there; what they are made of
  /// are further outputs.
  const Graph& dense() const { return dense_; }
  /// What runs the whole backward, given what runs the dense part.
  aot::Executable behind(aot::Executable dense) const;

 private:
  struct Recipe;
  class Run;

  Graph dense_;
  std::shared_ptr<const Recipe> recipe_;
};

}  // namespace ahead::compiling
