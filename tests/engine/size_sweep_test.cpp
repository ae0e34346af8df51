#include <gtest/gtest.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/torch.h>
#include <torch/version.h>

#include <map>
#include <set>

#include "ahead/compiled_autograd.h"
#include "support/engine_check.h"

namespace ahead {
namespace size_sweep_test {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using Tensors = std::vector<at::Tensor>;

/// A function of a batch of the given size, and what it may be differentiated by besides.
struct Sample {
  std::function<at::Tensor(int64_t)> output;
  Tensors parameters;
};

/// Of a module that takes a batch of such items.
template <class Module>
Sample of(Module module, std::vector<int64_t> item) {
  return {[=](int64_t n) mutable {
            std::vector<int64_t> sizes = item;
            sizes.insert(sizes.begin(), n);
            return module->forward(leaf(sizes));
          },
          module->parameters()};
}

/// Of a function that takes a batch of such items.
Sample by(at::Tensor (*function)(const at::Tensor&), std::vector<int64_t> item = {4}) {
  return {[=](int64_t n) {
            std::vector<int64_t> sizes = item;
            sizes.insert(sizes.begin(), n);
            return function(leaf(sizes));
          },
          {}};
}

using Table = std::map<std::string, Sample>;

Table activations() {
  return {{"CELU", of(nn::CELU(), {4})},
          {"ELU", of(nn::ELU(), {4})},
          {"GELU", of(nn::GELU(), {4})},
          {"GLU", of(nn::GLU(), {4})},
          {"Hardshrink", of(nn::Hardshrink(), {4})},
          {"Hardtanh", of(nn::Hardtanh(), {4})},
          {"LeakyReLU", of(nn::LeakyReLU(), {4})},
          {"LogSigmoid", of(nn::LogSigmoid(), {4})},
          {"LogSoftmax", of(nn::LogSoftmax(1), {4})},
          {"Mish", of(nn::Mish(), {4})},
          {"PReLU", of(nn::PReLU(nn::PReLUOptions().num_parameters(4)), {4})},
          {"RReLU", of(nn::RReLU(), {4})},
          {"ReLU6", of(nn::ReLU6(), {4})},
          {"SELU", of(nn::SELU(), {4})},
          {"SiLU", of(nn::SiLU(), {4})},
          {"Softmax", of(nn::Softmax(1), {4})},
          {"Softmax2d", of(nn::Softmax2d(), {3, 4, 5})},
          {"Softmin", of(nn::Softmin(1), {4})},
          {"Softplus", of(nn::Softplus(), {4})},
          {"Softshrink", of(nn::Softshrink(), {4})},
          {"Softsign", of(nn::Softsign(), {4})},
          {"Tanhshrink", of(nn::Tanhshrink(), {4})},
          {"Threshold", of(nn::Threshold(0.1, 2), {4})}};
}

Table layers() {
  return {
      {"AdaptiveAvgPool1d", of(nn::AdaptiveAvgPool1d(3), {2, 7})},
      {"AdaptiveAvgPool2d", of(nn::AdaptiveAvgPool2d(3), {2, 7, 8})},
      {"AdaptiveAvgPool3d", of(nn::AdaptiveAvgPool3d(2), {2, 5, 6, 7})},
      {"AdaptiveMaxPool1d", of(nn::AdaptiveMaxPool1d(3), {2, 7})},
      {"AdaptiveMaxPool2d", of(nn::AdaptiveMaxPool2d(3), {2, 7, 8})},
      {"AdaptiveMaxPool3d", of(nn::AdaptiveMaxPool3d(2), {2, 5, 6, 7})},
      {"AlphaDropout", of(nn::AlphaDropout(0.3), {4})},
      {"AvgPool1d", of(nn::AvgPool1d(2), {2, 8})},
      {"AvgPool2d", of(nn::AvgPool2d(2), {2, 8, 9})},
      {"AvgPool3d", of(nn::AvgPool3d(2), {2, 4, 5, 6})},
      {"BatchNorm1d", of(nn::BatchNorm1d(4), {4})},
      {"BatchNorm2d", of(nn::BatchNorm2d(4), {4, 5, 6})},
      {"BatchNorm3d", of(nn::BatchNorm3d(2), {2, 3, 4, 5})},
      {"ConstantPad1d", of(nn::ConstantPad1d(2, 1.5), {4, 5})},
      {"ConstantPad2d", of(nn::ConstantPad2d(2, 1.5), {2, 4, 5})},
      {"Conv1d", of(nn::Conv1d(2, 4, 3), {2, 8})},
      {"Conv2d", of(nn::Conv2d(nn::Conv2dOptions(2, 4, 3).stride(2).padding(1)), {2, 8, 9})},
      {"Conv3d", of(nn::Conv3d(2, 4, 3), {2, 5, 6, 7})},
      {"ConvTranspose1d", of(nn::ConvTranspose1d(2, 4, 3), {2, 8})},
      {"ConvTranspose2d", of(nn::ConvTranspose2d(2, 4, 3), {2, 8, 9})},
      {"Dropout", of(nn::Dropout(0.5), {4})},
      {"Dropout2d", of(nn::Dropout2d(0.5), {2, 4, 5})},
      {"FeatureAlphaDropout", of(nn::FeatureAlphaDropout(0.3), {2, 4, 5})},
      {"Flatten", of(nn::Flatten(), {2, 4})},
      {"Fold", of(nn::Fold(nn::FoldOptions({4, 5}, {2, 2})), {8, 12})},
      {"FractionalMaxPool2d",
       of(nn::FractionalMaxPool2d(nn::FractionalMaxPool2dOptions(2).output_size(3)), {2, 8, 9})},
      {"GroupNorm", of(nn::GroupNorm(2, 4), {4, 5})},
      {"InstanceNorm1d", of(nn::InstanceNorm1d(nn::InstanceNorm1dOptions(4).affine(true)), {4, 5})},
      {"InstanceNorm2d", of(nn::InstanceNorm2d(4), {4, 5, 6})},
      {"LPPool1d", of(nn::LPPool1d(2, 2), {2, 8})},
      {"LPPool2d", of(nn::LPPool2d(2, 2), {2, 8, 8})},
      {"LayerNorm", of(nn::LayerNorm(nn::LayerNormOptions({4})), {4})},
      {"Linear", of(nn::Linear(4, 5), {4})},
      {"LinearOfSequences", of(nn::Linear(4, 5), {3, 4})},
      {"LocalResponseNorm", of(nn::LocalResponseNorm(2), {4, 5, 6})},
      {"MaxPool1d", of(nn::MaxPool1d(2), {2, 8})},
      {"MaxPool2d", of(nn::MaxPool2d(2), {2, 8, 9})},
      {"MaxPool3d", of(nn::MaxPool3d(2), {2, 4, 5, 6})},
      {"PixelShuffle", of(nn::PixelShuffle(2), {8, 3, 4})},
      {"PixelUnshuffle", of(nn::PixelUnshuffle(2), {2, 4, 6})},
      {"ReflectionPad1d", of(nn::ReflectionPad1d(2), {2, 7})},
      {"ReflectionPad2d", of(nn::ReflectionPad2d(2), {2, 7, 8})},
      {"ReplicationPad1d", of(nn::ReplicationPad1d(2), {2, 7})},
      {"ReplicationPad2d", of(nn::ReplicationPad2d(2), {2, 7, 8})},
      {"ReplicationPad3d", of(nn::ReplicationPad3d(1), {2, 4, 5, 6})},
      {"Unfold", of(nn::Unfold(nn::UnfoldOptions({2, 2})), {2, 5, 6})},
      {"ZeroPad2d", of(nn::ZeroPad2d(1), {2, 4, 5})},
  };
}

/// Of upsampling in one of its ways.
template <class Mode>
Sample upsampling(Mode mode, std::vector<int64_t> item, std::optional<bool> corners = {}) {
  const std::vector<double> factors(item.size() - 1, 2.0);
  auto options = nn::UpsampleOptions().scale_factor(factors).mode(mode);
  if (corners) options.align_corners(*corners);
  return of(nn::Upsample(options), std::move(item));
}

Table upsamplings() {
  return {{"Upsample nearest 1", upsampling(torch::kNearest, {2, 4})},
          {"Upsample nearest 2", upsampling(torch::kNearest, {2, 4, 5})},
          {"Upsample nearest 3", upsampling(torch::kNearest, {2, 3, 4, 5})},
          {"Upsample linear", upsampling(torch::kLinear, {2, 4}, false)},
          {"Upsample bilinear", upsampling(torch::kBilinear, {2, 4, 5}, true)},
          {"Upsample bicubic", upsampling(torch::kBicubic, {2, 4, 5}, false)},
          {"Upsample trilinear", upsampling(torch::kTrilinear, {2, 3, 4, 5}, false)}};
}

/// The first output of a recurrent module.
template <class Module>
Sample recurrent(Module module) {
  return {[=](int64_t n) mutable {
            return std::get<0>(module->forward(leaf({n, 3, 4})));
          },
          module->parameters()};
}

Table sequences() {
  nn::MultiheadAttention attention(8, 2);
  nn::Embedding embedding(10, 4);
  nn::EmbeddingBag bag(10, 4);
  nn::TransformerEncoderLayer encoder(nn::TransformerEncoderLayerOptions(8, 2).dropout(0.0));
  nn::LSTMCell lstm(4, 5);
  nn::GRUCell gru(4, 5);
  nn::Bilinear bilinear(4, 4, 3);
  return {
      {"RNN", recurrent(nn::RNN(nn::RNNOptions(4, 5).batch_first(true)))},
      {"LSTM", recurrent(nn::LSTM(nn::LSTMOptions(4, 5).batch_first(true)))},
      {"LSTM of two layers",
       recurrent(nn::LSTM(nn::LSTMOptions(4, 5).num_layers(2).bidirectional(true)))},
      {"GRU", recurrent(nn::GRU(nn::GRUOptions(4, 5).batch_first(true)))},
      {"LSTMCell",
       {[=](int64_t n) mutable {
          return std::get<0>(lstm->forward(leaf({n, 4})));
        },
        lstm->parameters()}},
      {"GRUCell",
       {[=](int64_t n) mutable {
          return gru->forward(leaf({n, 4}));
        },
        gru->parameters()}},
      {"Bilinear",
       {[=](int64_t n) mutable {
          return bilinear->forward(leaf({n, 4}), leaf({n, 4}));
        },
        bilinear->parameters()}},
      {"MultiheadAttention",
       {[=](int64_t n) mutable {
          const at::Tensor x = leaf({3, n, 8});
          return std::get<0>(attention->forward(x, x, x));
        },
        attention->parameters()}},
      {"TransformerEncoderLayer",
       {[=](int64_t n) mutable {
          return encoder->forward(leaf({3, n, 8}));
        },
        encoder->parameters()}},
      {"Embedding",
       {[=](int64_t n) mutable {
          return embedding->forward(torch::randint(0, 10, {n, 3}));
        },
        embedding->parameters()}},
      {"EmbeddingBag",
       {[=](int64_t n) mutable {
          return bag->forward(torch::randint(0, 10, {n, 3}));
        },
        bag->parameters()}},
  };
}

at::Tensor noise(const at::Tensor& like) {
  return torch::rand_like(like).detach();
}

at::Tensor classes(const at::Tensor& scores) {
  return torch::randint(0, scores.size(1), {scores.size(0)});
}

at::Tensor signs(int64_t n) {
  return torch::randint(0, 2, {n}).to(at::kFloat) * 2 - 1;
}

Table losses() {
  using T = const at::Tensor&;
  return {
      {"l1_loss", by([](T x) { return at::l1_loss(x, noise(x)); })},
      {"mse_loss", by([](T x) { return at::mse_loss(x, noise(x)); })},
      {"mse_loss sum", by([](T x) { return at::mse_loss(x, noise(x), at::Reduction::Sum); })},
      {"smooth_l1_loss", by([](T x) { return at::smooth_l1_loss(x, noise(x)); })},
      {"huber_loss", by([](T x) { return at::huber_loss(x, noise(x)); })},
      {"kl_div", by([](T x) { return at::kl_div(x.log_softmax(1), noise(x)); })},
      {"kl_div batchmean", by([](T x) {
         return F::kl_div(x.log_softmax(1), noise(x),
                          F::KLDivFuncOptions().reduction(torch::kBatchMean));
       })},
      {"binary_cross_entropy",
       by([](T x) { return at::binary_cross_entropy(x.sigmoid(), noise(x)); })},
      {"bce_with_logits",
       by([](T x) { return at::binary_cross_entropy_with_logits(x, noise(x)); })},
      {"cross_entropy", by([](T x) { return at::cross_entropy_loss(x, classes(x)); })},
      {"cross_entropy of probabilities",
       by([](T x) { return at::cross_entropy_loss(x, noise(x).softmax(1)); })},
      {"cross_entropy with smoothing", by([](T x) {
         return at::cross_entropy_loss(x, classes(x), {}, at::Reduction::Mean, -100, 0.1);
       })},
      {"cross_entropy of images",
       by(
           [](T x) {
             return at::cross_entropy_loss(x, torch::randint(0, 3, {x.size(0), 4, 5}));
           },
           {3, 4, 5})},
      {"nll_loss", by([](T x) { return at::nll_loss(x.log_softmax(1), classes(x)); })},
      {"poisson_nll_loss", by([](T x) {
         return at::poisson_nll_loss(x, noise(x), true, false, 1e-8, at::Reduction::Mean);
       })},
      {"soft_margin_loss",
       by([](T x) { return at::soft_margin_loss(x, signs(x.numel()).view(x.sizes())); })},
      {"hinge_embedding_loss",
       by([](T x) { return at::hinge_embedding_loss(x, signs(x.numel()).view(x.sizes())); })},
      {"cosine_embedding_loss",
       by([](T x) { return at::cosine_embedding_loss(x, noise(x), signs(x.size(0))); })},
      {"margin_ranking_loss", by([](T x) {
         return at::margin_ranking_loss(x.select(1, 0), x.select(1, 1), signs(x.size(0)));
       })},
      {"multi_margin_loss", by([](T x) { return at::multi_margin_loss(x, classes(x)); })},
      {"multilabel_soft_margin",
       by([](T x) { return F::multilabel_soft_margin_loss(x, noise(x).round()); })},
      {"triplet_margin_loss",
       by([](T x) { return at::triplet_margin_loss(x, noise(x), noise(x)); })},
      {"ctc_loss", by(
                       [](T x) {
                         const int64_t n = x.size(0);
                         return at::ctc_loss(
                             x.transpose(0, 1).log_softmax(2), torch::randint(1, 4, {n, 2}),
                             torch::full({n}, 6, at::kLong), torch::full({n}, 2, at::kLong));
                       },
                       {6, 4})},
  };
}

Table functions() {
  using T = const at::Tensor&;
  return {
      {"split", by([](T x) {
         const auto parts = x.split(2, 1);
         return parts[0] * parts[1].sin();
       })},
      {"split of the batch", by([](T x) { return at::cat(x.split(x.size(0) - 1, 0), 0).sin(); })},
      {"split_with_sizes", by([](T x) {
         const auto parts = x.split_with_sizes({1, 3}, 1);
         return parts[0] * parts[1].sin();
       })},
      {"chunk", by([](T x) {
         const auto parts = x.chunk(2, 1);
         return parts[0].tanh() * parts[1];
       })},
      {"unbind", by([](T x) {
         const auto parts = x.unbind(1);
         return parts[0] * parts[1] + parts[3];
       })},
      {"stack", by([](T x) {
         return at::stack({x, x.sin()}, 0);
       })},
      {"cat", by([](T x) {
         return at::cat({x, x.sin()}, 0);
       })},
      {"std", by([](T x) { return x.std(0); })},
      {"var", by([](T x) { return x.var(); })},
      {"var_mean", by([](T x) {
         const auto both = at::var_mean(x, 0);
         return std::get<0>(both) * std::get<1>(both);
       })},
      {"mean", by([](T x) { return x.mean(0); })},
      {"nanmean", by([](T x) { return x.nanmean(0); })},
      {"median", by([](T x) { return std::get<0>(x.median(1)); })},
      {"norm", by([](T x) { return x.norm(); })},
      {"linalg_vector_norm",
       by([](T x) { return at::linalg_vector_norm(x, 3, at::IntArrayRef{1}); })},
      {"normalize", by([](T x) { return F::normalize(x); })},
      {"cosine_similarity", by([](T x) { return at::cosine_similarity(x, noise(x)); })},
      {"cdist", by([](T x) { return at::cdist(x, noise(x)); })},
      {"pairwise_distance", by([](T x) { return at::pairwise_distance(x, noise(x)); })},
      {"cumsum", by([](T x) { return x.cumsum(0); })},
      {"cumsum along the item", by([](T x) { return x.cumsum(1); })},
      {"logcumsumexp", by([](T x) { return x.logcumsumexp(1); })},
      {"cummax", by([](T x) { return std::get<0>(x.cummax(1)); })},
      {"logsumexp", by([](T x) { return x.logsumexp(1); })},
      {"sort", by([](T x) { return std::get<0>(x.sort(1)); })},
      {"topk", by([](T x) { return std::get<0>(x.topk(2, 1)); })},
      {"kthvalue", by([](T x) { return std::get<0>(x.kthvalue(2, 1)); })},
      {"max", by([](T x) { return std::get<0>(x.max(0)); })},
      {"max of all", by([](T x) { return x.max(); })},
      {"maximum", by([](T x) { return at::maximum(x, noise(x)); })},
      {"clamp", by([](T x) { return x.clamp(-0.5, 0.5); })},
      {"index", by([](T x) { return x.index({torch::arange(2)}); })},
      {"index by mask", by([](T x) { return at::where(x > 0, x, x * 2); })},
      {"index_select", by([](T x) {
         return x.index_select(0, torch::tensor({1, 0, 1}));
       })},
      {"index_add", by([](T x) {
         return x.index_add(0, torch::tensor({1, 0}), torch::ones({2, 4}));
       })},
      {"index_copy", by([](T x) {
         return x.index_copy(0, torch::tensor({1}), torch::ones({1, 4}));
       })},
      {"gather", by([](T x) {
         return x.gather(1, torch::zeros({x.size(0), 2}, at::kLong));
       })},
      {"scatter", by([](T x) {
         return x.scatter(1, torch::zeros({x.size(0), 1}, at::kLong), noise(x));
       })},
      {"scatter_add", by([](T x) {
         return noise(x).scatter_add(1, torch::zeros({x.size(0), 4}, at::kLong), x);
       })},
      {"masked_fill", by([](T x) { return x.masked_fill(x > 0, 0.5); })},
      {"masked_select", by([](T x) { return x.masked_select(x > 0); })},
      {"take_along_dim", by([](T x) {
         return at::take_along_dim(x, torch::zeros({x.size(0), 1}, at::kLong), 1);
       })},
      {"expand", by([](T x) {
         return x.unsqueeze(1).expand({-1, 3, -1}) * 2;
       })},
      {"repeat", by([](T x) {
         return x.repeat({2, 3});
       })},
      {"repeat_interleave", by([](T x) { return x.repeat_interleave(2, 1); })},
      {"tile", by([](T x) { return at::tile(x, {2}); })},
      {"roll", by([](T x) { return x.roll(1, 0); })},
      {"flip", by([](T x) { return x.flip({0}); })},
      {"rot90", by([](T x) { return x.rot90(); })},
      {"diagonal", by([](T x) { return x.diagonal(); })},
      {"diag_embed", by([](T x) { return x.diag_embed(); })},
      {"tril", by([](T x) { return x.tril(); })},
      {"unfold", by([](T x) { return x.unfold(1, 2, 1); })},
      {"as_strided", by([](T x) {
         return x.as_strided({x.size(0), 2}, {4, 1});
       })},
      {"movedim", by([](T x) { return x.movedim(0, 1); })},
      {"bmm", by([](T x) { return x.bmm(x.transpose(1, 2)); }, {3, 4})},
      {"matmul", by([](T x) { return x.matmul(x.transpose(1, 2)); }, {3, 4})},
      {"einsum", by(
                     [](T x) {
                       return at::einsum("bij,bkj->bik", {x, x.sin()});
                     },
                     {3, 4})},
      {"addmm", by([](T x) { return at::addmm(x, x, noise(x).t().mm(noise(x))); })},
      {"outer", by([](T x) { return at::outer(x.select(1, 0), x.select(1, 1)); })},
      {"tensordot", by([](T x) { return at::tensordot(x, noise(x), {1}, {1}); })},
      {"linalg_inv", by([](T x) { return at::linalg_inv(x + 4 * torch::eye(4)); }, {4, 4})},
      {"linalg_solve",
       by([](T x) { return at::linalg_solve(x + 4 * torch::eye(4), noise(x)); }, {4, 4})},
      {"cholesky",
       by([](T x) { return at::linalg_cholesky(x.bmm(x.transpose(1, 2)) + torch::eye(4)); },
          {4, 4})},
      {"scaled_dot_product_attention",
       by([](T x) { return at::scaled_dot_product_attention(x, x, x); }, {2, 3, 4})},
      {"grid_sample",
       by(
           [](T x) {
             return at::grid_sampler(x, torch::rand({x.size(0), 3, 3, 2}), 0, 0, false);
           },
           {2, 4, 5})},
      {"affine_grid", by(
                          [](T x) {
                            return at::affine_grid_generator(x, {x.size(0), 2, 4, 5}, false);
                          },
                          {2, 3})},
      {"pad reflect", by(
                          [](T x) {
                            return at::pad(x, {1, 1}, "reflect");
                          },
                          {2, 4})},
      {"pad circular", by(
                           [](T x) {
                             return at::pad(x, {1, 1}, "circular");
                           },
                           {2, 4})},
      {"lerp", by([](T x) { return at::lerp(x, noise(x), 0.3); })},
      {"addcmul", by([](T x) { return at::addcmul(x, noise(x), x, 0.3); })},
      {"atan2", by([](T x) { return at::atan2(x, noise(x) + 1); })},
      {"pow", by([](T x) { return at::pow(x.abs() + 1, noise(x)); })},
      {"erfinv", by([](T x) { return (x.tanh() * 0.9).erfinv(); })},
      {"to double", by([](T x) { return x.to(at::kDouble).sin(); })},
      {"complex", by([](T x) { return at::complex(x, x.sin()).abs(); })},
      {"fft", by([](T x) { return at::fft_fft(x).abs(); })},
      {"rfft", by([](T x) { return at::fft_rfft(x).abs(); })},
      {"irfft of the batch", by([](T x) { return at::fft_irfft(at::complex(x, x.sin()), {}, 0); })},
      {"cholesky_solve", by([](T x) { return at::cholesky_solve(x, torch::eye(4) * 2); }, {4, 2})},
      {"weight_norm", by([](T x) {
         return at::_weight_norm(x, torch::ones({x.size(0), 1}), 0);
       })},
      {"index_put", by([](T x) {
         return x.index_put({torch::tensor({1, 0})}, noise(x.narrow(0, 0, 2)) * x.sum());
       })},
      {"take", by([](T x) {
         return x.take(torch::tensor({1, 3, 5}));
       })},
      {"prod along the item", by([](T x) { return x.prod(1); })},
      {"cumprod", by([](T x) { return x.cumprod(1); })},
      {"quantile", by([](T x) { return x.quantile(0.3, 1); })},
      {"renorm", by([](T x) { return x.renorm(2, 0, 1.0); })},
      {"softmax of the batch", by([](T x) { return x.softmax(0); })},
      {"sum to a number and back", by([](T x) { return x * x.sum() / x.numel(); })},
      {"rms_norm", by([](T x) { return at::rms_norm(x, {4}); })},
      {"weighted sum in place", by([](T x) { return x.clone().mul_(2).add_(x).sin_(); })},
      {"write to a row", by([](T x) {
         const at::Tensor y = x.clone();
         y.select(0, 1).mul_(3);
         return y.sin();
       })},
  };
}

/// The parameters and what the function took.
Tensors leaves_of(const at::Tensor& output, const Sample& sample) {
  Tensors leaves = sample.parameters;
  std::vector<torch::autograd::Node*> nodes{output.grad_fn().get()};
  std::set<torch::autograd::Node*> seen(nodes.begin(), nodes.end());
  while (!nodes.empty()) {
    torch::autograd::Node* node = nodes.back();
    nodes.pop_back();
    if (auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(node))
      leaves.push_back(leaf->variable);
    for (const auto& edge : node->next_edges()) {
      if (edge.is_valid() && seen.insert(edge.function.get()).second)
        nodes.push_back(edge.function.get());
    }
  }
  return leaves;
}

/// The gradients by the parameters and by what the function took.
Tensors gradients(const Sample& sample, int64_t n) {
  torch::manual_seed(n);
  const at::Tensor output = sample.output(n);
  at::Tensor loss = output;
  if (output.dim() > 0) loss = (output * torch::rand_like(output)).sum();
  const Tensors leaves = leaves_of(loss, sample);
  loss.backward();
  Tensors grads;
  for (const at::Tensor& tensor : leaves) {
    grads.push_back(tensor.grad());
    tensor.mutable_grad() = at::Tensor();
  }
  return grads;
}

/// Empty if two captures were enough for all sizes; otherwise why not. Gradients must be eager's.
std::string fall_back(const Sample& sample) {
  compiled_autograd::reset();
  for (int64_t n : {6, 7, 8, 5}) {
    const Tensors expected = gradients(sample, n);
    compiled_autograd::Enable on;
    const Tensors actual = gradients(sample, n);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(expected[i].defined(), actual[i].defined());
      if (!expected[i].defined() || !actual[i].defined()) continue;
      EXPECT_EQ(expected[i].strides(), actual[i].strides()) << "size " << n;
      EXPECT_EQ(tensor_difference(expected[i], actual[i]), "") << "size " << n;
    }
  }
  const auto stats = compiled_autograd::stats();
  EXPECT_EQ(stats.eager_fallbacks, 0u);
  return stats.captures <= 2 ? "" : test::all_reasons();
}

/// The gradient, that of its square with history, and that of the square of this; or what is thrown
/// if there is none.
Tensors three_orders(const Sample& sample, std::string& error) {
  torch::manual_seed(5);
  const at::Tensor output = sample.output(3);
  const Tensors leaves = leaves_of(output, sample);
  Tensors all;
  at::Tensor loss = output.is_complex() ? at::view_as_real(output).sum() : output.sin().sum();
  try {
    for (int order = 0; order < 3 && loss.requires_grad(); ++order) {
      const Tensors found =
          torch::autograd::grad({loss}, leaves, {}, true, /*create_graph=*/order < 2, true);
      loss = torch::zeros({});
      for (const at::Tensor& gradient : found) {
        all.push_back(gradient.defined() ? gradient.detach() : gradient);
        if (gradient.defined() && !gradient.is_complex()) loss = loss + gradient.pow(2).sum();
      }
    }
  } catch (const c10::Error& thrown) {
    error = thrown.msg();
  }
  return all;
}

void expect_three_orders(const Table& table) {
  // In graphs its in-place operators are followed by copies, behind which gradients are added up.
  const std::set<std::string> rounds_otherwise{"LSTM", "LSTM of two layers"};
  for (const auto& [name, sample] : table) {
    if (rounds_otherwise.count(name) != 0) continue;
    SCOPED_TRACE(name);
    compiled_autograd::reset();
    std::string error, actual_error;
    const Tensors expected = three_orders(sample, error);
    for (int run = 0; run < 2; ++run) {
      compiled_autograd::Enable on;
      const Tensors actual = three_orders(sample, actual_error);
      EXPECT_EQ(actual_error, error);
      ASSERT_EQ(actual.size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_EQ(tensor_difference(expected[i], actual[i], CompareLayout::EveryStride), "")
            << "gradient " << i;
    }
    EXPECT_EQ(compiled_autograd::stats().eager_fallbacks, 0u);
  }
}

/// The first of the reasons that says more than that there was a capture.
std::string shortened(const std::string& reasons) {
  const size_t found = reasons.find("of their own: ");
  if (found == std::string::npos) return reasons;
  return reasons.substr(found + 14, reasons.find('\n', found) - found - 14);
}

/// All samples but these must need one capture for all sizes after the first.
void sweep(const Table& table, const std::set<std::string>& others) {
  std::set<std::string> found;
  for (const auto& [name, sample] : table) {
    SCOPED_TRACE(name);
    const std::string reasons = fall_back(sample);
    if (reasons.empty()) continue;
    found.insert(name);
    std::cout << "each size has a graph of its own: " << name << ": " << shortened(reasons) << "\n";
  }
  EXPECT_EQ(found, others);
  std::cout << table.size() - found.size() << " of " << table.size()
            << " have one graph for all sizes\n";
}

class EngineSizeSweep : public testing::Test {
 protected:
  void SetUp() override { at::set_num_threads(1); }
};

TEST_F(EngineSizeSweep, ThreeOrdersOfDerivatives) {
  for (const Table& table :
       {activations(), layers(), upsamplings(), sequences(), losses(), functions()})
    expect_three_orders(table);
}

TEST_F(EngineSizeSweep, Activations) {
  sweep(activations(), {});
}

TEST_F(EngineSizeSweep, Layers) {
  sweep(layers(), {});
}

TEST_F(EngineSizeSweep, Upsamplings) {
  sweep(upsamplings(), {});
}

TEST_F(EngineSizeSweep, Sequences) {
  sweep(sequences(), {});
}

TEST_F(EngineSizeSweep, Losses) {
  // These divide by a number that the autograd node keeps as a constant, or keep lengths.
  sweep(losses(), {"cross_entropy of probabilities", "ctc_loss", "kl_div batchmean"});
}

TEST_F(EngineSizeSweep, Functions) {
  // LibTorch's formula asks for sizes as numbers; a number that the autograd node keeps.
  std::set<std::string> others{"affine_grid", "sum to a number and back"};
  // Before 2.13 LibTorch asks there whether a tensor is Python's.
  if (TORCH_VERSION_MINOR < 13) others.insert({"cholesky", "linalg_inv", "linalg_solve"});
  sweep(functions(), others);
}

}  // namespace size_sweep_test
}  // namespace ahead
