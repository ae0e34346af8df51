#include <gtest/gtest.h>
#include <torch/torch.h>

#include <thread>

#include "ahead/compiled_autograd.h"
#include "ahead/interpret.h"
#include "ahead/passes.h"
#include "support/eager.h"
#include "support/engine_check.h"
#include "support/round_trip.h"

namespace ahead {
namespace sizes_test {

using test::all_reasons;

/// A loss for inputs of which one size is given.
using Loss = std::function<at::Tensor(int64_t)>;
using Parameters = std::vector<at::Tensor>;

/// The gradients that a backward leaves, which are taken away.
Parameters take_gradients(const Loss& loss, const Parameters& parameters, int64_t size) {
  torch::manual_seed(size);
  loss(size).backward();
  Parameters gradients;
  for (const at::Tensor& parameter : parameters) {
    gradients.push_back(parameter.grad());
    parameter.mutable_grad() = at::Tensor();
  }
  return gradients;
}

/// Runs backwards of these sizes, each of which must leave what eager leaves.
void expect_as_eager(const Loss& loss, const Parameters& parameters,
                     const std::vector<int64_t>& sizes,
                     const compiled_autograd::Options& options = {}) {
  for (int64_t size : sizes) {
    const Parameters expected = take_gradients(loss, parameters, size);
    compiled_autograd::Enable on(options);
    const Parameters actual = take_gradients(loss, parameters, size);
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(expected[i].defined(), actual[i].defined()) << "size " << size;
      if (!expected[i].defined()) continue;
      EXPECT_TRUE(same_values(expected[i], actual[i])) << "size " << size << ", parameter " << i;
      EXPECT_EQ(expected[i].strides(), actual[i].strides()) << "size " << size;
    }
  }
}

class EngineSizes : public testing::Test {
 protected:
  void SetUp() override {
    at::set_num_threads(1);
    compiled_autograd::reset();
  }

  /// The same, and that two captures are enough.
  static void expect_lifted(const Loss& loss, const Parameters& parameters,
                            const std::vector<int64_t>& sizes = {2, 3, 4, 5, 6, 7, 8, 9}) {
    expect_as_eager(loss, parameters, sizes);
    const auto stats = compiled_autograd::stats();
    EXPECT_EQ(stats.captures, 2u) << all_reasons();
    EXPECT_EQ(stats.cache_hits, sizes.size() - 2);
    EXPECT_EQ(stats.eager_fallbacks, 0u);
  }

  const at::Tensor w_ = leaf({8, 4}), b_ = leaf({4});

