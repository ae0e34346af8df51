#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "ahead/partition.h"
#include "runtime/call/call_plan.h"
#include "trace/differentiable_trace.h"

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

/// Values of an open trace that exist at run time, each with its position among the given tensors.
using GivenValues = std::unordered_map<const Value*, size_t>;

/// Something that derivatives need of the forward and that cannot be had: nobody saved it, and
/// computing it again would take an operator that may run only once, or an input that the call
/// changes. Empty if there is none. Inputs that eager, too, would miss do not count; for a function
/// that differentiates something itself these are all that it writes to without autograd's
/// knowledge.
std::string find_lost(const JointGraph& joint, const std::vector<SavedValue>& saved,
                      const runtime::Epilogue& epilogue, bool differentiates);

/// Cuts what a derivative computes out of its trace. What is not given is computed again; throws
/// Unsupported if that is not possible.
DerivativeGraph cut_derivative(const tracing::DifferentiableTrace& trace,
                               const tracing::DifferentiableTrace::Derivative& derivative,
                               const GivenValues& given);

}  // namespace ahead::compiling
