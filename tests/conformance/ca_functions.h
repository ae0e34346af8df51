#pragma once

#include <torch/torch.h>

#include <vector>

#include "support/engine_check.h"

namespace ahead::conformance {

/// The sine with a formula of its own. `number` makes types that differ in nothing else.
template <bool traceable, int number = 0>
struct Sine : torch::autograd::Function<Sine<traceable, number>> {
  static constexpr bool is_traceable = traceable;
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x.sin();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    return {grads[0] * context->get_saved_variables()[0].cos()};
  }
};

/// A region whose values are computed again in the backward, which runs a backward of its own.
struct Reentrant : torch::autograd::Function<Reentrant> {
  static at::Tensor region(const at::Tensor& x, const at::Tensor& w) { return x.mm(w).tanh(); }
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& w) {
    context->save_for_backward({x, w});
    return region(x, w);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = context->get_saved_variables();
    at::AutoGradMode on(true);
    const at::Tensor x = saved[0].detach().requires_grad_(), w = saved[1].detach().requires_grad_();
    region(x, w).backward(grads[0]);
    return {x.grad(), w.grad()};
  }
};

/// The gradient through a custom function of one tensor.
template <class F>
std::vector<at::Tensor> backward_of(int64_t size = 10) {
  const at::Tensor x = leaf({size});
  F::apply(x.exp()).sum().backward();
  return {x.grad()};
}

}  // namespace ahead::conformance
