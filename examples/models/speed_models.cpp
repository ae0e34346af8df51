#include "models/speed_models.h"

#include <cmath>
#include <stdexcept>
#include <utility>

namespace models {

namespace F = torch::nn::functional;
using at::Tensor;
using Tensors = std::vector<at::Tensor>;

namespace {

/// Parameters of that shape, evenly distributed around a number.
Tensor parameter(at::IntArrayRef sizes, double width, double middle = 0) {
  return torch::rand(sizes).mul_(2 * width).add_(middle - width).requires_grad_();
}

template <class Model>
Workload workload_of(std::string name, Model model, Tensors inputs) {
  auto loss = [model](const Tensors& in) mutable { return Tensors{model->forward(in[0], in[1])}; };
  return {std::move(name), model->parameters(), std::move(inputs), loss};
}

Workload mlp(bool is_small) {
  const int64_t in = is_small ? 48 : 784, hidden = is_small ? 32 : 512;
  Mlp model(in, hidden, 10);
  return workload_of("mlp", model, {torch::randn({64, in}), torch::randint(10, {64}, at::kLong)});
}

Workload gpt(bool is_small) {
  return gpt_workload(
      is_small ? GptOptions{.layers = 2, .width = 64, .heads = 2, .vocabulary = 64, .context = 16}
               : GptOptions{});
}

Workload resnet(bool is_small) {
  if (!is_small) return resnet_workload();
  ResNet model(2, 8, 10);
  return workload_of("resnet8", model,
                     {torch::randn({4, 3, 16, 16}), torch::randint(10, {4}, at::kLong)});
}

/// A cell written down by the one who uses it, unrolled over 32 times.
Workload lstm(bool is_small) {
  const int64_t width = is_small ? 16 : 128, times = is_small ? 4 : 32;
  const double bound = 1 / std::sqrt(static_cast<double>(width));
  const Tensors weights = {parameter({width, 4 * width}, bound),
                           parameter({width, 4 * width}, bound), parameter({4 * width}, 0.1)};
  auto loss = [weights](const Tensors& in) {
    Tensor h = at::zeros({in[0].size(1), weights[1].size(0)}), c = h;
    Tensors states;
    for (int64_t t = 0; t < in[0].size(0); ++t) {
      const Tensor all = in[0][t].matmul(weights[0]) + h.matmul(weights[1]) + weights[2];
      const Tensors gates = all.chunk(4, 1);
      c = gates[1].sigmoid() * c + gates[0].sigmoid() * gates[2].tanh();
      h = gates[3].sigmoid() * c.tanh();
      states.push_back(h);
    }
    return Tensors{at::stack(states).pow(2).mean()};
  };
  return {"lstm", weights, {torch::randn({times, 16, width})}, loss};
}

/// Norms, activations and residuals by turns: root mean square and gelu, layer norm and silu.
Workload norm_chain(bool is_small) {
  const int64_t rows = is_small ? 24 : 4096, width = is_small ? 72 : 1024;
  Tensors weights;
  for (int i = 0; i < 6; ++i) {
    weights.push_back(parameter({width}, 0.1, 1));
    weights.push_back(parameter({width}, 0.1));
  }
  auto loss = [weights](const Tensors& in) {
    Tensor x = in[0];
    for (size_t i = 0; i < weights.size(); i += 2) {
      const bool is_centred = i % 4 == 2;
      const Tensor centred = is_centred ? x - x.mean(-1, true) : x;
      const Tensor scale = at::rsqrt(centred.pow(2).mean(-1, true) + 1e-6);
      const Tensor y = centred * scale * weights[i] + weights[i + 1];
      x = x + (is_centred ? at::silu(y) : at::gelu(y));
    }
    return Tensors{x.pow(2).mean()};
  };
  return {"norm_chain", weights, {torch::randn({rows, width})}, loss};
}

/// Attention in single operators, with a mask that is added.
Workload attention(bool is_small) {
  const int64_t length = is_small ? 16 : 256, width = is_small ? 8 : 64;
  Tensors weights;
  for (int i = 0; i < 3; ++i)
    weights.push_back(torch::randn({4, 8, length, width}).requires_grad_());
  const double scale = 1 / std::sqrt(static_cast<double>(width));
  auto loss = [weights, scale](const Tensors& in) {
    const Tensor scores = weights[0].matmul(weights[1].transpose(-1, -2)) * scale + in[0];
    return Tensors{at::softmax(scores, -1).matmul(weights[2]).pow(2).mean()};
  };
  return {"attention", weights, {at::full({length, length}, -1e9).triu(1)}, loss};
}

struct DoubleConvImpl : torch::nn::Module {
  DoubleConvImpl(int64_t in, int64_t out) {
    const auto conv = [](int64_t from, int64_t to) {
      return torch::nn::Conv2d(torch::nn::Conv2dOptions(from, to, 3).padding(1).bias(false));
    };
    conv1 = register_module("conv1", conv(in, out));
    norm1 = register_module("norm1", torch::nn::BatchNorm2d(out));
    conv2 = register_module("conv2", conv(out, out));
    norm2 = register_module("norm2", torch::nn::BatchNorm2d(out));
  }
  Tensor forward(const Tensor& x) {
    return torch::relu(norm2(conv2(torch::relu(norm1(conv1(x))))));
  }
  torch::nn::Conv2d conv1{nullptr}, conv2{nullptr};
  torch::nn::BatchNorm2d norm1{nullptr}, norm2{nullptr};
};
TORCH_MODULE(DoubleConv);

Tensor twice(const Tensor& x) {
  return at::upsample_nearest2d(x, std::nullopt, std::vector<double>{2, 2});
}

/// Three levels of double convolutions, with the finer ones joined on the way up.
struct UNetImpl : torch::nn::Module {
  explicit UNetImpl(int64_t width) {
    down1 = register_module("down1", DoubleConv(3, width));
    down2 = register_module("down2", DoubleConv(width, 2 * width));
    middle = register_module("middle", DoubleConv(2 * width, 4 * width));
    up2 = register_module("up2", DoubleConv(6 * width, 2 * width));
    up1 = register_module("up1", DoubleConv(3 * width, width));
    out = register_module("out", torch::nn::Conv2d(torch::nn::Conv2dOptions(width, 1, 1)));
  }
  Tensor forward(const Tensor& images, const Tensor& masks) {
    const Tensor fine = down1(images);
    const Tensor coarse = down2(at::max_pool2d(fine, 2));
    Tensor x = middle(at::max_pool2d(coarse, 2));
    x = up2(at::cat({twice(x), coarse}, 1));
    x = up1(at::cat({twice(x), fine}, 1));
    return at::binary_cross_entropy_with_logits(out(x), masks);
  }
  DoubleConv down1{nullptr}, down2{nullptr}, middle{nullptr}, up2{nullptr}, up1{nullptr};
  torch::nn::Conv2d out{nullptr};
};
TORCH_MODULE(UNet);

Workload unet(bool is_small) {
  const int64_t batch = is_small ? 2 : 4, side = is_small ? 16 : 64;
  UNet model(is_small ? 4 : 16);
  return workload_of("unet", model,
                     {torch::randn({batch, 3, side, side}),
                      torch::randint(2, {batch, 1, side, side}).to(at::kFloat)});
}

struct VitBlockImpl : torch::nn::Module {
  VitBlockImpl(int64_t width, int64_t num_heads) : heads(num_heads) {
    norm1 = register_module("norm1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    qkv = register_module("qkv", torch::nn::Linear(width, 3 * width));
    out = register_module("out", torch::nn::Linear(width, width));
    norm2 = register_module("norm2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    up = register_module("up", torch::nn::Linear(width, 4 * width));
    down = register_module("down", torch::nn::Linear(4 * width, width));
  }
  Tensor forward(Tensor x) {
    const int64_t batch = x.size(0), time = x.size(1), width = x.size(2);
    Tensors parts = qkv(norm1(x)).chunk(3, 2);
    for (Tensor& part : parts)
      part = part.view({batch, time, heads, width / heads}).transpose(1, 2);
    const Tensor mixed = at::scaled_dot_product_attention(parts[0], parts[1], parts[2]);
    x = x + out(mixed.transpose(1, 2).reshape({batch, time, width}));
    return x + down(F::gelu(up(norm2(x))));
  }
  int64_t heads;
  torch::nn::LayerNorm norm1{nullptr}, norm2{nullptr};
  torch::nn::Linear qkv{nullptr}, out{nullptr}, up{nullptr}, down{nullptr};
};
TORCH_MODULE(VitBlock);

/// A transformer over patches of 4 by 4 pixels and a token for the class.
struct VitImpl : torch::nn::Module {
  VitImpl(int64_t depth, int64_t width, int64_t side) {
    const int64_t patches = (side / 4) * (side / 4);
    cls = register_parameter("cls", torch::randn({1, 1, width}) * 0.02);
    positions = register_parameter("positions", torch::randn({patches + 1, width}) * 0.02);
    embedding = register_module("embedding", torch::nn::Linear(48, width));
    blocks = register_module("blocks", torch::nn::ModuleList());
    for (int64_t i = 0; i < depth; ++i) blocks->push_back(VitBlock(width, 4));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    head = register_module("head", torch::nn::Linear(width, 10));
  }
  Tensor forward(const Tensor& images, const Tensor& targets) {
    const int64_t batch = images.size(0), side = images.size(2) / 4;
    Tensor x = images.reshape({batch, 3, side, 4, side, 4}).permute({0, 2, 4, 1, 3, 5});
    x = embedding(x.reshape({batch, side * side, 48}));
    x = at::cat({cls.expand({batch, 1, x.size(2)}), x}, 1) + positions;
    for (const auto& block : *blocks) x = block->as<VitBlock>()->forward(x);
    return F::cross_entropy(head(norm(x).select(1, 0)), targets);
  }
  Tensor cls, positions;
  torch::nn::Linear embedding{nullptr}, head{nullptr};
  torch::nn::ModuleList blocks;
  torch::nn::LayerNorm norm{nullptr};
};
TORCH_MODULE(Vit);

Workload vit(bool is_small) {
  const int64_t batch = is_small ? 2 : 16, side = is_small ? 16 : 32;
  Vit model(is_small ? 2 : 6, is_small ? 32 : 128, side);
  return workload_of(
      "vit", model, {torch::randn({batch, 3, side, side}), torch::randint(10, {batch}, at::kLong)});
}

/// An autoencoder with a normal latent; the noise is an input.
struct VaeImpl : torch::nn::Module {
  VaeImpl(int64_t pixels, int64_t hidden, int64_t latent) {
    encode = register_module("encode", torch::nn::Linear(pixels, hidden));
    mean = register_module("mean", torch::nn::Linear(hidden, latent));
    log_variance = register_module("log_variance", torch::nn::Linear(hidden, latent));
    decode = register_module("decode", torch::nn::Linear(latent, hidden));
    out = register_module("out", torch::nn::Linear(hidden, pixels));
  }
  Tensor forward(const Tensor& x, const Tensor& noise) {
    const Tensor h = torch::relu(encode(x));
    const Tensor mu = mean(h), lv = log_variance(h);
    const Tensor z = mu + noise * torch::exp(0.5 * lv);
    const Tensor logits = out(torch::relu(decode(z)));
    const Tensor likelihood =
        at::binary_cross_entropy_with_logits(logits, x, {}, {}, at::Reduction::Sum);
    return (likelihood - 0.5 * (1 + lv - mu.pow(2) - lv.exp()).sum()) / x.size(0);
  }
  torch::nn::Linear encode{nullptr}, mean{nullptr}, log_variance{nullptr}, decode{nullptr},
      out{nullptr};
};
TORCH_MODULE(Vae);

Workload vae(bool is_small) {
  const int64_t batch = is_small ? 8 : 128, pixels = is_small ? 64 : 784;
  const int64_t hidden = is_small ? 32 : 400, latent = is_small ? 4 : 20;
  Vae model(pixels, hidden, latent);
  return workload_of("vae", model, {torch::rand({batch, pixels}), torch::randn({batch, latent})});
}

/// The heat equation u_t = 0.1 u_xx on a network of x and t.
Workload pinn(bool is_small) {
  const int64_t points = is_small ? 32 : 1024, width = is_small ? 16 : 64;
  const std::vector<int64_t> widths = {2, width, width, width, 1};
  Tensors weights;
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    const double bound = 1 / std::sqrt(static_cast<double>(widths[i]));
    weights.push_back(parameter({widths[i + 1], widths[i]}, bound));
    weights.push_back(parameter({widths[i + 1]}, bound));
  }
  auto loss = [weights](const Tensors& in) {
    using torch::autograd::grad;
    Tensor u = in[0];
    for (size_t i = 0; i < weights.size(); i += 2) {
      u = at::linear(u, weights[i], weights[i + 1]);
      if (i + 2 < weights.size()) u = u.tanh();
    }
    const Tensor du = grad({u.sum()}, {in[0]}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
    const Tensor ddu =
        grad({du.select(1, 0).sum()}, {in[0]}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
    return Tensors{(du.select(1, 1) - 0.1 * ddu.select(1, 0)).pow(2).mean()};
  };
  return {"pinn", weights, {torch::rand({points, 2}).mul_(2).sub_(1).requires_grad_()}, loss};
}

Workload tiny(bool) {
  const Tensors weights = {torch::randn({4, 4}).requires_grad_(),
                           torch::randn({4}).requires_grad_()};
  auto loss = [weights](const Tensors& in) {
    return Tensors{torch::tanh(in[0].matmul(weights[0]) + weights[1]).sum()};
  };
  return {"tiny", weights, {torch::randn({4, 4})}, loss};
}

using Maker = Workload (*)(bool is_small);
const std::vector<std::pair<std::string, Maker>> kMakers = {{"mlp", mlp},
                                                            {"gpt12", gpt},
                                                            {"resnet8", resnet},
                                                            {"lstm", lstm},
                                                            {"norm_chain", norm_chain},
                                                            {"attention", attention},
                                                            {"unet", unet},
                                                            {"vit", vit},
                                                            {"vae", vae},
                                                            {"pinn", pinn},
                                                            {"tiny", tiny}};

}  // namespace

const std::vector<std::string>& speed_models() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& [name, make] : kMakers) all.push_back(name);
    return all;
  }();
  return names;
}

Workload speed_workload(const std::string& name, SpeedSize size) {
  for (const auto& [known, make] : kMakers) {
    if (known != name) continue;
    torch::manual_seed(0);
    return make(size == SpeedSize::Small);
  }
  throw std::invalid_argument("There is no model " + name + " whose speed is measured.");
}

}  // namespace models
