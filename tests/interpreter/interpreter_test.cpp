#include <gtest/gtest.h>

#include <thread>

#include "ahead/ahead.h"
#include "models/memory.h"
#include "support/eager.h"
#include "support/round_trip.h"

namespace ahead {
namespace interpreter_test {

using at::Tensor;
using Tensors = std::vector<at::Tensor>;

Graph parse(const std::string& text) {
  Graph graph = Graph::parse(text);
  expect_round_trip(graph);
  return graph;
}

TEST(Interpreter, RunsTextWithEveryKindOfArgument) {
  auto graph = parse(R"(graph(%x: f32[2, 3] Primal 0, %i: i64[2] Primal 1):
  %a: f32[2, 3] = aten.mul.Tensor(%x, 2.5)
  [%b: f32[1, 3], %c: f32[1, 3]] = aten.split.Tensor(%a, 1, 0)
  %d: f32[2, 3] = aten.cat([%c, %b], 0)
  %e: f32[2, 2] = aten.index.Tensor(%d, [none, %i])
  %f: f32[2] = aten.sum.dim_IntList(%e, [1], false, none)
  return (%f Output 0, none Output 1, %d Output 2)
)");
  Tensor x = torch::randn({2, 3}), i = torch::tensor({2, 0});
  auto results = interpret(graph, {x, i});
  Tensor d = (x * 2.5).flip(0);
  EXPECT_TRUE(results[0].equal(d.index_select(1, i).sum(1)));
  EXPECT_FALSE(results[1].defined());
  EXPECT_TRUE(results[2].equal(d));
}

TEST(Interpreter, RunsSubGraphs) {
  auto graph = parse(R"(graph(%x: f32[3] Primal 0):
  %y: f32[3] = ahead.call(graph(%a: f32[3] Primal 0, %b: f32[3] Primal 1): {
    %c: f32[3] = aten.mul.Tensor(%a, %b)
    return (%c Output 0)
  }, %x, %x)
  %z: f32[3] = aten.sin(%y)
  return (%z Output 0)
)");
  Tensor x = torch::randn({3});
  EXPECT_TRUE(interpret(graph, {x})[0].equal((x * x).sin()));
}

TEST(Interpreter, WritesToTheMemoryOfArgumentsThatDieButOfNoOthers) {
  auto graph = parse(R"(graph(%x: f32[4] Primal 0):
  %a: f32[4] = aten.sin(%x)
  %b: f32[4] = aten.mul.Tensor(%a, 2.0)
  %c: f32[2, 2] = aten.view(%b, [2, 2])
  %d: f32[2, 2] = aten.exp(%c)
  %e: f32[4] = aten.alias(%x)
  %f: f32[4] = aten.neg(%e)
  %g: f32[4] = aten.cos(%x)
  %h: f32[] = aten.select.int(%g, 0, 0)
  %i: f32[] = aten.abs(%h)
  return (%d Output 0, %f Output 1, %i Output 2)
)");
  Tensor x = torch::randn({4}), before = x.clone();
  const void* data = x.data_ptr();
  Tensors results = interpret(graph, {std::move(x)});
  EXPECT_TRUE(results[0].equal((before.sin() * 2).view({2, 2}).exp()));
  EXPECT_TRUE(results[1].equal(before.neg()));
  EXPECT_NE(results[1].data_ptr(), data);
  EXPECT_EQ(results[2].storage().nbytes(), sizeof(float));
}

TEST(Interpreter, KeepsWhatItWroteToAnArgument) {
  auto graph = parse(R"(graph(%x: f32[4] Primal 0):
  _, %a: f32[4] = aten.mul_.Tensor(%x, 2.0) !effect
  %b: f32[4] = aten.neg(%a)
  return (%b Output 0)
)");
  float numbers[] = {1, 2, 3, 4};
  Tensors results = interpret(graph, {torch::from_blob(numbers, {4})});
  EXPECT_TRUE(results[0].equal(torch::tensor({-2.f, -4.f, -6.f, -8.f})));
  EXPECT_TRUE(torch::from_blob(numbers, {4}).equal(torch::tensor({2.f, 4.f, 6.f, 8.f})));
}

TEST(Interpreter, NeedsOneBufferForAChainOfPointwiseCalls) {
  auto graph = parse(R"(graph(%x: f32[64] Primal 0):
  %a: f32[64] = aten.sin(%x)
  %b: f32[64] = aten.mul.Tensor(%a, 2.0)
  %c: f32[64] = aten.add.Tensor(%b, %x, 1)
  %d: f32[64] = aten.exp(%c)
  return (%d Output 0)
)");
  const Tensor x = torch::randn({64});
  Interpreter run(graph);
  Tensor result;
  models::MemoryCounter memory;
  // Numbers are tensors of one element for a moment.
  EXPECT_LE(memory.peak([&] { result = run({x})[0]; }), 65 * sizeof(float));
  EXPECT_TRUE(result.equal((x.sin() * 2 + x).exp()));
}

TEST(Interpreter, GradientsTakeTheMemoryOfTheGradientTheyAreMadeOf) {
  using Formula = Tensor (*)(const Tensor& gradient, const Tensor& x);
  const std::pair<const char*, Formula> formulas[] = {
      {"threshold",
       [](const Tensor& g, const Tensor& x) { return at::threshold_backward(g, x, 0.1); }},
      {"gelu", [](const Tensor& g, const Tensor& x) { return at::gelu_backward(g, x); }},
      {"gelu by tanh",
       [](const Tensor& g, const Tensor& x) { return at::gelu_backward(g, x, "tanh"); }},
      {"tanh", [](const Tensor& g, const Tensor& x) { return at::tanh_backward(g, x); }},
      {"sigmoid", [](const Tensor& g, const Tensor& x) { return at::sigmoid_backward(g, x); }},
      {"silu", [](const Tensor& g, const Tensor& x) { return at::silu_backward(g, x); }},
      {"hardtanh",
       [](const Tensor& g, const Tensor& x) { return at::hardtanh_backward(g, x, -0.5, 0.5); }},
      {"hardsigmoid",
       [](const Tensor& g, const Tensor& x) { return at::hardsigmoid_backward(g, x); }},
      {"hardshrink",
       [](const Tensor& g, const Tensor& x) { return at::hardshrink_backward(g, x, 0.3); }},
      {"softshrink",
       [](const Tensor& g, const Tensor& x) { return at::softshrink_backward(g, x, 0.3); }},
      {"softplus",
       [](const Tensor& g, const Tensor& x) { return at::softplus_backward(g, x, 1, 20); }},
      {"leaky_relu",
       [](const Tensor& g, const Tensor& x) { return at::leaky_relu_backward(g, x, 0.1, false); }},
      {"elu",
       [](const Tensor& g, const Tensor& x) { return at::elu_backward(g, 1, 1, 1, false, x); }},
      {"logit", [](const Tensor& g, const Tensor& x) { return at::logit_backward(g, x); }},
  };
  for (at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    const Tensor g = torch::randn({1031}).to(dtype), x = torch::rand({1031}).to(dtype);
    for (const auto& [name, formula] : formulas) {
      auto function = [formula](const Tensors& in) -> Tensors {
        return {formula(in[0].neg(), in[1])};
      };
      const Interpreter run(trace(function, {g, x}));
      Tensor result;
      models::MemoryCounter memory;
      EXPECT_LE(memory.peak([&] { result = run({g, x})[0]; }), g.nbytes()) << name << " " << dtype;
      EXPECT_TRUE(at::equal(result.nan_to_num(7), formula(g.neg(), x).nan_to_num(7)))
          << name << " " << dtype;
    }
  }
}

TEST(Interpreter, ViewsOfOtherLayoutsThanTraced) {
  auto function = [](const Tensors& in) {
    Tensor v = in[0].t().unsqueeze(0).select(0, 0).narrow(1, 1, 2);
    return Tensors{v * 2, v, in[0].t().t() + 1, in[0].detach()};
  };
  Tensor x = torch::randn({3, 4});
  Interpreter run(trace(function, {x}));
  Tensor other = torch::randn({4, 3}).t();
  Tensor with_offset = torch::randn({5, 4}).narrow(0, 2, 3);
  for (const Tensor& input : {x, other, with_offset}) {
    Tensors expected = function({input}), actual = run({input});
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_EQ(tensor_difference(expected[i], actual[i]), "");
    EXPECT_TRUE(actual[1].is_alias_of(input));
    EXPECT_TRUE(actual[3].is_alias_of(input));
    EXPECT_FALSE(actual[3].is_same(input));
  }
}

TEST(Interpreter, FreesValuesAfterTheirLastUse) {
  // A chain of n values needs two at a time; a counting allocator would see more if any were kept.
  auto function = [](const Tensors& in) {
    Tensor y = in[0];
    for (int i = 0; i < 20; ++i) y = y.sin();
    return Tensors{y};
  };
  Tensor x = torch::randn({4});
  Interpreter run(trace(function, {x}));
  const size_t before = x.use_count();
  auto results = run({x});
  EXPECT_EQ(x.use_count(), before);
  EXPECT_EQ(results[0].use_count(), 1u);
  Tensors args{torch::randn({4})};
  c10::weak_intrusive_ptr<c10::TensorImpl> stolen(args[0].getIntrusivePtr());
  results = run(std::move(args));
  EXPECT_TRUE(stolen.expired());
}

TEST(Interpreter, OutlivesItsGraphAndCanBeMoved) {
  auto make = [] {
    Tensor w = torch::full({2}, 3.0);
    return Interpreter(
        trace([w](const Tensors& in) { return Tensors{in[0] * w}; }, {torch::ones({2})}));
  };
  Interpreter run = make();
  Interpreter moved = std::move(run);
  EXPECT_TRUE(moved({torch::ones({2})})[0].equal(torch::full({2}, 3.0)));
}

TEST(Interpreter, SeveralThreadsAtOnce) {
  Tensor x = torch::randn({8, 8});
  auto function = [](const Tensors& in) { return Tensors{in[0].mm(in[0]).sin().t().sum(0)}; };
  Interpreter run(trace(function, {x}));
  const Tensor expected = function({x})[0];
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) wrong += run({x})[0].equal(expected) ? 0 : 1;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Interpreter, MakesNoAutogradHistory) {
  Tensor w = torch::randn({3}).requires_grad_();
  auto graph = trace([](const Tensors& in) { return Tensors{in[0] * 2}; }, {w});
  EXPECT_FALSE(interpret(graph, {w})[0].requires_grad());
}

TEST(Interpreter, PassesOnKernelErrors) {
  auto graph = trace([](const Tensors& in) { return Tensors{in[0].mm(in[1])}; },
                     {torch::ones({2, 3}), torch::ones({3, 2})});
  EXPECT_THROW(interpret(graph, {torch::ones({2, 3}), torch::ones({2, 2})}), c10::Error);
}

TEST(Interpreter, TakesSizesThatChangeFromRunToRun) {
  const auto graph = parse(R"(graph(%x: f32[6] Primal 0, %s: i64[2] Sizes 0):
  %a: f32[2, 3] = aten.view(%x, [size("s0"), size("s1")])
  %b: f32[3, 2]{1, 3} = aten.t(%a)
  %c: f32[3, 2]{1, 3} = aten.div.Tensor(%b, size("s0*s1"))
  return (%c Output 0)
)");
  const Interpreter run(graph);
  for (int64_t rows : {2, 3, 6}) {
    const Tensor x = torch::randn({6});
    const Tensor expected = x.view({rows, 6 / rows}).t() / 6;
    EXPECT_TRUE(run({x, torch::tensor({rows, 6 / rows})})[0].equal(expected));
    EXPECT_EQ(run({x, torch::tensor({rows, 6 / rows})})[0].strides(), expected.strides());
  }
  const Tensor x = torch::randn({5, 4});
  EXPECT_TRUE(run({x, torch::tensor({4, 5})})[0].equal(x.view({4, 5}).t() / 20));
  EXPECT_THROW(run({x, torch::tensor({int64_t{4}})}), UserError);
  EXPECT_THROW(run({x, torch::tensor({4.0, 5.0})}), UserError);
}

TEST(Interpreter, MakesViewsForTheSizesOfTheRun) {
  const auto graph = parse(R"(graph(%x: f32[s0, 4] Primal 0, %s: i64[1] Sizes 0):
  %a: f32[s0, 4] = aten.sin(%x)
  %b: f32[4, s0]{1, 4} = aten.t(%a)
  %c: f32[2, s0]{1, 4}+2 = aten.slice.Tensor(%b, 0, 2, 4, 1)
  %d: f32[2, s0 + -1]{1, 4}+6 = aten.slice.Tensor(%c, 1, 1, size("s0"), 1)
  %e: f32[2, s0 + -1]{1, 4} = aten.exp(%d)
  %f: f32[2, s0 + -1]{1, 4} = aten.mul.Tensor(%e, 2)
  return (%f Output 0)
)");
  graph.verify();
  const Interpreter run(graph);
  for (int64_t rows : {2, 3, 7}) {
    const Tensor x = torch::randn({rows, 4});
    const Tensor expected = x.sin().t().slice(0, 2, 4).slice(1, 1, rows).exp() * 2;
    const Tensor actual = run({x, torch::tensor({rows})})[0];
    EXPECT_TRUE(actual.equal(expected)) << rows;
    EXPECT_EQ(actual.strides(), expected.strides()) << rows;
  }
  // What is laid out otherwise than the graph says is taken as well, by the operators themselves.
  const Tensor x = torch::randn({4, 5}).t();
  EXPECT_TRUE(
      run({x, torch::tensor({5})})[0].equal(x.sin().t().slice(0, 2, 4).slice(1, 1).exp() * 2));
  EXPECT_THROW(run({x, torch::empty({0}, torch::kLong)}), UserError);
}

}  // namespace interpreter_test
}  // namespace ahead
