#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "models/memory.h"
#include "support/eager.h"
#include "support/hits.h"

namespace ahead {
namespace options_test {

using at::Tensor;
using Tensors = std::vector<Tensor>;

/// The last program of that name.
template <class C>
std::string program(const C& compiled, const std::string& name) {
  std::string text;
  for (const Program& known : compiled.programs()) {
    if (known.name == name) text = known.str();
  }
  return text;
}

// keep_input_mutations

TEST(KeepInputMutations, WritesInsideTheGraphOrAfterIt) {
  const Tensor w = leaf({3});
  const auto step = [w](Tensor total, const Tensor& x) {
    at::NoGradGuard no_grad;
    total.mul_(0.9).add_(x * w);
  };
  for (const bool keep : {true, false}) {
    auto compiled = compile(step, {.fullgraph = true, .confirm = 0, .keep_input_mutations = keep});
    Tensor total = at::ones({3}), expected = at::ones({3});
    for (int i = 0; i < 3; ++i) {
      const Tensor x = at::randn({3});
      compiled(total, x);
      step(expected, x);
      EXPECT_TRUE(total.equal(expected));
      EXPECT_EQ(total._version(), expected._version());
    }
    expect_hits(compiled);
    const std::string text = program(compiled, "inference");
    EXPECT_EQ(text.find("aten.add_.Tensor") != std::string::npos, keep) << text;
    EXPECT_EQ(text.find("aten.copy_") != std::string::npos, false) << text;
    EXPECT_EQ(text.find("none MutatedInput") != std::string::npos, keep) << text;
  }
}

TEST(KeepInputMutations, KeepsStatisticsInTheForwardOfTraining) {
  for (const bool keep : {true, false}) {
    torch::manual_seed(0);
    torch::nn::BatchNorm1d norm(4), same(4);
    const Tensor x = leaf({8, 4});
    auto compiled = compile([norm](const Tensor& in) mutable { return norm(in).sin(); },
                            {.fullgraph = true, .confirm = 0, .keep_input_mutations = keep});
    for (int i = 0; i < 3; ++i) {
      const Tensor a = torch::autograd::grad({compiled(x).sum()}, {x})[0];
      const Tensor b = torch::autograd::grad({same(x).sin().sum()}, {x})[0];
      EXPECT_TRUE(a.equal(b));
      EXPECT_TRUE(norm->running_mean.equal(same->running_mean));
      EXPECT_TRUE(norm->running_var.equal(same->running_var));
      EXPECT_TRUE(norm->num_batches_tracked.equal(same->num_batches_tracked));
    }
    expect_hits(compiled);
    const std::string text = program(compiled, "keep_mutations.forward");
    EXPECT_EQ(text.find("aten.copy_") != std::string::npos, keep) << text;
  }
}

TEST(KeepInputMutations, LeavesToTheCallerWhatAutogradSees) {
  auto compiled = compiled_by_call([](Tensor x, const Tensor& w) { x.mul_(w); },
                                   {.fullgraph = true}, at::ones({3}), leaf({3}));
  const Tensor w = leaf({3});
  const Tensor x = at::ones({3});
  compiled(x, w);
  EXPECT_TRUE(x.requires_grad());
  EXPECT_TRUE(torch::autograd::grad({x.sum()}, {w})[0].equal(at::ones({3})));
  EXPECT_EQ(program(compiled, "keep_mutations.forward"), "");
  expect_hits(compiled);
}

TEST(KeepInputMutations, SwappedArguments) {
  const auto swap = [](Tensor a, Tensor b) {
    const Tensor old = a.clone();
    a.copy_(b);
    b.copy_(old);
  };
  for (const bool keep : {true, false}) {
    auto compiled = compile(swap, {.fullgraph = true, .confirm = 0, .keep_input_mutations = keep});
    for (int i = 0; i < 2; ++i) {
      const Tensor a = at::randn({3}), b = at::randn({3});
      const Tensor old_a = a.clone(), old_b = b.clone();
      compiled(a, b);
      EXPECT_TRUE(a.equal(old_b));
      EXPECT_TRUE(b.equal(old_a));
    }
    expect_hits(compiled);
  }
}

TEST(KeepInputMutations, PassIsSkippedByName) {
  auto compiled =
      compiled_by_call([](Tensor x) { x.add_(1); },
                       {.fullgraph = true, .skip_passes = {"reinplace_mutations"}}, at::zeros({3}));
  const Tensor x = at::zeros({3});
  compiled(x);
  EXPECT_TRUE(x.equal(at::ones({3})));
  EXPECT_NE(program(compiled, "inference").find("aten.copy_"), std::string::npos);
  expect_hits(compiled);
}

// donated_buffers

TEST(DonatedBuffers, SavedTensorsDieEarly) {
  const Tensor x = leaf({128, 128});
  Tensors weights;
  for (int i = 0; i < 12; ++i) weights.push_back(at::randn({128, 128}));
  const auto deep = [&](const Tensor& in) {
    Tensor y = in;
    for (const Tensor& weight : weights) y = y.mm(weight).tanh();
    return y.sum();
  };
  models::MemoryCounter memory;
  std::vector<int64_t> peaks;
  for (const bool donated : {true, false}) {
    auto compiled = compile(deep, {.fullgraph = true,
                                   .partitioner = Partitioner::Default,
                                   .confirm = 0,
                                   .donated_buffers = donated});
    for (int call = 0; call < 2; ++call) torch::autograd::grad({compiled(x)}, {x});
    const Tensor loss = compiled(x);
    peaks.push_back(memory.peak([&] { torch::autograd::grad({loss}, {x}); }));
    expect_hits(compiled);
  }
  EXPECT_LT(peaks[0], peaks[1]);
}

TEST(DonatedBuffers, ABackendOwnsWhatIsDonated) {
  std::vector<bool> owned;
  const aot::GraphCompiler backward = [&owned](const Graph& graph, const std::vector<TensorMeta>&) {
    auto run = std::make_shared<const Interpreter>(graph);
    return [run, &owned, graph](std::vector<Tensor>&& args) {
      for (size_t i = 0; i < args.size(); ++i) {
        if (graph.inputs()[i].slot.kind == Slot::Kind::Saved)
          owned.push_back(args[i].use_count() == 1 && args[i].storage().use_count() == 1);
      }
      return (*run)(std::move(args));
    };
  };
  const aot::FlatFunction f = [](const Tensors& in) {
    return Tensors{(in[0] * 2).exp().sin().sum()};
  };
  for (const bool donated : {true, false}) {
    aot::Config config{.backward = backward};
    config.options.donated_buffers = donated;
    auto compiled = aot::function(f, config);
    const Tensor x = leaf({4});
    const Tensor loss = compiled(Tensors{x})[0];
    owned.clear();
    torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true);
    EXPECT_EQ(std::count(owned.begin(), owned.end(), true), 0);
    owned.clear();
    torch::autograd::grad({loss}, {x});
    EXPECT_EQ(std::count(owned.begin(), owned.end(), true) > 0, donated);
  }
}

// debug_asserts

/// A backend that does what a test wants with what the interpreter returns.
aot::GraphCompiler spoiling(std::function<void(const Tensors& args, Tensors& results)> spoil) {
  return [spoil](const Graph& graph, const std::vector<TensorMeta>&) {
    auto run = std::make_shared<const Interpreter>(graph);
    return [run, spoil](Tensors&& args) {
      const Tensors kept = args;
      Tensors results = (*run)(std::move(args));
      spoil(kept, results);
      return results;
    };
  };
}

aot::Config asserting(aot::GraphCompiler forward, aot::GraphCompiler backward = {}) {
  aot::Config config{.forward = std::move(forward), .backward = std::move(backward)};
  if (!config.backward) config.backward = spoiling([](const Tensors&, Tensors&) {});
  config.options.debug_asserts = true;
  return config;
}

const aot::FlatFunction two_results = [](const Tensors& in) {
  return Tensors{in[0].sin(), in[0].cos()};
};

TEST(DebugAsserts, NoticeWrongOutputs) {
  struct Row {
    std::function<void(const Tensors&, Tensors&)> spoil;
    std::string message;
  };
  const std::vector<Row> rows = {
      {[](const Tensors&, Tensors& results) { results[0] = results[0].to(at::kDouble); },
       "Output 0: the backend returned something wrong: it is f64[2, 3], the graph says f32[2, 3]"},
      {[](const Tensors&, Tensors& results) { results[1] = results[1].t().contiguous().t(); },
       "Output 1: the backend returned something wrong: it is f32[2, 3]{1, 2}, the graph says "
       "f32[2, 3]"},
      {[](const Tensors&, Tensors& results) { results[0] = Tensor(); },
       "the backend returned an undefined tensor for output 0, which its graph computes"},
      {[](const Tensors& args, Tensors& results) { results[0] = args[0]; },
       "Output 0: the backend returned something wrong: it shares memory with input 0"},
      {[](const Tensors&, Tensors& results) { results[1] = results[0]; },
       "Output 1: the backend returned something wrong: it shares memory with Output 0"},
      {[](const Tensors&, Tensors& results) { results.push_back(results[0]); },
       "the backend returned 3 tensors, its graph has 2 outputs"},
  };
  for (const Row& row : rows) {
    auto compiled = aot::function(two_results, asserting(spoiling(row.spoil)));
    const std::string message = error_of([&] { compiled(Tensors{at::randn({2, 3})}); });
    EXPECT_NE(message.find(row.message), std::string::npos) << message;
  }
}

TEST(DebugAsserts, LeaveStridesOfSingleElementsAlone) {
  const auto restride = [](const Tensors&, Tensors& results) {
    results[0] = results[0].as_strided({1, 3}, {1, 1});
  };
  auto compiled = aot::function(two_results, asserting(spoiling(restride)));
  const Tensor x = at::ones({1, 3});
  expect_same(compiled(Tensors{x}), two_results({x}));
}

TEST(DebugAsserts, NoticeWrongGradients) {
  const auto wrong =
      spoiling([](const Tensors&, Tensors& results) { results[0] = results[0].to(at::kDouble); });
  auto compiled =
      aot::function(two_results, asserting(spoiling([](const Tensors&, Tensors&) {}), wrong));
  const Tensor x = leaf({3});
  const Tensor y = compiled(Tensors{x})[0];
  const std::string message = error_of([&] { y.sum().backward(); });
  EXPECT_NE(message.find("GradOf 0: the backend returned something wrong: it is f64[3]"),
            std::string::npos)
      << message;
}

TEST(DebugAsserts, NoticeThatSavedTensorsChange) {
  Tensors kept;
  const auto forward =
      spoiling([&kept](const Tensors&, Tensors& results) { kept.push_back(results.back()); });
  auto compiled = aot::function([](const Tensors& in) { return Tensors{(in[0] * 2).exp().sin()}; },
                                asserting(forward));
  const Tensor x = leaf({3});
  const Tensor y = compiled(Tensors{x})[0];
  kept.back().detach().add_(1);
  const std::string message = error_of([&] { y.sum().backward(); });
  EXPECT_NE(message.find("saved for its backward, has other contents now"), std::string::npos)
      << message;
}

TEST(DebugAsserts, ReadZerosThatHaveNoMemory) {
  // What LibTorch's gradient formulas may hand on.
  auto compiled = compile([](const Tensor& x, const Tensor& y) { return x * (y * 2); },
                          {.fullgraph = true,
                           .partitioner = Partitioner::Default,
                           .confirm = 0,
                           .debug_asserts = true});
  for (int call = 0; call < 3; ++call) {
    const Tensor x = leaf({3}), y = at::_efficientzerotensor({3}, at::kFloat);
    ASSERT_EQ(y.const_data_ptr(), nullptr);
    EXPECT_TRUE(torch::autograd::grad({compiled(x, y).sum()}, {x})[0].equal(at::zeros({3})));
  }
  expect_hits(compiled);
}

TEST(DebugAsserts, AreSilentWhereAllIsWell) {
  const Tensor x = leaf({4, 4});
  const auto f = [](const Tensor& in) { return in.mm(in).tanh().t().sum(); };
  auto compiled = compile(f, {.fullgraph = true, .confirm = 0, .debug_asserts = true});
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(
        torch::autograd::grad({compiled(x)}, {x})[0].equal(torch::autograd::grad({f(x)}, {x})[0]));
  }
  expect_hits(compiled);
}

