#pragma once

#include <torch/csrc/dynamo/compiled_autograd.h>

#include <memory>
#include <mutex>
#include <stdexcept>

namespace ahead::engine {

/// A custom function does not say that it may be traced.
class OpaqueFunction : public std::runtime_error {
 public:
  OpaqueFunction() : std::runtime_error("a custom function that does not say is_traceable") {}
};

/// While it lives, autograd nodes whose apply_with_saved is called on this thread call their
/// formulas straight away, with what stands for their saved tensors. One at a time in a process;
/// other threads wait.
///
/// A formula that throws would leave its node without its saved tensors. So what it throws is kept
/// until the node has put them back.
class NodeCalls {
 public:
  NodeCalls();

  static void clear_problem();
  /// Throws what a formula threw since clear_problem.
  static void rethrow_problem();

 private:
  std::unique_lock<std::mutex> lock_;
  torch::dynamo::autograd::PyCompilerGuard installed_;
};

}  // namespace ahead::engine
