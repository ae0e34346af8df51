#include "models/models.h"

namespace models {

namespace F = torch::nn::functional;
using torch::Tensor;

MlpImpl::MlpImpl(int64_t in, int64_t hidden, int64_t classes) {
  first = register_module("first", torch::nn::Linear(in, hidden));
  second = register_module("second", torch::nn::Linear(hidden, hidden));
  third = register_module("third", torch::nn::Linear(hidden, classes));
}

Tensor MlpImpl::forward(Tensor x, const Tensor& target) {
  x = torch::relu(first(x));
  x = torch::relu(second(x));
  return F::cross_entropy(third(x), target);
}

GptBlockImpl::GptBlockImpl(int64_t width, int64_t num_heads) : heads(num_heads) {
  norm1 = register_module("norm1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
  qkv = register_module("qkv", torch::nn::Linear(width, 3 * width));
  out = register_module("out", torch::nn::Linear(width, width));
  norm2 = register_module("norm2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
  up = register_module("up", torch::nn::Linear(width, 4 * width));
  down = register_module("down", torch::nn::Linear(4 * width, width));
}

Tensor GptBlockImpl::forward(Tensor x) {
  const int64_t batch = x.size(0), time = x.size(1), width = x.size(2);
  std::vector<Tensor> parts = qkv(norm1(x)).split(width, 2);
  for (Tensor& part : parts) part = part.view({batch, time, heads, width / heads}).transpose(1, 2);
  Tensor mixed =
      at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, /*is_causal=*/true);
  x = x + out(mixed.transpose(1, 2).reshape({batch, time, width}));
  return x + down(F::gelu(up(norm2(x))));
}

GptImpl::GptImpl(GptOptions options) {
  embedding = register_module("embedding", torch::nn::Embedding(options.vocabulary, options.width));
  positions = register_parameter("positions", torch::zeros({options.context, options.width}));
  blocks = register_module("blocks", torch::nn::ModuleList());
  for (int64_t i = 0; i < options.layers; ++i)
    blocks->push_back(GptBlock(options.width, options.heads));
  norm =
      register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({options.width})));
  head = register_module(
      "head",
      torch::nn::Linear(torch::nn::LinearOptions(options.width, options.vocabulary).bias(false)));
}

Tensor GptImpl::logits(const Tensor& tokens) {
  Tensor x = embedding(tokens) + positions;
  for (const auto& block : *blocks) x = block->as<GptBlock>()->forward(x);
  return head(norm(x));
}

Tensor GptImpl::forward(const Tensor& tokens, const Tensor& targets) {
  return F::cross_entropy(logits(tokens).flatten(0, 1), targets.flatten());
}

ResBlockImpl::ResBlockImpl(int64_t channels) {
  auto conv = [&] {
    return torch::nn::Conv2d(
        torch::nn::Conv2dOptions(channels, channels, 3).padding(1).bias(false));
  };
  conv1 = register_module("conv1", conv());
  norm1 = register_module("norm1", torch::nn::BatchNorm2d(channels));
  conv2 = register_module("conv2", conv());
  norm2 = register_module("norm2", torch::nn::BatchNorm2d(channels));
}

Tensor ResBlockImpl::forward(const Tensor& x) {
  return torch::relu(x + norm2(conv2(torch::relu(norm1(conv1(x))))));
}

ResNetImpl::ResNetImpl(int64_t depth, int64_t channels, int64_t classes) {
  stem = register_module("stem",
                         torch::nn::Conv2d(torch::nn::Conv2dOptions(3, channels, 3).padding(1)));
  blocks = register_module("blocks", torch::nn::ModuleList());
  for (int64_t i = 0; i < depth; ++i) blocks->push_back(ResBlock(channels));
  head = register_module("head", torch::nn::Linear(channels, classes));
}

Tensor ResNetImpl::forward(Tensor images, const Tensor& targets) {
  Tensor x = stem(images);
  for (const auto& block : *blocks) x = block->as<ResBlock>()->forward(x);
  return F::cross_entropy(head(x.mean({2, 3})), targets);
}