  at::Tensor linear(int64_t n) const { return torch::randn({n, 8}).mm(w_) + b_; }
};

TEST_F(EngineSizes, SumsAndMeans) {
  expect_lifted([&](int64_t n) { return linear(n).tanh().sum() + linear(n).relu().mean(); },
                {w_, b_});
}

TEST_F(EngineSizes, SizesThatNoTensorHas) {
  const auto gradient = [](int64_t n) {
    torch::manual_seed(n);
    const at::Tensor x = leaf({n, 3});
    return torch::autograd::grad({((x * 2).sum(0).sum() + (x + 1).view({-1}).sum() * 3) / 7},
                                 {x})[0];
  };
  for (int64_t n : {2, 3, 4, 5}) {
    const at::Tensor expected = gradient(n);
    compiled_autograd::Enable on;
    EXPECT_TRUE(same_values(expected, gradient(n)));
  }
  EXPECT_EQ(compiled_autograd::stats().captures, 2u) << all_reasons();
}

TEST_F(EngineSizes, ReductionsAndBroadcasts) {
  expect_lifted(
      [&](int64_t n) {
        const at::Tensor y = linear(n);
        return ((y - y.mean(0)) * y.sum(1, true) + y.amax(1).unsqueeze(1)).tanh().sum();
      },
      {w_, b_});
}

TEST_F(EngineSizes, ViewsOfEveryKind) {
  expect_lifted(
      [&](int64_t n) {
        const at::Tensor y = linear(n);
        const at::Tensor z = y.view({n, 2, 2}).transpose(1, 2).reshape({2 * n, 2}).sin();
        return (z.t().contiguous().view({-1}) * y.permute({1, 0}).reshape({-1})).sum() +
               y.select(0, 1).sum() * y.slice(0, 1, n).narrow(1, 1, 2).pow(3).sum();
      },
      {w_, b_});
}

TEST_F(EngineSizes, Concatenation) {
  expect_lifted(
      [&](int64_t n) {
        const at::Tensor y = linear(n);
        return at::cat({y, y.cos(), y.slice(0, 1)}, 0).pow(2).sum() +
               at::stack({y, y.exp()}, 1).select(1, 0).sin().sum();
      },
      {w_, b_});
}

TEST_F(EngineSizes, Selections) {
  expect_lifted(
      [&](int64_t n) {
        const at::Tensor y = linear(n);
        return y.index({torch::randint(0, n, {n + 1})}).pow(2).sum() +
               y.gather(1, torch::randint(0, 4, {n, 2})).sin().sum() +
               std::get<0>(y.max(1)).cos().sum() + at::where(y > 0, y, y * 2).pow(2).sum() +
               y.masked_fill(y > 1, 0.5).sin().sum();
      },
      {w_, b_});
}

TEST_F(EngineSizes, WritesToParts) {
  expect_lifted(
      [&](int64_t n) {
        const at::Tensor y = linear(n);
        const at::Tensor z = y.clone();
        z.select(0, 1).mul_(3);
        z.slice(1, 0, 2).mul_(y.slice(1, 2));
        return z.pow(2).sum();
      },
      {w_, b_});
}

TEST_F(EngineSizes, Losses) {
  expect_lifted(
      [&](int64_t n) {
        const at::Tensor y = linear(n);
        return at::binary_cross_entropy_with_logits(y, torch::rand({n, 4})) +
               at::mse_loss(y, torch::rand({n, 4})) + at::smooth_l1_loss(y, torch::rand({n, 4})) +
               at::cross_entropy_loss(y, torch::randint(0, 4, {n})) + y.norm(2, 1).sum();
      },
      {w_, b_});
}

TEST_F(EngineSizes, AnMlp) {
  torch::nn::Sequential net(torch::nn::Linear(8, 16), torch::nn::GELU(),
                            torch::nn::LayerNorm(torch::nn::LayerNormOptions({16})),
                            torch::nn::Dropout(0.5), torch::nn::Linear(16, 4));
  expect_lifted(
      [&](int64_t n) {
        return at::cross_entropy_loss(net->forward(torch::randn({n, 8})),
                                      torch::randint(0, 4, {n}));
      },
      net->parameters());
}

TEST_F(EngineSizes, AConvolutionalNetwork) {
  torch::nn::Sequential net(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1)),
                            torch::nn::BatchNorm2d(8), torch::nn::ReLU(), torch::nn::MaxPool2d(2),
                            torch::nn::Conv2d(8, 4, 3), torch::nn::AdaptiveAvgPool2d(1),
                            torch::nn::Flatten(), torch::nn::Linear(4, 2));
  expect_lifted(
      [&](int64_t n) {
        return net->forward(torch::randn({n, 3, 12, 12})).pow(2).mean();
      },
      net->parameters());
}

TEST_F(EngineSizes, AnImageOfChangingHeight) {
  torch::nn::Sequential net(torch::nn::Conv2d(3, 4, 3), torch::nn::ReLU(),
                            torch::nn::Conv2d(4, 2, 3));
  expect_lifted(
      [&](int64_t n) {
        return net->forward(torch::randn({2, 3, n, 9})).pow(2).sum();
      },
      net->parameters(), {8, 9, 10, 11, 12});
}

