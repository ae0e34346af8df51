#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "compile/checkpoint_blocks.h"
#include "models/memory.h"
#include "support/eager.h"

/// What checkpoints of eager functions save.
namespace ahead {
namespace checkpoint_memory_test {

using at::Tensor;
using Tensors = std::vector<Tensor>;

TEST(Checkpoint, NeedsLessMemory) {
  const Blocks blocks = make_blocks(8, 32);
  const Tensor x = leaf({512, 32});
  Tensors wanted = parameters_of(blocks);
  const auto forward = [&](auto&& call) {
    Tensor y = x;
    for (const auto& block : blocks) y = call(block, y);
    return y.sum();
  };
  models::MemoryCounter memory;
  Tensors eager, again;
  const int64_t eager_peak = memory.peak([&] {
    eager = loss_and_gradients(
        [&] { return forward([](auto& block, const Tensor& y) { return block->forward(y); }); },
        wanted);
  });
  const int64_t peak = memory.peak([&] {
    again = loss_and_gradients(
        [&] {
          return forward(
              [](auto& block, const Tensor& y) { return checkpoint(everything_again, block, y); });
        },
        wanted);
  });
  expect_same(eager, again);
  EXPECT_LT(peak, eager_peak / 2);
}

TEST(Checkpoint, NestedNeedsLessStill) {
  const Blocks blocks = make_blocks(16, 32);
  const Tensor x = leaf({512, 32});
  const Tensors wanted = parameters_of(blocks);
  const auto part = [blocks](size_t first, size_t count, bool inner, Tensor y) {
    for (size_t i = first; i < first + count; ++i) {
      y = inner ? checkpoint(everything_again, blocks[i], y) : blocks[i]->forward(y);
    }
    return y;
  };
  const auto loss = [&](bool outer, bool inner) {
    return loss_and_gradients(
        [&] {
          Tensor y = x;
          for (size_t first = 0; first < blocks.size(); first += 4) {
            y = outer ? checkpoint(everything_again, part, first, size_t{4}, inner, y)
                      : part(first, 4, inner, y);
          }
          return y.sum();
        },
        wanted);
  };
  models::MemoryCounter memory;
  Tensors eager, flat, nested;
  const int64_t eager_peak = memory.peak([&] { eager = loss(false, false); });
  const int64_t flat_peak = memory.peak([&] { flat = loss(true, false); });
  const int64_t nested_peak = memory.peak([&] { nested = loss(true, true); });
  expect_same(eager, flat);
  expect_same(eager, nested);
  EXPECT_LT(flat_peak, eager_peak);
  EXPECT_LT(nested_peak, flat_peak);
}

TEST(Checkpoint, KeepsWhatThePolicySaves) {
  const auto save_products = [](const Operator& op) {
    return op.name().find("mm") != std::string::npos ? Saving::MustSave : Saving::MustRecompute;
  };
  const Blocks blocks = make_blocks(6, 32);
  const Tensor x = leaf({512, 32});
  const Tensors wanted = parameters_of(blocks);
  models::MemoryCounter memory;
  std::vector<Tensors> outcomes;
  std::vector<int64_t> peaks;
  const std::vector<CheckpointPolicy> policies = {CheckpointPolicy::save_everything(),
                                                  save_products, everything_again};
  for (const CheckpointPolicy& policy : policies) {
    peaks.push_back(memory.peak([&] {
      outcomes.push_back(loss_and_gradients(
          [&] {
            Tensor y = x;
            for (const auto& block : blocks) y = checkpoint(policy, block, y);
            return y.sum();
          },
          wanted));
    }));
  }
  expect_same(outcomes[0], outcomes[1]);
  expect_same(outcomes[0], outcomes[2]);
  EXPECT_GT(peaks[0], peaks[1]);
  EXPECT_GT(peaks[1], peaks[2]);
}

}  // namespace checkpoint_memory_test
}  // namespace ahead
