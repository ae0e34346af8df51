// Writes a backend: a function that gets a graph and returns something that runs it. Ahead does the
// rest (gradients, mutations, views, guards), so that a compiler author starts with walk.cpp.

#include <ahead/ahead.h>

#include "models/checks.h"
#include "models/models.h"
#include "walk.h"

using at::Tensor;

int main() {
  models::Checks check;
  ahead::register_backend("walk", walk);

  // The first call runs the function itself and, with Confirm::Never, is compiled before it
  // returns; the backend has the others.
  const ahead::Options options{
      .backend = "walk", .fullgraph = true, .confirm = ahead::Confirm::Never};

  // Forward and backward of a model, each a graph of its own.
  models::Workload mlp = models::mlp_workload();
  auto compiled = ahead::compile(mlp.loss, options);
  for (int call = 0; call < 3; ++call) {
    Tensor expected = models::eager_step(mlp);
    std::vector<Tensor> expected_gradients;
    for (Tensor& parameter : mlp.parameters) {
      expected_gradients.push_back(parameter.grad());
      parameter.mutable_grad().reset();
    }
    Tensor loss = compiled(mlp.inputs)[0];
    loss.backward();
    bool same = loss.equal(expected);
    for (size_t i = 0; i < mlp.parameters.size(); ++i) {
      same = same && mlp.parameters[i].grad().equal(expected_gradients[i]);
    }
    check(same, call == 0 ? "the first call is eager's own"
                          : "the walker gives eager's loss and gradients");
  }
  check(compiled.stats().cache_hits == 2, "which it computed twice");

  // What a function writes to its arguments, its graph may write by itself.
  auto count = [](const std::vector<Tensor>& in) {
    in[0].add_(in[1]);
    return std::vector<Tensor>{in[0] * 2};
  };
  auto counting = ahead::compile(count, options);
  Tensor total = torch::zeros({4}), expected_total = torch::zeros({4});
  for (int call = 0; call < 3; ++call) {
    const Tensor step = torch::randn({4});
    const Tensor doubled = counting(std::vector<Tensor>{total, step})[0];
    const bool same = doubled.equal(count({expected_total, step})[0]);
    check(same && total.equal(expected_total),
          call == 0 ? "the first call writes to its arguments" : "the walker writes to arguments");
  }
  check(counting.stats().cache_hits == 2, "which it did twice");

  // Or without a name, each graph with a compiler of its own; empty ones interpret.
  auto product = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{in[0].sin() * in[1]};
  };
  auto inference = ahead::aot::function(product, {.inference = walk});
  Tensor x = torch::randn({4}), y = torch::randn({4});
  check(inference(std::vector<Tensor>{x, y})[0].equal(product({x, y})[0]), "aot::function, too");
  return check.exit_code();
}
