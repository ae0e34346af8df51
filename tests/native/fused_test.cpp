#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include <atomic>
#include <latch>
#include <thread>

#include "ahead/ahead.h"
#include "native/backend.h"
#include "native/like_eager.h"
#include "support/call_comparison.h"
#include "support/fuzzing.h"

namespace ahead::fused_test {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using native::test::expect_like_eager;
using native::test::fused_graphs;
using native::test::leaves_of;
using native::test::rounding;

const auto bfloat16 = at::TensorOptions(at::kBFloat16);
const auto float64 = at::TensorOptions(at::kDouble);

Tensor randn(at::IntArrayRef sizes) {
  return torch::randn(sizes);
}

Tensor layer_norm_by_hand(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Tensor centred = x - x.mean(-1, true);
  const Tensor variance = centred.square().mean(-1, true);
  return centred * (variance + 1e-5).rsqrt() * weight + bias;
}

Tensor rms_norm_by_hand(const Tensor& x, const Tensor& weight) {
  return x * (x.pow(2).mean(-1, true) + 1e-6).rsqrt() * weight;
}

Tensor softmax_by_hand(const Tensor& x, int64_t dim) {
  const Tensor grown = (x - x.amax(dim, true)).exp();
  return grown / grown.sum(dim, true);
}

// Norms and softmax.

TEST(Fused, ChainOfNorms) {
  expect_like_eager(
      [](const Tensors& t) -> Tensors {
        Tensor x = t[0];
        for (int i = 0; i < 3; ++i) x = x + at::gelu(at::layer_norm(x, {33}, t[1], t[2]));
        return {at::layer_norm(x, {33}, t[1], t[2]).relu()};
      },
      [] {
        return Tensors{randn({5, 4, 33}), randn({33}), randn({33})};
      });
}

TEST(Fused, NormsByHand) {
  expect_like_eager(
      [](const Tensors& t) -> Tensors {
        return {rms_norm_by_hand(layer_norm_by_hand(t[0], t[1], t[2]).tanh(), t[1])};
      },
      [] {
        return Tensors{randn({6, 7, 17}), randn({17}), randn({17})};
      });
}

TEST(Fused, SoftmaxByHand) {
  for (const int64_t dim : {0, 1, 2}) {
    SCOPED_TRACE(dim);
    expect_like_eager(
        [dim](const Tensors& t) -> Tensors { return {softmax_by_hand(t[0] * 2, dim) * t[1]}; },
        [] {
          return Tensors{randn({5, 6, 7}), randn({5, 6, 7})};
        });
  }
}

TEST(Fused, OneRowOnly) {
  expect_like_eager(
      [](const Tensors& t) -> Tensors {
        const Tensor x = t[0].sin();
        return {x / x.square().sum(), softmax_by_hand(x, 0), x - x.mean()};
      },
      [] { return Tensors{randn({300})}; });
}

TEST(Fused, OneTensorAsRowWeightAndBias) {
  expect_like_eager(
      [](const Tensors& t) -> Tensors {
        return {at::layer_norm(t[0].exp(), {20}, t[0], t[0]) * 2};
      },
      [] { return Tensors{randn({20})}; });
}

TEST(Fused, LogSumExpAndLogSoftmax) {
  expect_like_eager(
      [](const Tensors& t) -> Tensors {
        const Tensor x = t[0] * 3 + t[1];
        return {at::logsumexp(x, {1}), at::log_softmax(x, 1).neg(), at::softmax(x * x, -1)};
      },
      [] {
        return Tensors{randn({8, 65}), randn({65})};
      });
}

TEST(Fused, VarianceAndStandardDeviation) {
  expect_like_eager(
      [](const Tensors& t) -> Tensors {
        const Tensor x = t[0].exp();
        return {(x - x.mean(-1, true)) / (x.std(std::vector<int64_t>{-1}, 1, true) + 1),
                x.var(std::vector<int64_t>{0, 1}, 1)};
      },
      [] {
        return Tensors{randn({5, 9, 20})};
      });
}

// Models.

TEST(Fused, AttentionByHandWithMaskAndDropout) {
  expect_like_eager(
      [](const Tensors& t) -> Tensors {
        Tensor scores = t[0].matmul(t[1].transpose(-2, -1)) / std::sqrt(8.0);
        const Tensor mask = at::ones({7, 7}, at::kBool).tril();
        scores = scores.masked_fill(~mask, -std::numeric_limits<double>::infinity());
        const Tensor weights = at::dropout(at::softmax(scores, -1), 0.25, true);
        return {weights.matmul(t[2])};
      },
      [] {
        return Tensors{randn({2, 3, 7, 8}), randn({2, 3, 7, 8}), randn({2, 3, 7, 8})};
      });
}

TEST(Fused, ResidualPerceptron) {
  expect_like_eager(
      [](const Tensors& t) -> Tensors {
        const Tensor hidden = at::silu(at::linear(t[0], t[1], t[2])) * t[3];
        const Tensor out = t[0] + at::mish(at::linear(hidden, t[1].t()));
        return {out, at::mse_loss(out, at::zeros_like(out))};
      },
      [] {
        return Tensors{randn({9, 6}), randn({12, 6}), randn({12}), randn({12})};
      });
}

TEST(Fused, ConvolutionsWithBatchNorm) {
  torch::nn::Sequential model(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 6, 3).padding(1)),
                              torch::nn::BatchNorm2d(6), torch::nn::ReLU(),
                              torch::nn::Conv2d(6, 4, 3), torch::nn::BatchNorm2d(4),
                              torch::nn::ReLU(), torch::nn::AdaptiveAvgPool2d(1));
  const auto state = [&] {
    Tensors all;
    for (const Tensor& parameter : model->parameters()) all.push_back(parameter.detach().clone());
    for (const Tensor& buffer : model->buffers()) all.push_back(buffer.clone());
    return all;
  };
  auto compiled = compile([&](const Tensor& x) { return model->forward(x); },
                          {.backend = "native", .confirm = Confirm::Never, .watch = {model.ptr()}});
  const auto train = [&](const auto& step, const Tensors& from) {
    size_t next = 0;
    torch::NoGradGuard no_grad;
    for (const Tensor& parameter : model->parameters()) parameter.copy_(from[next++]);
    for (const Tensor& buffer : model->buffers()) buffer.copy_(from[next++]);
    torch::AutoGradMode grad(true);
    torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
    torch::manual_seed(3);
    for (int i = 0; i < 4; ++i) {
      sgd.zero_grad();
      step(randn({4, 3, 8, 8})).square().mean().backward();
      sgd.step();
    }
    return state();
  };
  const Tensors before = state();
  const Tensors expected = train([&](const Tensor& x) { return model->forward(x); }, before);
  const Tensors actual = train(compiled, before);
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(at::allclose(expected[i], actual[i], 1e-4, 1e-5)) << i;
  EXPECT_NE(fused_graphs(compiled).find("ahead.call"), std::string::npos);
}

