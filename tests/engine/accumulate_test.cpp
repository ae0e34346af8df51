#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/compiled_autograd.h"
#include "ahead/interpret.h"
#include "support/eager.h"
#include "support/engine_check.h"

namespace ahead {
namespace accumulate_test {

using test::expect_as_eager;

TEST(EngineAccumulate, AddsInPlaceToTheSameTensor) {
  const auto stats = expect_as_eager([] {
    const at::Tensor x = leaf({4});
    x.mutable_grad() = torch::ones({4});
    const at::Tensor before = x.grad();
    (x * x).sum().backward();
    return std::vector<at::Tensor>{x.grad(), before, torch::tensor(before.is_same(x.grad()))};
  });
  EXPECT_EQ(stats.captures, 1u);
}

TEST(EngineAccumulate, WithoutZeroingOneProgramServes) {
  const auto stats = expect_as_eager([] {
    const at::Tensor x = leaf({4});
    for (int i = 0; i < 10; ++i) (x * x).sum().backward();
    return std::vector<at::Tensor>{x.grad()};
  });
  // One without a `.grad`, one with.
  EXPECT_EQ(stats.captures, 2u);
}

TEST(EngineAccumulate, StealsAGradientThatNobodyElseHolds) {
  compiled_autograd::Enable on;
  for (int i = 0; i < 2; ++i) {
    const at::Tensor x = leaf({1000});
    const at::Tensor y = leaf({1000});
    (x * y).sum().backward();
    EXPECT_EQ(x.grad().storage().use_count(), 1u);
    EXPECT_EQ(y.grad().storage().use_count(), 1u);
  }
}

TEST(EngineAccumulate, OneGradientForTwoLeavesIsCopied) {
  compiled_autograd::Enable on;
  for (int i = 0; i < 2; ++i) {
    const at::Tensor x = leaf({8}), y = leaf({8}), z = leaf({2, 4});
    ((x + y + z.view({8})) * torch::arange(8)).sum().backward();
    EXPECT_FALSE(x.grad().is_alias_of(y.grad()));
    EXPECT_FALSE(x.grad().is_alias_of(z.grad()));
    EXPECT_FALSE(y.grad().is_alias_of(z.grad()));
    EXPECT_TRUE(same_values(x.grad(), y.grad()));
  }
}

TEST(EngineAccumulate, DoesNotTakeTheMemoryOfWhatIsSaved) {
  compiled_autograd::Enable on;
  const at::Tensor c = torch::randn({8});
  for (int i = 0; i < 2; ++i) {
    const at::Tensor x = leaf({8});
    const at::Tensor loss = x.dot(c);
    const at::Tensor one = torch::ones({});
    loss.backward(one, /*retain_graph=*/true);
    EXPECT_FALSE(x.grad().is_alias_of(c));
    EXPECT_FALSE(x.grad().is_alias_of(one));
  }
}

TEST(EngineAccumulate, LayoutsOfVariableAndGradient) {
  expect_as_eager([] {
    const at::Tensor x = torch::randn({4, 3}).t().requires_grad_();
    const at::Tensor y = torch::randn({4, 6}).slice(1, 0, 6, 2).requires_grad_();
    const at::Tensor z =
        torch::randn({2, 3, 4, 4}).contiguous(at::MemoryFormat::ChannelsLast).requires_grad_();
    const at::Tensor e = torch::randn({1}).expand({5}).detach().requires_grad_();
    x.mm(torch::randn({4, 2})).sum().backward();
    (y * torch::randn({4, 3})).sum().backward();
    z.relu().mean().backward();
    (e * e).sum().backward();
    return std::vector<at::Tensor>{x.grad(), y.grad(), z.grad(), e.grad()};
  });
}

TEST(EngineAccumulate, GradOfAnotherLayoutIsKept) {
  expect_as_eager([] {
    const at::Tensor x = leaf({3, 4});
    x.mutable_grad() = torch::ones({4, 3}).t();
    (x * x).sum().backward();
    return std::vector<at::Tensor>{x.grad()};
  });
}

TEST(EngineAccumulate, SparseGradients) {
  expect_as_eager([] {
    const at::Tensor table = leaf({6, 3});
    const auto lookup = [&] {
      return torch::embedding(table, torch::tensor({1, 4, 1}), -1, false, /*sparse=*/true);
    };
    (lookup() * 2).sum().backward();
    const at::Tensor first = table.grad().clone();
    lookup().exp().sum().backward();
    const at::Tensor second = table.grad().clone();
    (table * 2).sum().backward();
    return std::vector<at::Tensor>{first, second, table.grad()};
  });
}

TEST(EngineAccumulate, SparseAndDenseMeetAtOneLeaf) {
  expect_as_eager([] {
    const at::Tensor table = leaf({6, 3});
    const at::Tensor rows = torch::embedding(table, torch::tensor({1, 4, 1}), -1, false, true);
    (rows.sum() + table.sin().sum() * 3).backward();
    return std::vector<at::Tensor>{table.grad()};
  });
}

TEST(EngineAccumulate, GradThatTheBackwardReadsThrowsAsEager) {
  test::expect_error_as_eager([] {
    const at::Tensor x = leaf({3});
    x.mutable_grad() = torch::ones({3});
    const at::Tensor y = leaf({3});
    const at::Tensor h = y * x.grad();
    (h.sin() + x).sum().backward();
    return std::vector<at::Tensor>{x.grad(), y.grad()};
  });
}

TEST(EngineAccumulate, FrozenAndSharedParameters) {
  expect_as_eager([] {
    torch::nn::Linear a(4, 4), b(4, 4);
    b->weight = a->weight;
    b->bias.requires_grad_(false);
    b->forward(a->forward(torch::randn({2, 4})).relu()).sum().backward();
    return std::vector<at::Tensor>{a->weight.grad(), a->bias.grad(), b->bias.grad()};
  });
}

TEST(EngineAccumulate, WholeTrainingStepWithMicroBatches) {
  const auto stats = expect_as_eager([] {
    torch::nn::Sequential net(torch::nn::Linear(4, 8), torch::nn::Tanh(), torch::nn::Linear(8, 1));
    torch::optim::Adam adam(net->parameters(), 0.1);
    for (int step = 0; step < 3; ++step) {
      adam.zero_grad();
      for (int micro = 0; micro < 2; ++micro) {
        net->forward(torch::randn({3, 4})).pow(2).mean().backward();
      }
      torch::nn::utils::clip_grad_norm_(net->parameters(), 0.5);
      adam.step();
    }
    std::vector<at::Tensor> results;
    for (const at::Tensor& p : net->parameters()) results.push_back(p);
    return results;
  });
  EXPECT_EQ(stats.captures, 2u);
}

/// The nodes that add to the gradients of leaves, in order.
std::vector<const Node*> accumulations(const Graph& graph) {
  std::vector<const Node*> found;
  for (const Node& node : graph.nodes()) {
    if (node.op().name().starts_with("ahead.accumulate_grad")) found.push_back(&node);
  }
  return found;
}

TEST(EngineAccumulate, WhetherThereIsAGradIsAGuardOfThePart) {
  const auto stats = expect_as_eager([] {
    const at::Tensor x = leaf({4});
    for (int i = 0; i < 10; ++i) (x * x).sum().backward();
    x.mutable_grad().reset();
    (x * x).sum().backward();
    return std::vector<at::Tensor>{x.grad()};
  });
  EXPECT_EQ(stats.compiles, 2u);
  EXPECT_EQ(stats.cache_hits, 31u);
  EXPECT_EQ(stats.eager_fallbacks, 0u);
}

TEST(EngineAccumulate, GraphRunsByItself) {
  compiled_autograd::reset();
  const at::Tensor x = leaf({4}), w = leaf({4});
  {
    compiled_autograd::Enable on;
    for (int i = 0; i < 2; ++i) (x * w).sum().backward();
  }
  const auto graphs = compiled_autograd::graphs();
  ASSERT_EQ(graphs.size(), 2u);
  const at::Tensor one = torch::ones({});
  for (const auto& graph : graphs) EXPECT_EQ(Graph::parse(graph->str()).str(), graph->str());

  const auto argument = [&](const Graph::Input& input, bool is_leaf_x, at::Tensor grad) {
    if (input.value->meta.sizes.empty()) return one;
    if (!input.value->meta.requires_grad) return grad;
    return is_leaf_x ? x : w;
  };
  // Without gradients: they are results, which name their leaves.
  std::vector<at::Tensor> arguments;
  for (const Graph::Input& input : graphs[0]->inputs())
    arguments.push_back(argument(input, arguments.empty(), {}));
  const auto results = interpret(*graphs[0], arguments);
  ASSERT_EQ(results.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const Slot slot = graphs[0]->outputs()[i].slot;
    ASSERT_EQ(slot.kind, Slot::Kind::AccumulatedGrad);
    const bool is_x = arguments[static_cast<size_t>(slot.index)].is_same(x);
    EXPECT_TRUE(same_values(results[i], is_x ? w : x));
  }

  // With gradients: these are arguments that are written to.
  arguments.clear();
  for (const Graph::Input& input : graphs[1]->inputs())
    arguments.push_back(argument(input, arguments.empty(), torch::ones({4})));
  EXPECT_TRUE(interpret(*graphs[1], arguments).empty());
  for (const Node* node : accumulations(*graphs[1])) {
    const bool is_x = arguments[node->args()[0].value()->index()].is_same(x);
    EXPECT_TRUE(same_values(arguments[node->args()[1].value()->index()], (is_x ? w : x) + 1));
  }
}

TEST(EngineAccumulate, InTheOrderOfEager) {
  compiled_autograd::reset();
  const auto make_leaves = [] {
    std::vector<at::Tensor> leaves;
    for (int64_t i = 0; i < 6; ++i) leaves.push_back(leaf({i + 2}));
    return leaves;
  };
  const auto backward = [](const std::vector<at::Tensor>& leaves) {
    at::Tensor sum = leaves[5].sum();
    for (size_t i = 0; i < 5; ++i) sum = (sum * leaves[i].exp()).sum();
    sum.backward();
  };
  std::vector<int64_t> eager, captured;
  const std::vector<at::Tensor> watched = make_leaves();
  for (const at::Tensor& one : watched) {
    const int64_t size = one.size(0);
    one.register_hook([&eager, size](const at::Tensor& grad) {
      eager.push_back(size);
      return grad;
    });
  }
  backward(watched);
  compiled_autograd::Enable on;
  backward(make_leaves());
  ASSERT_EQ(compiled_autograd::graphs().size(), 1u);
  const Graph& graph = *compiled_autograd::graphs()[0];
  for (const Node* node : accumulations(graph)) {
    captured.push_back(node->args()[0].value()->meta.sizes[0].fixed());
    // As soon as its gradient is there.
    EXPECT_EQ(node->args()[2].value()->producer(), node->prev()) << graph.str();
  }
  EXPECT_EQ(captured, eager);
}

TEST(EngineAccumulate, LeavesThatWereFrozenMeanwhile) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4}), w = leaf({4});
    for (int i = 0; i < 3; ++i) {
      const at::Tensor y = (x.exp() * w).sum();
      w.requires_grad_(i != 1);
      y.backward();
      w.requires_grad_(true);
    }
    return std::vector<at::Tensor>{x.grad(), w.grad()};
  });
}

TEST(EngineAccumulate, SparseGradsAreLeftToTheLeaf) {
  const auto stats = expect_as_eager([] {
    const at::Tensor x = leaf({4, 2}), w = leaf({4, 2});
    x.mutable_grad() = torch::eye(4).narrow(1, 0, 2).to_sparse();
    (x * w).sum().backward();
    return std::vector<at::Tensor>{x.grad(), w.grad()};
  });
  EXPECT_EQ(stats.compiles, 1u);
  EXPECT_NE(test::all_reasons().find("its `.grad` is sparse"), std::string::npos)
      << test::all_reasons();
}

TEST(EngineAccumulate, LeavesOfChangingSizes) {
  const auto stats = expect_as_eager([] {
    std::vector<at::Tensor> grads;
    for (int64_t size : {2, 3, 5, 6}) {
      const at::Tensor x = leaf({size, 3}), w = leaf({3});
      for (int i = 0; i < 2; ++i) (x * w).sum().backward();
      grads.insert(grads.end(), {x.grad(), w.grad()});
    }
    return grads;
  });
  EXPECT_EQ(stats.compiles, 4u) << test::all_reasons();
}

}  // namespace accumulate_test
}  // namespace ahead
