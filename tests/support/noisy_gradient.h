#pragma once

#include <torch/torch.h>

namespace ahead {

/// A custom autograd function of four numbers whose forward and backward both draw random ones.
struct NoisyGradient : torch::autograd::Function<NoisyGradient> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return x * at::rand({4});
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0] * at::rand({4})};
  }
};

}  // namespace ahead
