#pragma once

#include <memory>
#include <vector>

#include "ahead/executable.h"
#include "plan/call_frame.h"

namespace ahead::compiling {

/// Throws Unsupported if arguments that share memory have a gradient, and one of them, or what it
/// is a view of, has several elements in one place: where one is written to, or changes its shape
/// in place, eager makes the histories of the others anew, by their strides, which spreads
/// gradients over these elements.
void check_aliases_of_written(const std::vector<at::Tensor>& args);

/// A function over arguments that share memory, seen as one over bases that do not: every group of
/// arguments that overlap is replaced by one tensor that all of them are views of.
class MergedArguments {
 public:
  /// Throws Unsupported if a group has no common base.
  MergedArguments(const aot::FlatFunction& function, const std::vector<at::Tensor>& args);

  /// The function over inputs(): bases first, then the arguments that share memory with no other.
  const aot::FlatFunction& function() const { return function_; }
  const std::vector<at::Tensor>& inputs() const { return inputs_; }

  /// The frame of a call of the function over all arguments, for one of the function over inputs().
  CallFrame adapted(CallFrame frame) const;

 private:
  struct State;

  std::vector<runtime::Epilogue::VersionBump> version_bumps(const CallFrame& frame) const;
  static runtime::Source view_of_argument(runtime::Epilogue& epilogue, int32_t argument,
                                          const TensorMeta& layout);

  std::vector<runtime::Prologue::Base> bases_;
  std::vector<int32_t> others_;
  std::vector<at::Tensor> inputs_;
  std::shared_ptr<State> state_;
  aot::FlatFunction function_;
};

}  // namespace ahead::compiling