// static_saved_layout

TEST(StaticSavedLayout, TheBackwardSeesTheLayoutItWasMadeFor) {
  for (const bool skip : {false, true}) {
    std::vector<bool> as_expected;
    const aot::GraphCompiler forward = spoiling([](const Tensors&, Tensors& results) {
      for (Tensor& result : results) {
        if (result.dim() == 2) result = result.t().contiguous().t();
      }
    });
    const aot::GraphCompiler backward = [&](const Graph& graph,
                                            const std::vector<TensorMeta>& metas) {
      auto run = std::make_shared<const Interpreter>(graph);
      return [run, metas, &as_expected](Tensors&& args) {
        for (size_t i = 0; i < args.size(); ++i) {
          as_expected.push_back(args[i].strides() == metas[i].strides);
        }
        return (*run)(std::move(args));
      };
    };
    aot::Config config{.forward = forward, .backward = backward};
    if (skip) config.options.skip_passes = {"static_saved_layout"};
    auto compiled = aot::function(
        [](const Tensors& in) { return Tensors{(in[0] * 2).exp().sin().sum()}; }, config);
    const Tensor x = leaf({3, 4});
    const Tensor gradient = torch::autograd::grad(compiled(Tensors{x}), {x})[0];
    EXPECT_TRUE(at::allclose(gradient, torch::autograd::grad({(x * 2).exp().sin().sum()}, {x})[0]));
    ASSERT_FALSE(as_expected.empty());
    EXPECT_EQ(std::count(as_expected.begin(), as_expected.end(), false) > 0, skip);
  }
}

