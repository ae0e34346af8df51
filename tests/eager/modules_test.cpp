#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "eager/harness.h"

/// LibTorch's modules, trained.
namespace ahead::test {
namespace modules_test {

namespace nn = torch::nn;

/// Trains a module with a function that gives a result for each batch.
template <class Make, class Forward>
Outcome train(const Make& make, const Forward& forward, const std::function<at::Tensor()>& batch) {
  return like_eager([&](auto& wrap, Log& log) {
    auto net = make();
    torch::optim::SGD optimizer(net->parameters(), 0.01);
    auto compiled = wrap([net, &forward](const at::Tensor& x) mutable { return forward(net, x); });
    for (int call = 0; call < 16; ++call) {
      const at::Tensor x = batch();
      optimizer.zero_grad();
      const at::Tensor result = compiled(x);
      result.pow(2).mean().backward();
      log("result", result);
      log("net", *net);
      optimizer.step();
    }
    compiled.explain(batch());
  });
}

at::Tensor sequences() {
  return at::randn({3, 2, 8});
}

TEST(Modules, SelfAttention) {
  expect_doubling(train([] { return nn::MultiheadAttention(8, 2); },
                        [](nn::MultiheadAttention& net, const at::Tensor& x) {
                          return std::get<0>(net->forward(x, x, x));
                        },
                        sequences));
}

TEST(Modules, CrossAttentionWithMasksAndDropout) {
  expect_doubling(
      train([] { return nn::MultiheadAttention(nn::MultiheadAttentionOptions(8, 2).dropout(0.2)); },
            [](nn::MultiheadAttention& net, const at::Tensor& x) {
              const at::Tensor padding = torch::zeros({2, 3}, at::kBool);
              const at::Tensor causal = torch::ones({3, 3}, at::kBool).triu(1);
              const auto [result, weights] = net->forward(x, x * 2, x + 1, padding, true, causal);
              return result + weights.mean();
            },
            sequences));
}

TEST(Modules, EncoderLayer) {
  expect_doubling(train(
      [] {
        return nn::TransformerEncoderLayer(
            nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16).dropout(0.1));
      },
      [](nn::TransformerEncoderLayer& net, const at::Tensor& x) { return net->forward(x); },
      sequences));
}

TEST(Modules, Encoder) {
  expect_doubling(train(
      [] {
        const nn::TransformerEncoderLayer layer(
            nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16).dropout(0.1));
        return nn::TransformerEncoder(nn::TransformerEncoderOptions(layer, 2));
      },
      [](nn::TransformerEncoder& net, const at::Tensor& x) { return net->forward(x); }, sequences));
}

TEST(Modules, EncoderAsTheModuleItself) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const nn::TransformerEncoderLayer layer(
        nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16).dropout(0));
    nn::TransformerEncoder net(nn::TransformerEncoderOptions(layer, 2));
    auto forward = wrap(net);
    const at::Tensor causal = nn::TransformerImpl::generate_square_subsequent_mask(3);
    for (int call = 0; call < 16; ++call) {
      const at::Tensor result = forward(sequences(), causal, at::Tensor());
      result.sum().backward();
      log("result", result);
    }
    log("net", *net);
  });
  expect_doubling(outcome);
}

TEST(Modules, Transformer) {
  expect_doubling(train(
      [] {
        return nn::Transformer(nn::TransformerOptions(8, 2, 1, 1).dim_feedforward(16).dropout(0.1));
      },
      [](nn::Transformer& net, const at::Tensor& x) { return net->forward(x, x.flip(0)); },
      sequences));
}

TEST(Modules, Lstm) {
  expect_doubling(train([] { return nn::LSTM(nn::LSTMOptions(8, 4).num_layers(2)); },
                        [](nn::LSTM& net, const at::Tensor& x) {
                          const auto [result, state] = net->forward(x);
                          return result + std::get<1>(state).sum();
                        },
                        sequences));
}

TEST(Modules, GruBothWays) {
  expect_doubling(train([] { return nn::GRU(nn::GRUOptions(8, 4).bidirectional(true)); },
                        [](nn::GRU& net, const at::Tensor& x) {
                          return std::get<0>(net->forward(x, torch::zeros({2, 2, 4})));
                        },
                        sequences));
}

TEST(Modules, ConvolutionsAndBatchNorm) {
  expect_doubling(train(
      [] {
        return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(2, 4, 3).padding(1)), nn::BatchNorm2d(4),
                              nn::ReLU(), nn::MaxPool2d(2), nn::Flatten(), nn::Linear(16, 3));
      },
      [](nn::Sequential& net, const at::Tensor& x) { return net->forward(x); },
      [] {
        return at::randn({3, 2, 4, 4});
      }));
}

TEST(Modules, BatchNormInTrainingAndEvaluation) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    nn::Sequential net(nn::Linear(4, 4), nn::BatchNorm1d(4),
                       nn::LayerNorm(nn::LayerNormOptions({4})));
    auto forward = wrap(net);
    for (int call = 0; call < 40; ++call) {
      net->train(call % 4 != 3);
      const at::Tensor result = forward(at::randn({5, 4}));
      result.pow(3).sum().backward();
      log("result", result);
      log("net", *net);
    }
  });
  expect_hits(outcome);
}

TEST(Modules, Embedding) {
  expect_doubling(train([] { return nn::Embedding(nn::EmbeddingOptions(10, 4).padding_idx(0)); },
                        [](nn::Embedding& net, const at::Tensor& x) { return net->forward(x); },
                        [] {
                          return at::randint(0, 10, {3, 2});
                        }));
}

TEST(Modules, EmbeddingBag) {
  expect_settled(train([] { return nn::EmbeddingBag(10, 4); },
                       [](nn::EmbeddingBag& net, const at::Tensor& x) { return net->forward(x); },
                       [] {
                         return at::randint(0, 10, {3, 2});
                       }));
}

TEST(Modules, SparseEmbeddingGradients) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    nn::Embedding words(nn::EmbeddingOptions(10, 4).sparse(true));
    nn::Linear last(4, 2);
    auto loss_of = wrap([&](const at::Tensor& x) {
      return last->forward(words->forward(x).mean(1)).pow(2).mean();
    });
    for (int call = 0; call < 20; ++call) {
      words->zero_grad();
      const at::Tensor loss = loss_of(at::randint(0, 10, {3, 2}));
      loss.backward();
      log("loss", loss);
      log("words", *words);
      at::NoGradGuard no_grad;
      words->weight.add_(words->weight.grad(), -0.1);
    }
    log("last", *last);
  });
  expect_doubling(outcome);
}

TEST(Modules, SparseEmbeddingGradientsInsideAStep) {
  like_eager([](auto& wrap, Log& log) {
    nn::Embedding words(nn::EmbeddingOptions(10, 4).sparse(true));
    auto step = wrap([&](const at::Tensor& x) {
      words->zero_grad();
      const at::Tensor loss = words->forward(x).pow(2).mean();
      loss.backward();
      at::NoGradGuard no_grad;
      words->weight.add_(words->weight.grad(), -0.1);
      return loss.detach();
    });
    for (int call = 0; call < 20; ++call) {
      log("loss", step(at::randint(0, 10, {3, 2})));
      log("words", *words);
    }
  });
}

}  // namespace modules_test
}  // namespace ahead::test