TEST_F(EngineSizes, ARecurrentCell) {
  torch::nn::LSTMCell cell(8, 16);
  expect_lifted(
      [&](int64_t n) {
        const at::Tensor x = torch::randn({n, 8});
        auto state = cell(x);
        state = cell(x * 2, state);
        return std::get<0>(state).sum();
      },
      cell->parameters());
}

/// One layer of a transformer that reads and predicts letters.
struct Layer {
  torch::nn::Embedding letters{10, 16};
  torch::nn::LayerNorm norm{torch::nn::LayerNormOptions({16})};
  torch::nn::Linear qkv{16, 48}, head{16, 10};

  Parameters parameters() const {
    Parameters all = letters->parameters();
    for (const auto& some : {norm->parameters(), qkv->parameters(), head->parameters()})
      all.insert(all.end(), some.begin(), some.end());
    return all;
  }

  at::Tensor operator()(int64_t batch, int64_t length) {
    const at::Tensor text = torch::randint(0, 10, {batch, length});
    const at::Tensor x = letters(text);
    const auto parts = qkv(norm(x)).chunk(3, -1);
    const auto heads = [&](const at::Tensor& part) {
      return part.view({batch, length, 4, 4}).transpose(1, 2);
    };
    const at::Tensor y = at::scaled_dot_product_attention(heads(parts[0]), heads(parts[1]),
                                                          heads(parts[2]), {}, 0.0, true)
                             .transpose(1, 2)
                             .reshape({batch, length, 16});
    return at::cross_entropy_loss(head(norm(x + y)).view({-1, 10}), text.view(-1));
  }
};

TEST_F(EngineSizes, ATransformerOfChangingBatch) {
  Layer layer;
  expect_lifted([&](int64_t n) { return layer(n, 7); }, layer.parameters());
}

TEST_F(EngineSizes, ATransformerOfChangingLength) {
  Layer layer;
  expect_lifted([&](int64_t n) { return layer(3, n); }, layer.parameters(), {5, 6, 7, 8, 9, 10});
}

TEST_F(EngineSizes, TwoSizesThatChangeTogetherAndThenApart) {
  Layer layer;
  const Parameters parameters = layer.parameters();
  expect_as_eager([&](int64_t n) { return layer(n, n + 2); }, parameters, {2, 3, 4, 5});
  EXPECT_EQ(compiled_autograd::stats().captures, 2u) << all_reasons();
  // They were two sizes from the start.
  expect_as_eager([&](int64_t n) { return layer(n, 9); }, parameters, {6, 5, 4});
  EXPECT_EQ(compiled_autograd::stats().captures, 2u) << all_reasons();
}

TEST_F(EngineSizes, SizesThatWereEqualAreOneUntilTheyDiffer) {
  const Parameters parameters{w_, b_};
  const auto loss = [&](int64_t n, int64_t m) {
    return linear(n).sin().sum() * linear(m).cos().sum();
  };
  expect_as_eager([&](int64_t n) { return loss(n, n); }, parameters, {2, 3, 4});
  EXPECT_EQ(compiled_autograd::stats().captures, 2u);
  expect_as_eager([&](int64_t n) { return loss(n, 5); }, parameters, {3, 4, 6, 7});
  EXPECT_EQ(compiled_autograd::stats().captures, 3u) << all_reasons();
}

TEST_F(EngineSizes, HooksCutGraphsForChangingSizes) {
  const auto loss = [&](int64_t n) {
    const at::Tensor y = linear(n).tanh();
    y.register_hook([](const at::Tensor& gradient) { return gradient * 2; });
    return (y * y).sum();
  };
  expect_as_eager(loss, {w_, b_}, {2, 3, 4, 5, 6});
  EXPECT_EQ(compiled_autograd::stats().captures, 2u);
  EXPECT_EQ(compiled_autograd::stats().compiles, 4u);
}

