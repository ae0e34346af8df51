#pragma once

#include <torch/torch.h>

#include <memory>
#include <optional>
#include <vector>

#include "ahead/ahead.h"

/// Layers that the tests of checkpoints compute again.
namespace ahead {

inline const CheckpointPolicy everything_again = CheckpointPolicy::recompute_everything();

/// A few layers with dropout between them.
struct Block : torch::nn::Module {
  explicit Block(int64_t width = 32)
      : up(register_module("up", torch::nn::Linear(width, 4 * width))),
        down(register_module("down", torch::nn::Linear(4 * width, width))) {}
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor h = torch::dropout(torch::gelu(up(x)), 0.3, is_training());
    return x + torch::tanh(down(h));
  }
  torch::nn::Linear up, down;
};

using Blocks = std::vector<std::shared_ptr<Block>>;

inline Blocks make_blocks(size_t count, int64_t width = 32) {
  Blocks blocks;
  for (size_t i = 0; i < count; ++i) blocks.push_back(std::make_shared<Block>(width));
  return blocks;
}

inline std::vector<at::Tensor> parameters_of(const Blocks& blocks) {
  std::vector<at::Tensor> parameters;
  for (const auto& block : blocks) {
    for (const at::Tensor& parameter : block->parameters()) parameters.push_back(parameter);
  }
  return parameters;
}

/// The loss of a function and then its gradients, from the same random numbers each time.
template <class F>
std::vector<at::Tensor> loss_and_gradients(F&& f, const std::vector<at::Tensor>& parameters) {
  torch::manual_seed(7);
  const at::Tensor loss = f();
  std::vector<at::Tensor> results =
      torch::autograd::grad({loss}, parameters, {}, std::nullopt, /*create_graph=*/false,
                            /*allow_unused=*/true);
  results.insert(results.begin(), loss.detach());
  return results;
}

}  // namespace ahead