LstmImpl::LstmImpl(int64_t in, int64_t hidden) {
  cell = register_module("cell", torch::nn::LSTMCell(in, hidden));
}

Tensor LstmImpl::forward(const Tensor& sequence, const Tensor& target) {
  const auto options = sequence.options().requires_grad(false);
  Tensor h = torch::zeros({sequence.size(1), cell->options.hidden_size()}, options);
  Tensor c = torch::zeros_like(h);
  for (int64_t t = 0; t < sequence.size(0); ++t) {
    std::tie(h, c) = cell(sequence[t], std::make_tuple(h, c));
  }
  return (h - target).pow(2).mean();
}

PinnImpl::PinnImpl(int64_t hidden) {
  first = register_module("first", torch::nn::Linear(1, hidden));
  second = register_module("second", torch::nn::Linear(hidden, hidden));
  third = register_module("third", torch::nn::Linear(hidden, 1));
}

Tensor PinnImpl::forward(const Tensor& x) {
  return third(torch::tanh(second(torch::tanh(first(x)))));
}

Tensor PinnImpl::loss(const Tensor& x) {
  using torch::autograd::grad;
  Tensor u = forward(x);
  Tensor du = grad({u.sum()}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
  Tensor ddu = grad({du.sum()}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
  return (ddu + torch::sin(x)).pow(2).mean();
}

namespace {

/// The forward function of a model, on a flat list of two inputs.
template <class Model>
auto loss_of(Model model) {
  return [model](const std::vector<Tensor>& in) mutable {
    return std::vector<Tensor>{model->forward(in[0], in[1])};
  };
}

}  // namespace

Workload mlp_workload() {
  torch::manual_seed(0);
  Mlp model;
  Tensor x = torch::randn({32, 64});
  Tensor target = torch::randint(10, {32}, at::kLong);
  return {"mlp", model->parameters(), {x, target}, loss_of(model)};
}

Workload gpt_workload(GptOptions options) {
  torch::manual_seed(0);
  Gpt model(options);
  Tensor tokens = torch::randint(options.vocabulary, {4, options.context}, at::kLong);
  Tensor targets = torch::randint(options.vocabulary, {4, options.context}, at::kLong);
  std::string name = "gpt" + std::to_string(options.layers);
  return {name, model->parameters(), {tokens, targets}, loss_of(model)};
}

Workload resnet_workload() {
  torch::manual_seed(0);
  ResNet model;
  Tensor images = torch::randn({8, 3, 32, 32});
  Tensor targets = torch::randint(10, {8}, at::kLong);
  return {"resnet8", model->parameters(), {images, targets}, loss_of(model)};
}

Workload lstm_workload() {
  torch::manual_seed(0);
  Lstm model;
  Tensor sequence = torch::randn({32, 16, 128});
  Tensor target = torch::randn({16, 128});
  return {"lstm", model->parameters(), {sequence, target}, loss_of(model)};
}

Workload pinn_workload() {
  torch::manual_seed(0);
  Pinn model;
  Tensor x = torch::linspace(-3, 3, 256).unsqueeze(1).requires_grad_();
  auto loss = [model](const std::vector<Tensor>& in) mutable {
    return std::vector<Tensor>{model->loss(in[0])};
  };
  return {"pinn", model->parameters(), {x}, loss};
}

std::vector<Workload> workloads() {
  return {mlp_workload(), gpt_workload(), resnet_workload(), lstm_workload(), pinn_workload()};
}

Tensor eager_step(const Workload& workload) {
  for (const Tensor& parameter : workload.parameters) parameter.mutable_grad().reset();
  for (const Tensor& input : workload.inputs) {
    if (input.requires_grad()) input.mutable_grad().reset();
  }
  Tensor loss = workload.loss(workload.inputs)[0];
  loss.backward();
  return loss.detach();
}

std::vector<Tensor> joint_arguments(const Workload& workload) {
  std::vector<Tensor> arguments = workload.inputs;
  arguments.push_back(torch::ones({}));
  return arguments;
}

}  // namespace models
