#pragma once

#include <utility>

#include "trace/tracer.h"

/// Sparse tensors in traces. What stands for one says that it is strided, so nobody but the engine
/// may get it.
namespace ahead::tracing {

/// While it lives, a graph is written down again on this thread, whose sparse values were checked
/// before.
class CheckedGraph {
 public:
  CheckedGraph() : before_(std::exchange(is_active_, true)) {}
  ~CheckedGraph() { is_active_ = before_; }
  CheckedGraph(const CheckedGraph&) = delete;
  CheckedGraph& operator=(const CheckedGraph&) = delete;

  static bool is_active() { return is_active_; }

 private:
  static thread_local bool is_active_;
  bool before_;
};

/// Throws Unsupported unless the operator that is about to be recorded, which makes a sparse
/// tensor, is called for the gradient of a tensor from outside that goes there straight away.
void check_makes_gradient(const Tracer& tracer, const Operator& op);

/// Throws Unsupported if a node reads a sparse gradient, and does not only add it to others of the
/// same tensor, or if it is the gradient of several tensors.
void check_sparse_gradients(const Graph& graph);

}  // namespace ahead::tracing
