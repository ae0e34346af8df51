#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/torch.h>

#include <atomic>
#include <future>
#include <thread>

#include "ahead/checkpoint.h"
#include "ahead/compiled_autograd.h"
#include "ahead/errors.h"
#include "support/eager.h"
#include "support/engine_check.h"
#include "support/new_process.h"

namespace ahead {
namespace outside_test {

using compiled_autograd::Disable;
using compiled_autograd::Enable;
using compiled_autograd::stats;
using Events = std::vector<std::string>;

class Listener final : public c10::WarningHandler {
 public:
  explicit Listener(Events& events) : events_(events) {}
  void process(const c10::Warning& warning) override { events_.push_back(warning.msg()); }

 private:
  Events& events_;
};

/// What happens, in order, in a backward whose hook warns.
Events warning_backward(bool create_graph = false, bool throws = false) {
  Events events;
  Listener listener(events);
  const c10::WarningUtils::WarningHandlerGuard guard(&listener);
  const at::Tensor x = leaf({3});
  const at::Tensor h = x * 2;
  h.register_hook([&](const at::Tensor& gradient) {
    TORCH_WARN("from a hook");
    events.push_back("hook");
    if (throws) throw std::runtime_error("a hook that throws");
    return gradient;
  });
  try {
    torch::autograd::grad({h.sin().sum()}, {x}, {}, true, create_graph);
    events.push_back("end");
  } catch (const std::exception& error) {
    events.push_back("error");
  }
  return events;
}

const Events as_libtorch = {"hook", "from a hook", "end"};
const Events as_libtorch_with_error = {"hook", "from a hook", "error"};

/// The nodes that LibTorch's engine walks: one more where it asks somebody else to run them.
size_t count_nodes() {
  size_t count = 0;
  const at::Tensor x = leaf({3});
  const at::Tensor h = x * 2;
  h.register_hook([&](const at::Tensor& gradient) {
    count = torch::autograd::get_current_graph_task_nodes_in_graph()->size();
    return gradient;
  });
  h.sin().sum().backward();
  return count;
}

/// Also in hooks, where no history is kept.
at::Tensor gradient_of_square(double value = 3) {
  const at::AutoGradMode with_history(true);
  const at::Tensor x = torch::full({4}, value).requires_grad_();
  (x * x).sum().backward();
  return x.grad();
}

bool is_square_right(double value = 3) {
  return same_values(gradient_of_square(value), torch::full({4}, 2 * value));
}

TEST(EngineOutside, WarningsAreReplayedBeforeAndAfterwards) {
  test::expect_in_new_process([] {
    const bool before = warning_backward() == as_libtorch;
    { const Enable on; }
    return before && warning_backward() == as_libtorch &&
           warning_backward(false, true) == as_libtorch_with_error;
  });
}

TEST(EngineOutside, WarningsAreReplayedWhileAnotherThreadEnables) {
  const Enable on;
  std::async(std::launch::async, [] {
    EXPECT_EQ(warning_backward(), as_libtorch);
    EXPECT_EQ(warning_backward(false, true), as_libtorch_with_error);
  }).get();
  const Disable off;
  EXPECT_EQ(warning_backward(), as_libtorch);
}

TEST(EngineOutside, WarningsAreReplayedInside) {
  const Enable on;
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(warning_backward(), as_libtorch);
    EXPECT_EQ(warning_backward(/*create_graph=*/true), as_libtorch);
    EXPECT_EQ(warning_backward(false, true), as_libtorch_with_error);
  }
}

TEST(EngineOutside, EngineIsPutBackWhenTheLastScopeEnds) {
  test::expect_in_new_process([] {
    const size_t before = count_nodes();
    bool is_put_back = true;
    for (int round = 0; round < 3; ++round) {
      {
        const Enable outer;
        std::thread([] { const Enable on; }).join();
        const Disable off;
        const Enable inner;
        is_put_back = is_put_back && count_nodes() == before + 1;
      }
      is_put_back = is_put_back && count_nodes() == before;
    }
    return is_put_back;
  });
}

TEST(EngineOutside, ThreadThatEndsWithAnOpenScopeLeavesNothingBehind) {
  test::expect_in_new_process([] {
    const size_t before = count_nodes();
    Enable* forgotten = nullptr;
    std::thread([&] { forgotten = new Enable; }).join();
    return forgotten != nullptr && count_nodes() == before;
  });
}

TEST(EngineOutside, FirstEnableInsideACheckpoint) {
  test::expect_in_new_process([] {
    const at::Tensor x = torch::full({4}, 0.5).requires_grad_();
    std::optional<Enable> on;
    const at::Tensor y = ahead::checkpoint(
        Saving::PreferRecompute,
        [&](const at::Tensor& in) {
          const at::Tensor first = in.sin();
          if (!on) on.emplace();
          return first.exp() * in;
        },
        x);
    y.sum().backward();
    const at::Tensor expected = torch::full({4}, 0.5).requires_grad_();
    (expected.sin().exp() * expected).sum().backward();
    const bool is_same = same_values(x.grad(), expected.grad());
    on.reset();
    // Threads without a checkpoint save their tensors themselves.
    std::thread([] { TORCH_CHECK(is_square_right()); }).join();
    return is_same && is_square_right();
  });
}

TEST(EngineOutside, CheckpointInsideEnableAfterOneOutside) {
  test::expect_in_new_process([] {
    const auto gradient = [] {
      const at::Tensor x = torch::full({4}, 0.5).requires_grad_();
      ahead::checkpoint(
          Saving::PreferRecompute, [](const at::Tensor& in) { return in.sin().exp() * in; }, x)
          .sum()
          .backward();
      return x.grad();
    };
    const at::Tensor outside = gradient();
    const Enable on;
    const at::Tensor inside = gradient();
    const Disable off;
    return same_values(outside, inside) && same_values(outside, gradient());
  });
}

TEST(EngineOutside, FirstEnableInsideAHook) {
  test::expect_in_new_process([] {
    const at::Tensor x = leaf({4});
    const at::Tensor h = x.exp();
    h.register_hook([](const at::Tensor& gradient) {
      const Enable on;
      TORCH_CHECK(is_square_right());
      return gradient * 2;
    });
    h.sum().backward();
    return same_values(x.grad(), 2 * x.exp()) && is_square_right();
  });
}

TEST(EngineOutside, EnableOfAThreadThatAHookWaitsFor) {
  test::expect_in_new_process([] {
    const at::Tensor x = leaf({4});
    const at::Tensor h = x.exp();
    h.register_hook([](const at::Tensor& gradient) {
      std::thread([] {
        const Enable on;
        TORCH_CHECK(is_square_right());
      }).join();
      return gradient * 2;
    });
    h.sum().backward();
    return same_values(x.grad(), 2 * x.exp()) && stats().captures == 1;
  });
}

/// Backwards that start while the engine is being changed are neither lost nor run twice.
TEST(EngineOutside, ScopesComeAndGoWhileOthersTrain) {
  std::atomic<bool> is_over = false;
  std::atomic<int> wrong = 0, backwards = 0;
  std::vector<std::thread> threads;
  for (int number = 0; number < 3; ++number) {
    threads.emplace_back([&, number] {
      while (!is_over) {
        int calls = 0;
        const at::Tensor x = torch::full({4}, 3.0).requires_grad_();
        const at::Tensor h = x * x;
        if (number == 0)
          h.register_hook([&](const at::Tensor& gradient) {
            ++calls;
            return gradient;
          });
        try {
          h.sum().backward();
          wrong += !same_values(x.grad(), torch::full({4}, 6.0)) || calls != (number == 0 ? 1 : 0);
        } catch (const std::exception& error) {
          ADD_FAILURE() << error.what();
          ++wrong;
        }
        ++backwards;
      }
    });
  }
  for (int number = 0; number < 2; ++number) {
    threads.emplace_back([&, number] {
      for (int round = 0; round < 20000; ++round) {
        const Enable on;
        if (number == 0 && round % 16 == 0) wrong += !is_square_right();
      }
      if (number == 0) is_over = true;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(backwards, 0);
}

TEST(EngineOutside, ScopeEndsWhileABackwardOfAnotherThreadRuns) {
  std::promise<void> is_running, may_end;
  std::thread other([&] {
    const Enable on;
    const at::Tensor x = leaf({4});
    const at::Tensor h = x.exp();
    h.register_hook([&](const at::Tensor& gradient) {
      is_running.set_value();
      may_end.get_future().wait();
      return gradient * 2;
    });
    (h * h).sum().backward();
    EXPECT_TRUE(at::allclose(x.grad(), 4 * (2 * x).exp()));
    EXPECT_TRUE(is_square_right());
  });
  is_running.get_future().wait();
  {
    const Enable on;
    EXPECT_TRUE(is_square_right());
  }
  EXPECT_TRUE(is_square_right());
  may_end.set_value();
  other.join();
}

TEST(EngineOutside, BackwardThatCannotStartLeavesTheNextAlone) {
  const Enable on;
  for (int round = 0; round < 2; ++round) {
    const at::Tensor result = leaf({3}).exp();
    EXPECT_ANY_THROW(result.backward(torch::ones({4})));
    result.backward(torch::ones({3}));
    EXPECT_ANY_THROW(result.backward(torch::ones({3})));
    EXPECT_TRUE(is_square_right());
  }
}

TEST(EngineOutside, FailuresInsideEndWithTheBackward) {
  for (int round = 0; round < 3; ++round) {
    const Enable on;
    const at::Tensor x = leaf({3});
    const at::Tensor h = x.exp();
    h.register_hook([](const at::Tensor& gradient) {
      if (gradient.defined()) throw std::runtime_error("a hook that throws");
      return gradient;
    });
    EXPECT_THROW(h.sum().backward(), std::runtime_error);
    EXPECT_NO_THROW(compiled_autograd::reset());
    EXPECT_TRUE(is_square_right());
  }
}

}  // namespace outside_test
}  // namespace ahead
