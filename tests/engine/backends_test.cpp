#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <future>
#include <thread>

#include "ahead/backend.h"
#include "ahead/compiled_autograd.h"
#include "ahead/errors.h"
#include "ahead/interpret.h"
#include "support/eager.h"
#include "support/engine_check.h"

/// Backends and hooks are somebody else's code: they may do anything, as no lock is held.
namespace ahead {
namespace backends_test {

using compiled_autograd::Enable;
using compiled_autograd::stats;
using Tensors = std::vector<at::Tensor>;

aot::Executable interpreted(const Graph& graph) {
  auto interpreter = std::make_shared<const Interpreter>(graph);
  return [interpreter](Tensors&& args) { return (*interpreter)(std::move(args)); };
}

/// What the test at hand wants done when a graph is compiled, and when it runs.
std::function<void()> when_compiled, when_run;

const char* const backend = [] {
  register_backend("test_engine_backends", [](const Graph& graph, const std::vector<TensorMeta>&) {
    if (when_compiled) when_compiled();
    return [run = interpreted(graph)](Tensors&& args) {
      if (when_run) when_run();
      return run(std::move(args));
    };
  });
  return "test_engine_backends";
}();

class EngineBackends : public ::testing::Test {
 protected:
  void SetUp() override { compiled_autograd::reset(); }
  void TearDown() override { when_compiled = when_run = nullptr; }
};

bool is_gradient_right(const std::function<void()>& in_hook = nullptr) {
  const at::AutoGradMode with_history(true);
  const at::Tensor x = torch::full({4}, 3.0).requires_grad_();
  const at::Tensor h = x * x;
  if (in_hook)
    h.register_hook([&](const at::Tensor& gradient) {
      in_hook();
      return gradient;
    });
  h.sum().backward();
  return same_values(x.grad(), torch::full({4}, 6.0));
}

bool is_gradient_right_on_another_thread() {
  return std::async(std::launch::async,
                    [] {
                      const Enable on({.backend = backend});
                      return is_gradient_right();
                    })
      .get();
}

/// Everything that somebody could wait for. Executables run below autograd, where no history is
/// made.
void ask_everything(const std::function<bool()>& differentiate = [] {
  return is_gradient_right();
}) {
  // What this does is not to do the same again.
  const auto compile = std::exchange(when_compiled, nullptr),
             run = std::exchange(when_run, nullptr);
  stats();
  compiled_autograd::graphs();
  compiled_autograd::reasons();
  EXPECT_TRUE(differentiate());
  EXPECT_TRUE(is_gradient_right_on_another_thread());
  when_compiled = compile;
  when_run = run;
}

TEST_F(EngineBackends, CompilerMayAskAndDifferentiate) {
  when_compiled = [] { ask_everything(); };
  const Enable on({.backend = backend});
  EXPECT_TRUE(is_gradient_right());
  EXPECT_TRUE(is_gradient_right());
  EXPECT_GE(stats().cache_hits, 1u);
}

TEST_F(EngineBackends, ExecutableMayAskAndDifferentiate) {
  const at::Tensor x = torch::full({4}, 3.0).requires_grad_();
  const at::Tensor loss = (x * x).sum();
  when_run = [&] {
    ask_everything([&] {
      const at::Tensor gradient = torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true)[0];
      return same_values(gradient, torch::full({4}, 6.0));
    });
  };
  const Enable on({.backend = backend});
  EXPECT_TRUE(is_gradient_right());
  EXPECT_TRUE(is_gradient_right());
}

TEST_F(EngineBackends, HookMayAskAndDifferentiate) {
  const Enable on({.backend = backend});
  for (int round = 0; round < 3; ++round) EXPECT_TRUE(is_gradient_right([] { ask_everything(); }));
}

TEST_F(EngineBackends, AnotherThreadMayResetMeanwhile) {
  when_compiled = [] { std::thread([] { compiled_autograd::reset(); }).join(); };
  const Enable on({.backend = backend});
  for (int round = 0; round < 3; ++round) EXPECT_TRUE(is_gradient_right());
}

TEST_F(EngineBackends, WhatABackendMadeIsFreedWithoutALock) {
  struct Made {
    ~Made() { seen = compiled_autograd::graphs().size() + 1; }
    size_t& seen;
  };
  static size_t seen = 0;
  seen = 0;
  register_backend("test_engine_freed", [](const Graph& graph, const std::vector<TensorMeta>&) {
    return [run = interpreted(graph), made = std::make_shared<Made>(seen)](Tensors&& args) {
      return run(std::move(args));
    };
  });
  {
    const Enable on({.backend = "test_engine_freed", .dynamic = false, .cache_limit = 1});
    EXPECT_TRUE(is_gradient_right());
    for (int round = 0; round < 3; ++round) {
      const at::Tensor x = torch::ones({7}, torch::requires_grad());
      (x * x).sum().backward();
    }
    EXPECT_NE(seen, 0u);
    seen = 0;
  }
  compiled_autograd::reset();
  EXPECT_NE(seen, 0u);
}

/// The gradients of backwards of several sizes; as many graphs are kept as stats() says.
void expect_right_for_batches(const std::string& name) {
  const at::Tensor w = torch::full({3}, 2.0).requires_grad_();
  const Enable on({.backend = name, .dynamic = true});
  for (int64_t batch : {2, 5, 4, 7}) {
    const at::Tensor x = torch::rand({batch, 3});
    (x * w * w).sum().backward();
    EXPECT_TRUE(at::allclose(w.grad(), 4 * x.sum(0))) << name << ", batch " << batch;
    w.mutable_grad().reset();
  }
}

TEST_F(EngineBackends, ABackendThatTakesSizesGetsOneGraphForAll) {
  const auto compile = [](const Graph& graph, const std::vector<TensorMeta>&) {
    return interpreted(graph);
  };
  register_backend("test_engine_takes_sizes", compile, {.takes_sizes = true});
  expect_right_for_batches("test_engine_takes_sizes");
  EXPECT_EQ(stats().captures, 1u) << test::all_reasons();
  EXPECT_EQ(stats().cache_hits, 3u);
}

TEST_F(EngineBackends, ABackendThatDoesNotTakeSizesGetsFixedOnes) {
  register_backend("test_engine_fixed_sizes",
                   [](const Graph& graph, const std::vector<TensorMeta>&) {
                     for (const Graph::Input& input : graph.inputs())
                       EXPECT_TRUE(input.value->meta.is_fixed()) << graph.str();
                     return interpreted(graph);
                   });
  expect_right_for_batches("test_engine_fixed_sizes");
  EXPECT_EQ(stats().captures, 4u);
}

/// While one thread waits for a slow backend, others run the same backward.
TEST_F(EngineBackends, SlowCompilerKeepsNobodyWaiting) {
  std::promise<void> is_compiling, may_go_on;
  when_compiled = [&] {
    when_compiled = nullptr;
    is_compiling.set_value();
    may_go_on.get_future().wait();
  };
  auto slow = std::async(std::launch::async, [] {
    const Enable on({.backend = backend});
    return is_gradient_right();
  });
  is_compiling.get_future().wait();
  for (int round = 0; round < 3; ++round) EXPECT_TRUE(is_gradient_right_on_another_thread());
  EXPECT_EQ(stats().cache_hits, 0u);
  may_go_on.set_value();
  EXPECT_TRUE(slow.get());
  EXPECT_EQ(stats().captures, 1u);
  EXPECT_EQ(stats().compiles, 1u);
  EXPECT_TRUE(is_gradient_right_on_another_thread());
  EXPECT_EQ(stats().cache_hits, 1u);
}

TEST_F(EngineBackends, CompilerThatThrowsIsAskedAgain) {
  int failures = 0;
  when_compiled = [&] {
    if (failures++ < 2) throw std::runtime_error("not now");
  };
  const Enable on({.backend = backend});
  EXPECT_THROW(is_gradient_right(), std::runtime_error);
  EXPECT_THROW(is_gradient_right(), std::runtime_error);
  EXPECT_TRUE(is_gradient_right());
  EXPECT_TRUE(is_gradient_right());
  EXPECT_EQ(stats().compiles, 1u);
}

TEST_F(EngineBackends, ExecutableThatThrowsIsRunAgain) {
  bool throws = true;
  when_run = [&] {
    if (throws) throw std::runtime_error("not now");
  };
  const Enable on({.backend = backend});
  EXPECT_THROW(is_gradient_right(), std::runtime_error);
  throws = false;
  EXPECT_TRUE(is_gradient_right());
  EXPECT_EQ(stats().compiles, 1u);
}

/// The settings of a running backward are those with which it began.
TEST_F(EngineBackends, HookOpensScopesOfItsOwn) {
  const Enable on({.backend = backend});
  for (int round = 0; round < 3; ++round) {
    EXPECT_TRUE(is_gradient_right([] {
      std::vector<std::unique_ptr<Enable>> scopes;
      for (int i = 0; i < 20; ++i) scopes.push_back(std::make_unique<Enable>());
      EXPECT_TRUE(is_gradient_right());
      while (!scopes.empty()) scopes.pop_back();
    }));
  }
}

}  // namespace backends_test
}  // namespace ahead
