#pragma once

#include <torch/csrc/autograd/edge.h>

#include <memory>
#include <optional>
#include <vector>

#include "ahead/executable.h"
#include "ir/copy.h"
#include "trace/open_trace.h"

namespace ahead::tracing {

/// A traced function whose trace stays open, so that its autograd graph can be differentiated later
/// on in every way that eager could: custom functions and hooks run anew for each derivative.
///
/// It holds what the autograd graph of an eager call holds, without data and without arguments.
class DifferentiableTrace {
 public:
  /// Traces a function again that was traced as `joint`; `captured`: for each input of that graph
  /// the tensor that it captured. Null if the function does something else this time.
  static std::unique_ptr<DifferentiableTrace> make(const aot::FlatFunction& function,
                                                   const std::vector<at::Tensor>& inputs,
                                                   const Graph& joint,
                                                   const std::vector<at::Tensor>& captured);
  ~DifferentiableTrace();
  DifferentiableTrace(const DifferentiableTrace&) = delete;
  DifferentiableTrace& operator=(const DifferentiableTrace&) = delete;

  /// The function's results with a tangent, in the order of the joint graph's tangents.
  const torch::autograd::edge_list& roots() const { return roots_; }
  /// What stands for the joint graph's inputs and for the values of its forward, by Value::id();
  /// null for others.
  const ValueMap& values() const { return values_; }
  /// Where the gradient of a graph input is found; invalid if it has none.
  torch::autograd::Edge edge_of(const Value& input) const;
  const Graph& graph() const { return open_->graph(); }

  /// What can be differentiated, and by what.
  struct Stage {
    torch::autograd::edge_list roots, targets;
  };

  /// Gradients, written down at the end of the graph.
  struct Derivative {
    std::vector<Value*> tangents;     ///< of each root; null: undefined
    std::vector<Value*> gradients;    ///< by each target; null: undefined
    std::vector<bool> has_history;    ///< for each gradient
    std::vector<at::Tensor> outside;  ///< tensors from outside, met now, that require grad
    const Node* before = nullptr;     ///< the last node of what was there before
    /// The gradients with a history, by the targets of before, the tangents that require grad, and
    /// `outside`.
    Stage next;
  };

  /// Differentiates a stage as eager does, where undefined tangents and unwanted gradients are left
  /// out. The tangents say how they look and whether they require grad. Gradients have a history
  /// only if `create_graph`.
  ///
  /// Throws Unsupported if the backward writes to something that it did not make.
  Derivative differentiate(const Stage& stage,
                           const std::vector<std::optional<TensorMeta>>& tangents,
                           const std::vector<bool>& wanted, bool create_graph);

  /// The tensor from outside that a value stands for, if no run of the function itself has met it:
  /// its contents at the time of the backward count, as in eager. Undefined for other values.
  at::Tensor find_outside(const Value& value) const;

 private:
  DifferentiableTrace(std::unique_ptr<OpenTrace> open, torch::autograd::edge_list roots)
      : open_(std::move(open)), roots_(std::move(roots)) {}

  Outside& outside() const { return open_->outside(); }
  bool match(const Graph& joint, const std::vector<at::Tensor>& captured);
  void check_usable() const;
  void add_targets(const std::vector<at::Tensor>& tangents, size_t num_lifted,
                   Derivative& derivative) const;

  std::unique_ptr<OpenTrace> open_;
  torch::autograd::edge_list roots_;
  ValueMap values_;
  size_t num_values_ = 0;  ///< once the function had run
  bool is_spoiled_ = false;
};

}  // namespace ahead::tracing
