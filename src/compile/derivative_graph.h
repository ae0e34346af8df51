#pragma once

#include <unordered_map>
#include <vector>

#include "trace/kept_trace.h"

namespace ahead::compiling {

/// A derivative as a program of its own.
struct DerivativeGraph {
  /// Where an input comes from.
  struct Source {
    size_t given;        ///< a position among the given values, unless `outside` is defined
    at::Tensor outside;  ///< a tensor that the backward itself reaches
  };

  Graph graph;
  std::vector<Source> sources;    ///< of each input
  std::vector<size_t> gradients;  ///< for each output, which gradient it is
};

/// Values of a kept trace that are there at run time, with their positions among all that are.
using GivenValues = std::unordered_map<const Value*, size_t>;

/// Cuts what a derivative computes out of its trace. What is not given is computed again; throws
/// Unsupported if that is not possible.
DerivativeGraph cut_derivative(const tracing::KeptTrace& trace,
                               const tracing::KeptTrace::Derivative& derivative,
                               const GivenValues& given);

}  // namespace ahead::compiling
