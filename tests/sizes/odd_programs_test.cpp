#include <ATen/autocast_mode.h>

#include <thread>

#include "ahead/checkpoint.h"
#include "sizes/training.h"

/// What people do around and inside functions whose arguments have other sizes each time.
namespace ahead {
namespace odd_programs_test {

using at::Tensor;
using Tensors = std::vector<Tensor>;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

/// A module and its twin, which is compiled.
template <class Holder>
struct Twins {
  explicit Twins(const std::function<Holder()>& make, Options options = {})
      : eager((torch::manual_seed(1), make())),
        model((torch::manual_seed(1), make())),
        compiled(compile(model, std::move(options))) {}

  Holder eager, model;
  decltype(compile(std::declval<Holder>())) compiled;
};

struct NormalisedImpl : nn::Module {
  NormalisedImpl() {
    register_module("linear", linear);
    register_module("norm", norm);
    register_module("dropout", dropout);
  }
  Tensor forward(const Tensor& x) { return dropout(norm(linear(x))).relu(); }
  nn::Linear linear{3, 4};
  nn::BatchNorm1d norm{4};
  nn::Dropout dropout{0.3};
};
TORCH_MODULE(Normalised);

TEST(OddPrograms, TrainAndEvalInTurnWithSmallerLastBatches) {
  Twins<Normalised> twins([] { return Normalised(); });
  uint64_t seed = 0;
  for (int epoch = 0; epoch < 6; ++epoch) {
    for (const bool is_training : {true, false}) {
      twins.eager->train(is_training);
      twins.model->train(is_training);
      for (const int64_t size : {8, 8, 8, 3 + epoch % 3}) {
        SCOPED_TRACE(size);
        compare([&](const Tensor& x) { return twins.eager->forward(x); }, twins.compiled,
                torch::randn({size, 3}), ++seed);
        expect_same(everything_in(*twins.eager), everything_in(*twins.model));
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_EQ(twins.compiled.stats().eager_calls, 0U);
  EXPECT_LE(twins.compiled.stats().compilations, 6U);
  EXPECT_GE(twins.compiled.stats().cache_hits, 20U);
}

TEST(OddPrograms, ThreadsWithDifferentSizes) {
  const Tensor w = torch::randn({3, 4}).requires_grad_();
  const auto f = [&](const Tensor& x) {
    return x.matmul(w).tanh() * static_cast<double>(x.size(0));
  };
  auto compiled = compile(f);
  const auto work = [&](int64_t first) {
    for (const int64_t size : rounds_of(first, first + 9, 12)) {
      const Tensor x = torch::randn({size, 3});
      const Tensor a = x.clone().requires_grad_(), b = x.clone().requires_grad_();
      const Tensor expected = f(a), actual = compiled(b);
      expect_same({expected.detach()}, {actual.detach()});
      expect_same(torch::autograd::grad({expected.sum()}, {a}),
                  torch::autograd::grad({actual.sum()}, {b}));
    }
  };
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < 4; ++i) threads.emplace_back(work, 1 + 5 * i);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  EXPECT_GT(compiled.stats().cache_hits, 200U);
}

TEST(OddPrograms, BackwardsOfSeveralSizesInAnyOrder) {
  const Tensor w = torch::randn({3, 4}).requires_grad_();
  const auto f = [&](const Tensor& x) { return (x.matmul(w).sigmoid() + x.sum()).mean(); };
  auto compiled = compile(f);
  const auto all = [&](const auto& function) {
    w.mutable_grad() = Tensor();
    torch::manual_seed(4);
    Tensors found;
    for (int round = 0; round < 4; ++round) {
      Tensors losses;
      for (const int64_t size : shuffled(2, 9, static_cast<unsigned>(round)))
        losses.push_back(function(torch::randn({size, 3})));
      for (const size_t i : {3, 0, 7, 2, 2}) losses[i].backward({}, /*retain_graph=*/true);
      (losses[1] * losses[6]).backward();
      found.push_back(w.grad().clone());
    }
    return found;
  };
  expect_same(all(f), all(compiled));
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
}

TEST(OddPrograms, CheckpointedRegions) {
  const Tensor w = torch::randn({3, 3}).requires_grad_();
  const auto f = [&](const Tensor& x) {
    const auto region = [&](const Tensor& y) {
      return torch::dropout(y.matmul(w).sin(), 0.4, true);
    };
    return checkpoint(CheckpointPolicy::recompute_everything(), region, x).cumsum(0);
  };
  auto compiled = compile(f);
  for (const int64_t size : rounds_of(1, 9, 4)) compare(f, compiled, torch::randn({size, 3}));
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  EXPECT_LE(compiled.stats().compilations, 4U);
}

TEST(OddPrograms, AutocastOnAndOff) {
  const Tensor w = torch::randn({3, 5}).requires_grad_();
  const auto f = [&](const Tensor& x) { return x.matmul(w).softmax(-1); };
  auto compiled = compile(f);
  int call = 0;
  for (const int64_t size : rounds_of(2, 9, 5)) {
    at::autocast::set_autocast_enabled(at::kCPU, ++call % 3 == 0);
    compare(f, compiled, torch::randn({size, 3}));
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  EXPECT_LE(compiled.stats().compilations, 6U);
}

TEST(OddPrograms, GradientPenalties) {
  const Tensor w = torch::randn({3, 4}).requires_grad_();
  const auto f = [&](const Tensor& x) {
    const Tensor inner = x.detach().requires_grad_();
    const Tensor y = inner.matmul(w).tanh().sum();
    const Tensor gradient = torch::autograd::grad({y}, {inner}, {}, true, true)[0];
    return (gradient.pow(2).sum(1) - 1).pow(2).mean() + x.mean();
  };
  auto compiled = compile(f);
  for (const int64_t size : rounds_of(1, 9, 4)) compare(f, compiled, torch::randn({size, 3}));
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  EXPECT_LE(compiled.stats().compilations, 4U);
}

TEST(OddPrograms, HooksInside) {
  const auto f = [](const Tensor& x) {
    const Tensor y = x * 3;
    const double scale = 1.0 / static_cast<double>(x.size(0));
    y.register_hook([scale](const Tensor& gradient) { return gradient * scale; });
    return y.sin();
  };
  auto compiled = compile(f);
  for (const int64_t size : rounds_of(1, 6, 4)) compare(f, compiled, torch::randn({size, 3}));
}

/// What a hook captured is that of its own call, though calls of other sizes did the same.
TEST(OddPrograms, HooksThatCaptureCounters) {
  const auto counting = [](int& calls) {
    return [&calls](const Tensor& x) {
      const Tensor y = x * 3;
      const int64_t factor = ++calls;
      y.register_hook([factor](const Tensor& gradient) { return gradient * factor; });
      return y.sin();
    };
  };
  int of_eager = 0, of_compiled = 0;
  const auto f = counting(of_eager);
  auto compiled = compile(counting(of_compiled));
  for (const int64_t size : rounds_of(2, 12, 2)) compare(f, compiled, torch::randn({size, 3}));
  EXPECT_EQ(compiled.stats().cache_hits, 0U);
}

TEST(OddPrograms, BagsOfEmbeddings) {
  const Tensor table = torch::randn({20, 4}).requires_grad_();
  const auto f = [&](const Tensor& ids, const Tensor& offsets) {
    return std::get<0>(at::embedding_bag(table, ids, offsets)).pow(2).sum();
  };
  auto compiled = compile(f);
  for (const int64_t size : rounds_of(1, 9, 4)) {
    const Tensor ids = torch::randint(20, {size * 3 + size % 4}, at::kLong);
    const Tensor offsets = torch::arange(size) * 3;
    const Tensor expected = f(ids, offsets), actual = compiled(ids, offsets);
    expect_same({expected.detach()}, {actual.detach()});
    expect_same(torch::autograd::grad({expected}, {table}),
                torch::autograd::grad({actual}, {table}));
  }
}

TEST(OddPrograms, PaddedSequencesWithMasksByLengths) {
  nn::Embedding embedding(11, 4);
  const auto f = [&](const Tensor& ids, const std::vector<int64_t>& lengths) {
    const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
    const Tensor mask = torch::arange(longest).unsqueeze(0) < torch::tensor(lengths).unsqueeze(1);
    const Tensor x = embedding(ids.slice(1, 0, longest)) * mask.unsqueeze(-1);
    return (x.sum(1) / mask.sum(1, true)).pow(2).mean();
  };
  auto compiled = compile(f, {.recompile_limit = 16});
  for (int call = 0; call < 40; ++call) {
    const std::vector<int64_t> lengths{1 + call % 3, 4, 2 + call % 5};
    const Tensor ids = torch::randint(11, {3, 8}, at::kLong);
    const Tensor expected = f(ids, lengths), actual = compiled(ids, lengths);
    expect_same({expected.detach()}, {actual.detach()});
    expect_same(torch::autograd::grad({expected}, {embedding->weight}),
                torch::autograd::grad({actual}, {embedding->weight}));
    if (HasFailure()) return;
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
}

/// A table of positions that grows when a longer sequence comes.
struct PositionsImpl : nn::Module {
  PositionsImpl() { register_module("linear", linear); }
  Tensor forward(const Tensor& x) {
    if (!table.defined() || table.size(0) < x.size(0))
      table = torch::arange(x.size(0) * 3).view({-1, 3}) * 0.1;
    return linear(x + table.slice(0, 0, x.size(0)));
  }
  nn::Linear linear{3, 2};
  Tensor table;
};
TORCH_MODULE(Positions);

TEST(OddPrograms, TablesThatGrow) {
  Twins<Positions> twins([] { return Positions(); });
  for (const int64_t size :
       {4, 4, 3, 4, 2, 6, 6, 4, 3, 6, 9, 9, 6, 4, 4, 9, 9, 3, 3, 6, 9, 12, 9, 3, 12, 12}) {
    SCOPED_TRACE(size);
    compare([&](const Tensor& x) { return twins.eager->forward(x); }, twins.compiled,
            torch::randn({size, 3}));
    expect_same({twins.eager->table}, {twins.model->table});
    if (HasFailure()) return;
  }
}

TEST(OddPrograms, SlicesOfOneTensorAndOtherLayouts) {
  const auto f = [](const Tensor& x) {
    return std::vector<Tensor>{x.t(), x.reshape({-1}).sin(), x.contiguous() * 2,
                               x.select(0, x.size(0) - 1)};
  };
  auto compiled = compile(f);
  const Tensor all = torch::randn({40, 6});
  for (int call = 0; call < 60; ++call) {
    const int64_t size = 2 + call % 5;
    Tensor x = all.slice(0, call % 7, call % 7 + size);
    if (call % 4 == 1) x = all.slice(1, 0, 3).slice(0, 0, size);
    if (call % 4 == 2) x = all.t().slice(1, 0, size).t();
    if (call % 4 == 3) x = all.slice(0, 0, 1).expand({size, 6});
    const Tensors expected = f(x), actual = compiled(x);
    expect_same(expected, actual);
    EXPECT_TRUE(actual[0].is_alias_of(all) && actual[3].is_alias_of(all));
    if (HasFailure()) return;
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
}

TEST(OddPrograms, ParametersFrozenBetweenCallsAndCallsWithoutGradients) {
  const Tensor w = torch::randn({3, 4}).requires_grad_();
  const auto f = [&](const Tensor& x) { return x.matmul(w).relu(); };
  auto compiled = compile(f);
  int call = 0;
  for (const int64_t size : rounds_of(1, 8, 8)) {
    w.requires_grad_(++call / 8 % 2 == 0);
    at::AutoGradMode mode(call % 5 != 0);
    compare(f, compiled, torch::randn({size, 3}));
    if (HasFailure()) return;
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  EXPECT_LE(compiled.stats().compilations, 9U);
}

TEST(OddPrograms, TablesOfTheHostInDifferentiatedFunctions) {
  const auto f = [](const Tensor& x) {
    return (x - torch::tensor({0.4, 0.5, 0.6})) / torch::tensor({0.2, 0.3, 0.25});
  };
  auto compiled = compile(f);
  for (const int64_t size : rounds_of(2, 20, 4)) compare(f, compiled, torch::randn({size, 3}));
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  EXPECT_EQ(compiled.stats().compilations, 1U);
}

TEST(OddPrograms, NumbersInHalfPrecisionInPlace) {
  const auto f = [](const Tensor& x, double rate) {
    Tensor y = x.to(at::kBFloat16) + 1;
    y *= rate;
    Tensors all{y.sin(), x.clone()};
    at::_foreach_mul_(all, rate);
    return std::vector<Tensor>{y, all[0], all[1]};
  };
  auto compiled = compile(f);
  for (int call = 0; call < 40; ++call) {
    const Tensor x = torch::randn({2 + call % 3, 5});
    const double rate = 0.01 * (call + 2);
    expect_same(f(x, rate), compiled(x, rate));
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
}

TEST(OddPrograms, ListsOfTensorsOfOtherLengths) {
  const auto f = [](const Tensors& all) { return torch::cat(all).sin().sum(0); };
  auto compiled = compile(f);
  for (int call = 0; call < 60; ++call) {
    Tensors all;
    for (int64_t i = 0; i < 1 + call % 3; ++i) all.push_back(torch::randn({(call + i) % 4, 3}));
    expect_same({f(all)}, {compiled(all)});
    if (HasFailure()) return;
  }
}

}  // namespace odd_programs_test
}  // namespace ahead
