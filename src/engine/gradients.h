#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <vector>

#include "engine/backward.h"

namespace ahead::engine {

/// What is known at one moment of a running backward: the gradients that wait at each place for
/// their node, and those that were asked for.
class Gradients {
 public:
  explicit Gradients(const Backward& backward);

  at::Tensor& at(size_t place) { return waiting_[place]; }
  const at::Tensor& at(size_t place) const { return waiting_[place]; }
  std::vector<at::Tensor>& results() { return results_; }

  /// Runs one node as the eager engine would, hooks included, and passes on what it returns.
  void run_eagerly(const Step& step);
  /// Adds to the `.grad` of the leaf whose step this is; what a graph calls.
  void accumulate(size_t step, at::Tensor gradient);

  /// The gradients of the backward that is running on this thread inside a graph; null: none is.
  static Gradients* current();

  /// Makes this one current for a scope.
  class Current {
   public:
    explicit Current(Gradients& gradients);
    ~Current();
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

   private:
    Gradients* outer_;
  };

 private:
  torch::autograd::variable_list call(torch::autograd::Node& node,
                                      torch::autograd::variable_list inputs);
  void pass_on(const Step& step, torch::autograd::variable_list outputs);

  const Backward& backward_;
  std::vector<at::Tensor> waiting_;
  std::vector<at::Tensor> results_;
  /// The thread's dispatch keys outside of any graph.
  c10::impl::LocalDispatchKeySet outside_;
};

}  // namespace ahead::engine
