#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "ahead/ahead.h"
#include "support/resident_memory.h"

/// What a program may do very often, each time in another way, without taking more and more memory.
namespace ahead {
namespace bounded_test {

using at::Tensor;
using Tensors = std::vector<Tensor>;

/// Many results, of which others are differentiated each time.
TEST(Bounded, ThousandsOfUndefinedPatterns) {
  constexpr int64_t count = 13;
  auto f = compile(
      [](const Tensor& x) {
        Tensors results;
        for (int64_t i = 0; i < count; ++i)
          results.push_back((x * static_cast<double>(i + 2)).exp());
        return results;
      },
      {.confirm = Confirm::Never});
  const auto run = [&](int64_t first, int64_t end) {
    for (int64_t pattern = first; pattern < end; ++pattern) {
      const Tensor x = torch::full({2}, 0.1).requires_grad_();
      const Tensors results = f(x);
      Tensor loss = torch::zeros({});
      double expected = 0;
      for (int64_t i = 0; i < count; ++i) {
        if ((pattern >> i & 1) == 0) continue;
        loss = loss + results[static_cast<size_t>(i)].sum();
        expected += static_cast<double>(i + 2) * std::exp(0.1 * static_cast<double>(i + 2));
      }
      loss.backward();
      ASSERT_NEAR(x.grad()[0].item<double>(), expected, 1e-4 * expected) << pattern;
    }
  };
  run(1, 200);
  const int64_t before = test::resident_memory();
  run(200, 1400);
  EXPECT_LT(test::resident_memory() - before, 4 << 20);
  EXPECT_LE(f.stats().backwards, 33u);
  EXPECT_LT(f.programs().size(), 200u);
}

TEST(Bounded, ThousandsOfShapes) {
  auto f = compile([](const Tensor& x) { return (x * 2).exp().sum(); });
  const auto run = [&](int64_t first, int64_t end) {
    for (int64_t size = first; size < end; ++size) {
      const Tensor x = torch::rand({size}, torch::requires_grad());
      f(x).backward();
    }
  };
  run(2, 1000);
  const int64_t before = test::resident_memory();
  testing::internal::CaptureStderr();
  run(1000, 5000);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_LT(test::resident_memory() - before, 4 << 20);
}

}  // namespace bounded_test
}  // namespace ahead
