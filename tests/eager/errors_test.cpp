#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <thread>

#include "ahead/ahead.h"
#include "eager/harness.h"

/// Exceptions, unusual arguments, threads and functions that look at themselves.
namespace ahead::test {
namespace errors_test {

TEST(Errors, ExceptionAfterWrites) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor sum = at::zeros({3});
    int64_t thrown = 0;
    auto add = wrap([&](const at::Tensor& x) {
      sum.add_(x);
      if (torch::isnan(x).any().item<bool>()) {
        ++thrown;
        throw std::runtime_error("not a number");
      }
      sum.mul_(0.5);
      return sum * 2;
    });
    for (int call = 0; call < 24; ++call) {
      const at::Tensor x = at::randn({3});
      if (call % 6 == 5) x[1] = std::numeric_limits<float>::quiet_NaN();
      log("error", error_of([&] { log("result", add(x)); }));
      log("sum", sum);
      log("thrown", static_cast<double>(thrown));
      if (call % 6 == 5) sum.zero_();
    }
  });
  expect_hits(outcome);
}

/// Eager refuses to write to a leaf that requires grad, and so does a function that was compiled
/// for tensors that are none.
TEST(Errors, WritesToALeaf) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto scale = wrap([](const at::Tensor& x) {
      x.mul_(2);
      return x * 3;
    });
    for (int call = 0; call < 16; ++call) {
      const at::Tensor source = leaf({3});
      const bool is_leaf = call % 5 == 4;
      const at::Tensor x = is_leaf ? source : source.exp();
      log("error", error_of([&] { scale(x).sum().backward(); }));
      log("x", x.detach());
      log("source", source);
    }
  });
  expect_hits(outcome);
}

TEST(Errors, ExceptionInTheFirstCalls) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor count = at::zeros({});
    int attempts = 0;
    auto fragile = wrap([&](const at::Tensor& x) {
      count.add_(1);
      if (attempts < 2) {
        ++attempts;
        throw std::logic_error("not yet");
      }
      return x + count;
    });
    for (int call = 0; call < 24; ++call) {
      log("error", error_of([&] { log("result", fragile(at::randn({3}))); }));
      log("count", count);
    }
  });
  expect_hits(outcome);
}

TEST(Errors, ErrorsOfOperators) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor count = at::zeros({}), weight = leaf({3, 2});
    auto product = wrap([&](const at::Tensor& x) {
      count.add_(1);
      return x.matmul(weight);
    });
    for (int call = 0; call < 24; ++call) {
      const at::Tensor x = at::randn({2, call % 5 == 4 ? 4 : 3});
      log("error", error_of([&] { log("result", product(x)); }));
      log("count", count);
    }
  });
  expect_some_hits(outcome);
}

TEST(Errors, SparseArguments) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    const at::Tensor weight = leaf({4, 2});
    auto product = wrap([&](const at::Tensor& a) { return torch::mm(a, weight); });
    for (int call = 0; call < 12; ++call) {
      const at::Tensor dense = at::randn({3, 4}).relu_();
      const at::Tensor result = product(call % 2 == 0 ? dense.to_sparse_csr() : dense.to_sparse());
      result.sum().backward();
      log("result", result);
    }
    log("weight", weight);
  });
  EXPECT_EQ(outcome.cache_hits, 0u);
}

TEST(Errors, SparseConstantsInside) {
  like_eager([](auto& wrap, Log& log) {
    const at::Tensor edges = (at::rand({4, 4}) > 0.5).to(at::kFloat).to_sparse();
    const at::Tensor weight = leaf({3, 2});
    auto convolve = wrap([&](const at::Tensor& x) { return torch::mm(edges, x.mm(weight)); });
    for (int call = 0; call < 12; ++call) {
      const at::Tensor result = convolve(at::randn({4, 3}));
      result.sum().backward();
      log("result", result);
    }
    log("weight", weight);
  });
}

TEST(Errors, NestedArguments) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto padded = wrap([](const at::Tensor& x) { return x.to_padded_tensor(0) * 2; });
    for (int call = 0; call < 12; ++call) {
      const at::Tensor nested =
          at::_nested_tensor_from_tensor_list({at::randn({2, 3}), at::randn({1 + call % 3, 3})});
      log("result", padded(nested));
    }
  });
  EXPECT_EQ(outcome.cache_hits, 0u);
}