TEST(Fused, RecurrentCells) {
  expect_like_eager(
      [](const Tensors& t) -> Tensors {
        Tensor h = t[1], c = t[2];
        for (int i = 0; i < 3; ++i) {
          const Tensors gates =
              at::linear(t[0].select(0, i), t[3]).add(at::linear(h, t[4])).chunk(4, 1);
          c = gates[0].sigmoid() * c + gates[1].sigmoid() * gates[2].tanh();
          h = gates[3].sigmoid() * c.tanh();
        }
        const Tensors gru =
            (at::linear(t[0][0], t[3]) + at::linear(h, t[4])).unflatten(1, {4, 6}).unbind(1);
        const Tensor update = gru[0].sigmoid(), fresh = (gru[1] + gru[2].sigmoid() * gru[3]).tanh();
        return {h, c, (1 - update) * fresh + update * h};
      },
      [] {
        return Tensors{randn({3, 5, 4}), randn({5, 6}), randn({5, 6}), randn({24, 4}),
                       randn({24, 6})};
      });
}

// Losses and activations.

TEST(Fused, Losses) {
  expect_like_eager(
      [](const Tensors& t) -> Tensors {
        const Tensor x = t[0] * 1.5, target = t[1].sigmoid();
        return {at::mse_loss(x, t[1]),
                at::binary_cross_entropy(x.sigmoid(), target),
                at::binary_cross_entropy_with_logits(x, target),
                at::cross_entropy_loss(x, at::arange(6) % 11),
                at::smooth_l1_loss(x, t[1]),
                at::huber_loss(x, t[1], 1, 0.5),
                at::kl_div(at::log_softmax(x, 1), at::softmax(t[1], 1)),
                at::mse_loss(x, t[1], at::Reduction::Sum),
                at::l1_loss(x, t[1], at::Reduction::None)};
      },
      [] {
        return Tensors{randn({6, 11}), randn({6, 11})};
      });
}

