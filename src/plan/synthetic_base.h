#pragma once

#include <memory>
#include <vector>

#include "ahead/executable.h"
#include "runtime/call/call_plan.h"

namespace ahead::compiling {

/// A function over arguments that share memory, seen as one over bases that do not: every group of
/// arguments that overlap is replaced by one tensor that all of them are views of.
class MergedArguments {
 public:
  /// Throws Unsupported if a group has no common base.
  MergedArguments(const aot::FlatFunction& function, const std::vector<at::Tensor>& args);

  /// The function over inputs(): bases first, then the arguments that share memory with no other.
  const aot::FlatFunction& function() const { return function_; }
  const std::vector<at::Tensor>& inputs() const { return inputs_; }

  /// Turns a plan for the function over inputs() into one for the function over all arguments.
  void adapt(runtime::CallPlan& plan) const;

 private:
  struct State;

  std::vector<runtime::CallPlan::VersionBump> version_bumps(const runtime::CallPlan& plan) const;
  static runtime::Source view_of_argument(runtime::CallPlan& plan, int32_t argument,
                                          const TensorMeta& layout);

  std::vector<runtime::CallPlan::Base> bases_;
  std::vector<int32_t> others_;
  std::vector<at::Tensor> inputs_;
  std::shared_ptr<State> state_;
  aot::FlatFunction function_;
};

}  // namespace ahead::compiling