TEST_F(EngineSizes, OneIsASizeOfItsOwn) {
  expect_as_eager([&](int64_t n) { return linear(n).tanh().sum(); }, {w_, b_},
                  {1, 2, 3, 1, 4, 1, 5});
  EXPECT_EQ(compiled_autograd::stats().captures, 2u) << all_reasons();
}

TEST_F(EngineSizes, NoneIsASizeOfItsOwn) {
  expect_as_eager([&](int64_t n) { return linear(n).tanh().sum(); }, {w_, b_}, {2, 3, 0, 4, 0, 5});
  EXPECT_LE(compiled_autograd::stats().captures, 4u) << all_reasons();
}

TEST_F(EngineSizes, NumbersMadeOfSizes) {
  expect_lifted(
      [&](int64_t n) {
        const at::Tensor y = linear(n);
        return y.std(0).sum() + y.var() + y.var(0, /*unbiased=*/false).sum() + y.std(1).mean();
      },
      {w_, b_});
}

/// A formula that asks for the size of its gradient.
struct Sized : torch::autograd::Function<Sized> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0] * gradients[0].sym_size(0).guard_int(__FILE__, __LINE__)};
  }
};

TEST_F(EngineSizes, WhatFormulasWantAsANumberIsCapturedAgain) {
  expect_as_eager([&](int64_t n) { return Sized::apply(linear(n)).sum(); }, {w_, b_},
                  {2, 3, 4, 3, 2});
  EXPECT_EQ(compiled_autograd::stats().captures, 3u);
  EXPECT_EQ(compiled_autograd::stats().cache_hits, 2u);
  EXPECT_NE(all_reasons().find("Sizes that change have graphs of their own"), std::string::npos);
}

/// Multiplies by an integer that it keeps.
struct Times : torch::autograd::Function<Times> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            int64_t factor, double shift) {
    context->saved_data["factor"] = factor;
    context->saved_data["shift"] = shift;
    return x * factor + shift;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const c10::SymInt factor = context->saved_data["factor"].toSymInt();
    const at::Tensor gradient = gradients[0] * factor + context->saved_data["shift"].toDouble();
    return {gradient, at::Tensor(), at::Tensor()};
  }
};

TEST_F(EngineSizes, IntegersThatFunctionsKeepChangeAsSizesDo) {
  expect_as_eager(
      [&](int64_t n) {
        const at::Tensor y = linear(3);
        return (Times::apply(y, n, 0.5) * Times::apply(y, n + 4, 0.25)).sum();
      },
      {w_, b_}, {1, 2, 3, 1, 7, 2});
  EXPECT_EQ(compiled_autograd::stats().captures, 2u) << all_reasons();
}

/// Multiplies by a number that it keeps. `asks`: the formula wants a plain one.
template <bool asks>
struct TimesReal : torch::autograd::Function<TimesReal<asks>> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            double factor) {
    context->saved_data["factor"] = factor;
    return x * factor;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const c10::IValue& factor = context->saved_data["factor"];
    const at::Scalar number = asks ? at::Scalar(factor.toDouble()) : factor.toScalar();
    return {gradients[0] * number, at::Tensor()};
  }
};

TEST_F(EngineSizes, RealNumbersThatFunctionsKeepChangeAsSizesDo) {
  const auto loss = [&](int64_t n) {
    const at::Tensor y = linear(3);
    return (TimesReal<false>::apply(y, static_cast<double>(n) / 7) *
            TimesReal<false>::apply(y, -0.25))
        .sum();
  };
  expect_as_eager(loss, {w_, b_}, {1, 2, 3, 0, -5, 7, 2});
  EXPECT_EQ(compiled_autograd::stats().captures, 2u) << all_reasons();
  const auto graphs = compiled_autograd::graphs();
  EXPECT_NE(graphs.back()->str().find("real(\"f0\")"), std::string::npos) << graphs.back()->str();
  expect_round_trip(*graphs.back());
}

