#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <functional>
#include <limits>

#include "ahead/ahead.h"
#include "support/eager.h"
#include "support/new_process.h"

/// What no program should do, and what programs do all the same: an error that says so, never a
/// crash.
namespace ahead {
namespace robust_test {

using at::Tensor;
using Tensors = std::vector<Tensor>;

Tensor twice(const Tensor& x) {
  return x * 2 + 1;
}

/// Expects a UserError, and that it says this.
void expect_user_error(const std::string& part, const std::function<void()>& action) {
  try {
    action();
    ADD_FAILURE() << "no error: " << part;
  } catch (const UserError& error) {
    EXPECT_NE(error.msg().find(part), std::string::npos) << error.msg();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another error: " << error.what();
  }
}

Graph graph_with_views() {
  return trace(
      [](const Tensors& in) {
        return Tensors{(in[0].t().reshape({2, 6}).exp() + 1).view({12}).slice(0, 0, 12, 2) * 2};
      },
      {torch::rand({3, 4})});
}

TEST(Robust, InterpretOtherSizes) {
  const Graph graph = graph_with_views();
  const Interpreter interpreter(graph);
  EXPECT_EQ(interpret(graph, {torch::rand({3, 4})})[0].numel(), 6);
  EXPECT_EQ(interpret(graph, {torch::rand({4, 3}).t()})[0].numel(), 6);
  const std::vector<std::vector<int64_t>> others = {{4, 3},    {12},   {},       {0},
                                                    {3, 4, 1}, {6, 8}, {3, 400}, {0, 4}};
  for (const std::vector<int64_t>& sizes : others) {
    expect_user_error("argument 0", [&] { interpret(graph, {torch::rand(sizes)}); });
    expect_user_error("argument 0", [&] { interpreter({torch::rand(sizes)}); });
    expect_user_error("argument 0", [&] { interpreter.replay({torch::rand(sizes)}); });
  }
}

TEST(Robust, InterpretOtherTensors) {
  const Graph graph = graph_with_views();
  expect_user_error("argument 0", [&] { interpret(graph, {Tensor()}); });
  expect_user_error("argument 0", [&] { interpret(graph, {torch::rand({3, 4}, at::kDouble)}); });
  expect_user_error("argument 0", [&] { interpret(graph, {torch::ones({3, 4}, at::kLong)}); });
  expect_user_error("argument 0", [&] {
    interpret(graph, {torch::empty({3, 4}, torch::device(at::kMeta))});
  });
  expect_user_error("0 arguments", [&] { interpret(graph, {}); });
}

TEST(Robust, InterpretWithoutWhatIsNotUsed) {
  const Graph graph = trace([](const Tensors& in) { return Tensors{in[1].exp()}; },
                            {torch::rand({3}), torch::rand({3})});
  EXPECT_NO_THROW(interpret(graph, {Tensor(), torch::rand({3})}));
}

/// How a backend gets it wrong.
enum class Wrong { Undefined, Nothing, TooMany, EmptyExecutable };

aot::GraphCompiler wrong_backend(Wrong wrong) {
  return [wrong](const Graph& graph, const std::vector<TensorMeta>&) -> aot::Executable {
    if (wrong == Wrong::EmptyExecutable) return {};
    const size_t count = graph.outputs().size();
    return [wrong, count](Tensors&&) {
      return wrong == Wrong::Nothing ? Tensors() : Tensors(count + (wrong == Wrong::TooMany));
    };
  };
}

TEST(Robust, BackendsThatReturnSomethingElse) {
  register_backend("robust_undefined", wrong_backend(Wrong::Undefined));
  register_backend("robust_nothing", wrong_backend(Wrong::Nothing));
  register_backend("robust_too_many", wrong_backend(Wrong::TooMany));
  register_backend("robust_empty", wrong_backend(Wrong::EmptyExecutable));
  for (const char* name :
       {"robust_undefined", "robust_nothing", "robust_too_many", "robust_empty"}) {
    for (bool trains : {false, true}) {
      auto f = compile(twice, {.backend = name, .confirm = Confirm::Never});
      const Tensor x = torch::rand({3}).set_requires_grad(trains);
      expect_user_error("the backend", [&] {
        f(x);
        f(x);
      });
      auto confirmed = compile(twice, {.backend = name});
      expect_user_error("the backend", [&] {
        for (int i = 0; i < 4; ++i) confirmed(x);
      });
    }
    const compiled_autograd::Enable on({.backend = name});
    const Tensor x = torch::rand({3}, torch::requires_grad());
    expect_user_error("the backend", [&] { torch::autograd::grad({twice(x).sum()}, {x}); });
  }
}

TEST(Robust, BackendsOfBackwardsThatReturnSomethingElse) {
  for (Wrong wrong : {Wrong::Undefined, Wrong::Nothing, Wrong::TooMany, Wrong::EmptyExecutable}) {
    aot::Config config;
    config.backward = wrong_backend(wrong);
    auto f = aot::function([](const Tensors& in) { return Tensors{in[0].exp()}; }, config);
    const Tensor x = torch::rand({3}, torch::requires_grad());
    const Tensor y = f(Tensors{x})[0];
    expect_user_error("the backend", [&] { y.sum().backward(); });
  }
}

TEST(Robust, BackendThatIsNone) {
  expect_user_error("robust_null", [] { register_backend("robust_null", nullptr); });
  expect_user_error("robust_null", [] { compile(twice, {.backend = "robust_null"}); });
}

TEST(Robust, ModulesThatAreNone) {
  expect_user_error("Options::watch", [] { compile(twice, {.watch = {nullptr}}); });
  expect_user_error("null", [] { compile(std::shared_ptr<torch::nn::LinearImpl>()); });
  expect_user_error("null", [] { compile(torch::nn::Linear(nullptr)); });
}

TEST(Robust, EnumeratorsThatAreNone) {
  const auto expect_refused = [](const std::string& option, const Options& options) {
    expect_user_error(option, [&] { compile(twice, options); });
  };
  expect_refused("Options::partitioner", {.partitioner = static_cast<Partitioner>(7)});
  expect_refused("Options::dynamic", {.dynamic = static_cast<Dynamic>(7)});
  expect_refused("Options::confirm", {.confirm = static_cast<Confirm::Kind>(7)});
  expect_refused("Options::backward_autocast",
                 {.backward_autocast = static_cast<BackwardAutocast>(7)});
  expect_refused("Options::custom_op_aliasing",
                 {.custom_op_aliasing = static_cast<SchemaCheck>(7)});
  aot::Config config;
  config.options.partitioner = static_cast<Partitioner>(7);
  expect_user_error("Options::partitioner",
                    [&] { aot::function([](const Tensors& in) { return in; }, config); });
}

TEST(Robust, BudgetsThatAreNone) {
  for (double budget : {-0.5, 1.5, std::numeric_limits<double>::quiet_NaN()}) {
    expect_user_error("memory_budget", [&] {
      auto f = compile(twice, {.memory_budget = budget, .confirm = Confirm::Never});
      const Tensor x = torch::rand({3}, torch::requires_grad());
      f(x).sum().backward();
    });
  }
}

TEST(Robust, SavingThatIsNone) {
  const Tensor x = torch::rand({3}, torch::requires_grad());
  expect_user_error("Saving", [&] {
    checkpoint(
        static_cast<Saving>(9), [](const Tensor& y) { return y.exp(); }, x);
  });
  const auto policy = [](const Operator&) { return static_cast<Saving>(9); };
  expect_user_error("Saving", [&] {
    checkpoint(
        CheckpointPolicy(policy), [](const Tensor& y) { return y.exp().sin(); }, x)
        .sum()
        .backward();
  });
  auto f = compile(
      [&](const Tensor& y) {
        return checkpoint(
            CheckpointPolicy(policy), [](const Tensor& z) { return z.exp().sin(); }, y);
      },
      {.confirm = Confirm::Never});
  expect_user_error("Saving", [&] { f(x).sum().backward(); });
}

TEST(Robust, TextWithNegativeSizes) {
  const std::string text = graph_with_views().str();
  const auto with = [&](const std::string& old, const std::string& changed) {
    std::string other = text;
    const size_t at = other.find(old);
    EXPECT_NE(at, std::string::npos) << text;
    return at == std::string::npos ? other : other.replace(at, old.size(), changed);
  };
  expect_user_error("negative", [&] { Graph::parse(with("[3, 4]", "[-3, 4]")); });
  expect_user_error("negative", [&] { Graph::parse(with("[3, 4]", "[3, -4]")); });
  expect_user_error("negative", [&] { Graph::parse(with("[3, 4]", "[3, 4]{-4, 1}")); });
  expect_user_error("negative", [&] { Graph::parse(with("[3, 4]", "[3, 4]{4, 1}+-1")); });
}

/// A static object of a program, made before main() and destroyed after it.
struct AtEnd {
  std::function<void()> work;
  ~AtEnd() {
    if (work) work();
  }
};
AtEnd at_end;

TEST(Robust, StaticDestructorsRunEagerly) {
  test::expect_in_new_process([] {
    auto used_before = compile(twice);
    for (int call = 0; call < 4; ++call) used_before(torch::rand({3}));
    at_end.work = [] {
      const Tensor weight = torch::ones({3}).requires_grad_();
      auto late = compile([&](const Tensor& x) { return twice(x * weight); });
      for (int call = 0; call < 6; ++call) late(torch::ones({3}));
      const auto trace_late = [] {
        trace([](const Tensors& in) { return Tensors{twice(in[0])}; }, {torch::ones({2})});
      };
      if (late.stats().eager_calls != 6) std::_Exit(3);
      if (error_of(trace_late).find("static destructor") == std::string::npos) std::_Exit(4);
    };
    return true;
  });
}

}  // namespace robust_test
}  // namespace ahead