// watch

TEST(Watch, ModulesThatALambdaCaptures) {
  torch::nn::Sequential net(torch::nn::Linear(4, 4), torch::nn::Dropout(0.5));
  auto compiled = compile([net](const Tensor& x) mutable { return net->forward(x); },
                          {.fullgraph = true, .confirm = 0, .watch = {net.ptr()}});
  const Tensor x = at::randn({2, 4});
  for (const bool training : {true, false, true, false}) {
    net->train(training);
    for (int i = 0; i < 3; ++i) {
      torch::manual_seed(i);
      const Tensor a = compiled(x);
      torch::manual_seed(i);
      EXPECT_TRUE(a.equal(net->forward(x))) << training;
    }
  }
  EXPECT_EQ(compiled.stats().recompiles, 1U);
  expect_hits(compiled, 2);
  net->train();
  net->ptr(1)->eval();
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(compiled(x).equal(net->forward(x)));
  expect_hits(compiled, 3);
}

// aot::Config

TEST(Config, DecomposesOperators) {
  const DecompositionTable table = {{"aten.silu", [](const std::vector<c10::IValue>& arguments) {
                                       const Tensor x = arguments[0].toTensor();
                                       return Tensors{x * x.sigmoid()};
                                     }}};
  std::string forward, backward;
  const auto keep = [](std::string& text) -> aot::GraphCompiler {
    return [&text](const Graph& graph, const std::vector<TensorMeta>&) {
      text = graph.str();
      auto run = std::make_shared<const Interpreter>(graph);
      return [run](Tensors&& args) { return (*run)(std::move(args)); };
    };
  };
  const aot::FlatFunction f = [](const Tensors& in) { return Tensors{at::silu(in[0])}; };
  for (const bool skip : {false, true}) {
    aot::Config config{
        .forward = keep(forward), .backward = keep(backward), .decompositions = table};
    if (skip) config.options.skip_passes = {"decompose"};
    auto compiled = aot::function(f, config);
    const Tensor x = leaf({4});
    const Tensor y = compiled(Tensors{x})[0];
    EXPECT_TRUE(at::allclose(y, at::silu(x)));
    y.sum().backward();
    EXPECT_EQ(forward.find("aten.silu") != std::string::npos, skip) << forward;
    EXPECT_EQ(forward.find("aten.sigmoid") != std::string::npos, !skip) << forward;
    EXPECT_TRUE(at::allclose(x.grad(), torch::autograd::grad({at::silu(x).sum()}, {x})[0]));
  }
}

