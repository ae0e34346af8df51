#include "ahead/memory.h"

#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>

#include "ahead/ahead.h"
#include "memory/heap.h"
#include "memory/small_blocks.h"
#include "models/memory.h"
#include "support/eager.h"
#include "support/new_process.h"

namespace ahead {
namespace memory_test {

using at::Tensor;
using memory::Heap;
using memory::KeptMemory;

constexpr size_t kKilo = 1024, kMega = 1024 * kKilo;

struct Block {
  char* begin;
  size_t bytes;
  char mark;
};

Block take(Heap& heap, size_t bytes, char mark) {
  auto* begin = static_cast<char*>(heap.take(bytes));
  std::memset(begin, mark, bytes);
  return {begin, bytes, mark};
}

bool is_untouched(const Block& block) {
  return std::all_of(block.begin, block.begin + block.bytes,
                     [&](char byte) { return byte == block.mark; });
}

TEST(Heap, BlocksAreAlignedAndDoNotOverlap) {
  Heap heap;
  std::mt19937 random(0);
  std::vector<Block> blocks;
  for (int i = 0; i < 3000; ++i) {
    if (blocks.size() > 20 || (!blocks.empty() && random() % 3 == 0)) {
      const size_t chosen = random() % blocks.size();
      ASSERT_TRUE(is_untouched(blocks[chosen]));
      heap.put_back(blocks[chosen].begin);
      blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(chosen));
    } else {
      const size_t bytes = 1 + random() % (i % 10 == 0 ? 10 * kMega : 300 * kKilo);
      blocks.push_back(take(heap, bytes, static_cast<char>(i)));
      ASSERT_EQ(reinterpret_cast<uintptr_t>(blocks.back().begin) % 64, 0);
    }
  }
  for (const Block& block : blocks) heap.put_back(block.begin);
  EXPECT_EQ(heap.counts().in_use, 0);
  heap.release();
  EXPECT_EQ(heap.counts().mapped, 0);
}

TEST(Heap, SameBlocksAgainTakeNoNewMemory) {
  Heap heap;
  const auto round = [&] {
    std::vector<void*> blocks;
    for (size_t i = 1; i <= 30; ++i) blocks.push_back(heap.take(i * 100 * kKilo));
    for (size_t i = 0; i < blocks.size(); i += 2) heap.put_back(blocks[i]);
    void* const last = heap.take(20 * kMega);
    for (size_t i = 1; i < blocks.size(); i += 2) heap.put_back(blocks[i]);
    heap.put_back(last);
  };
  round();
  const size_t mapped = heap.counts().mapped;
  EXPECT_GT(mapped, 40 * kMega);
  for (int i = 0; i < 20; ++i) round();
  EXPECT_EQ(heap.counts().mapped, mapped);
}

TEST(Heap, WhatIsTooSmallGivesWay) {
  Heap heap;
  for (size_t size = 40; size < 400; size += 10) heap.put_back(heap.take(size * kMega));
  EXPECT_LE(heap.counts().mapped, 400 * kMega);
  heap.keep_at_most(10 * kMega);
  EXPECT_EQ(heap.counts().mapped, 0);
  void* const block = heap.take(50 * kMega);
  EXPECT_GE(heap.counts().mapped, 50 * kMega);
  EXPECT_TRUE(heap.owns(block));
  heap.put_back(block);
  EXPECT_FALSE(heap.owns(block));
  EXPECT_EQ(heap.counts().mapped, 0);
}

TEST(Heap, SeveralThreadsMayUseIt) {
  Heap heap;
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int number = 0; number < 4; ++number) {
    threads.emplace_back([&, number] {
      for (int i = 0; i < 200; ++i) {
        const Block one = take(heap, 100 * kKilo + static_cast<size_t>(i) * 997, char(number));
        const Block other = take(heap, 70 * kKilo, char(number + 10));
        wrong += !is_untouched(one) + !is_untouched(other);
        heap.put_back(one.begin);
        heap.put_back(other.begin);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(heap.counts().in_use, 0);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // nothing is kept there

/// Trains layers whose activations are large enough to be kept.
struct Training {
  Tensor weight = torch::randn({256, 256}).mul_(0.05).requires_grad_();
  Tensor input = torch::randn({256, 256});

  Tensor loss(const Tensor& x) const {
    Tensor y = x;
    for (int i = 0; i < 4; ++i) y = torch::tanh(y.matmul(weight));
    return y.pow(2).sum();
  }
};

TEST(SmallBlocks, AreAlignedAndDoNotOverlap) {
  std::mt19937 random(0);
  std::vector<std::pair<c10::DataPtr, Block>> blocks;
  for (int i = 0; i < 3000; ++i) {
    if (blocks.size() > 100 || (!blocks.empty() && random() % 2 == 0)) {
      const size_t chosen = random() % blocks.size();
      ASSERT_TRUE(is_untouched(blocks[chosen].second));
      blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(chosen));
    } else {
      const size_t bytes = 1 + random() % memory::most_small_bytes;
      c10::DataPtr block = memory::take_small_block(bytes);
      auto* const begin = static_cast<char*>(block.get());
      ASSERT_EQ(reinterpret_cast<uintptr_t>(begin) % 64, 0);
      std::memset(begin, i, bytes);
      blocks.emplace_back(std::move(block), Block{begin, bytes, static_cast<char>(i)});
    }
  }
}

TEST(SmallBlocks, AThreadKeepsWhatItsTensorsGiveBack) {
  const void* const first = memory::take_small_block(100).get();
  EXPECT_EQ(memory::take_small_block(200).get(), first);
  EXPECT_NE(memory::take_small_block(300).get(), first);
}

TEST(SmallBlocks, AnyThreadMayFreeThemAlsoWhenTheirOwnHasEnded) {
  std::vector<c10::DataPtr> blocks;
  std::thread([&] {
    for (size_t i = 0; i < 200; ++i) blocks.push_back(memory::take_small_block(1 + i * 5));
    for (size_t i = 0; i < 50; ++i) blocks.pop_back();
  }).join();
  for (c10::DataPtr& block : blocks) std::memset(block.get(), 7, 1);
  std::thread([&] { blocks.resize(20); }).join();
  blocks.clear();
}

/// Freed by the destructor of an object of the thread that was made before the first block.
TEST(SmallBlocks, AreFreedWhileAThreadEnds) {
  struct Holder {
    c10::DataPtr block;
  };
  std::thread([] {
    static thread_local Holder holder;
    holder.block = memory::take_small_block(64);
    memory::take_small_block(64);
  }).join();
}

TEST(KeptMemory, LaterStepsAskForNoMemory) {
  Training training;
  auto compiled = compile([&](const Tensor& x) { return training.loss(x); },
                          {.fullgraph = true, .confirm = Confirm::Never});
  const auto step = [&] {
    training.weight.mutable_grad().reset();
    compiled(training.input).backward();
  };
  for (int i = 0; i < 3; ++i) step();
  const KeptMemory before = memory::kept_memory();
  EXPECT_GT(before.in_use, 0);  // the gradient
  EXPECT_GT(before.kept, 0);
  for (int i = 0; i < 10; ++i) step();
  const KeptMemory after = memory::kept_memory();
  EXPECT_EQ(after.in_use + after.kept, before.in_use + before.kept);
  EXPECT_EQ(after.most_in_use, before.most_in_use);
  EXPECT_EQ(compiled.stats().eager_calls, 0);
}

TEST(KeptMemory, TensorsOutliveTheFunctionAndTheirThread) {
  Tensor result, expected;
  std::thread([&] {
    Training training;
    const auto double_it = [](const Tensor& x) { return torch::sin(x) * 2; };
    auto compiled = compile(double_it, {.fullgraph = true, .confirm = Confirm::Never});
    for (int i = 0; i < 3; ++i) result = compiled(training.input);
    expected = double_it(training.input);
  }).join();
  memory::release_kept();
  EXPECT_TRUE(torch::equal(result, expected));
  const size_t in_use = memory::kept_memory().in_use;
  std::thread([tensor = std::move(result)]() mutable { tensor.reset(); }).join();
  EXPECT_LT(memory::kept_memory().in_use, in_use);
}

TEST(KeptMemory, CanBeGivenBackAndSwitchedOff) {
  Training training;
  const auto function = [](const Tensor& x) { return torch::exp(torch::sin(x)); };
  auto compiled = compile(function, {.fullgraph = true, .confirm = Confirm::Never});
  const auto expect_right = [&] {
    EXPECT_TRUE(torch::equal(compiled(training.input), function(training.input)));
  };
  for (int i = 0; i < 3; ++i) expect_right();
  const size_t kept = memory::kept_memory().kept;
  EXPECT_GT(kept, 0);
  memory::release_kept();
  EXPECT_LT(memory::kept_memory().kept, kept);
  memory::keep_at_most(0);
  const size_t in_use = memory::kept_memory().in_use;
  const Tensor result = compiled(training.input);
  EXPECT_EQ(memory::kept_memory().in_use, in_use);
  memory::keep_at_most(memory::as_much_as_was_in_use);
  expect_right();
}

TEST(KeptMemory, IsReportedToProfilersAsAnyOther) {
  Training training;
  const auto function = [](const Tensor& x) { return torch::exp(torch::sin(x)); };
  auto compiled = compile(function, {.fullgraph = true, .confirm = Confirm::Never});
  for (int i = 0; i < 3; ++i) compiled(training.input);
  models::MemoryCounter counter;
  const int64_t bytes = 256 * 256 * 4;
  EXPECT_EQ(counter.peak([&] { compiled(training.input); }), bytes);
  Tensor result = compiled(training.input);
  EXPECT_EQ(counter.peak([&] { result.reset(), compiled(training.input); }), 0);
}

TEST(KeptMemory, AnAllocatorOfTheUserStaysAlone) {
  test::expect_in_new_process([] {
    struct Counting final : c10::Allocator {
      int64_t large = 0;
      c10::DataPtr allocate(size_t bytes) override {
        large += bytes >= kMega;
        return c10::GetDefaultCPUAllocator()->allocate(bytes);
      }
      void copy_data(void* target, const void* source, size_t count) const override {
        std::memcpy(target, source, count);
      }
    };
    auto* const counting = new Counting;
    c10::SetCPUAllocator(counting);
    const Tensor x = torch::randn({512, 512});
    auto compiled = compile([](const Tensor& in) { return torch::sin(in) * 2; },
                            {.fullgraph = true, .confirm = Confirm::Never});
    for (int i = 0; i < 3; ++i) compiled(x);
    const int64_t before = counting->large;
    compiled(x);
    return counting->large == before + 1 && c10::GetCPUAllocator() == counting &&
           memory::kept_memory().in_use == 0;
  });
}

#endif

}  // namespace memory_test
}  // namespace ahead
