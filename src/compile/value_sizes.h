#pragma once

#include <memory>
#include <vector>

#include "ahead/executable.h"
#include "ahead/graph.h"
#include "runtime/call/call_plan.h"

namespace ahead::compiling {

/// How large those tensors of a program for many sizes are whose sizes values decide (`nonzero`,
/// indexing by a mask): found out before the program runs, so that it runs for the right sizes.
class ValueSizes {
 public:
  /// For a graph that takes sizes. Null if it has no such tensors, or if it takes something random,
  /// an effect, large products or other such sizes to find these out.
  static std::shared_ptr<const ValueSizes> make(const Graph& general);

  /// What they are where the graph is for `sizes`.
  std::vector<int64_t> expected(const std::vector<int64_t>& sizes) const;
  /// What they are in a call of a plan with these arguments, whatever the plan is for.
  std::vector<int64_t> find(const runtime::CallPlan& plan, const std::vector<at::Tensor>& arguments,
                            const std::vector<int64_t>& sizes) const;

 private:
  ValueSizes(const Graph& deciding, std::vector<Dims> expected);

  std::vector<Dims> expected_;
  aot::Executable run_;
};

}  // namespace ahead::compiling