/// Calls, counted over all threads, add up, and each result is right.
TEST(Errors, TwoThreadsCall) {
  const at::Tensor weight = leaf({3, 3});
  const auto f = [&](const at::Tensor& x) { return torch::tanh(x.matmul(weight)).sum(); };
  auto compiled = compile(f);
  std::atomic<int> wrong{0};
  const auto work = [&] {
    for (int call = 0; call < 40; ++call) {
      const at::Tensor x = at::randn({2 + call % 2, 3});
      const at::Tensor expected = torch::autograd::grad({f(x)}, {weight})[0];
      if (!same_values(torch::autograd::grad({compiled(x)}, {weight})[0], expected)) ++wrong;
    }
  };
  std::thread first(work), second(work);
  first.join();
  second.join();
  const CompileStats stats = compiled.stats();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(stats.calls, 80u);
  EXPECT_EQ(stats.calls, stats.observed_calls + stats.cache_hits + stats.eager_calls);
  EXPECT_GE(3 * stats.cache_hits, stats.calls);
  EXPECT_EQ(stats.eager_calls, 0u);
}

/// Threads number the nodes of autograd each for itself, and take gradients while others are
/// observed.
TEST(Errors, ThreadsTakeGradients) {
  torch::nn::Linear layer(4, 4);
  const auto f = [&](const at::Tensor& x) { return layer(x).square().mean(); };
  for (int round = 0; round < 4; ++round) {
    auto compiled = compile(f);
    std::atomic<int> wrong{0};
    const auto work = [&](int head_start) {
      at::Tensor nodes = leaf({1});
      for (int i = 0; i < 500 * head_start; ++i) nodes = nodes + 1;
      for (int call = 0; call < 60; ++call) {
        const at::Tensor x = leaf({3, 4});
        const at::Tensor expected = torch::autograd::grad({f(x)}, {x})[0];
        if (!same_values(torch::autograd::grad({compiled(x)}, {x})[0], expected)) ++wrong;
      }
    };
    std::thread first(work, 2), second(work, 1), third(work, 0);
    first.join();
    second.join();
    third.join();
    const CompileStats stats = compiled.stats();
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(stats.eager_calls, 0u) << compiled.explain(leaf({3, 4}));
    EXPECT_GE(2 * stats.cache_hits, stats.calls);
  }
}

/// Each call adds one to a running sum under a lock of the user's: none may be lost.
TEST(Errors, TwoThreadsCallAFunctionWithState) {
  at::Tensor total = at::zeros({}, at::kLong);
  std::mutex mutex;
  auto compiled = compile([&](const at::Tensor& x) { total = total + x; });
  const auto work = [&] {
    for (int call = 0; call < 40; ++call) {
      std::lock_guard<std::mutex> lock(mutex);
      compiled(at::ones({}, at::kLong));
    }
  };
  std::thread first(work), second(work);
  first.join();
  second.join();
  const CompileStats stats = compiled.stats();
  EXPECT_EQ(total.item<int64_t>(), 80);
  EXPECT_EQ(stats.calls, stats.observed_calls + stats.cache_hits + stats.eager_calls);
}

TEST(Errors, ResetInsideTheFunction) {
  std::function<void()> reset = [] {};
  int runs = 0;
  auto compiled = compile([&](const at::Tensor& x) {
    if (++runs == 2) reset();
    return x * 2;
  });
  reset = [&] { compiled.reset(); };
  for (int call = 0; call < 24; ++call) {
    const at::Tensor x = at::randn({3});
    EXPECT_TRUE(same_values(compiled(x), x * 2)) << call;
  }
  const CompileStats stats = compiled.stats();
  EXPECT_EQ(stats.calls, stats.observed_calls + stats.cache_hits + stats.eager_calls);
  EXPECT_GE(stats.cache_hits, 12u);
}

/// Expects something to come to an end. If it does not, its thread is left behind.
void expect_end(const std::function<void()>& work) {
  std::packaged_task<void()> task(work);
  std::future<void> done = task.get_future();
  std::thread thread(std::move(task));
  if (done.wait_for(std::chrono::seconds(10)) == std::future_status::ready) return thread.join();
  thread.detach();
  ADD_FAILURE() << "it waits for ever";
}

