#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <thread>

#include "ahead/ahead.h"
#include "support/eager.h"

/// Checkpointed functions that draw random numbers: where the state of the generator takes less
/// memory than the numbers, these are drawn again, from the state that the forward drew from.
namespace ahead {
namespace checkpoints_test {

Graph program(const std::vector<Program>& programs, const std::string& stage) {
  for (const Program& made : programs) {
    if (made.name == stage) return *made.graph;
  }
  ADD_FAILURE() << "there is no program " << stage;
  return {};
}

size_t count(const Graph& graph, std::string_view prefix) {
  size_t found = 0;
  for (const Node& node : graph.nodes()) found += node.op().name().starts_with(prefix) ? 1 : 0;
  return found;
}

int64_t saved_bytes(const Graph& backward) {
  int64_t bytes = 0;
  for (const Graph::Input& input : backward.inputs()) {
    if (input.slot.kind != Slot::Kind::Saved) continue;
    bytes += input.value->meta.numel().fixed() *
             static_cast<int64_t>(c10::elementSize(input.value->meta.dtype));
  }
  return bytes;
}

at::Tensor block(const at::Tensor& x) {
  return ahead::checkpoint(
      CheckpointPolicy::recompute_everything(),
      [](const at::Tensor& y) { return at::dropout(y.sin(), 0.5, true).mul(2).tanh(); }, x);
}

at::Tensor three_blocks(const at::Tensor& x) {
  return block(block(block(x))) * at::rand({1});
}

/// Expects gradients and consumption as in eager, from graphs alone, and returns the programs.
std::vector<Program> run_like_eager(at::IntArrayRef sizes, Options options) {
  options.confirm = Confirm::Never;
  options.fullgraph = true;
  auto compiled = compile(three_blocks, options);
  for (int call = 0; call < 4; ++call) {
    std::vector<at::Tensor> gradients;
    for (const bool is_eager : {true, false}) {
      torch::manual_seed(call);
      const at::Tensor x = at::randn(sizes).requires_grad_();
      const at::Tensor y = is_eager ? three_blocks(x) : compiled(x);
      const at::Tensor between = at::rand({3});
      y.sum().backward();
      gradients.insert(gradients.end(), {x.grad(), between, at::rand({2})});
    }
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(same_bits(gradients[i], gradients[i + 3])) << i;
  }
  EXPECT_EQ(compiled.stats().cache_hits, 3u);
  EXPECT_EQ(compiled.stats().eager_calls, 0u);
  return compiled.programs();
}

TEST(CheckpointedRandom, LargeMasksAreDrawnAgainFromTheForwardsState) {
  for (const bool functional : {false, true}) {
    const auto programs = run_like_eager({40, 50}, {.functionalize_rng = functional});
    const Graph backward = program(programs, "partition.backward");
    EXPECT_EQ(count(backward, "ahead.random.aten.bernoulli"), 3u) << backward.str();
    // Three states, and the argument and results of blocks; no mask and no intermediate.
    EXPECT_LE(saved_bytes(backward), 3 * (5056 + 8) + 4 * 40 * 50 * 4 + 4);
    const Graph forward = program(programs, "backend.forward");
    EXPECT_EQ(count(forward, functional ? "ahead.random" : "ahead.draw.aten.bernoulli.p"),
              functional ? 4u : 3u)
        << forward.str();
    EXPECT_EQ(count(forward, "ahead.set_generator_state"), 0u);
  }
}

// Each backward draws what its own forward drew, in whatever order and however often they run.
TEST(CheckpointedRandom, SeveralForwardsBeforeABackward) {
  for (const bool functional : {false, true}) {
    auto compiled =
        compile(three_blocks,
                {.fullgraph = true, .confirm = Confirm::Never, .functionalize_rng = functional});
    compiled(at::ones({40, 50}).requires_grad_());
    std::vector<at::Tensor> shown[2];
    for (const bool is_eager : {true, false}) {
      torch::manual_seed(3);
      std::vector<at::Tensor> xs, ys, &seen = shown[is_eager ? 0 : 1];
      for (int i = 0; i < 4; ++i) {
        xs.push_back(at::randn({40, 50}).requires_grad_());
        ys.push_back(is_eager ? three_blocks(xs.back()) : compiled(xs.back()));
        seen.push_back(at::rand({3}));
      }
      for (const size_t i : {2, 0, 2, 3, 1, 0}) {
        ys[i].sum().backward({}, /*retain_graph=*/true);
        seen.insert(seen.end(), {ys[i].detach(), xs[i].grad().clone(), at::rand({2})});
      }
    }
    ASSERT_EQ(shown[0].size(), shown[1].size());
    for (size_t i = 0; i < shown[0].size(); ++i)
      EXPECT_TRUE(same_bits(shown[0][i], shown[1][i])) << i;
    EXPECT_EQ(compiled.stats().eager_calls, 0u);
    EXPECT_EQ(compiled.stats().cache_hits, 4u);
    const Graph backward = program(compiled.programs(), "partition.backward");
    EXPECT_EQ(count(backward, "ahead.random.aten.bernoulli"), 3u) << backward.str();
  }
}

TEST(CheckpointedRandom, SmallMasksAreSaved) {
  for (const bool functional : {false, true}) {
    const auto programs = run_like_eager({4, 5}, {.functionalize_rng = functional});
    const Graph backward = program(programs, "partition.backward");
    EXPECT_EQ(count(backward, "ahead.random"), 0u) << backward.str();
    EXPECT_LT(saved_bytes(backward), 5056);
  }
}

TEST(CheckpointedRandom, BothPartitionersDrawAgain) {
  const auto programs = run_like_eager({40, 50}, {.partitioner = Partitioner::Default});
  EXPECT_EQ(count(program(programs, "partition.backward"), "ahead.random.aten.bernoulli"), 3u);
}

TEST(CheckpointedRandom, WithoutCheckpointsMasksAreSavedAndDrawnDirectly) {
  auto compiled = compile([](const at::Tensor& x) { return at::dropout(x.sin(), 0.5, true); },
                          {.confirm = Confirm::Never});
  compiled(at::ones({40, 50}).requires_grad_());
  for (const Program& made : compiled.programs())
    EXPECT_EQ(count(*made.graph, "ahead."), 0u) << made.name;
}

TEST(CheckpointedRandom, ThreadsThatDrawMeanwhileWait) {
  auto compiled = compile(block, {.fullgraph = true, .confirm = Confirm::Never});
  compiled(at::ones({40, 50}).requires_grad_());
  std::atomic<int> failures = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int call = 0; call < 30; ++call) {
        const at::Tensor x = at::ones({40, 50}).requires_grad_(), y = compiled(x);
        at::rand({7});
        y.sum().backward();
        // Where the mask dropped something nothing comes back.
        failures += at::equal(y.detach() != 0, x.grad() != 0) ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(compiled.stats().cache_hits, 120u);
}

TEST(CheckpointedRandom, ABudgetOfNothingDrawsAgainWhereThatIsAllowed) {
  const auto f = [](const at::Tensor& x) {
    return (at::dropout(x.sin(), 0.5, true) * at::rand({40, 50})).exp();
  };
  auto compiled = compile(f, {.fullgraph = true,
                              .memory_budget = 0,
                              .confirm = Confirm::Never,
                              .functionalize_rng = true});
  for (int call = 0; call < 3; ++call) {
    at::Tensor gradients[2];
    for (const bool is_eager : {true, false}) {
      torch::manual_seed(call);
      const at::Tensor x = at::randn({40, 50}).requires_grad_();
      (is_eager ? f(x) : compiled(x)).sum().backward();
      gradients[is_eager ? 0 : 1] = x.grad();
    }
    EXPECT_TRUE(same_bits(gradients[0], gradients[1]));
  }
  EXPECT_EQ(compiled.stats().cache_hits, 2u);
  EXPECT_EQ(count(program(compiled.programs(), "partition.backward"), "ahead.random"), 1u);
}

TEST(CheckpointedRandom, SecondDerivativesUseTheForwardsNumbers) {
  auto compiled = compile(three_blocks, {.fullgraph = true, .confirm = Confirm::Never});
  for (int call = 0; call < 3; ++call) {
    at::Tensor gradients[2];
    for (const bool is_eager : {true, false}) {
      torch::manual_seed(call);
      const at::Tensor x = at::randn({40, 50}).requires_grad_();
      const torch::autograd::variable_list y{(is_eager ? three_blocks(x) : compiled(x)).sum()},
          xs{x};
      torch::autograd::grad(y, xs, {}, true, true)[0].pow(2).sum().backward();
      gradients[is_eager ? 0 : 1] = x.grad();
    }
    EXPECT_TRUE(at::allclose(gradients[0], gradients[1]));
  }
  EXPECT_EQ(compiled.stats().cache_hits, 2u);
}

}  // namespace checkpoints_test
}  // namespace ahead