TEST_F(EngineSizes, RealNumbersThatFormulasAskForAreCapturedEach) {
  for (double factor : {0.5, 0.25, 0.5, 0.25}) {
    expect_as_eager(
        [&](int64_t n) { return TimesReal<true>::apply(linear(n), factor).tanh().sum(); }, {w_, b_},
        {2, 3, 4, 5});
  }
  // One for the first size, one for all at the first number, one for all at the second.
  EXPECT_EQ(compiled_autograd::stats().captures, 3u) << all_reasons();
}

TEST_F(EngineSizes, FixedSizesOnRequest) {
  expect_as_eager([&](int64_t n) { return linear(n).tanh().sum(); }, {w_, b_}, {2, 3, 4, 5},
                  {.dynamic = false});
  EXPECT_EQ(compiled_autograd::stats().captures, 4u);
}

TEST_F(EngineSizes, AllOnRequestFromTheFirstCaptureOn) {
  expect_as_eager([&](int64_t n) { return linear(n).tanh().sum() + linear(n).relu().mean(); },
                  {w_, b_}, {2, 3, 4, 5, 6, 7, 8, 9}, {.dynamic = true});
  EXPECT_EQ(compiled_autograd::stats().captures, 1u) << all_reasons();
  EXPECT_EQ(compiled_autograd::stats().cache_hits, 7u);
}

TEST_F(EngineSizes, AllOfAConvolutionalNetwork) {
  torch::nn::Sequential net(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1)),
                            torch::nn::BatchNorm2d(8), torch::nn::ReLU(), torch::nn::MaxPool2d(2),
                            torch::nn::Conv2d(8, 4, 3), torch::nn::AdaptiveAvgPool2d(1),
                            torch::nn::Flatten(), torch::nn::Linear(4, 2));
  // Not 3, of which there are as many channels: both would be one size.
  expect_as_eager(
      [&](int64_t n) {
        return net->forward(torch::randn({n, 3, 12, 12})).pow(2).mean();
      },
      net->parameters(), {7, 2, 3, 4, 5, 6, 8, 9}, {.dynamic = true});
  EXPECT_EQ(compiled_autograd::stats().captures, 1u) << all_reasons();
}

TEST_F(EngineSizes, AllOfATransformer) {
  Layer layer;
  const Parameters parameters = layer.parameters();
  for (int64_t length : {7, 8, 9}) {
    expect_as_eager([&](int64_t n) { return layer(n, length); }, parameters, {5, 2, 3, 6, 9},
                    {.dynamic = true});
  }
  EXPECT_EQ(compiled_autograd::stats().captures, 1u) << all_reasons();
}

TEST_F(EngineSizes, AllButThoseThatWereEqualUntilTheyDiffer) {
  expect_as_eager([&](int64_t n) { return linear(n).tanh().sum(); }, {w_, b_}, {8, 2, 3, 4, 8, 9},
                  {.dynamic = true});
  EXPECT_EQ(compiled_autograd::stats().captures, 2u) << all_reasons();
}

TEST_F(EngineSizes, AllThatCanWhereNotAllCan) {
  // What is pinned is a size that does not change.
  expect_as_eager([&](int64_t n) { return Sized::apply(linear(n).t()).sum(); }, {w_, b_},
                  {2, 3, 5, 6}, {.dynamic = true});
  EXPECT_EQ(compiled_autograd::stats().captures, 1u) << all_reasons();
}

TEST_F(EngineSizes, GraphsNameTheSizesTheyTake) {
  expect_as_eager([&](int64_t n) { return linear(n).tanh().sum(); }, {w_}, {2, 3});
  const auto graphs = compiled_autograd::graphs();
  ASSERT_EQ(graphs.size(), 2u);
  EXPECT_EQ(graphs[0]->str().find("size("), std::string::npos);
  EXPECT_NE(graphs[1]->str().find("size(\"s0\")"), std::string::npos) << graphs[1]->str();
  EXPECT_EQ(graphs[1]->inputs().back().slot.kind, Slot::Kind::Sizes);
  EXPECT_NE(graphs[1]->str().find(": f32[s0, 4]"), std::string::npos) << graphs[1]->str();
  EXPECT_EQ(graphs[1]->example_sizes(), std::vector<int64_t>{3});
  for (const auto& graph : graphs) expect_round_trip(*graph);
}