/// Compiles and differentiates with a backend that does something of its own whenever it compiles.
/// Everything is owned by the call, since a thread may be left behind with it.
using CompiledFunction = Compiled<at::Tensor (*)(const at::Tensor&)>;
void compile_with_backend(const std::string& name, const std::function<void()>& in_backend,
                          const std::function<void(CompiledFunction&)>& ask,
                          bool captures_backward) {
  auto asked = std::make_shared<std::function<void()>>([] {});
  auto count = std::make_shared<int>(0);
  register_backend(name, [=](const Graph& graph, const std::vector<TensorMeta>&) {
    ++*count;
    in_backend();
    (*asked)();
    return [graph](std::vector<at::Tensor>&& args) { return interpret(graph, std::move(args)); };
  });
  at::Tensor (*const function)(const at::Tensor&) = [](const at::Tensor& x) {
    return (x * 2).exp();
  };
  auto compiled = compile(function, {.backend = name});
  *asked = [&] { ask(compiled); };
  for (int call = 0; call < 12; ++call) {
    const at::Tensor x = leaf({3});
    std::optional<compiled_autograd::Enable> enable;
    if (captures_backward) enable.emplace(compiled_autograd::Options{.backend = name});
    const at::Tensor result = compiled(x);
    EXPECT_TRUE(same_values(result, function(x))) << call;
    result.sum().backward();
    EXPECT_TRUE(same_values(x.grad(), 2 * result)) << call;
  }
  *asked = [] {};
  EXPECT_GT(*count, 0);
  EXPECT_GT(compiled.stats().cache_hits, 0u);
}

TEST(Errors, BackendThatAsksForCounts) {
  expect_end([] {
    compile_with_backend(
        "asks for counts", [] {},
        [](auto& compiled) {
          compiled.stats();
          compiled.programs();
          compiled.explain(at::ones({3}));
        },
        /*captures_backward=*/false);
  });
}

TEST(Errors, BackendThatAsksForCapturedBackwards) {
  expect_end([] {
    compile_with_backend(
        "asks for backwards",
        [] {
          compiled_autograd::graphs();
          compiled_autograd::stats();
          compiled_autograd::reasons();
        },
        [](auto&) {}, /*captures_backward=*/true);
  });
}

TEST(Errors, FunctionThatJoinsAThreadWhichCallsIt) {
  expect_end([] {
    std::function<at::Tensor(const at::Tensor&, int64_t)> itself;
    auto compiled = compile([&](const at::Tensor& x, int64_t depth) {
      if (depth == 0) return x + 1;
      at::Tensor inner;
      std::thread([&] { inner = itself(x, depth - 1); }).join();
      return inner * 2;
    });
    itself = [&](const at::Tensor& x, int64_t depth) { return compiled(x, depth); };
    for (int call = 0; call < 12; ++call) {
      const at::Tensor x = at::randn({3});
      EXPECT_TRUE(same_values(compiled(x, int64_t(1)), (x + 1) * 2)) << call;
    }
    const CompileStats stats = compiled.stats();
    EXPECT_EQ(stats.calls, stats.observed_calls + stats.cache_hits + stats.eager_calls);
  });
}

TEST(Errors, FunctionThatCallsItself) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    std::function<at::Tensor(const at::Tensor&, int64_t)> itself;
    auto compiled = wrap([&](const at::Tensor& x, int64_t depth) {
      return depth == 0 ? x.sin() : itself(x * 2, depth - 1) + 1;
    });
    itself = [&](const at::Tensor& x, int64_t depth) { return compiled(x, depth); };
    for (int call = 0; call < 16; ++call) log("result", compiled(at::randn({3}), int64_t(3)));
  });
  expect_some_hits(outcome);
}

/// What cannot be compiled is said after the call has been served.
TEST(Errors, FullgraphThrowsAfterTheCall) {
  std::vector<at::Tensor> kept;
  auto compiled = compile(
      [&](const at::Tensor& x) {
        kept.push_back(x * 2);
        return x * 3;
      },
      {.fullgraph = true});
  int thrown = 0;
  for (int call = 0; call < 8; ++call) {
    try {
      compiled(at::ones({3}));
    } catch (const Unsupported&) {
      ++thrown;
    }
    ASSERT_EQ(kept.size(), static_cast<size_t>(call + 1));
    EXPECT_TRUE(same_values(kept.back(), at::full({3}, 2.0f)));
  }
  EXPECT_GT(thrown, 0);
}

/// What was split off is saved, and then its base is written to: the call is right, its backward is
/// not.
TEST(Errors, OfBackwardsThroughPartsThatWereOverwritten) {
  const Outcome outcome = like_eager([](auto& wrap, Log& log) {
    auto first_part = wrap([](const at::Tensor& x, const at::Tensor& slope) {
      const at::Tensor result = at::prelu(x.split_with_sizes({1, 1}, 0)[0], slope);
      x.fill_(2.0);
      return result;
    });
    const at::Tensor weight = leaf({2, 1, 1});
    for (int call = 0; call < 60; ++call) {
      const at::Tensor x = weight.exp().view({2, 1, 1});
      const at::Tensor result = first_part(x, at::rand({}));
      log("result", result);
      log("x", x);
    }
  });
  expect_settled(outcome);
}

}  // namespace errors_test
}  // namespace ahead::test
