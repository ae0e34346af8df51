#include <map>

#include "ahead/optim.h"
#include "sizes/training.h"
#include "support/resident_memory.h"

/// What programs for many sizes have to get right besides: numbers, state, derivatives, tables.
namespace ahead {
namespace programs_test {

using at::Tensor;
using Tensors = std::vector<Tensor>;

/// Calls a function and its compiled form with arguments of each size in turn, and expects results
/// and gradients to be the same. Returns what was counted.
template <class F>
CompileStats call_side_by_side(F function, const std::vector<int64_t>& sizes,
                               Options options = {}) {
  auto compiled = compile(function, std::move(options));
  for (const int64_t size : sizes) {
    SCOPED_TRACE("size " + std::to_string(size));
    torch::manual_seed(size);
    const Tensor x = torch::randn({size, 3}).requires_grad_();
    const Tensor y = x.detach().clone().requires_grad_();
    const Tensor expected = function(x), actual = compiled(y);
    expect_same({expected.detach()}, {actual.detach()});
    for (int backward = 0; backward < 2; ++backward) {
      expected.pow(2).sum().backward({}, /*retain_graph=*/true);
      actual.pow(2).sum().backward({}, /*retain_graph=*/true);
      expect_same({x.grad()}, {y.grad()});
    }
    if (testing::Test::HasFailure()) break;
  }
  return compiled.stats();
}

TEST(SizedPrograms, NumbersThatFollowFromSizesInOddWays) {
  const std::map<int64_t, double> table{{5, 0.5}, {9, 3.0}, {12, -1.0}};
  const auto capped = [](const Tensor& x) {
    return x.slice(0, 0, std::min<int64_t>(x.size(0), 7)) * 2;
  };
  const auto parity = [](const Tensor& x) { return x * static_cast<double>(x.size(0) % 2 + 1); };
  const auto by_table = [&](const Tensor& x) {
    const auto known = table.find(x.size(0));
    return x * (known == table.end() ? 7.0 : known->second);
  };
  const auto mean = [](const Tensor& x) { return x.sum(0) / static_cast<double>(x.size(0)); };
  const auto last_half = [](const Tensor& x) { return x.slice(0, x.size(0) / 2).sin(); };
  for (const auto& stats : {call_side_by_side(capped, rounds_of(2, 20, 4)),
                            call_side_by_side(parity, rounds_of(2, 20, 4)),
                            call_side_by_side(by_table, rounds_of(2, 20, 4)),
                            call_side_by_side(mean, rounds_of(2, 20, 4)),
                            call_side_by_side(last_half, rounds_of(2, 20, 4))}) {
    EXPECT_EQ(stats.eager_calls, 0U);
    EXPECT_LE(stats.compilations, 5U);
    EXPECT_GE(stats.cache_hits, 20U);
  }
}

TEST(SizedPrograms, BranchesBySizesHaveProgramsOfTheirOwn) {
  const auto branch = [](const Tensor& x) { return x.size(0) % 3 == 0 ? x.sin() : x.exp() * x; };
  const CompileStats stats = call_side_by_side(branch, rounds_of(2, 20, 3));
  EXPECT_EQ(stats.eager_calls, 0U);
  EXPECT_LE(stats.compilations, 3U);
}

TEST(SizedPrograms, LoopsOverSizesSaySo) {
  const auto loop = [](const Tensor& x) {
    Tensor sum = x[0];
    for (int64_t i = 1; i < x.size(0); ++i) sum = sum.sin() * x[i];
    return sum;
  };
  const CompileStats stats = call_side_by_side(loop, rounds_of(2, 5, 4));
  EXPECT_EQ(stats.eager_calls, 0U);
  EXPECT_EQ(stats.compilations, 4U) << "one for each length";
}

TEST(SizedPrograms, StaticOptionCompilesEachSize) {
  const auto f = [](const Tensor& x) { return x.sin() * 2; };
  const CompileStats stats = call_side_by_side(f, rounds_of(2, 5, 5), {.dynamic = Dynamic::Static});
  EXPECT_EQ(stats.compilations, 4U);
}

TEST(SizedPrograms, TextNamesTheSizes) {
  auto f = compile([](const Tensor& x) { return x.reshape({-1}).sin(); });
  for (int64_t size = 2; size < 8; ++size) f(torch::randn({size, 3}));
  bool is_named = false;
  for (const Program& program : f.programs()) {
    is_named |= program.str().find("[s0, 3]") != std::string::npos;
    EXPECT_EQ(Graph::parse(program.str()).str(), program.str());
  }
  EXPECT_TRUE(is_named);
  EXPECT_EQ(f.explain(torch::randn({7, 3})), "a program for many sizes fits");
  EXPECT_NE(f.explain(torch::randn({70, 3})).find("not seen with these sizes"), std::string::npos);
}

/// The last program of a stage, made for these sizes of the first dimension.
template <class F>
Graph last_graph(F&& function, const std::string& stage, std::initializer_list<int64_t> sizes,
                 Options options = {}) {
  auto compiled = compile(std::forward<F>(function), std::move(options));
  for (const int64_t size : sizes) compiled(torch::randn({size, 3}).requires_grad_());
  std::optional<Graph> found;
  for (const Program& program : compiled.programs()) {
    if (program.name == stage) found = Graph::parse(program.str());
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  return found.value();
}

TEST(SizedPrograms, OutputsSayWhichSizesChangeAndWeightsKeepTheirs) {
  const Tensor w = torch::randn({3, 4}).requires_grad_();
  const Graph forward = last_graph([&](const Tensor& x) { return x.matmul(w).tanh(); },
                                   "partition.forward", {5, 7, 9, 11});
  const Dims& result = forward.outputs()[0].value->meta.sizes;
  EXPECT_FALSE(result[0].is_fixed()) << forward.str();
  EXPECT_EQ(result[1], 4);
  for (const Graph::Input& input : forward.inputs()) {
    if (input.slot.kind == Slot::Kind::Captured) {
      EXPECT_TRUE(input.value->meta.sizes.is_fixed()) << forward.str();
    }
  }
}

TEST(SizedPrograms, HaveNoNodesForSizes) {
  const auto f = [](const Tensor& x) {
    return x.reshape({-1}).sin().view({x.size(0), 3}).narrow(0, 0, x.size(0) / 2) * 2;
  };
  for (const std::string stage : {"partition.forward", "partition.backward"}) {
    const Graph many = last_graph(f, stage, {4, 6, 8, 10});
    const Graph one = last_graph(f, stage, {4, 4, 4}, {.dynamic = Dynamic::Static});
    EXPECT_EQ(many.num_nodes(), one.num_nodes()) << many.str() << one.str();
  }
}

TEST(SizedPrograms, SecondDerivativesAndPartsOfBackwards) {
  const Tensor w = torch::randn({3, 4}).requires_grad_();
  const auto f = [&](const Tensor& x) {
    return std::vector<Tensor>{x.matmul(w).tanh(), (x * x).sum(0)};
  };
  auto compiled = compile(f);
  for (const int64_t size : rounds_of(2, 9, 3)) {
    SCOPED_TRACE(size);
    torch::manual_seed(size);
    const Tensor x = torch::randn({size, 3}).requires_grad_();
    const auto all = [&](const auto& function) {
      const Tensors results = function(x);
      Tensors found;
      // One result only, both, and other layouts of the gradient.
      found.push_back(torch::autograd::grad({results[1].sum()}, {x}, {}, true)[0]);
      found.push_back(torch::autograd::grad(
          {results[0]}, {x, w}, {torch::ones({4, size}).t().contiguous().t().t()}, true)[1]);
      const Tensor first =
          torch::autograd::grad({results[0].sum() + results[1].prod()}, {x}, {}, true, true)[0];
      found.push_back(torch::autograd::grad({first.pow(2).sum()}, {w})[0]);
      return found;
    };
    expect_same(all(f), all(compiled));
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  EXPECT_LE(compiled.stats().compilations, 2U);
}

TEST(SizedPrograms, WritesToArgumentsAndViews) {
  const auto f = [](const Tensor& x, const Tensor& counts) {
    counts.mul_(2).add_(static_cast<double>(x.size(0)));
    return std::vector<Tensor>{x.t(), x.slice(0, 1).view({-1}), x.mul(3).t()};
  };
  auto compiled = compile(f);
  Tensor eager_counts = torch::ones({2}), counts = torch::ones({2});
  for (const int64_t size : rounds_of(2, 12, 4)) {
    const Tensor x = torch::randn({size, 3});
    const Tensors expected = f(x, eager_counts), actual = compiled(x, counts);
    expect_same(expected, actual);
    expect_same({eager_counts}, {counts});
    EXPECT_TRUE(actual[0].is_alias_of(x) && actual[1].is_alias_of(x));
    EXPECT_EQ(eager_counts._version(), counts._version());
    counts.fill_(1);
    eager_counts.fill_(1);
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  EXPECT_LE(compiled.stats().compilations, 2U);
}

TEST(SizedPrograms, WholeStepsWithSmallerLastBatches) {
  torch::manual_seed(3);
  const auto make = [] {
    torch::manual_seed(3);
    return torch::nn::Sequential(torch::nn::Linear(4, 8), torch::nn::BatchNorm1d(8),
                                 torch::nn::ReLU(), torch::nn::Linear(8, 2));
  };
  torch::nn::Sequential eager = make(), model = make();
  ahead::optim::AdamW eager_optimizer(eager->parameters(), 0.01);
  ahead::optim::AdamW optimizer(model->parameters(), 0.01);
  const auto step_of = [](auto& net, auto& optimizer) {
    return [&](const Tensor& x, const Tensor& y) {
      optimizer.zero_grad();
      const Tensor loss = torch::mse_loss(net->forward(x), y);
      loss.backward();
      optimizer.step();
      return loss.detach();
    };
  };
  const auto eager_step = step_of(eager, eager_optimizer);
  auto step = compile(step_of(model, optimizer), {.watch = {model.ptr()}});
  for (int epoch = 0; epoch < 6; ++epoch) {
    for (const int64_t size : {16, 16, 16, 16, 16, 16, 5 + epoch % 2}) {
      const Tensor x = torch::randn({size, 4}), y = torch::randn({size, 2});
      expect_same({eager_step(x, y)}, {step(x, y)});
      for (size_t i = 0; i < model->parameters().size(); ++i)
        expect_same({eager->parameters()[i].detach()}, {model->parameters()[i].detach()});
      if (HasFailure()) return;
    }
  }
  EXPECT_EQ(step.stats().eager_calls, 0U);
  EXPECT_LE(step.stats().compilations, 4U);
  EXPECT_GE(step.stats().cache_hits, 24U);
}

TEST(SizedPrograms, HiddenStatesInMembers) {
  struct NetImpl : torch::nn::Module {
    NetImpl() { register_module("cell", cell); }
    Tensor forward(const Tensor& x) {
      if (!state.defined() || state.size(0) != x.size(0)) state = torch::zeros({x.size(0), 4});
      state = cell(x, state).detach();
      return state * 2;
    }
    torch::nn::GRUCell cell{3, 4};
    Tensor state;
  };
  torch::manual_seed(5);
  const auto eager = std::make_shared<NetImpl>();
  torch::manual_seed(5);
  const auto model = std::make_shared<NetImpl>();
  auto compiled = compile(model);
  for (const int64_t size : {4, 4, 4, 4, 4, 6, 6, 6, 6, 6, 3, 3, 3, 3, 9, 9, 9, 9, 9, 9}) {
    const Tensor x = torch::randn({size, 3});
    expect_same({eager->forward(x).detach()}, {compiled(x).detach()});
    expect_same({eager->state}, {model->state});
    if (HasFailure()) break;
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
}

TEST(SizedPrograms, NewNumbersCapturedByReferenceAreNoticedForAllSizes) {
  double factor = 2;
  const auto f = [&factor](const Tensor& x) { return x * factor; };
  auto compiled = compile(f);
  for (const int64_t size : rounds_of(2, 9, 2)) compiled(torch::randn({size}));
  factor = 3;
  // Once one size was observed again, no other has the old number.
  bool was_noticed = false;
  for (const int64_t size : rounds_of(2, 9, 6)) {
    const Tensor x = torch::randn({size});
    const bool is_right = torch::equal(compiled(x), f(x));
    EXPECT_TRUE(is_right || !was_noticed);
    was_noticed |= is_right;
  }
  EXPECT_TRUE(was_noticed);
}

TEST(SizedPrograms, CapturedTensorsThatAreReplaced) {
  auto weight = torch::randn({3});
  const auto f = [&weight](const Tensor& x) { return x * weight; };
  auto compiled = compile(f);
  for (const int64_t size : rounds_of(2, 9, 3)) compiled(torch::randn({size, 3}));
  weight = torch::randn({3});
  for (const int64_t size : rounds_of(2, 9, 3)) {
    const Tensor x = torch::randn({size, 3});
    expect_same({f(x)}, {compiled(x)});
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
}

TEST(SizedPrograms, NumbersOfTheHostThatAreOthersInEveryCallAreNotTrusted) {
  // Behind a pointer: no byte of the closure shows it.
  const auto counter = std::make_shared<double>(1);
  const auto table = std::make_shared<std::vector<float>>(3, 1.0F);
  const auto by_number = [counter](const Tensor& x) { return x * (*counter += 0.5); };
  const auto by_table = [table](const Tensor& x) {
    for (float& each : *table) each += 0.5F;
    return x + torch::tensor(*table);
  };
  auto numbers = compile(by_number);
  auto tables = compile(by_table);
  double expected = 1;
  float in_table = 1;
  for (const int64_t size : rounds_of(2, 9, 6)) {
    const Tensor x = torch::ones({size, 3});
    EXPECT_EQ(numbers(x).max().item<double>(), expected += 0.5);
    EXPECT_EQ(tables(x).max().item<float>(), 1 + (in_table += 0.5F));
    if (HasFailure()) return;
  }
}

TEST(SizedPrograms, TablesThatTheHostMakesAreNoHiddenWrites) {
  const Tensor w = torch::randn({3}).requires_grad_();
  const auto f = [&](const Tensor& x) {
    std::vector<float> places;
    for (int64_t i = 0; i < x.size(0); ++i) places.push_back(0.5F * static_cast<float>(i * i % 7));
    return x * w * torch::tensor(places).unsqueeze(1);
  };
  const CompileStats stats = call_side_by_side(f, rounds_of(2, 12, 5));
  EXPECT_EQ(stats.eager_calls, 0U);
  EXPECT_LE(stats.compilations, 2U);
  EXPECT_GE(stats.cache_hits, 25U);
}

TEST(SizedPrograms, WritesThroughDataOfWhatBecomesDifferentiable) {
  const Tensor w = torch::randn({3}).requires_grad_();
  const auto f = [&](const Tensor& x) {
    const Tensor sum = torch::ones_like(x).detach();
    const Tensor data = sum.variable_data();
    sum.mul_(x).mul_(w);
    const Tensor used = sum.sin();
    data.fill_(2);
    return used * sum.pow(2);
  };
  auto compiled = compile(f);
  for (const int64_t size : rounds_of(2, 9, 3)) {
    SCOPED_TRACE(size);
    torch::manual_seed(size);
    const Tensor x = torch::randn({size, 3});
    const auto second = [&](const auto& function) {
      const Tensor first = torch::autograd::grad({function(x).sum()}, {w}, {}, true, true)[0];
      return std::vector<Tensor>{first.detach(),
                                 torch::autograd::grad({first.pow(2).sum()}, {w})[0]};
    };
    expect_same(second(f), second(compiled));
  }
}

TEST(SizedNumbers, RatesThatChangeInEveryCall) {
  const auto f = [](const Tensor& x, double rate) { return (x * rate).sin() + x; };
  auto compiled = compile(f);
  for (int call = 0; call < 40; ++call) {
    const Tensor x = torch::randn({4, 3}).requires_grad_();
    const Tensor y = x.detach().clone().requires_grad_();
    const double rate = 0.3 + 0.01 * call;
    const Tensor expected = f(x, rate), actual = compiled(y, rate);
    expected.sum().backward();
    actual.sum().backward();
    expect_same({expected.detach(), x.grad()}, {actual.detach(), y.grad()});
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  EXPECT_LE(compiled.stats().compilations, 2U);
  EXPECT_LE(compiled.stats().observed_calls, 3U + 4U) << "three values, and when time has come";
}

TEST(SizedNumbers, WhatIsComputedOfANumberIsCompared) {
  const auto f = [](const Tensor& x, double rate) { return x * (1 - rate) + x.sin() * rate; };
  auto compiled = compile(f);
  for (int call = 0; call < 40; ++call) {
    const Tensor x = torch::randn({4});
    const double rate = 0.25 * (call % 7) + 0.1;
    expect_same({f(x, rate)}, {compiled(x, rate)});
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  EXPECT_LE(compiled.stats().compilations, 2U);
  EXPECT_GE(compiled.stats().cache_hits, 20U);
}

TEST(SizedNumbers, SpecialValuesAndBranchesByNumbers) {
  const auto f = [](const Tensor& x, double rate) { return rate == 0 ? x.sin() : x * rate; };
  auto compiled = compile(f);
  for (int call = 0; call < 60; ++call) {
    const Tensor x = torch::randn({4});
    const double rate = call % 5 == 4 ? 0.0 : 0.1 + 0.01 * call;
    expect_same({f(x, rate)}, {compiled(x, rate)});
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
}

TEST(SizedNumbers, NumbersThatNoOperatorIsGivenMayDecide) {
  const auto f = [](const Tensor& x, double rate) { return rate > 0.5 ? x * rate : x + 1; };
  auto compiled = compile(f);
  for (const auto& [size, rate] :
       std::vector<std::pair<int64_t, double>>{{7, 0.3}, {4, 0.2}, {4, 0.75}, {7, 0.9}, {4, 0.2}}) {
    const Tensor x = torch::randn({size});
    expect_same({f(x, rate)}, {compiled(x, rate)});
  }
}

TEST(SizedNumbers, NumbersAreReturned) {
  const auto f = [](const Tensor& x, double rate) { return std::make_pair(x * rate, rate); };
  auto compiled = compile(f);
  for (int call = 0; call < 12; ++call) {
    const double rate = 0.1 + 0.01 * call;
    EXPECT_EQ(compiled(torch::randn({4}), rate).second, rate);
  }
}

TEST(SizedNumbers, IntegersAreSizes) {
  const auto f = [](const Tensor& x, int64_t count) { return x.repeat({count, 1}).slice(0, 1); };
  auto compiled = compile(f);
  for (const int64_t count : rounds_of(2, 12, 4)) {
    const Tensor x = torch::randn({3, 2});
    expect_same({f(x, count)}, {compiled(x, count)});
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  EXPECT_LE(compiled.stats().compilations, 3U);
}

TEST(SizedPrograms, SizesThatNeverComeAgainRunEagerlyAndSaySo) {
  const auto f = [](const Tensor& x) { return x.sin().sum(); };
  auto compiled = compile(f);
  for (int64_t size = 2; size < 1000; ++size) {
    const Tensor x = torch::randn({size});
    expect_same({f(x)}, {compiled(x)});
  }
  EXPECT_GT(compiled.stats().eager_calls, 800U);
  // Those that do come again are compiled all the same.
  for (int round = 0; round < 3; ++round) {
    for (int64_t size = 900; size < 990; ++size) compiled(torch::randn({size}));
  }
  EXPECT_GT(compiled.stats().cache_hits, 80U);
}

}  // namespace programs_test
}  // namespace ahead