TEST(Config, DecompositionsMayCaptureTensors) {
  const Tensor offset = at::full({}, 2.0);
  const DecompositionTable table = {
      {"aten.tanh", [offset](const std::vector<c10::IValue>& arguments) {
         return Tensors{arguments[0].toTensor() + offset};
       }}};
  auto compiled =
      aot::function([](const Tensors& in) { return Tensors{in[0].detach().tanh() * in[0]}; },
                    {.decompositions = table});
  const Tensor x = leaf({4});
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(compiled(Tensors{x})[0].equal((x.detach() + 2.0) * x));
}

TEST(Config, SavingParametersIsFree) {
  // What is cast takes half the memory of a weight, but none at all if the weight stays anyway.
  const aot::FlatFunction f = [](const Tensors& in) {
    return Tensors{(in[1] * in[0].to(at::kBFloat16)).sum()};
  };
  const auto saved_outputs = [&](int64_t num_params_buffers) {
    int64_t count = 0;
    aot::Config config{.forward =
                           [&count](const Graph& graph, const std::vector<TensorMeta>&) {
                             for (const Graph::Output& output : graph.outputs())
                               count += output.slot.kind == Slot::Kind::Saved ? 1 : 0;
                             auto run = std::make_shared<const Interpreter>(graph);
                             return [run](Tensors&& args) { return (*run)(std::move(args)); };
                           },
                       .num_params_buffers = num_params_buffers};
    config.options.partitioner = Partitioner::MinCut;
    auto compiled = aot::function(f, config);
    const Tensor w = at::randn({8});
    const Tensor x = at::randn({8}, at::kBFloat16).set_requires_grad(true);
    torch::autograd::grad(compiled(Tensors{w, x}), {x});
    return count;
  };
  EXPECT_EQ(saved_outputs(0), 1);
  EXPECT_EQ(saved_outputs(1), 0);
}