TEST(Fused, Activations) {
  expect_like_eager(
      [](const Tensors& t) -> Tensors {
        const Tensor x = t[0] * 3;
        return {at::gelu(x) + at::gelu(x, "tanh"),
                at::silu(x) * at::elu(x, 0.5),
                at::softplus(x, 2) - at::mish(x),
                at::hardswish(x) + at::hardsigmoid(x) + at::hardtanh(x),
                at::leaky_relu(x, 0.1) * at::relu(x) + at::clamp(x, -1, 2),
                at::log_sigmoid(x).exp() + at::celu(x) + at::selu(x)};
      },
      [] {
        return Tensors{randn({7, 65})};
      });
}

// Types.

TEST(Fused, MixedPrecision) {
  expect_like_eager(
      [](const Tensors& t) -> Tensors {
        at::autocast::set_autocast_enabled(at::kCPU, true);
        at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
        const Tensor hidden = at::gelu(at::linear(t[0], t[1]));
        const Tensor out = at::layer_norm(at::linear(hidden, t[1].t()) + t[0], {6}, t[2]);
        at::autocast::clear_cache();
        at::autocast::set_autocast_enabled(at::kCPU, false);
        return {out.to(at::kFloat).square()};
      },
      [] {
        return Tensors{randn({9, 6}), randn({12, 6}), randn({6})};
      });
}

TEST(Fused, BFloat16RoundsWhereEagerDoes) {
  expect_like_eager(
      [](const Tensors& t) -> Tensors {
        const Tensor x = (t[0] * 1.1 + t[1]) * 0.3 - t[1];
        return {x.exp() * x, at::softmax(x, -1), x.to(at::kFloat) + 1};
      },
      [] {
        return Tensors{torch::randn({5, 33}, bfloat16), torch::randn({33}, bfloat16)};
      });
}

TEST(Fused, Double) {
  expect_like_eager(
      [](const Tensors& t) -> Tensors {
        const Tensor x = (t[0] * 0.1).exp() + t[1].to(at::kDouble) / 3;
        return {at::layer_norm(x, {9}).tanh(), (x * 1e300).log(), x.detach().to(at::kFloat).sin()};
      },
      [] {
        return Tensors{torch::randn({5, 9}, float64), randn({9})};
      });
}

TEST(Fused, IntegersAndMasks) {
  expect_like_eager(
      [](const Tensors& t) -> Tensors {
        const Tensor small = (t[1] * 3 - 7).clamp(-5, 5), mask = small.gt(0) & small.ne(2);
        return {at::where(mask, t[0] * small, t[0].neg()), mask.logical_not() | t[0].lt(0.5),
                (small * small).to(at::kFloat) / 7,
                t[0].masked_fill(at::ones_like(mask).logical_not(), 9.0) + mask.to(at::kFloat)};
      },
      [] {
        return Tensors{randn({6, 10}), at::randint(-4, 5, {6, 10})};
      });
}

// Views and memory.

TEST(Fused, ViewsBetweenOperators) {
  expect_like_eager(
      [](const Tensors& t) -> Tensors {
        const Tensor x = t[0].sin();
        const Tensor turned = (x.transpose(1, 2) * 2).contiguous().cos();
        const Tensor halves = x.slice(2, 0, 3) + x.slice(2, 3, 6).exp();
        const Tensors parts = (x + 1).chunk(2, 1);
        return {turned.reshape({4, -1}).relu() + 1,
                halves.flatten(1).tanh(),
                at::cat({parts[0] * 2, parts[1].neg()}, 1).sigmoid(),
                (x.view({2, 2, 8, 6}) * t[1]).sum(at::IntArrayRef({0, 2})),
                x.unsqueeze(1).expand({4, 3, 8, 6}).mul(2).mean(1),
                x.diagonal(0, 1, 2).exp() * x.select(1, 2)};
      },
      [] {
        return Tensors{randn({4, 8, 6}), randn({2, 8, 6})};
      });
}

TEST(Fused, OutputsThatAreViews) {
  expect_like_eager(
      [](const Tensors& t) -> Tensors {
        const Tensor x = t[0].exp() * 2;
        return {x.t(), x, x.view(-1), x.slice(0, 1, 3), t[0].view(-1)};
      },
      [] {
        return Tensors{randn({4, 6})};
      });
}

