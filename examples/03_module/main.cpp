// Compiles a module and trains it beside its eager twin: optimisers, buffers, dropout, train() and
// eval() go on as before.

#include <ahead/ahead.h>

#include "models/checks.h"
#include "models/models.h"
#include "models/same.h"

namespace {

using at::Tensor;

torch::nn::Sequential make_net() {
  torch::manual_seed(1);
  // Batch normalisation takes the mean away, and a bias with it: its gradient is all rounding.
  return torch::nn::Sequential(torch::nn::Linear(torch::nn::LinearOptions(8, 32).bias(false)),
                               torch::nn::BatchNorm1d(32), torch::nn::SiLU(),
                               torch::nn::Dropout(0.2), torch::nn::Linear(32, 1));
}

/// One step of training. `forward` is the module, compiled or not.
template <class Forward>
double step(Forward& forward, torch::optim::Optimizer& optimizer, const Tensor& x, int seed) {
  torch::manual_seed(seed);  // dropout draws the same numbers in both
  optimizer.zero_grad();
  Tensor loss = (forward(x) - x.sum(1, /*keepdim=*/true)).square().mean();
  loss.backward();
  optimizer.step();
  return loss.item<double>();
}

}  // namespace

int main() {
  models::Checks check;
  torch::nn::Sequential eager_net = make_net(), net = make_net();
  torch::optim::AdamW eager_optimizer(eager_net->parameters(), 1e-2);
  torch::optim::AdamW optimizer(net->parameters(), 1e-2);

  // The module stays what it is: the optimiser steps its parameters, and you can save or print it.
  auto compiled = ahead::compile(net, {.fullgraph = true});
  auto eager = [&](const Tensor& x) { return eager_net->forward(x); };

  // Roundings in the last places grow as training goes on.
  constexpr double tolerance = 1e-3;
  bool losses_agree = true;
  for (int i = 0; i < 50; ++i) {
    Tensor x = torch::randn({16, 8});
    const double expected = step(eager, eager_optimizer, x, i);
    const double loss = step(compiled, optimizer, x, i);
    losses_agree = losses_agree && std::abs(loss - expected) <= tolerance * expected;
    if (i % 10 == 0) std::printf("       step %2d  loss %.6f  eager %.6f\n", i, loss, expected);
  }
  check(losses_agree, "50 losses are eager's");
  check(models::same(net->parameters(), eager_net->parameters(), tolerance),
        "so are the parameters");
  check(models::same(net->buffers(), eager_net->buffers(), tolerance),
        "so are batch normalisation's statistics");
  // Steps 1 and 2 ran the module itself, watched, and graphs of what it did ran from then on;
  // steps 4, 8, 16 and 32 looked whether it still does the same.
  const ahead::CompileStats stats = compiled.stats();
  std::printf("       %llu steps: %llu observed, %llu from graphs\n",
              static_cast<unsigned long long>(stats.calls),
              static_cast<unsigned long long>(stats.observed_calls),
              static_cast<unsigned long long>(stats.cache_hits));
  check(stats.observed_calls == 6 && stats.cache_hits == 44, "44 of the 50 ran from graphs");

  // train() and eval() decide the program, as do grad mode and the sizes of the arguments.
  net->eval();
  eager_net->eval();
  torch::NoGradGuard no_grad;
  Tensor x = torch::randn({5, 8});
  std::printf("       %s\n", compiled.explain(x).c_str());
  for (const bool is_training : {false, true}) {
    net->train(is_training);
    eager_net->train(is_training);
    bool same = true;
    for (int call = 0; call < 3; ++call) {
      torch::manual_seed(call);
      Tensor expected = eager(x);
      torch::manual_seed(call);
      same = same && models::same(compiled(x), expected, tolerance);
    }
    check(same, is_training ? "and after train() again" : "after eval(), too");
  }
  check(compiled.stats().observed_calls == 6 + 2 * 2 && compiled.stats().cache_hits == 44 + 2,
        "each was observed twice, then ran from a graph of its own");
  return check.exit_code();
}
