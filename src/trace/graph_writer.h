#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "ahead/graph.h"
#include "base/libtorch.h"

namespace ahead::tracing {

class Tracer;

/// Writes down as a graph what happens in a trace, each call with what is known of its
/// surroundings.
class GraphWriter {
 public:
  /// The tensors that stand for inputs of the graph belong to this tracer.
  explicit GraphWriter(Tracer& tracer);

  Graph& graph() { return graph_; }
  const Graph& graph() const { return graph_; }
  /// Ends the writing and gives the graph away.
  Graph take();

  /// The phase of the nodes that are written now.
  Phase phase() const { return phase_; }
  void set_phase(Phase phase) { phase_ = phase; }
  /// Whether autocast is on where user code calls the operator now being traced.
  void set_autocast(bool enabled) { autocast_ = enabled; }

  /// Adds a node in the current phase, with what is known of its surroundings.
  Node* record(const Operator& op, std::vector<Argument> args);
  /// Adds an input that looks like this, and returns the traced tensor that stands for it.
  at::Tensor add_input(Slot slot, TensorMeta meta);
  /// The traced tensor that stands for a value of the graph, which nothing stands for yet. Its
  /// layout may have symbols.
  at::Tensor stand_for(Value* value);
  /// Adds the tangent of the graph output at this position, which is traced as `output`.
  at::Tensor add_tangent(const at::Tensor& output, int32_t position);

  /// The autograd node on whose behalf operators are called: the one that was set, or the one that
  /// the engine is running; null: none.
  NodePtr issuer() const;
  void set_issuer(NodePtr node) { issuer_ = std::move(node); }
  /// Autograd nodes with a smaller sequence number were made before the trace began.
  uint64_t first_sequence() const { return first_sequence_; }

  /// Whether the function itself ran the autograd engine over a part of the trace.
  bool differentiates() const { return differentiates_; }
  /// Says that it did, where the calls of the engine are not seen as such.
  void note_differentiation() { differentiates_ = true; }

  /// Functionalisation is about to call the twin of this in-place operator.
  void announce_in_place(const Operator* op) { announced_in_place_ = op; }
  /// The operator announced last, once; null if there is none.
  const Operator* take_announced_in_place() { return std::exchange(announced_in_place_, nullptr); }

  /// How many nodes were written, and how the shapes of their results were found out.
  struct Counts {
    uint64_t nodes = 0;
    uint64_t rule_calls = 0;
    uint64_t meta_calls = 0;
    uint64_t real_kernel_calls = 0;
  } counts;

 private:
  Tracer& tracer_;
  Graph graph_;
  Phase phase_ = Phase::Forward;
  bool autocast_ = false;
  bool differentiates_ = false;
  const Operator* announced_in_place_ = nullptr;
  NodePtr issuer_;
  const uint64_t first_sequence_;
};

}  // namespace ahead::tracing