TEST(Fused, TheSameTensorTwice) {
  expect_like_eager(
      [](const Tensors& t) -> Tensors {
        return {t[0] * t[1] + t[0].exp(), t[0] / t[1].cosh()};
      },
      [] {
        CallInputs inputs = leaves_of({randn({5, 7})});
        inputs.passed.push_back(inputs.passed[0]);
        return inputs;
      });
}

TEST(Fused, SmallShapes) {
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{}, {1}, {1, 1}, {1, 5}, {5, 1}, {1, 3, 1}, {2, 1, 1}}) {
    SCOPED_TRACE(c10::str(sizes));
    expect_like_eager(
        [](const Tensors& t) -> Tensors {
          const Tensor x = t[0].exp() + 1;
          const Tensor y = x * t[1];
          return {y, y.sum() * 2, at::softmax(y, y.dim() - 1).neg()};
        },
        [sizes] {
          return Tensors{randn(sizes), randn({})};
        });
  }
}

TEST(Fused, InputsThatDoNotLieRowByRow) {
  const std::vector<std::function<Tensor()>> makers{
      [] {
        return randn({6, 5}).t();
      },
      [] {
        return randn({9, 12}).slice(1, 3, 9).slice(0, 2, 7);
      },
      [] {
        return randn({1, 6}).expand({5, 6});
      },
      [] {
        return randn({5, 12}).slice(1, 0, 12, 2);
      },
      [] {
        return randn({2, 5, 6}).select(0, 1);
      }};
  for (size_t i = 0; i < makers.size(); ++i) {
    SCOPED_TRACE(i);
    expect_like_eager(
        [](const Tensors& t) -> Tensors {
          const Tensor x = t[0].sin() * t[1] + 1;
          return {x, at::layer_norm(x, {6}).exp(), x.sum(0) * 2};
        },
        [&] {
          CallInputs inputs = leaves_of({randn({5, 6})});
          inputs.passed.insert(inputs.passed.begin(), makers[i]());
          return inputs;
        });
  }
}

TEST(Fused, RowsThatLieAcross) {
  expect_like_eager([](const Tensors& t) -> Tensors { return {at::rms_norm(t[0], {3}, t[1])}; },
                    [] {
                      CallInputs inputs = leaves_of({randn({3, 3, 3}).permute({2, 1, 0})});
                      inputs.passed.push_back(randn({3}));
                      return inputs;
                    });
}

TEST(Fused, LargestOfWhatIsComputedAgain) {
  expect_like_eager(
      [](const Tensors& t) -> Tensors {
        const Tensor x = at::gelu(t[0] * 1.3 + t[1]);
        return {x.amax(0) * 2, at::softmax(t[0].sin(), 0).amax(0), t[0].sin().amax(0),
                x.amax(1).exp()};
      },
      [] {
        return Tensors{randn({6, 33}), randn({33})};
      });
}

TEST(Fused, SumsOfExpandedInputs) {
  expect_like_eager(
      [](const Tensors& t) -> Tensors {
        const Tensor x = t[0].expand({5, 6});
        return {at::var(x, false) * 2, (x - x.mean()).exp()};
      },
      [] {
        return Tensors{randn({1, 6})};
      });
}

TEST(Fused, ChannelsLast) {
  expect_like_eager(
      [](const Tensors& t) -> Tensors {
        const Tensor x = (t[0] * t[1]).relu();
        return {x, x.mean({2, 3}).exp(),
                at::batch_norm(x, t[2], t[2], {}, {}, true, 0.1, 1e-5, false).sigmoid()};
      },
      [] {
        return Tensors{randn({2, 5, 4, 7}).contiguous(at::MemoryFormat::ChannelsLast),
                       randn({5, 1, 1}), randn({5})};
      });
}

TEST(Fused, WritesToInputsAndIntermediates) {
  expect_like_eager(
      [](const Tensors& t) -> Tensors {
        Tensor x = t[0] * 2 + 1;
        x.mul_(3).add_(t[1]);
        x.select(0, 1).fill_(2);
        const Tensor before = t[2].exp() * 2;
        t[2].add_(x.sum(0).detach());
        t[2].mul_(0.5);
        const Tensor after = t[2].exp() * x;
        t[2].copy_(before.detach() + 1);
        return {x, before, after, t[2] * 2};
      },
      [] {
        CallInputs inputs = leaves_of({randn({4, 6}), randn({6})});
        inputs.passed.push_back(randn({6}));
        return inputs;
      });
}

