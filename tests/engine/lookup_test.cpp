// Backwards are looked up along one that the thread ran before. These look alike and are not.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>

#include "ahead/compiled_autograd.h"
#include "support/eager.h"
#include "support/engine_check.h"

namespace ahead {
namespace lookup_test {

using at::Tensor;
using test::expect_as_eager;

/// The gradients of the sums of these functions, one backward after the other.
template <class... Functions>
std::vector<Tensor> gradients(const Tensor& at, Functions... functions) {
  std::vector<Tensor> gradients;
  const auto add = [&](const Tensor& result) {
    result.sum().backward();
    gradients.push_back(at.grad().clone());
    at.mutable_grad().reset();
  };
  (add(functions(at)), ...);
  return gradients;
}

TEST(EngineLookUp, TellsSharedNodesFromEqualOnes) {
  const auto twice = [](const Tensor& x) { return x.sin() + x.sin(); };
  const auto shared = [](const Tensor& x) {
    const Tensor y = x.sin().sin();
    return y + y;
  };
  const auto stats = expect_as_eager([&] { return gradients(leaf({3}), twice, shared, twice); });
  EXPECT_EQ(stats.captures, 2u);
}

TEST(EngineLookUp, TellsTheOrderOfTheForward) {
  // What comes last is differentiated first, and floats do not add up the same in every order.
  const auto sum_made_in = [](std::array<size_t, 3> order) {
    return [order](const Tensor& x) {
      const std::array<double, 3> factors{1e8, 3.25, -1e8};
      std::array<Tensor, 3> parts;
      for (size_t i : order) parts[i] = x * factors[i];
      return parts[0] + parts[1] + parts[2];
    };
  };
  std::vector<Tensor> found;
  const auto stats = expect_as_eager([&] {
    found = gradients(leaf({3}), sum_made_in({0, 1, 2}), sum_made_in({1, 0, 2}),
                      sum_made_in({0, 1, 2}));
    return found;
  });
  EXPECT_EQ(stats.captures, 2u);
  EXPECT_FALSE(same_values(found[0], found[1]))
      << "the order makes no difference, so nothing is shown";
}

TEST(EngineLookUp, TellsConstantsAndEdgesApart) {
  const auto scaled = [](double factor) {
    return [factor](const Tensor& x) { return x.sin() * factor; };
  };
  const auto first = [](const Tensor& x) {
    const auto parts = x.chunk(2);
    return parts[0].exp() * parts[1];
  };
  const auto second = [](const Tensor& x) {
    const auto parts = x.chunk(2);
    return parts[1].exp() * parts[0];
  };
  const auto stats = expect_as_eager(
      [&] { return gradients(leaf({4}), scaled(2), scaled(3), first, second, scaled(2)); });
  EXPECT_EQ(stats.captures, 4u);
}

TEST(EngineLookUp, SeesHooksThatCameLater) {
  int calls = 0;
  const auto stats = expect_as_eager([&] {
    const Tensor x = leaf({3});
    std::vector<Tensor> found = gradients(x, [](const Tensor& in) { return in.sin().exp(); });
    found.push_back(gradients(x, [&](const Tensor& in) {
      Tensor y = in.sin();
      y.register_hook([&](const Tensor& gradient) {
        ++calls;
        return gradient * 3;
      });
      return y.exp();
    })[0]);
    return found;
  });
  EXPECT_EQ(calls, 4);
  EXPECT_EQ(stats.captures, 2u);
}

TEST(EngineLookUp, SeesOtherSizesAndTypes) {
  const auto stats = expect_as_eager([&] {
    const Tensor x = leaf({4}), y = leaf({4, 2});
    const Tensor z = leaf({4}).to(at::kDouble).detach().requires_grad_();
    const auto function = [](const Tensor& in) { return in.sin().mul(in); };
    std::vector<Tensor> found = gradients(x, function, function);
    for (const Tensor& in : {y, z, x}) found.push_back(gradients(in, function)[0]);
    return found;
  });
  EXPECT_EQ(stats.captures, 3u);
}

TEST(EngineLookUp, RemembersAsManyAsItNeeds) {
  const auto stats = expect_as_eager([] {
    const Tensor x = leaf({3});
    std::vector<Tensor> found;
    for (int round = 0; round < 3; ++round) {
      for (int length = 1; length <= 7; ++length) {
        Tensor y = x;
        for (int i = 0; i < length; ++i) y = y.sin();
        found.push_back(torch::autograd::grad({y.sum()}, {x}, {}, /*retain_graph=*/true)[0]);
        y.sum().backward();
        found.push_back(x.grad().clone());
      }
    }
    return found;
  });
  // The very first backward() finds no `.grad`.
  EXPECT_EQ(stats.captures, 15u);
}

}  // namespace lookup_test
}  // namespace ahead
