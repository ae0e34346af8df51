#pragma once

#include <torch/csrc/autograd/function.h>

#include <vector>

#include "runtime/call/call_plan.h"

namespace ahead::runtime {

/// Which results of a call can still be differentiated. In eager, a backward that does not retain
/// the graph releases the saved tensors of the nodes it runs; results without such a node stay
/// open.
class OpenResults {
 public:
  /// Keeps track of the results for which this is true; empty: of all results.
  explicit OpenResults(std::vector<bool> results = {}) : results_(std::move(results)) {}

  /// A backward comes with gradients of some results. Throws LibTorch's error if one of them is not
  /// open any more.
  void enter(const CallPlan& plan, const torch::autograd::variable_list& gradients);
  /// Whether no result would be open after release().
  bool is_last(const CallPlan& plan) const;
  /// Closes the results that share released nodes with those of the last backward.
  void release(const CallPlan& plan);
  bool is_any() const { return !is_closed_; }

 private:
  std::vector<bool> results_;
  bool is_closed_ = false;
  // Only where some results can be differentiated without the others:
  std::vector<bool> closed_, entered_;
};

}  // namespace ahead::runtime