TEST(Fused, OptimizerStepInside) {
  expect_like_eager(
      [](const Tensors& t) -> Tensors {
        const torch::NoGradGuard no_grad;
        const Tensor &weight = t[0], &grad = t[1], &momentum = t[2], &square = t[3];
        momentum.mul_(0.9).add_(grad, 0.1);
        square.mul_(0.99).addcmul_(grad, grad, 0.01);
        weight.mul_(0.999).addcdiv_(momentum, square.sqrt().add_(1e-8), -0.01);
        return {weight.square().sum()};
      },
      [] {
        return CallInputs{{randn({6, 9}), randn({6, 9}), randn({6, 9}), randn({6, 9}).square()},
                          {}};
      });
}

// Random numbers, derivatives, threads.

TEST(Fused, RandomNumbersBetweenGroups) {
  expect_like_eager(
      [](const Tensors& t) -> Tensors {
        Tensor x = (t[0] * 2).tanh() + 1;
        x = at::dropout(x, 0.5, true) * 3 - x.exp();
        x = at::dropout(x, 0.1, true).sin() + at::rand_like(x) * 2;
        return {at::rrelu(x, 0.1, 0.3, true) * 2 + at::bernoulli(t[1].sigmoid())};
      },
      [] {
        return Tensors{randn({8, 33}), randn({8, 33})};
      });
}

TEST(Fused, DerivativesOfDerivatives) {
  expect_like_eager(
      [](const Tensors& t) -> Tensors {
        return {(at::layer_norm(t[0].tanh(), {9}) * t[1]).exp().sum(1),
                (t[0] * t[1]).sigmoid().pow(3)};
      },
      [] {
        return leaves_of({randn({4, 9}), randn({9})});
      },
      {.double_backward = true});
}

TEST(Fused, GradientsTakenInside) {
  expect_like_eager(
      [](const Tensors& t) -> Tensors {
        const Tensor y = (t[0] * t[1]).tanh();
        const Tensor slope = torch::autograd::grad({y.sum()}, {t[0]}, {}, true, true)[0];
        return {y + slope.square()};
      },
      [] {
        return Tensors{randn({8, 5}), randn({8, 5})};
      });
}

TEST(Fused, WithoutGradients) {
  const torch::NoGradGuard no_grad;
  expect_like_eager(
      [](const Tensors& t) -> Tensors { return {at::rms_norm(t[0].exp() + 1, {9}).mul(2).sum(0)}; },
      [] {
        return CallInputs{{randn({4, 9})}, {}};
      });
}

Tensor chain_of(const Tensor& x, const Tensor& weight) {
  return at::softmax(at::gelu(at::layer_norm(x * weight, {weight.size(0)})), -1).square().sum(0);
}

TEST(Fused, ThreadsCallOneFunction) {
  auto compiled = compile(chain_of, {.backend = "native", .confirm = Confirm::Never});
  const Tensor x = randn({40, 65}), weight = randn({65}), other = randn({40, 65});
  const Tensor expected = chain_of(x, weight), of_other = chain_of(other, weight);
  compiled(x, weight);
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const bool is_other = i % 2 == 1;
      for (int k = 0; k < 20; ++k)
        right += at::allclose(compiled(is_other ? other : x, weight),
                              is_other ? of_other : expected, 1e-4, 1e-6);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 80);
}

TEST(Fused, ThreadsThatMeetAFunctionAtOnceCompileItsKernelsOnce) {
  // No other test has this kernel.
  const auto f = [](const Tensor& x) { return (at::tanh(x * 0.771) - x).square() + x.sigmoid(); };
  auto compiled = compile(f, {.backend = "native", .confirm = Confirm::Never});
  const Tensor x = randn({40, 65}), expected = f(x);
  std::latch start(4);
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      start.arrive_and_wait();
      for (int call = 0; call < 3; ++call) right += at::allclose(compiled(x), expected, 1e-4, 1e-6);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 12);
  EXPECT_EQ(compiled.stats().kernels_compiled + compiled.stats().kernels_from_cache, 1U);
  EXPECT_GE(compiled.stats().kernels, 1U);
}

