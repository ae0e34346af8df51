#include <gtest/gtest.h>
#include <torch/library.h>
#include <torch/torch.h>

#include "ahead/ahead.h"

namespace ahead {
namespace given_away_test {

using at::Tensor;
using Weak = c10::weak_intrusive_ptr<c10::StorageImpl>;

/// The memory that is watched, and whether it was there when the operator below was called last.
struct Watched {
  std::optional<Weak> storage;
  bool is_alive = false;
};
Watched watched;

/// A copy of its argument; notes whether the watched memory is still there.
Tensor look(const Tensor& x) {
  watched.is_alive = watched.storage && watched.storage->use_count() != 0;
  return x.clone();
}

TORCH_LIBRARY(given_away, m) {
  m.def("look(Tensor x) -> Tensor", {at::Tag::pt2_compliant_tag});
}
TORCH_LIBRARY_IMPL(given_away, CompositeExplicitAutograd, m) {
  m.impl("look", look);
}

Tensor call_look(const Tensor& x) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("given_away::look", "")
                             .typed<Tensor(const Tensor&)>();
  return op.call(x);
}

Tensor numbers() {
  return torch::arange(12, torch::kFloat).reshape({3, 4});
}

Tensor watched_numbers() {
  Tensor x = numbers();
  watched.storage.emplace(
      c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(x.storage().unsafeGetStorageImpl()));
  watched.is_alive = false;
  return x;
}

/// Calls until programs run, with arguments that stay.
template <class F, class... Args>
void warm_up(const Compiled<F>& f, const Args&... args) {
  // Behind the ninth call many follow until the function is observed again.
  for (int i = 0; i < 9; ++i) f(args...);
  ASSERT_GT(f.stats().cache_hits, 0U);
  ASSERT_EQ(f.stats().eager_calls, 0U);
}

/// Whether the watched memory is there after the first operator of a hit.
template <class Call>
bool is_alive_inside(Call&& call, const std::function<uint64_t()>& hits) {
  const uint64_t before = hits();
  call();
  EXPECT_EQ(hits(), before + 1) << "ran from a graph";
  return watched.is_alive;
}

Tensor sine(const Tensor& x) {
  return call_look(x.sin()) * 2;
}

TEST(GivenAway, ArgumentsAreReleasedAfterTheirLastUse) {
  auto f = compile(&sine);
  warm_up(f, numbers());
  const auto hits = [&] { return f.stats().cache_hits; };
  Tensor x = watched_numbers();
  EXPECT_TRUE(is_alive_inside([&] { f(x); }, hits)) << "the caller keeps it";
  Tensor result;
  EXPECT_FALSE(is_alive_inside([&] { result = f(std::move(x)); }, hits));
  EXPECT_FALSE(x.defined());
  EXPECT_TRUE(torch::equal(result, sine(numbers())));
  EXPECT_FALSE(is_alive_inside([&] { f(watched_numbers()); }, hits)) << "nobody has a name for it";
}

TEST(GivenAway, ListsAreReleased) {
  auto f = compile(
      [](const std::vector<Tensor>& list) { return call_look(list[0].sin() + list[1]).cos(); });
  warm_up(f, std::vector<Tensor>{numbers(), numbers()});
  EXPECT_FALSE(is_alive_inside(
      [&] {
        std::vector<Tensor> list{watched_numbers(), numbers()};
        f(std::move(list));
      },
      [&] { return f.stats().cache_hits; }));
}

TEST(GivenAway, WhatIsNeededLaterStays) {
  const auto check = [](auto function) {
    auto f = compile(function);
    warm_up(f, numbers());
    Tensor result;
    EXPECT_TRUE(is_alive_inside([&] { result = f(watched_numbers()); },
                                [&] { return f.stats().cache_hits; }));
    EXPECT_TRUE(torch::equal(result, function(numbers())));
  };
  check([](const Tensor& x) { return call_look(x.sin()) + x; });
  check([](const Tensor& x) { return x.view({4, 3}).mul_(call_look(x.sin()).view({4, 3})); });
  check([](const Tensor& x) {
    x.mul_(call_look(x.sin()));
    return x;
  });
  check([](const Tensor& x) {
    x.mul_(call_look(x.sin()));
    return x.t();
  });
}

TEST(GivenAway, WhatTheBackwardNeedsStays) {
  const Tensor w = torch::full({3, 4}, 0.5).requires_grad_();
  const auto product = [&](const Tensor& x) { return call_look((x * w).detach()) + x * w; };
  const auto square = [&](const Tensor& x) { return call_look(x.sin()) * w * w; };
  auto needs = compile(product, {.double_backward = false});
  auto forgets = compile(square, {.double_backward = false});
  warm_up(needs, numbers());
  warm_up(forgets, numbers());
  const auto gradient = [&](const Tensor& result) {
    return torch::autograd::grad({result.sum()}, {w})[0];
  };
  Tensor result;
  EXPECT_TRUE(is_alive_inside([&] { result = needs(watched_numbers()); },
                              [&] { return needs.stats().cache_hits; }));
  EXPECT_TRUE(torch::equal(gradient(result), gradient(product(numbers()))));
  EXPECT_FALSE(is_alive_inside([&] { result = forgets(watched_numbers()); },
                               [&] { return forgets.stats().cache_hits; }));
  EXPECT_TRUE(torch::equal(gradient(result), gradient(square(numbers()))));
}

TEST(GivenAway, FunctionsThatTakeTensorsByValueAndReadValues) {
  const auto function = [](Tensor x, bool flag) {
    if ((x.sum() > 0).item<bool>()) x = x * 2;
    return flag ? call_look(x.sin()) : x;
  };
  auto f = compile(function);
  for (int i = 0; i < 18; ++i) {
    const Tensor expected = function(numbers() - 4 * (i % 3), true);
    EXPECT_TRUE(torch::equal(f(numbers() - 4 * (i % 3), true), expected));
  }
  EXPECT_EQ(f.stats().eager_calls, 0U);
  EXPECT_GT(f.stats().cache_hits, 0U);
}

TEST(GivenAway, TheSameTensorTwice) {
  const auto function = [](const Tensor& x, const Tensor& y) { return call_look(x.sin()) * y; };
  auto f = compile(function);
  const Tensor same = numbers();
  warm_up(f, same, same);
  Tensor x = watched_numbers(), y = x;
  Tensor result;
  EXPECT_TRUE(
      is_alive_inside([&] { result = f(std::move(x), y); }, [&] { return f.stats().cache_hits; }));
  EXPECT_TRUE(y.defined());
  EXPECT_TRUE(torch::equal(result, function(numbers(), numbers())));
}

}  // namespace given_away_test
}  // namespace ahead
