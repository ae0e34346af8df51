#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <vector>

#include "ahead/detail/tree_function.h"
#include "ahead/executable.h"
#include "ahead/export.h"
#include "ahead/graph.h"

namespace ahead {

struct TraceOptions {
  /// Operators without shape rule run their real kernel on zeros. False: they throw Unsupported.
  bool allow_real_kernels = true;
  /// A traced tensor that outlives the trace without being a result throws Unsupported. True: it is
  /// left to the caller, who must not use it.
  bool allow_escapes = false;
  /// Notes on each node where the user's code called the operator; see Node::place.
  bool record_places = false;
};

namespace detail {

AHEAD_API Graph trace_flat(const aot::FlatFunction& function, const std::vector<at::Tensor>& inputs,
                           TraceOptions options, bool joint);

template <class F, class... Args>
inline constexpr bool is_flat_call = false;
template <class F>
inline constexpr bool is_flat_call<F, std::vector<at::Tensor>> =
    !PointsToModule<F, const std::vector<at::Tensor>&> &&
    std::is_convertible_v<F&, aot::FlatFunction>;

template <class F, class... Args>
Graph trace_call(TraceOptions options, bool joint, F& f, const Args&... args) {
  static_assert(!(std::same_as<Args, TraceOptions> || ...),
                "Options come first: ahead::trace_with(options, function, arguments...).");
  if constexpr (is_flat_call<F, Args...>) {
    return trace_flat(f, args..., options, joint);
  } else {
    TreeFunction function(f, args...);
    return trace_flat(std::ref(function), function.inputs().leaves, options, joint);
  }
}

}  // namespace detail

/// Runs a callable once on fake tensors and returns what it computes as a graph.
///
/// The callable is a function, an object with operator(), a module that has a `forward`, or a
/// ModuleHolder or pointer to one. Arguments and result are trees (see ahead/tree.h); whatever is
/// not a tensor counts as a constant. Graph inputs are the defined tensors of the arguments in
/// order (Slot Primal), then the tensors that the callable reached otherwise (Captured). Graph
/// outputs are the new contents of inputs it mutated (MutatedInput), the defined tensors of its
/// result (Output) and new `.grad`s (AccumulatedGrad). No kernel runs and no data is touched.
template <class F, class... Args>
Graph trace(F&& f, const Args&... args) {
  return detail::trace_call({}, /*joint=*/false, f, args...);
}

/// Traces a callable over a flat list of tensors. The `inputs` must be defined. If it is an
/// aot::FlatFunction, undefined results count as outputs.
template <class F>
Graph trace(F&& f, const std::vector<at::Tensor>& inputs, TraceOptions options = {}) {
  return detail::trace_call(options, /*joint=*/false, f, inputs);
}

/// Like trace, with options.
template <class F, class... Args>
Graph trace_with(TraceOptions options, F&& f, const Args&... args) {
  return detail::trace_call(options, /*joint=*/false, f, args...);
}

/// Like trace, and goes on to record the gradient: for every result and mutated input that requires
/// grad there is an input Tangent, for every input that requires grad an output GradOf.
template <class F, class... Args>
JointGraph trace_joint(F&& f, const Args&... args) {
  return JointGraph(detail::trace_call({}, /*joint=*/true, f, args...));
}

/// Like trace over a flat list of tensors, with the gradient.
template <class F>
JointGraph trace_joint(F&& f, const std::vector<at::Tensor>& inputs, TraceOptions options = {}) {
  return JointGraph(detail::trace_call(options, /*joint=*/true, f, inputs));
}

/// Like trace_joint, with options.
template <class F, class... Args>
JointGraph trace_joint_with(TraceOptions options, F&& f, const Args&... args) {
  return JointGraph(detail::trace_call(options, /*joint=*/true, f, args...));
}

/// Counts of all traces of this process so far.
struct TraceStats {
  uint64_t traces = 0;
  uint64_t nodes = 0;
  /// How the metadata of results was found: a rule of Ahead's, a Meta kernel, a real kernel on
  /// zeros.
  uint64_t rule_calls = 0;
  uint64_t meta_calls = 0;
  uint64_t real_kernel_calls = 0;
  double seconds = 0;
};
AHEAD_API TraceStats trace_stats();

}  // namespace ahead
