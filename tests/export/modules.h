#pragma once

#include <torch/torch.h>

#include <tuple>
#include <vector>

/// Modules as people write them, for the tests of exporting.
namespace ahead::exported_modules {

/// A classifier that returns its loss and its scores.
struct ClassifierImpl : torch::nn::Module {
  ClassifierImpl() {
    first = register_module("first", torch::nn::Linear(8, 16));
    norm = register_module("norm", torch::nn::BatchNorm1d(16));
    dropout = register_module("dropout", torch::nn::Dropout(0.25));
    last = register_module("last", torch::nn::Linear(16, 4));
  }
  at::Tensor scores(const at::Tensor& x) {
    return last->forward(dropout->forward(norm->forward(first->forward(x)).relu()));
  }
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x, const at::Tensor& targets) {
    const at::Tensor y = scores(x);
    return {torch::nn::functional::cross_entropy(y, targets), y.detach()};
  }
  torch::nn::Linear first{nullptr}, last{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Dropout dropout{nullptr};
};
TORCH_MODULE(Classifier);

/// The last layer's weight, used without a layer, is the embedding's.
struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    embedding = register_module("embedding", torch::nn::Embedding(12, 6));
    hidden = register_module("hidden", torch::nn::Linear(6, 6));
    head = register_parameter("head", embedding->weight);
  }
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& targets) {
    const at::Tensor y = hidden->forward(embedding->forward(tokens)).tanh().matmul(head.t());
    return torch::nn::functional::cross_entropy(y.flatten(0, 1), targets.flatten());
  }
  torch::nn::Embedding embedding{nullptr};
  torch::nn::Linear hidden{nullptr};
  at::Tensor head;
};
TORCH_MODULE(Tied);

/// Counts its calls in a buffer, and has a mask that it has not registered.
struct CountingImpl : torch::nn::Module {
  CountingImpl() {
    scale = register_parameter("scale", torch::ones({3}));
    calls = register_buffer("calls", torch::zeros({}, torch::kLong));
    average = register_buffer("average", torch::zeros({3}));
  }
  at::Tensor forward(const at::Tensor& x) {
    calls.add_(1);
    {
      const torch::NoGradGuard no_grad;
      average.mul_(0.5).add_(x.mean(0));
    }
    return (x * scale * mask).sum(1) + average.sum();
  }
  at::Tensor scale, calls, average;
  at::Tensor mask = torch::tensor({1.0f, 0.0f, 2.0f});
};
TORCH_MODULE(Counting);

}  // namespace ahead::exported_modules
