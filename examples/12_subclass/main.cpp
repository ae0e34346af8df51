// Wrapper tensors: weights that are kept as int8 with a scale, frozen, inside a model that is
// trained by small matrices beside them. The class says what operators do with its tensors; the
// compiled step is one graph of int8 and float tensors in which nothing is left of the class.

#include <ahead/ahead.h>
#include <torch/torch.h>

#include <cstdio>
#include <vector>

#include "int8_tensor.h"
#include "models/checks.h"

namespace {

using at::Tensor;

/// A linear layer with frozen int8 weights, and two small matrices that learn what to add to them.
struct Layer {
  Layer(int64_t in, int64_t out, int64_t rank)
      : weight(Int8Tensor::quantize(torch::randn({out, in}) * 0.3)),
        down((torch::randn({in, rank}) * 0.1).requires_grad_()),
        up(torch::zeros({rank, out}).requires_grad_()) {}

  Tensor forward(const Tensor& x) const { return x.mm(weight.t()) + x.mm(down).mm(up); }

  Tensor weight, down, up;
};

struct Model {
  Layer first{32, 64, 4}, second{64, 8, 4};
  torch::optim::SGD optimizer{std::vector<Tensor>{first.down, first.up, second.down, second.up},
                              0.1};

  Tensor loss(const Tensor& x, const Tensor& target) const {
    return (second.forward(first.forward(x).tanh()) - target).pow(2).mean();
  }
};

/// Trains a model, and returns its losses.
template <class Loss>
std::vector<float> train(Model& model, const Loss& loss_of, int steps) {
  torch::manual_seed(1);
  const Tensor x = torch::randn({16, 32}), target = torch::randn({16, 8});
  std::vector<float> losses;
  for (int step = 0; step < steps; ++step) {
    model.optimizer.zero_grad();
    const Tensor loss = loss_of(x, target);
    loss.backward();
    model.optimizer.step();
    losses.push_back(loss.item<float>());
  }
  return losses;
}

}  // namespace

int main() {
  constexpr int steps = 30;
  models::Checks check;
  torch::manual_seed(0);
  Model eager;
  torch::manual_seed(0);
  Model ours;

  const std::vector<float> expected = train(
      eager, [&](const Tensor& x, const Tensor& y) { return eager.loss(x, y); }, steps);
  auto compiled = ahead::compile([&](const Tensor& x, const Tensor& y) { return ours.loss(x, y); },
                                 {.backend = "interpreter", .fullgraph = true});
  const std::vector<float> losses = train(ours, compiled, steps);

  std::printf("loss %.4f -> %.4f\n", losses.front(), losses.back());
  check(losses.back() < losses.front() / 2, "the small matrices learn, beside frozen int8 weights");
  check(losses == expected, "every loss is eager's, to the bit");
  const ahead::CompileStats stats = compiled.stats();
  check(stats.cache_hits >= 20 && stats.eager_calls == 0,
        "most steps ran from graphs, none eagerly");

  size_t int8_inputs = 0;
  for (const ahead::Program& program : compiled.programs()) {
    if (program.name != "partition.forward") continue;
    for (const ahead::Graph::Input& input : program.graph->inputs())
      int8_inputs += input.value->meta.dtype == at::kChar ? 1 : 0;
  }
  check(int8_inputs == 2, "the graph takes the int8 data of both weights");
  return check.exit_code();
}