TEST(Config, MessagesNameParameters) {
  const auto wrong = spoiling([](const Tensors& args, Tensors& results) { results[0] = args[0]; });
  aot::Config config = asserting(wrong);
  config.num_params_buffers = 1;
  auto compiled = aot::function([](const Tensors& in) { return Tensors{in[0] + in[1]}; }, config);
  const std::string message = error_of([&] { compiled(Tensors{at::randn({3}), at::randn({3})}); });
  EXPECT_NE(message.find("shares memory with parameter/buffer 0"), std::string::npos) << message;
}

TEST(Config, KeepsMutationsInTheGraphOnlyIfAsked) {
  for (const bool keep : {false, true}) {
    std::string text;
    aot::Config config{.forward =
                           [&text](const Graph& graph, const std::vector<TensorMeta>&) {
                             text = graph.str();
                             auto run = std::make_shared<const Interpreter>(graph);
                             return [run](Tensors&& args) { return (*run)(std::move(args)); };
                           },
                       .keep_inference_input_mutations = keep};
    auto compiled = aot::function(
        [](const Tensors& in) {
          Tensor(in[0]).add_(1);
          return Tensors{};
        },
        config);
    const Tensor x = at::zeros({3});
    compiled(Tensors{x});
    EXPECT_TRUE(x.equal(at::ones({3})));
    EXPECT_EQ(text.find("aten.add_") != std::string::npos, keep) << text;
  }
}

}  // namespace options_test
}  // namespace ahead
