#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/AutogradState.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ahead/graph.h"
#include "runtime/call/call_plan.h"

namespace ahead::runtime {

/// What a graph takes for granted about one tensor.
struct TensorGuard {
  TensorGuard(const at::Tensor& tensor, bool with_offset);

  /// Whether that is true of the tensor.
  bool holds(const at::Tensor& tensor) const;
  /// The same for a tensor of as many dimensions, whatever their sizes and strides.
  bool holds_but_for_sizes(const at::Tensor& tensor) const;
  /// What differs, in words.
  std::string difference(const at::Tensor& now) const;

  uint64_t keys;
  bool requires_grad;
  bool has_tangent;  ///< of forward mode
  bool with_offset;
  TensorMeta meta;
};

/// Everything that must hold for a plan to be right for a call. Frozen.
class CallGuard {
 public:
  /// For calls like this one. `with_offsets`: storage offsets of arguments and captured tensors
  /// must be the same, too.
  CallGuard(const CallPlan& plan, const std::vector<at::Tensor>& args, bool with_offsets);

  /// Whether the plan is right for a call with these arguments.
  bool holds(const CallPlan& plan, const std::vector<at::Tensor>& args) const;
  /// Whether it would be, were the sizes of arguments others.
  bool holds_but_for_sizes(const CallPlan& plan, const std::vector<at::Tensor>& args) const;
  /// Why it does not hold, in words.
  std::string reason(const CallPlan& plan, const std::vector<at::Tensor>& args) const;

 private:
  /// All that does not concern the arguments one by one.
  bool holds_together(const CallPlan& plan, const std::vector<at::Tensor>& args) const;
  bool same_identities(const std::vector<at::Tensor>& args) const;
  static bool are_known(const CallPlan& plan, const std::vector<at::Tensor>& args);
  bool is_written_alone(const CallPlan& plan, const std::vector<at::Tensor>& args) const;
  static bool writes_to_no_leaf(const CallPlan& plan, const std::vector<at::Tensor>& args);
  bool have_same_bases(const CallPlan& plan, const std::vector<at::Tensor>& args) const;
  /// Pairs of inputs, the first of which was computed from the second.
  using Descents = std::vector<std::pair<size_t, size_t>>;
  static Descents find_descents(const CallPlan& plan, const std::vector<at::Tensor>& args);

  std::vector<TensorGuard> arguments_;
  /// For each argument, the first argument that is the same tensor.
  std::vector<int32_t> first_same_;
  /// For each graph input that is a captured tensor or a `.grad`.
  std::vector<TensorGuard> captured_;
  std::vector<TensorGuard> bases_;
  /// For each new `.grad`: whether there was one before.
  std::vector<bool> had_grad_;
  Descents descents_;  ///< if the function takes gradients
};

}  // namespace ahead::runtime
