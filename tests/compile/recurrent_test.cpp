#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "support/eager.h"
#include "support/hits.h"

/// The recurrent kernels of the CPU keep a workspace for their gradient only in grad mode, so that
/// none can be run again in the backward.
namespace ahead {
namespace recurrent_test {

using Tensors = std::vector<at::Tensor>;

template <class F>
Tensors train(F&& f, torch::nn::Module& net) {
  torch::manual_seed(3);
  Tensors seen;
  for (int call = 0; call < 3; ++call) {
    net.zero_grad();
    const at::Tensor x = leaf({3, 2, 4}), y = f(x);
    y.pow(2).sum().backward();
    seen.push_back(y.detach());
    seen.push_back(x.grad());
    for (const at::Tensor& parameter : net.parameters()) seen.push_back(parameter.grad().clone());
  }
  return seen;
}

torch::nn::LSTM two_layers() {
  return torch::nn::LSTM(torch::nn::LSTMOptions(4, 5).num_layers(2));
}

TEST(Recurrent, WithinAMemoryBudget) {
  torch::nn::LSTM net = two_layers();
  auto f = [net](const at::Tensor& x) mutable { return std::get<0>(net(x)); };
  const Tensors eager = train(f, *net);
  for (double budget : {0.0, 0.3, 1.0}) {
    auto compiled =
        compiled_by_call(f, {.fullgraph = true, .memory_budget = budget}, leaf({3, 2, 4}));
    expect_same(eager, train(compiled, *net));
    expect_hits(compiled);
  }
}

TEST(Recurrent, ByABackendOfTheUsers) {
  register_backend("recurrent.forwarding",
                   [](const Graph& graph, const std::vector<TensorMeta>&) -> aot::Executable {
                     auto run = std::make_shared<const Interpreter>(graph);
                     return [run](std::vector<at::Tensor>&& inputs) {
                       return (*run)(std::move(inputs));
                     };
                   });
  torch::nn::LSTM net = two_layers();
  auto f = [net](const at::Tensor& x) mutable { return std::get<0>(net(x)); };
  const Tensors eager = train(f, *net);
  auto compiled =
      compiled_by_call(f, {.backend = "recurrent.forwarding", .fullgraph = true}, leaf({3, 2, 4}));
  expect_same(eager, train(compiled, *net));
  expect_hits(compiled);
}

TEST(Recurrent, InsideACheckpoint) {
  torch::nn::LSTM net = two_layers();
  auto f = [net](const at::Tensor& x) mutable {
    auto run = [net](const at::Tensor& y) mutable { return std::get<0>(net(y.sin())).tanh(); };
    return checkpoint(CheckpointPolicy::recompute_everything(), run, x);
  };
  const Tensors eager = train(f, *net);
  for (Partitioner partitioner : {Partitioner::Default, Partitioner::MinCut}) {
    auto compiled =
        compiled_by_call(f, {.fullgraph = true, .partitioner = partitioner}, leaf({3, 2, 4}));
    expect_same(eager, train(compiled, *net));
    expect_hits(compiled);
  }
}

}  // namespace recurrent_test
}  // namespace ahead
