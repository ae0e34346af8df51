#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "ahead/graph.h"

namespace ahead::ops {
struct OpFacts;
}

namespace ahead::tracing {

/// What the tracer must know of an operator, found out once per thread.
struct TracedOp {
  enum class Inference : uint8_t { Rule, MetaKernel, RealKernel };

  const Operator* op = nullptr;
  const ops::OpFacts* facts = nullptr;  ///< what it was described by
  const Operator* drawn = nullptr;  ///< the random operator whose functional form it is; null: none
  const c10::KernelFunction* rule = nullptr;
  const c10::KernelFunction* decomposition = nullptr;  ///< see find_decomposition
  Inference inference = Inference::RealKernel;
  int32_t num_args = 0;
  int32_t num_returns = 0;
  int32_t device_arg = -1;
  int32_t pin_memory_arg = -1;
  bool takes_tensors = false;
  bool returns_tensors = false;
  bool mutates = false;
  bool keeps_layout = false;         ///< writes to arguments without changing their layout
  bool is_functionalizable = false;  ///< this thread has seen to it
  bool random = false;
  bool effectful = false;
  /// Called as one, though its kernel calls other operators; see OpFacts::is_whole.
  bool is_whole = false;
  /// It may do something that no schema tells.
  bool acts = false;
  /// It does so whatever it is given: its Meta kernel is the one for all devices.
  bool acts_on_meta = false;
  bool pointwise = false;  ///< with one result
  bool is_unfold_backward = false;
  bool makes_sparse = false;
  bool writes_lists = false;       ///< writes to tensors in lists
  bool is_autocast_cpu = false;    ///< autocast may cast what it takes from the CPU
  bool is_autocast_cuda = false;   ///< the same for CUDA devices
  bool is_autocast = false;        ///< one of the two
  bool casts_inside = false;       ///< its kernel calls operators for which autocast casts
  bool addresses_storage = false;  ///< reaches elements by where they lie in memory
  /// Does so, or gives its first argument another shape in place.
  bool changes_views = false;
  /// Stands in a gradient formula that is another one in eager; see eager_formulas.h.
  bool is_in_formula = false;
  /// What it calls is handled as if user code called it: it runs user code through the autograd
  /// engine, writes to parts of what it computes, or calls an operator that is traced as another.
  bool is_transparent = false;
  /// Why it cannot be traced: its results depend on values. Null if it can.
  const char* refusal = nullptr;
};

/// The knowledge about this operator. The reference is good for the life of the thread.
TracedOp& traced_op(const c10::OperatorHandle& handle);

}  // namespace ahead::tracing
