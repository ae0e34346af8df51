#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "ahead/options.h"
#include "ahead/tree_spec.h"
#include "observe/tape/tape.h"
#include "plan/call_frame.h"
#include "runtime/compile_request.h"
#include "trace/differentiable_trace.h"
#include "trace/joint_trace.h"

namespace ahead::compiling {

/// What is to be traced: a function, and the arguments of a call.
struct Subject {
  aot::FlatFunction function;
  std::vector<at::Tensor> inputs = {};
  runtime::StaticArguments static_arguments = {};
  /// See TracedFunction.
  std::vector<TreeSpec> constants = {};
  /// Is told that it was traced. True: the trace found out something by which the subject is
  /// another one now, which has to be traced.
  std::function<bool(Subject&)> changes = {};
};

/// A traced function and what its trace says about calls of it.
struct TracedFunction {
  tracing::JointTrace trace;
  CallFrame frame;
  runtime::BackwardAutocastPlan autocast;
  /// Arguments share memory, and stand in the graph as synthetic bases.
  bool is_merged = false;
  /// What was traced: the function itself, or that over synthetic bases.
  aot::FlatFunction function;
  std::vector<at::Tensor> inputs;
  runtime::StaticArguments static_arguments;  ///< among these
  /// What is made around the graph of constants that are neither its arguments' nor an operator's:
  /// metadata of wrappers.
  std::vector<TreeSpec> constants = {};
  /// For each input of the graph the tensor that it captured, once forget_captured() was called.
  std::vector<observe::WeakTensor> captured = {};

  /// Lets go of the captured tensors: only the plan holds these, so that the number of their owners
  /// tells when they are stale.
  void forget_captured();
};

/// Traces a function with its gradient. If it writes to an argument that shares memory with another
/// one, it is traced over synthetic bases. If its backward depends on the autocast under which
/// backward() is called, the backward is traced without autocast, and computed anew where there is
/// one. Without Options::fullgraph, an error of LibTorch during the trace is Unsupported.
/// `subject` is left as what was traced last.
TracedFunction trace_function(Subject& subject, const Options& options);

/// Whether the backward of a joint graph sets generators of random numbers. It has no second
/// derivatives.
bool sets_generators(const Graph& joint);

/// Whether the operators of its graph do not give the second derivatives of a function that are
/// wanted, so that they have to be read off an open trace.
bool needs_open_trace(const TracedFunction& traced, const Options& options);

/// Whether that trace can also be made later, when what the call did has long been done.
bool can_be_traced_later(const TracedFunction& traced);

/// Traces a function once more for these derivatives, after forget_captured(). Null if the function
/// does something else this time.
std::unique_ptr<tracing::DifferentiableTrace> open_trace(const TracedFunction& traced,
                                                         const Options& options);

}  // namespace ahead::compiling
