#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/compiled_autograd.h"
#include "support/eager.h"
#include "support/resident_memory.h"

namespace ahead {
namespace cache_test {

using compiled_autograd::Enable;
using compiled_autograd::stats;

class WarningCount final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    count += warning.msg().find("cache_limit") != std::string::npos ? 1 : 0;
  }
  int count = 0;
};

class EngineCache : public ::testing::Test {
 protected:
  void SetUp() override { compiled_autograd::reset(); }

  WarningCount warnings_;
  c10::WarningUtils::WarningHandlerGuard guard_{&warnings_};
};

/// A backward of which there is one for each size.
void differentiate(int64_t size) {
  const at::Tensor x = torch::full({size}, 3.0).requires_grad_();
  (x * x).sum().backward();
  ASSERT_TRUE(same_values(x.grad(), torch::full({size}, 6.0)));
}

uint64_t captures_of(const std::function<void()>& work) {
  const uint64_t before = stats().captures;
  work();
  return stats().captures - before;
}

TEST_F(EngineCache, OneTooManyInTurn) {
  const Enable on({.dynamic = false});
  const auto round = [] {
    for (int64_t size = 2; size < 2 + 65; ++size) differentiate(size);
  };
  EXPECT_EQ(captures_of(round), 65u);
  EXPECT_EQ(warnings_.count, 1);
  for (int i = 0; i < 5; ++i) EXPECT_LE(captures_of(round), 1u) << i;
  EXPECT_EQ(compiled_autograd::graphs().size(), 64u);
  EXPECT_EQ(warnings_.count, 1);
}

TEST_F(EngineCache, HalfTooManyInTurn) {
  const Enable on({.dynamic = false, .cache_limit = 8});
  const auto round = [] {
    for (int64_t size = 2; size < 2 + 12; ++size) differentiate(size);
  };
  round();
  for (int i = 0; i < 5; ++i) EXPECT_LE(captures_of(round), 4u) << i;
}

/// What is used often stays, whatever comes between.
TEST_F(EngineCache, ScanDoesNotPushOutWhatIsUsed) {
  const Enable on({.dynamic = false, .cache_limit = 4});
  for (int i = 0; i < 3; ++i) differentiate(2);
  const auto scan = [] {
    for (int64_t size = 10; size < 50; ++size) {
      differentiate(size);
      differentiate(2);
    }
  };
  EXPECT_EQ(captures_of(scan), 40u);
}

TEST_F(EngineCache, WhatIsUsedNowReplacesWhatWasUsedBefore) {
  const Enable on({.dynamic = false, .cache_limit = 4});
  for (int i = 0; i < 10; ++i) {
    for (int64_t size = 2; size < 6; ++size) differentiate(size);
  }
  const auto others = [] {
    for (int i = 0; i < 50; ++i) {
      for (int64_t size = 12; size < 16; ++size) differentiate(size);
    }
  };
  EXPECT_LE(captures_of(others), 5 * 4u);
}

TEST_F(EngineCache, LimitOfOne) {
  const Enable on({.dynamic = false, .cache_limit = 1});
  differentiate(2);
  EXPECT_LE(captures_of([] {
              for (int i = 0; i < 10; ++i) differentiate(3);
            }),
            2u);
  EXPECT_EQ(compiled_autograd::graphs().size(), 1u);
}

TEST_F(EngineCache, ThousandsOfShapesTakeNoMemory) {
  const Enable on({.dynamic = false, .cache_limit = 16});
  const auto run = [](int64_t first, int64_t end) {
    for (int64_t size = first; size < end; ++size) differentiate(size);
  };
  run(2, 1000);
  const int64_t before = test::resident_memory();
  run(1000, 5000);
  EXPECT_LT(test::resident_memory() - before, 4 << 20);
  EXPECT_EQ(warnings_.count, 1);
  EXPECT_EQ(compiled_autograd::graphs().size(), 16u);
}

TEST_F(EngineCache, SaysSoAgainAfterReset) {
  for (int round = 0; round < 2; ++round) {
    const Enable on({.dynamic = false, .cache_limit = 1});
    for (int64_t size = 2; size < 5; ++size) differentiate(size);
    EXPECT_EQ(warnings_.count, round + 1);
    bool tells = false;
    for (const std::string& reason : compiled_autograd::reasons())
      tells |= reason.find("cache_limit") != std::string::npos;
    EXPECT_TRUE(tells);
    compiled_autograd::reset();
  }
}

}  // namespace cache_test
}  // namespace ahead
