// Compiled autograd: the forward stays as it is, and what loss.backward() does becomes a graph that
// is kept and run again. Hooks, accumulation and the rules about .grad are eager's.

#include <ahead/ahead.h>

#include <cstdio>

#include "models/checks.h"
#include "models/models.h"
#include "models/same.h"

namespace {

namespace ca = ahead::compiled_autograd;
using at::Tensor;
using Tensors = std::vector<Tensor>;

/// A few steps of training, with a hook that clips one gradient; returns the parameters.
Tensors train(int steps) {
  torch::manual_seed(0);
  models::Mlp net;
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  net->first->weight.register_hook([](const Tensor& grad) { return grad.clamp(-0.01, 0.01); });
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    // Two batches add up in .grad before the parameters move.
    for (int batch = 0; batch < 2; ++batch) {
      net->forward(torch::randn({32, 64}), torch::randint(10, {32})).backward();
    }
    optimizer.step();
  }
  return net->parameters();
}

}  // namespace

int main() {
  models::Checks check;
  const Tensors expected = train(5);

  // Everything between the braces; nothing else changes.
  Tensors parameters;
  {
    ca::Enable on({.fullgraph = true});
    parameters = train(5);
  }
  check(models::same(parameters, expected), "training ends at eager's parameters");
  const ca::Stats stats = ca::stats();
  check(stats.captures == 2 && stats.cache_hits == 8,
        "ten backwards, captured twice: for leaves without a .grad, and with one");

  // The graph is an ordinary one. A leaf adds to its .grad as soon as its gradient is there.
  std::printf("\n%s\n", ca::graphs().at(0)->str().c_str());

  // A backward with create_graph is captured, too. Why there was a capture, is told.
  ca::Enable on;
  const Tensor x = torch::tensor(2.0).requires_grad_();
  const Tensor slope = torch::autograd::grad({x * x * x}, {x}, {}, {}, /*create_graph=*/true)[0];
  check(slope.item<float>() == 12, "create_graph works");
  std::printf("       %s\n", ca::reasons().back().c_str());
  {
    ca::Disable off;
    slope.backward();
  }
  check(x.grad().item<float>() == 12, "and so does a backward that is left to the eager engine");
  return check.exit_code();
}
