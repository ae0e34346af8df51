#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "ahead/ahead.h"

/// Functions that seed generators of random numbers or set their state: to one that they had before
/// in the same function, or to something else.
namespace ahead {
namespace generator_test {

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

/// Expects the graph of a function to draw what the function draws, and to leave the generator
/// where it does.
void expect_followed(const aot::FlatFunction& function) {
  const at::Tensor x = torch::ones({5}), before = default_generator().get_state();
  const Graph graph = trace(function, {x});
  EXPECT_TRUE(at::equal(before, default_generator().get_state()));
  const Tensors expected = function({x});
  const at::Tensor after = default_generator().get_state();
  default_generator().set_state(before);
  const Tensors actual = interpret(Graph::parse(graph.str()), {x});
  EXPECT_TRUE(at::equal(after, default_generator().get_state())) << graph.str();
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(at::equal(expected[i], actual[i])) << graph.str();
}

TEST(GeneratorWatch, FollowsAStateThatIsSetAgain) {
  torch::manual_seed(3);
  expect_followed([](const Tensors& in) { return draw_twice(default_generator(), in[0], true); });
}

TEST(GeneratorWatch, FollowsAStateThatIsSetAtTheEnd) {
  expect_followed([](const Tensors& in) {
    at::Generator generator = default_generator();
    const at::Tensor state = generator.get_state();
    const at::Tensor result = in[0] * at::rand({5});
    generator.set_state(state);
    return Tensors{result};
  });
}

TEST(GeneratorWatch, FollowsStatesThatAreSetOutOfTurn) {
  expect_followed([](const Tensors& in) {
    at::Generator generator = default_generator();
    const at::Tensor first = at::rand({5}), state = generator.get_state();
    const at::Tensor second = at::randn({20}), later = generator.get_state();
    generator.set_state(state);
    const at::Tensor less = at::rand({5});
    generator.set_state(later);
    const at::Tensor third = at::rand({5});
    generator.set_state(state);
    return Tensors{first + in[0], second, less, third, at::rand({2})};
  });
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

/// Counts as CUDA's generators do.
struct CountingGenerator final : c10::GeneratorImpl {
  CountingGenerator()
      : GeneratorImpl(at::Device(at::kCUDA, 0), c10::DispatchKeySet(c10::DispatchKey::CUDA)) {}
  void set_current_seed(uint64_t seed) override { at = {seed, 0}; }
  void set_offset(uint64_t offset) override { at.second = offset; }
  uint64_t get_offset() const override { return at.second; }
  uint64_t current_seed() const override { return at.first; }
  uint64_t seed() override { return at.first; }
  void set_state(const c10::TensorImpl& state) override {
    const auto* numbers = state.data_dtype_initialized<int64_t>();
    at = {numbers[0], numbers[1]};
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    at::Tensor state = at::detail::empty_cpu({2}, at::kLong);
    state.mutable_data_ptr<int64_t>()[0] = static_cast<int64_t>(at.first);
    state.mutable_data_ptr<int64_t>()[1] = static_cast<int64_t>(at.second);
    return state.getIntrusivePtr();
  }
  GeneratorImpl* clone_impl() const override { return new CountingGenerator(*this); }
  CountingGenerator(const CountingGenerator& other) : CountingGenerator() { at = other.at; }

  std::pair<uint64_t, uint64_t> at{7, 40};
};

TEST(GeneratorWatch, NoticesGeneratorsThatCount) {
  const at::Generator own = at::make_generator<CountingGenerator>();
  expect_refused_and_undone([&](const Tensors& in) { return draw_twice(own, in[0], false); }, own);
  const auto seed_between = [&](const Tensors& in) {
    at::Generator generator = own;
    const at::Tensor first = at::rand({3}, generator);
    generator.set_current_seed(7);
    return Tensors{first * in[0] * at::rand({3}, generator)};
  };
  expect_refused_and_undone(seed_between, own);
}

TEST(GeneratorWatch, LeavesGeneratorsThatCountAsTheyWere) {
  const at::Generator own = at::make_generator<CountingGenerator>();
  const at::Tensor before = own.get_state();
  trace([&](const Tensors& in) { return Tensors{in[0] + at::rand({3}, own) * at::rand({3}, own)}; },
        Tensors{torch::ones({3})});
  EXPECT_TRUE(at::equal(before, own.get_state()));
}

at::Generator same_generator(const at::Generator& generator) {
  return generator;
}

TEST(GeneratorWatch, NoticesSeedsOfCuda) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "this machine has no CUDA device";
  torch::cuda::manual_seed(3);  // a seed that is set again goes unnoticed
  const at::Tensor x = torch::ones({3}, at::kCUDA);
  const at::Generator generator = at::globalContext().defaultGenerator(x.device());
  const at::Tensor before = generator.get_state();
  const auto seeds = [](const Tensors& in) {
    torch::cuda::manual_seed(4);
    return Tensors{in[0] * at::rand({3}, at::kCUDA)};
  };
  EXPECT_THROW(trace(seeds, Tensors{x}), Unsupported);
  EXPECT_TRUE(at::equal(before, generator.get_state()));
  const auto goes_back = [&](const Tensors& in) {
    at::Generator same = generator;
    const at::Tensor state = same.get_state();
    const at::Tensor first = at::dropout(in[0], 0.5, true);
    same.set_state(state);
    return Tensors{first, at::dropout(in[0], 0.5, true)};
  };
  const Tensors both = interpret(trace(goes_back, Tensors{x}), {x});
  EXPECT_TRUE(at::equal(both[0], both[1]));
  same_generator(generator).set_state(before);
  EXPECT_TRUE(at::equal(before, generator.get_state()));
  const auto draws = [](const Tensors& in) { return Tensors{at::dropout(in[0], 0.5, true)}; };
  trace(draws, Tensors{x});
  EXPECT_TRUE(at::equal(before, generator.get_state()));
}

TEST(GeneratorWatch, NoticesAStateThatIsReturned) {
  const auto reads = [](const Tensors& in) {
    const at::Tensor state = default_generator().get_state();
    return Tensors{in[0] * at::rand({3}), state};
  };
  expect_refused_and_undone(reads, default_generator());
  auto compiled = compile(reads, {.confirm = 0});
  for (int call = 0; call < 3; ++call) {
    torch::manual_seed(call);
    const Tensors eager = reads({torch::ones({3})});
    torch::manual_seed(call);
    const Tensors actual = compiled(Tensors{torch::ones({3})});
    for (size_t i = 0; i < eager.size(); ++i) EXPECT_TRUE(at::equal(eager[i], actual[i]));
  }
  EXPECT_EQ(compiled.stats().cache_hits, 0u);
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

TEST(GeneratorWatch, HandWrittenCheckpointsAreCompiled) {
  const auto function = [](const at::Tensor& x) {
    return Checkpointed::apply(x) + at::dropout(x, 0.5, true);
  };
  for (const bool functional : {false, true}) {
    auto compiled = compile(function, {.fullgraph = true, .functionalize_rng = functional});
    const auto gradient = [](auto&& f, int seed) {
      torch::manual_seed(seed);
      const at::Tensor x = torch::linspace(0, 1, 20).requires_grad_();
      const at::Tensor y = f(x);
      const at::Tensor between = torch::rand({20});
      y.sum().backward();
      return at::stack({x.grad(), between, torch::rand({20})});
    };
    for (int call = 0; call < 6; ++call)
      EXPECT_TRUE(at::equal(gradient(function, call), gradient(compiled, call))) << call;
    EXPECT_EQ(compiled.stats().observed_calls, 3u);
    EXPECT_EQ(compiled.stats().cache_hits, 3u);
  }
}

TEST(GeneratorWatch, HandWrittenCheckpointsHaveNoSecondDerivatives) {
  auto compiled = compile([](const at::Tensor& x) { return Checkpointed::apply(x); },
                          {.confirm = Confirm::Never});
  compiled(torch::ones({3}).requires_grad_());
  const at::Tensor x = torch::ones({3}).requires_grad_();
  const torch::autograd::variable_list y{compiled(x).sum()}, xs{x};
  const at::Tensor slope = torch::autograd::grad(y, xs, {}, true, true)[0];
  try {
    slope.sum().backward();
    ADD_FAILURE() << "it has a second derivative";
  } catch (const c10::Error& error) {
    EXPECT_NE(error.msg().find("sets the state of a generator"), std::string::npos) << error.msg();
  }
}

}  // namespace generator_test
}  // namespace ahead
