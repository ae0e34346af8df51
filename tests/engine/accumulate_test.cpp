#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/compiled_autograd.h"
#include "support/engine_check.h"

namespace ahead {
namespace {

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
  EXPECT_EQ(stats.captures, 1u);
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
    EXPECT_TRUE(at::equal(x.grad(), y.grad()));
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
  EXPECT_EQ(stats.captures, 1u);
}

}  // namespace
}  // namespace ahead
