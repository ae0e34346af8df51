#pragma once

#include <ATen/core/Tensor.h>

#include <mutex>
#include <vector>

#include "engine/walk/backward.h"

namespace ahead::engine {

/// What is known at one moment of a running backward: the gradients that wait at each place for
/// their node, saved tensors that hooks have unpacked for it, and the gradients that were asked
/// for.
class Gradients {
 public:
  explicit Gradients(const Backward& backward);

  at::Tensor& at(size_t place) { return waiting_[place]; }
  const at::Tensor& at(size_t place) const { return waiting_[place]; }
  std::vector<at::Tensor>& results() { return results_; }

  /// Runs one node as the eager engine would, hooks included, and passes on what it returns. Hooks
  /// that call_before or unpack called are not called again.
  void run_eagerly(const Step& step) { pass_on(step, call(step)); }
  /// The same without passing on what the node returns.
  torch::autograd::variable_list call(const Step& step);
  /// Calls the hooks on what flows into a node. It comes next.
  void call_before(const Step& step);
  /// Lets hooks unpack what the node of this step saved, in the node's own order.
  void unpack(const Step& step);
  /// Whether all that hooks have to unpack for this step is there.
  bool is_unpacked(const Step& step) const;
  /// One of Backward::hooked(), when it is unpacked.
  at::Tensor& unpacked(size_t hooked) { return unpacked_[hooked].tensor; }
  const at::Tensor& unpacked(size_t hooked) const { return unpacked_[hooked].tensor; }
  /// What the hooks on what a node returned, which got these gradients, make of it.
  static torch::autograd::variable_list call_after(const Step& step,
                                                   torch::autograd::variable_list outputs,
                                                   const torch::autograd::variable_list& inputs);
  /// Adds what a step returns to what waits where its edges lead.
  void pass_on(const Step& step, torch::autograd::variable_list outputs);
  /// The gradients that wait for a node.
  torch::autograd::variable_list copy_inputs(const Step& step) const;
  /// For a tensor with retain_grad(): tells it its gradient, the input of a step.
  void retain(size_t step, size_t input, const at::Tensor& gradient) const;
  /// Keeps other threads from adding to the leaf with this `.grad`, if the graph that runs adds to
  /// it.
  std::unique_lock<std::mutex> lock_leaf_with(const at::Tensor& grad);

  /// The gradients of the backward that is running on this thread inside a graph; null: none is.
  static Gradients* current();

  /// Makes this one current for a scope, in which a graph adds to the leaves of these steps in
  /// place, mostly in this order.
  class Current {
   public:
    Current(Gradients& gradients, const std::vector<size_t>& adds_to);
    ~Current();
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

   private:
    Gradients* outer_;
  };

 private:
  torch::autograd::variable_list take_inputs(const Step& step);
  struct Unpacked {
    at::Tensor tensor;
    bool is_known = false;
  };
  torch::autograd::variable_list apply(const Step& step, torch::autograd::variable_list inputs);
  torch::autograd::variable_list apply_unpacked(const Step& step,
                                                torch::autograd::variable_list inputs);
  void note_results(const Step& step, const torch::autograd::variable_list& inputs);

  const Backward& backward_;
  std::vector<at::Tensor> waiting_;
  std::vector<at::Tensor> results_;
  std::vector<Unpacked> unpacked_;
  const Step* called_before_ = nullptr;  ///< the step of which call_before has called the hooks
  const std::vector<size_t>* adds_to_ = nullptr;  ///< the leaves' steps, while a graph runs
  size_t next_leaf_ = 0;                          ///< the position there of the one expected next
};

}  // namespace ahead::engine
