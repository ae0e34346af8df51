#pragma once

#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

/// Small models that the examples, the tests and the benchmarks share.
namespace models {

/// Linear layers with ReLU between them, and a cross-entropy loss.
struct MlpImpl : torch::nn::Module {
  explicit MlpImpl(int64_t in = 64, int64_t hidden = 256, int64_t classes = 10);
  torch::Tensor forward(torch::Tensor x, const torch::Tensor& target);
  torch::nn::Linear first{nullptr}, second{nullptr}, third{nullptr};
};
TORCH_MODULE(Mlp);

/// A decoder-only transformer with causal attention, and a cross-entropy loss over its vocabulary.
struct GptOptions {
  int64_t layers = 12, width = 256, heads = 8, vocabulary = 512, context = 64;
};
struct GptBlockImpl : torch::nn::Module {
  GptBlockImpl(int64_t width, int64_t heads);
  torch::Tensor forward(torch::Tensor x);
  int64_t heads;
  torch::nn::LayerNorm norm1{nullptr}, norm2{nullptr};
  torch::nn::Linear qkv{nullptr}, out{nullptr}, up{nullptr}, down{nullptr};
};
TORCH_MODULE(GptBlock);
struct GptImpl : torch::nn::Module {
  explicit GptImpl(GptOptions options = {});
  torch::Tensor forward(const torch::Tensor& tokens, const torch::Tensor& targets);
  /// What the model expects after each token; as many tokens as the context has.
  torch::Tensor logits(const torch::Tensor& tokens);
  torch::nn::Embedding embedding{nullptr};
  torch::Tensor positions;
  torch::nn::ModuleList blocks;
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Gpt);

/// Residual blocks of two convolutions with batch normalisation, and a cross-entropy loss.
struct ResBlockImpl : torch::nn::Module {
  explicit ResBlockImpl(int64_t channels);
  torch::Tensor forward(const torch::Tensor& x);
  torch::nn::Conv2d conv1{nullptr}, conv2{nullptr};
  torch::nn::BatchNorm2d norm1{nullptr}, norm2{nullptr};
};
TORCH_MODULE(ResBlock);
struct ResNetImpl : torch::nn::Module {
  explicit ResNetImpl(int64_t depth = 8, int64_t channels = 32, int64_t classes = 10);
  torch::Tensor forward(torch::Tensor images, const torch::Tensor& targets);
  torch::nn::Conv2d stem{nullptr};
  torch::nn::ModuleList blocks;
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(ResNet);

/// An LSTM cell unrolled over time, and a squared-error loss on its last state.
struct LstmImpl : torch::nn::Module {
  explicit LstmImpl(int64_t in = 128, int64_t hidden = 128);
  torch::Tensor forward(const torch::Tensor& sequence, const torch::Tensor& target);
  torch::nn::LSTMCell cell{nullptr};
};
TORCH_MODULE(Lstm);

/// A physics-informed network: the loss of `u'' = -sin` contains second derivatives of the network.
struct PinnImpl : torch::nn::Module {
  explicit PinnImpl(int64_t hidden = 64);
  torch::Tensor forward(const torch::Tensor& x);
  torch::Tensor loss(const torch::Tensor& x);
  torch::nn::Linear first{nullptr}, second{nullptr}, third{nullptr};
};
TORCH_MODULE(Pinn);

/// A model ready to train: parameters, inputs, and its loss as a flat function of the inputs.
struct Workload {
  std::string name;
  std::vector<torch::Tensor> parameters;
  std::vector<torch::Tensor> inputs;
  std::function<std::vector<torch::Tensor>(const std::vector<torch::Tensor>&)> loss;
};

// Each of these seeds LibTorch's generator, so that a workload is the same in every program.
Workload mlp_workload();
Workload gpt_workload(GptOptions options = {});
Workload resnet_workload();
Workload lstm_workload();
Workload pinn_workload();
/// The models of the first lesson, in its order: mlp, gpt12, resnet8, lstm, pinn.
std::vector<Workload> workloads();

/// A training step without the update, as eager LibTorch runs it: forgets the gradients of the step
/// before, computes the loss, and lets backward() leave new gradients behind. Returns the loss.
torch::Tensor eager_step(const Workload& workload);

/// What a joint graph of the workload takes for the same step: the inputs, then the gradient of the
/// loss, which is one.
std::vector<torch::Tensor> joint_arguments(const Workload& workload);

}  // namespace models
