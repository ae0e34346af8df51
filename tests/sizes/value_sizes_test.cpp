#include "sizes/training.h"

/// Functions with tensors that are as large as values say: indexing by masks, nonzero, unique.
namespace ahead {
namespace value_sizes_test {

using at::Tensor;
using Tensors = std::vector<Tensor>;
namespace F = torch::nn::functional;

/// The same for functions that also take a mask, or indices.
template <class Eager, class Compiled>
void compare(const Eager& eager, Compiled& compiled, const Tensor& x, const Tensor& other) {
  ahead::compare([&](const Tensor& each) { return eager(each, other); },
                 [&](const Tensor& each) { return compiled(each, other); }, x);
}

/// A mask of `size` elements of which `count` are true, in some order.
Tensor mask_of(int64_t size, int64_t count) {
  return torch::randperm(size) < count;
}

/// Calls with some numbers of true elements, several times each, and for some sizes.
template <class Function>
CompileStats call_with_masks(const Function& f, int64_t rounds = 6) {
  auto compiled = compile(f);
  torch::manual_seed(1);
  for (int64_t round = 0; round < rounds; ++round) {
    for (const int64_t size : {8, 12, 9}) {
      for (const int64_t count : shuffled(2, 7, static_cast<unsigned>(round))) {
        SCOPED_TRACE("size " + std::to_string(size) + ", true " + std::to_string(count));
        compare(f, compiled, torch::randn({size, 5}), mask_of(size, count));
        if (testing::Test::HasFailure()) return compiled.stats();
      }
    }
  }
  return compiled.stats();
}

/// 18 combinations, each observed once but for some calls.
void expect_one_program(const CompileStats& stats) {
  EXPECT_EQ(stats.eager_calls, 0U);
  EXPECT_LE(stats.compilations, 3U);
  EXPECT_LE(stats.observed_calls, 18U + 14U);
  EXPECT_EQ(stats.calls, stats.observed_calls + stats.cache_hits);
}

TEST(ValueSizes, IndexByMask) {
  expect_one_program(call_with_masks(
      [](const Tensor& x, const Tensor& mask) { return x.index({mask}).tanh() * 2; }));
}

TEST(ValueSizes, MaskedSelect) {
  expect_one_program(call_with_masks([](const Tensor& x, const Tensor& mask) {
    return x.masked_select(mask.unsqueeze(1)).exp().mean();
  }));
}

TEST(ValueSizes, Nonzero) {
  expect_one_program(call_with_masks([](const Tensor& x, const Tensor& mask) {
    const Tensor places = torch::nonzero(mask).squeeze(1);
    return x.index_select(0, places).sin() / static_cast<double>(places.size(0));
  }));
}

/// The loss of a language model over the tokens that are no padding.
TEST(ValueSizes, LossOverTokens) {
  const Tensor w = torch::randn({5, 11}).requires_grad_();
  expect_one_program(call_with_masks([&](const Tensor& x, const Tensor& mask) {
    const Tensor targets = torch::arange(x.size(0)).remainder(10).masked_fill(~mask, -1);
    const Tensor kept = targets != -1;
    return F::cross_entropy(x.matmul(w).index({kept}), targets.index({kept}));
  }));
}

TEST(ValueSizes, CountsOfNoneAndOne) {
  const auto f = [](const Tensor& x, const Tensor& mask) { return x.index({mask}).sum(0).exp(); };
  auto compiled = compile(f);
  for (const int64_t count : rounds_of(0, 6, 6))
    compare(f, compiled, torch::randn({6, 5}), mask_of(6, count));
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  EXPECT_LE(compiled.stats().compilations, 5U);
  EXPECT_GT(compiled.stats().cache_hits, 16U);
}

/// What the function decides by such a size is right for each of them.
TEST(ValueSizes, BranchesOnCounts) {
  const auto stats = call_with_masks([](const Tensor& x, const Tensor& mask) {
    const Tensor kept = x.index({mask});
    if (kept.size(0) > 4) return kept.slice(0, 0, 4).sin();
    return kept.size(0) % 2 == 0 ? kept.cos() : kept * static_cast<double>(kept.size(0));
  });
  EXPECT_EQ(stats.eager_calls, 0U);
  EXPECT_GT(stats.cache_hits, 40U);
}

TEST(ValueSizes, OfWhatIsSizedByValues) {
  const auto stats = call_with_masks([](const Tensor& x, const Tensor& mask) {
    const Tensor kept = x.index({mask});
    return kept.index({torch::arange(kept.size(0)) % 2 == 0}).exp();
  });
  EXPECT_EQ(stats.eager_calls, 0U);
  EXPECT_GT(stats.cache_hits, 40U);
}

TEST(ValueSizes, Unique) {
  const auto f = [](const Tensor& x, const Tensor& ids) {
    const auto [distinct, places, counts] = at::_unique2(ids, true, true, true);
    return x.index_select(0, distinct) * counts.unsqueeze(1) + places.sum();
  };
  auto compiled = compile(f);
  for (const int64_t most : rounds_of(2, 6, 8)) {
    const Tensor ids = torch::cat({torch::arange(most), torch::randint(most, {4}, at::kLong)});
    compare(f, compiled, torch::randn({8, 5}), ids.slice(0, 0, 6));
    if (HasFailure()) return;
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  EXPECT_GT(compiled.stats().cache_hits, 16U);
}

/// Nothing was written, and nothing drawn, when it turns out that a size is another one.
TEST(ValueSizes, WritesAndRandomNumbersBefore) {
  const auto f = [](const Tensor& x, const Tensor& written) {
    written.add_(1);
    const Tensor mask = torch::rand({x.size(0)}) < 0.5;
    const Tensor kept = torch::dropout(x.index({mask}), 0.3, true);
    written.mul_(2);
    return kept.sum() + written.sum();
  };
  auto compiled = compile(f);
  Tensor mine = torch::zeros({3}), theirs = torch::zeros({3});
  for (int call = 0; call < 60; ++call) {
    const Tensor x = torch::randn({8, 5});
    torch::manual_seed(call % 6);
    const Tensor expected = f(x, mine), next = torch::rand({2});
    torch::manual_seed(call % 6);
    const Tensor actual = compiled(x, theirs), next_of_compiled = torch::rand({2});
    expect_same({expected, mine, next}, {actual, theirs, next_of_compiled});
    if (HasFailure()) return;
    mine.zero_(), theirs.zero_();
  }
  EXPECT_GT(compiled.stats().cache_hits, 10U);
}

/// Where hardly any size comes again it runs eagerly.
TEST(ValueSizes, SizesThatNeverComeAgain) {
  const auto f = [](const Tensor& x, const Tensor& mask) { return x.index({mask}).sum(); };
  auto compiled = compile(f);
  torch::manual_seed(2);
  for (int64_t call = 0; call < 400; ++call) {
    const Tensor mask = mask_of(4000, 2 + call * 7), x = torch::randn({4000, 2});
    expect_same({f(x, mask)}, {compiled(x, mask)});
    if (HasFailure()) return;
  }
  EXPECT_GT(compiled.stats().eager_calls, 100U);
  EXPECT_LE(compiled.stats().compilations, 3U);
}

}  // namespace value_sizes_test
}  // namespace ahead
