#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "ahead/ahead.h"

/// Functions that seed generators of random numbers or set their state while they are traced.
namespace ahead {
namespace {

using Tensors = std::vector<at::Tensor>;

at::Generator default_generator() {
  return at::detail::getDefaultCPUGenerator();
}

/// Draws, goes back to where the generator was, and draws again.
Tensors draw_twice(at::Generator generator, const at::Tensor& x, bool through_default) {
  const std::optional<at::Generator> from =
      through_default ? std::nullopt : std::optional<at::Generator>(generator);
  const at::Tensor state = generator.get_state();
  const at::Tensor first = at::rand(x.sizes(), from);
  generator.set_state(state);
  return {first * x, at::rand(x.sizes(), from) * x};
}

template <class F>
void expect_refused_and_undone(F&& function, const at::Generator& generator) {
  const at::Tensor before = generator.get_state();
  EXPECT_THROW(trace(function, Tensors{torch::ones({3})}), Unsupported);
  EXPECT_TRUE(at::equal(before, generator.get_state()));
}

TEST(GeneratorWatch, NoticesAStateThatIsSetAgain) {
  torch::manual_seed(3);
  expect_refused_and_undone(
      [](const Tensors& in) { return draw_twice(default_generator(), in[0], true); },
      default_generator());
}

TEST(GeneratorWatch, NoticesAStateThatIsSetAtTheEnd) {
  expect_refused_and_undone(
      [](const Tensors& in) {
        at::Generator generator = default_generator();
        const at::Tensor state = generator.get_state();
        const at::Tensor result = in[0] * at::rand({3});
        generator.set_state(state);
        return Tensors{result};
      },
      default_generator());
}

TEST(GeneratorWatch, NoticesOtherGenerators) {
  const at::Generator own = at::detail::createCPUGenerator(7);
  expect_refused_and_undone([&](const Tensors& in) { return draw_twice(own, in[0], false); }, own);
}

TEST(GeneratorWatch, NoticesSeeds) {
  torch::manual_seed(3);
  expect_refused_and_undone(
      [](const Tensors& in) {
        torch::manual_seed(4);
        return Tensors{in[0] * at::rand({3})};
      },
      default_generator());
}

TEST(GeneratorWatch, LeavesGeneratorsAsTheyWere) {
  torch::manual_seed(3);
  at::randn({5});  // leaves a normal number behind for the next draw
  const at::Tensor before = default_generator().get_state();
  const Graph graph = trace(
      [](const Tensors& in) { return Tensors{at::dropout(in[0], 0.5, true) + at::randn({3})}; },
      Tensors{torch::ones({3})});
  EXPECT_TRUE(at::equal(before, default_generator().get_state()));
}

TEST(GeneratorWatch, AllowsOtherThreadsToDraw) {
  std::atomic<bool> is_done = false;
  std::thread other([&] {
    while (!is_done) at::rand({1000});
  });
  const auto function = [](const Tensors& in) {
    at::Tensor x = in[0];
    for (int i = 0; i < 5; ++i) x = at::dropout(x, 0.5, true);
    return Tensors{x};
  };
  for (int i = 0; i < 50; ++i) EXPECT_NO_THROW(trace(function, Tensors{torch::ones({3})}));
  is_done = true;
  other.join();
}

TEST(GeneratorWatch, AllowsOtherThreadsToTrace) {
  const auto function = [](const Tensors& in) { return Tensors{at::dropout(in[0], 0.5, true)}; };
  std::vector<std::thread> threads;
  std::atomic<int> failures = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 50; ++j) {
        try {
          trace(function, Tensors{torch::ones({3})});
        } catch (const Unsupported&) {
          ++failures;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
}

/// What people write by hand to compute something again in the backward.
struct Checkpointed : torch::autograd::Function<Checkpointed> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    context->saved_data["state"] = default_generator().get_state();
    context->save_for_backward({x});
    return at::dropout(x.sin(), 0.5, true);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    at::Generator generator = default_generator();
    const at::Tensor now = generator.get_state();
    generator.set_state(context->saved_data["state"].toTensor());
    at::AutoGradMode with_grad(true);
    const at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_();
    const at::Tensor again = at::dropout(x.sin(), 0.5, true);
    generator.set_state(now);
    return {torch::autograd::grad({again}, {x}, {gradients[0]})[0]};
  }
};

TEST(GeneratorWatch, HandWrittenCheckpointsRunEagerly) {
  const auto function = [](const at::Tensor& x) {
    return Checkpointed::apply(x) + at::dropout(x, 0.5, true);
  };
  auto compiled = compile(function);
  const auto gradient = [](auto&& f) {
    torch::manual_seed(5);
    const at::Tensor x = torch::linspace(0, 1, 20).requires_grad_();
    f(x).sum().backward();
    return x.grad() + torch::rand({20});
  };
  for (int call = 0; call < 3; ++call)
    EXPECT_TRUE(at::equal(gradient(function), gradient(compiled)));
  EXPECT_EQ(compiled.stats().eager_calls, 3u);
}

}  // namespace
}  // namespace ahead
