#pragma once

#include <torch/csrc/autograd/function.h>

#include <vector>

#include "runtime/call/call_plan.h"

namespace ahead::runtime {

/// Which results of a call can still be differentiated. A backward that does not retain the graph
/// releases what eager's nodes saved on its way; results that do not share one of these stay open.
class OpenResults {
 public:
  /// Keeps track of these results; none named: of all.
  explicit OpenResults(std::vector<bool> results = {}) : results_(std::move(results)) {}

  /// A backward comes with gradients of some results. Throws LibTorch's error if one of them is not
  /// open any more.
  void enter(const CallPlan& plan, const torch::autograd::variable_list& gradients);
  /// Whether nothing would be open if what the last backward went through were released.
  bool is_last(const CallPlan& plan) const;
  /// Releases what the last backward went through.
  void release(const CallPlan& plan);
  bool is_any() const { return !is_closed_; }

 private:
  std::vector<bool> results_;
  bool is_closed_ = false;
  // Only where some results can be differentiated without the others:
  std::vector<bool> closed_, entered_;
};

}  // namespace ahead::runtime