/// What a function and its gradient give with so many threads.
Tensors run_with(int threads, const Tensor& x, const Tensor& weight) {
  const int before = at::get_num_threads();
  at::set_num_threads(threads);
  auto compiled = compile(chain_of, {.backend = "native", .confirm = Confirm::Never});
  const Tensor own = weight.clone().requires_grad_();
  Tensor result;
  for (int i = 0; i < 2; ++i) result = compiled(x, own);
  result.backward(at::ones_like(result));
  at::set_num_threads(before);
  return {result.detach(), own.grad()};
}

TEST(Fused, ResultsDoNotDependOnTheNumberOfThreads) {
  const Tensor x = randn({3000, 129}), weight = randn({129});
  const Tensors one = run_with(1, x, weight), two = run_with(2, x, weight);
  EXPECT_TRUE(at::equal(one[0], two[0]));
  EXPECT_TRUE(at::equal(one[1], two[1]));
}

/// Vectors have 4, 8 or 16 lanes, and threads get parts that hold whole vectors alone.
TEST(Fused, ColumnsAreDividedBetweenVectors) {
  const auto f = [](const Tensors& in) { return Tensors{torch::gelu(in[0]).tanh() * in[0]}; };
  for (const int64_t count : {16 * 12345, 16 * 12345 + 1, 64, 63, 16, 15})
    expect_like_eager(f, [=] { return Tensors{randn({count})}; });
}

/// Compilers take long for bodies of loops.
TEST(Fused, KernelsHaveNoBodyThatNeverRuns) {
  const auto loops_of = [](int64_t width) {
    auto compiled = compile([](const Tensor& x) { return torch::gelu(x.softmax(-1)); },
                            {.backend = "native", .fullgraph = true, .confirm = Confirm::Never});
    compiled(randn({8, width}));
    std::string text;
    for (const Program& program : compiled.programs())
      if (program.name.starts_with("kernels")) text += program.str();
    return std::pair(text.find("body(i, Full{}, 0)") != std::string::npos,
                     text.find("body(i, Tail{") != std::string::npos);
  };
  EXPECT_EQ(loops_of(64), std::pair(true, false));
  EXPECT_EQ(loops_of(65), std::pair(true, true));
  EXPECT_EQ(loops_of(3), std::pair(false, true));
}

TEST(Fused, LargeSums) {
  const auto function = [](const Tensor& x) {
    const Tensor y = x * 1.5 + 1;
    return std::vector<Tensor>{y.sum(), y.mean(), (x + 3).sum(0), (x + 3).square().sum(1)};
  };
  const Tensor x = torch::rand({1000, 1001});
  auto compiled = compile(function, {.backend = "native", .confirm = Confirm::Never});
  compiled(x);
  const Tensors exact = function(x.to(at::kDouble)), results = compiled(x);
  for (size_t i = 0; i < exact.size(); ++i)
    EXPECT_TRUE(at::allclose(results[i].to(at::kDouble), exact[i], 2e-6, 0)) << i;
}

TEST(Fused, NumbersThatAreNotInMemory) {
  const auto function = [](const Tensor& z, const Tensor& x) {
    const Tensor negative = at::imag(z.conj());
    return (negative * 2 + 1).exp() + x * x;
  };
  auto compiled = compile(function, {.backend = "native", .confirm = Confirm::Never});
  const Tensor z = torch::randn({5, 7}, at::kComplexFloat), x = at::imag(torch::conj(z + 1));
  ASSERT_TRUE(x.is_neg());
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(at::allclose(compiled(z, x), function(z, x))) << i;
  EXPECT_NE(fused_graphs(compiled).find("ahead.call"), std::string::npos);

  const Tensor zeros = at::_efficientzerotensor({5, 7}, at::TensorOptions());
  const Graph graph = Graph::parse(R"(graph(%x: f32[5, 7] Primal 0):
  %a: f32[5, 7] = aten.neg(%x)
  %b: f32[5, 7] = aten.add.Tensor(%a, %x, 1)
  %c: f32[5, 7] = aten.exp(%b)
  return (%c Output 0)
)");
  const aot::Executable kernels = native::compile(aot::CompileRequest{graph, {}});
  EXPECT_TRUE(at::equal(kernels({zeros})[0], at::ones({5, 7})));
}

}  // namespace ahead::fused_test
