#include "ahead/ahead.h"
#include "sizes/training.h"
#include "support/engine_check.h"

/// Backwards through compiled functions whose calls have other sizes each time: what is captured is
/// for the program, not for one choice of its sizes.
namespace ahead {
namespace sized_functions_test {

using at::Tensor;
using test::all_reasons;
using torch::autograd::grad;
using Tensors = std::vector<Tensor>;
namespace nn = torch::nn;

const std::vector<int64_t> many = {5, 7, 9, 4, 12, 3, 6, 11};

/// Runs a step of a user's program with the function and with the compiled one, the latter also
/// captured. What both leave must be the same for each of the sizes, which come three times.
/// Returns how many captures there were before the last time, and what was counted.
template <class F, class S>
std::pair<uint64_t, compiled_autograd::Stats> expect_same_as_eager(
    F function, const S& step, const std::vector<int64_t>& sizes = many, Options options = {}) {
  auto compiled = compile(function, std::move(options));
  const auto run_all = [&] {
    for (const int64_t size : sizes) {
      SCOPED_TRACE("size " + std::to_string(size));
      torch::manual_seed(size);
      const Tensors expected = step(function, size);
      torch::manual_seed(size);
      const compiled_autograd::Enable on;
      expect_same(expected, step(compiled, size));
    }
  };
  compiled_autograd::reset();
  run_all();
  run_all();
  const uint64_t captures = compiled_autograd::stats().captures;
  const uint64_t hits = compiled.stats().cache_hits;
  run_all();
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  EXPECT_GE(compiled.stats().cache_hits, hits + sizes.size() / 2);
  const compiled_autograd::Stats stats = compiled_autograd::stats();
  EXPECT_EQ(stats.eager_fallbacks, 0U) << all_reasons();
  return {captures, stats};
}

/// The same, and that nothing is captured any more when the sizes come for the third time.
template <class F, class S>
compiled_autograd::Stats expect_as_eager(F function, const S& step,
                                         const std::vector<int64_t>& sizes = many,
                                         Options options = {}) {
  const auto [captures, stats] =
      expect_same_as_eager(std::move(function), step, sizes, std::move(options));
  EXPECT_EQ(stats.captures, captures) << all_reasons();
  return stats;
}

/// The same where all of it is graphs: those of eager's nodes, of calls that are observed, for the
/// first size and for all others, and of the program.
template <class F, class S>
void expect_three_captures(F function, const S& step, const std::vector<int64_t>& sizes = many,
                           Options options = {}) {
  const auto stats = expect_as_eager(std::move(function), step, sizes, std::move(options));
  EXPECT_LE(stats.captures, 3U) << all_reasons();
  EXPECT_EQ(stats.eager_nodes, 0U) << all_reasons();
}

TEST(EngineSizedFunctions, OneCaptureServesAllSizes) {
  const Tensor w = leaf({6, 4});
  const auto f = [&](const Tensor& x) { return x.matmul(w).tanh().flatten().exp(); };
  expect_three_captures(f, [&](const auto& model, int64_t size) {
    w.mutable_grad() = Tensor();
    const Tensor x = leaf({size, 6});
    model(x.sin()).pow(2).sum().backward();
    return Tensors{x.grad(), w.grad()};
  });
}

TEST(EngineSizedFunctions, BatchesAndLengths) {
  nn::Embedding embedding(20, 6);
  nn::Linear to_keys(6, 6), to_values(6, 6);
  const auto f = [&](const Tensor& tokens) {
    const Tensor x = embedding(tokens);
    const Tensor weights = to_keys(x).matmul(x.transpose(1, 2)).softmax(-1);
    return weights.matmul(to_values(x)).mean(1);
  };
  expect_three_captures(f, [&](const auto& model, int64_t size) {
    for (auto* module : {&*to_keys, &*to_values}) module->zero_grad();
    embedding->zero_grad();
    const Tensor tokens = torch::randint(20, {2 + size % 3, size}, at::kLong);
    nn::functional::cross_entropy(model(tokens), tokens.select(1, 0) % 6).backward();
    return Tensors{embedding->weight.grad(), to_keys->weight.grad(), to_values->bias.grad()};
  });
}

TEST(EngineSizedFunctions, TwoInOneBackward) {
  const Tensor w = leaf({6, 6});
  auto inner = compile([](const Tensor& x) { return (x * x).flatten().cumsum(0); });
  const auto f = [&](const Tensor& x) { return x.matmul(w).relu(); };
  expect_three_captures(f, [&](const auto& model, int64_t size) {
    w.mutable_grad() = Tensor();
    const Tensor x = leaf({size, 6});
    const bool is_eager = std::is_same_v<std::decay_t<decltype(model)>, std::decay_t<decltype(f)>>;
    const Tensor y = model(x).exp();
    (is_eager ? (y * y).flatten().cumsum(0) : inner(y)).mean().backward();
    return Tensors{x.grad(), w.grad()};
  });
}

/// One backward through several calls, each of other sizes.
TEST(EngineSizedFunctions, CallsOfSeveralSizesInOneBackward) {
  const Tensor w = leaf({6, 4});
  const auto f = [&](const Tensor& x) { return x.matmul(w).tanh(); };
  expect_as_eager(f, [&](const auto& model, int64_t size) {
    w.mutable_grad() = Tensor();
    Tensor loss = torch::zeros({});
    Tensors leaves;
    for (const int64_t more : {0, 2, 0, 1}) {
      leaves.push_back(leaf({size + more, 6}));
      loss = loss + model(leaves.back()).pow(2).mean();
    }
    loss.backward();
    Tensors grads{w.grad()};
    for (const Tensor& x : leaves) grads.push_back(x.grad());
    return grads;
  });
}

TEST(EngineSizedFunctions, GradientsAddUpOverCalls) {
  const Tensor w = leaf({6, 4});
  const auto f = [&](const Tensor& x) { return x.matmul(w).sigmoid(); };
  expect_as_eager(f, [&](const auto& model, int64_t size) {
    w.mutable_grad() = Tensor();
    for (const int64_t each : {size, size + 1, size})
      model(torch::randn({each, 6})).sum().backward();
    return Tensors{w.grad()};
  });
}

TEST(EngineSizedFunctions, HooksOnBothSides) {
  const Tensor w = leaf({6, 4});
  const auto f = [&](const Tensor& x) { return x.matmul(w).sigmoid(); };
  const auto stats = expect_as_eager(f, [&](const auto& model, int64_t size) {
    const Tensor v = w.detach().requires_grad_();
    const Tensor x = leaf({size, 6});
    const Tensor h = x.sin(), y = model(h);
    Tensors seen;
    for (const Tensor& tensor : {x, h, y}) {
      tensor.register_hook([&](const Tensor& gradient) {
        seen.push_back(gradient);
        return gradient * 1.5;
      });
    }
    (y * v.sum()).pow(2).sum().backward();
    seen.push_back(x.grad());
    return seen;
  });
  EXPECT_LE(stats.captures, 3U) << all_reasons();
}

TEST(EngineSizedFunctions, SomeResultsAndSomeGradients) {
  const Tensor w = leaf({6, 4});
  const auto f = [&](const Tensor& x, const Tensor& v) {
    return std::make_pair((x * v).matmul(w), x.exp().sum(1));
  };
  expect_as_eager(f, [&](const auto& model, int64_t size) {
    const Tensor x = leaf({size, 6}), v = leaf({size, 6});
    const auto [a, b] = model(x, v);
    Tensors grads = grad({a.sum()}, {x}, {}, /*retain_graph=*/true);
    for (const Tensor& g : grad({b.pow(2).sum()}, {x}, {}, /*retain_graph=*/true))
      grads.push_back(g);
    for (const Tensor& g : grad({a.mean() + b.mean()}, {v, x, w})) grads.push_back(g);
    return grads;
  });
}

TEST(EngineSizedFunctions, SecondDerivatives) {
  const Tensor w = leaf({6, 4});
  const auto f = [&](const Tensor& x) { return x.matmul(w).tanh().exp(); };
  expect_same_as_eager(f, [&](const auto& model, int64_t size) {
    const Tensor x = leaf({size, 6});
    const Tensor slope = grad({model(x).sum()}, {x}, {}, true, /*create_graph=*/true)[0];
    Tensors all = grad({slope.pow(2).sum()}, {x, w});
    all.push_back(slope.detach());
    return all;
  });
}

/// A number that is just passed on is one of the sizes, by its bits; some are below -2^62.
TEST(EngineSizedFunctions, NumbersAmongTheSizes) {
  const auto f = [](const Tensor& x, double rate) { return (x * rate).sin() + x; };
  auto compiled = compile(f);
  const auto step = [&](const auto& model, const Tensor& leaf, double rate) {
    const Tensor x = leaf.clone().requires_grad_();
    model(x, rate).exp().sum().backward();
    return x.grad();
  };
  // Eager's nodes hold such numbers as constants; those of observed calls are not counted.
  uint64_t captures = 0;
  compiled_autograd::reset();
  for (int call = 0; call < 60; ++call) {
    const uint64_t hits = compiled.stats().cache_hits;
    const uint64_t before = compiled_autograd::stats().captures;
    const Tensor x = torch::randn({call < 20 ? 4 : 4 + call % 3, 3});
    const double rate = (call % 2 == 0 ? 0.3 : -1.3) - 0.01 * call;
    const Tensor expected = step(f, x, rate);
    const compiled_autograd::Enable on;
    expect_same({expected}, {step(compiled, x, rate)});
    if (compiled.stats().cache_hits > hits)
      captures += compiled_autograd::stats().captures - before;
  }
  EXPECT_LE(captures, 2U) << "for changing numbers, and for changing sizes: " << all_reasons();
  EXPECT_GT(compiled.stats().cache_hits, 40U);
}

TEST(EngineSizedFunctions, SizesThatValuesDecide) {
  const Tensor w = leaf({4});
  const auto f = [&](const Tensor& x) { return (x.masked_select(x > 0) * 2).exp().sum() * w; };
  expect_as_eager(f, [&](const auto& model, int64_t size) {
    w.mutable_grad() = Tensor();
    const Tensor x = torch::linspace(-1, 1, size * 4).view({size, 4}).requires_grad_();
    model(x).sum().backward();
    return Tensors{x.grad(), w.grad()};
  });
}

/// Gradients that do not lie as the program expects them.
TEST(EngineSizedFunctions, GradientsThatLieOtherwise) {
  const Tensor w = leaf({6, 4});
  const auto f = [&](const Tensor& x) { return x.matmul(w).tanh(); };
  const auto stats = expect_as_eager(f, [&](const auto& model, int64_t size) {
    w.mutable_grad() = Tensor();
    const Tensor x = leaf({size, 6});
    model(x).t().mul(torch::rand({4, size})).sum().backward();
    return Tensors{x.grad(), w.grad()};
  });
  EXPECT_EQ(stats.eager_nodes, 0U) << all_reasons();
}

/// Where operators are called one by one, numbers that change with sizes are among their operands.
TEST(EngineSizedFunctions, MeansWhoseGradientsLieOtherwise) {
  const Tensor w = leaf({6, 4});
  const auto f = [&](const Tensor& x) { return x.matmul(w).sigmoid().mean(0); };
  expect_three_captures(f, [&](const auto& model, int64_t size) {
    w.mutable_grad() = Tensor();
    const Tensor x = leaf({size, 6});
    model(x).sum().backward();
    return Tensors{x.grad(), w.grad()};
  });
}

TEST(EngineSizedFunctions, RandomNumbersAndOwnFunctions) {
  const Tensor w = leaf({6, 4});
  const auto f = [&](const Tensor& x) {
    return nn::functional::layer_norm(at::dropout(x, 0.5, true).matmul(w),
                                      nn::functional::LayerNormFuncOptions({4}));
  };
  expect_as_eager(f, [&](const auto& model, int64_t size) {
    w.mutable_grad() = Tensor();
    const Tensor x = leaf({size, 6});
    model(x).pow(3).sum().backward();
    return Tensors{x.grad(), w.grad()};
  });
}

TEST(EngineSizedFunctions, BatchesOfOneAndNone) {
  const Tensor w = leaf({6, 4});
  const auto f = [&](const Tensor& x) { return x.matmul(w).tanh().sum(0); };
  const auto [before, stats] = expect_same_as_eager(f,
                                                    [&](const auto& model, int64_t size) {
                                                      w.mutable_grad() = Tensor();
                                                      const Tensor x = leaf({size, 6});
                                                      model(x).pow(2).sum().backward();
                                                      return Tensors{x.grad(), w.grad()};
                                                    },
                                                    {3, 1, 4, 0, 6, 2, 5, 8});
  // Of eager's nodes and of the program: for 0, for 1, and for all others, before which the first
  // size was captured.
  EXPECT_LE(stats.captures, 8U) << all_reasons();
}

/// A stride of 1 is none of the sizes that are captured for themselves.
TEST(EngineSizedFunctions, LayoutsThatAlternate) {
  const auto run = [](int64_t size, bool is_transposed) {
    torch::manual_seed(size);
    const Tensor x = is_transposed ? torch::randn({4, size}).t().requires_grad_() : leaf({size, 4});
    x.sin().exp().sum().backward();
    return x.grad();
  };
  compiled_autograd::reset();
  uint64_t captures = 0;
  for (const int64_t size : {3, 5, 6, 7, 9, 10, 11, 13, 14, 15}) {
    captures = size == 10 ? compiled_autograd::stats().captures : captures;
    for (const bool is_transposed : {false, true}) {
      const Tensor expected = run(size, is_transposed);
      const compiled_autograd::Enable on;
      expect_same({expected}, {run(size, is_transposed)});
    }
  }
  EXPECT_EQ(compiled_autograd::stats().captures, captures) << all_reasons();
}

/// Sizes that never came before run from the program, and from what was captured.
TEST(EngineSizedFunctions, SizesThatAreTrusted) {
  const Tensor w = leaf({6, 4});
  const auto f = [&](const Tensor& x) { return x.matmul(w).tanh().flatten(); };
  auto compiled = compile(f, {.dynamic = Dynamic::Trusting});
  const auto step = [&](const auto& model, int64_t size) {
    torch::manual_seed(size);
    w.mutable_grad() = Tensor();
    const Tensor x = leaf({size, 6});
    model(x).exp().sum().backward();
    return Tensors{x.grad(), w.grad()};
  };
  const auto run = [&](int64_t size) {
    const Tensors expected = step(f, size);
    const compiled_autograd::Enable on({.fullgraph = true});
    expect_same(expected, step(compiled, size));
  };
  compiled_autograd::reset();
  for (const int64_t size : rounds_of(2, 13, 2)) run(size);
  const uint64_t captures = compiled_autograd::stats().captures;
  const uint64_t hits = compiled.stats().cache_hits;
  for (const int64_t size : shuffled(14, 60)) run(size);
  EXPECT_EQ(compiled_autograd::stats().captures, captures) << all_reasons();
  EXPECT_GT(compiled.stats().cache_hits, hits + 30);
}

/// Hooks divide the function; each part has programs for many sizes.
TEST(EngineSizedFunctions, HooksInside) {
  const Tensor w = leaf({6, 4});
  const auto f = [&](const Tensor& x) {
    const Tensor h = x.matmul(w).tanh();
    if (h.requires_grad()) h.register_hook([](const Tensor& gradient) { return gradient * 0.5; });
    return (h * h).sum(1);
  };
  expect_same_as_eager(f, [&](const auto& model, int64_t size) {
    w.mutable_grad() = Tensor();
    const Tensor x = leaf({size, 6});
    model(x).exp().sum().backward();
    return Tensors{x.grad(), w.grad()};
  });
}

/// Nodes that look alike and stop telling what they hold, after another number of sizes each.
TEST(EngineSizedFunctions, WhatWasWrittenTo) {
  const auto f = [](const Tensor& x) { return x.exp().view({-1}); };
  auto sized = compile(f), fixed = compile(f, {.dynamic = Dynamic::Static});
  const auto error_with = [](const auto& model, int64_t size) {
    const Tensor y = model(leaf({size, 2}));
    y.detach().mul_(2);
    return error_of([&] { y.sum().backward(); });
  };
  compiled_autograd::reset();
  for (const int64_t size : rounds_of(3, 5, 4)) {
    const std::string phrase = "modified by an inplace operation";
    EXPECT_NE(error_with(f, size).find(phrase), std::string::npos);
    const compiled_autograd::Enable on;
    EXPECT_NE(error_with(fixed, size).find(phrase), std::string::npos);
    EXPECT_NE(error_with(sized, size).find(phrase), std::string::npos);
  }
  EXPECT_GT(sized.stats().cache_hits, 0U);
  EXPECT_GT(fixed.stats().cache_hits, 0U);
}

/// Epochs of minibatches, of which the last is smaller.
TEST(EngineSizedFunctions, TrainingWithASmallerLastBatch) {
  const auto make = [] {
    torch::manual_seed(1);
    return nn::Sequential(nn::Linear(6, 8), nn::ReLU(), nn::BatchNorm1d(8), nn::Linear(8, 3));
  };
  nn::Sequential eager = make(), model = make();
  auto compiled = compile(model);
  torch::optim::Adam eager_optimizer(eager->parameters(), 0.01),
      optimizer(model->parameters(), 0.01);
  const Tensor data = torch::randn({22, 6}), labels = torch::randint(3, {22}, at::kLong);
  compiled_autograd::reset();
  const auto train = [&](auto&& forward, torch::optim::Adam& with) {
    for (int64_t first = 0; first < 22; first += 8) {
      with.zero_grad();
      const int64_t end = std::min<int64_t>(first + 8, 22);
      nn::functional::cross_entropy(forward(data.slice(0, first, end)), labels.slice(0, first, end))
          .backward();
      with.step();
    }
  };
  for (int epoch = 0; epoch < 6; ++epoch) {
    train([&](const Tensor& x) { return eager->forward(x); }, eager_optimizer);
    const compiled_autograd::Enable on({.fullgraph = true});
    train(compiled, optimizer);
    expect_same(everything_in(*eager), everything_in(*model));
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  EXPECT_LE(compiled_autograd::stats().captures, 5U) << all_reasons();
  EXPECT_GT(compiled_autograd::stats().cache_hits, 12U);
}

}  // namespace sized_functions_test
}  // namespace ahead