TEST_F(EngineSizes, AllPassesRunForThem) {
  Layer layer;
  expect_as_eager([&](int64_t n) { return layer(n, 7); }, layer.parameters(), {5, 2, 3, 6, 9},
                  {.dynamic = true});
  for (const auto& graph : compiled_autograd::graphs()) {
    for (const passes::Pass& pass : passes::all()) {
      Graph again(*graph);
      EXPECT_EQ(pass.run(again), 0u) << pass.name << " changes\n" << graph->str();
    }
  }
}

TEST_F(EngineSizes, GradientsThatAreAskedForHaveThem) {
  const auto gradients = [&](int64_t n) {
    torch::manual_seed(n);
    const at::Tensor x = leaf({n, 8});
    return torch::autograd::grad({(x.mm(w_) * x.mm(w_)).sum()}, {x, w_});
  };
  for (int64_t n : {2, 3, 4, 5}) {
    const auto expected = gradients(n);
    compiled_autograd::Enable on;
    const auto actual = gradients(n);
    EXPECT_TRUE(same_values(expected[0], actual[0]));
    EXPECT_TRUE(same_values(expected[1], actual[1]));
  }
  EXPECT_EQ(compiled_autograd::stats().captures, 2u) << all_reasons();
}

/// Its gradient looks at values if there are four rows, which no trace allows.
struct LooksAtFourRows : torch::autograd::Function<LooksAtFourRows> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x * x;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const at::Tensor x = context->get_saved_variables()[0];
    if (x.sym_size(0) == 4 && x.sum().item<float>() > 1e9) return {grads[0]};
    return {grads[0] * x * 2};
  }
};

TEST_F(EngineSizes, WhatCannotBeTracedForSomeSizesIsTriedForOthers) {
  const Loss loss = [&](int64_t n) {
    return LooksAtFourRows::apply(torch::ones({n, 8}).mm(w_).tanh()).sin().sum();
  };
  const auto eager_nodes = [] { return compiled_autograd::stats().eager_nodes; };
  expect_as_eager(loss, {w_}, {3});
  EXPECT_EQ(eager_nodes(), 0u) << all_reasons();
  expect_as_eager(loss, {w_}, {4});
  EXPECT_EQ(eager_nodes(), 1u) << all_reasons();
  expect_as_eager(loss, {w_}, {6, 7, 9});
  EXPECT_EQ(eager_nodes(), 1u) << all_reasons();
  expect_as_eager(loss, {w_}, {4, 6});
  EXPECT_EQ(eager_nodes(), 2u) << all_reasons();
}

TEST_F(EngineSizes, ManyThreadsWithManySizes) {
  std::vector<std::thread> threads;
  for (int64_t thread = 0; thread < 8; ++thread) {
    threads.emplace_back([thread] {
      const at::Tensor w = torch::full({8, 4}, 0.1 * static_cast<double>(thread));
      w.requires_grad_();
      for (int64_t i = 0; i < 20; ++i) {
        const at::Tensor x = torch::full({2 + (thread + i) % 7, 8}, 0.3);
        const auto gradient = [&] {
          return torch::autograd::grad({x.mm(w).tanh().pow(2).mean()}, {w})[0];
        };
        const at::Tensor expected = gradient();
        compiled_autograd::Enable on;
        EXPECT_TRUE(same_values(expected, gradient()));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(compiled_autograd::stats().eager_fallbacks, 0u);
}

}  // namespace sizes_test
}  // namespace ahead
