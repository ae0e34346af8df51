#include <ATen/ATen.h>
#include <ahead/ahead.h>

#include <iostream>

int main() {
  at::Tensor weight = at::randn({3, 2}).requires_grad_();
  auto loss = [&](const std::vector<at::Tensor>& in) {
    return std::vector<at::Tensor>{at::tanh(in[0].matmul(weight)).sum()};
  };
  at::Tensor x = at::randn({4, 3});

  // Runs the function once, forward and backward, without computing anything.
  ahead::JointGraph graph = ahead::trace_joint(loss, {x});
  std::cout << graph.str();

  // Takes the inputs and the gradient of the loss; returns the loss and the gradient of weight.
  ahead::Interpreter step(graph);
  std::vector<at::Tensor> results = step({x, at::ones({})});
  std::cout << "loss " << results[0].item<float>() << '\n';

  std::cout << "Ahead " << ahead::version() << '\n';
}
