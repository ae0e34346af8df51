#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/compiled_autograd.h"

namespace ahead {
namespace {

using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

WeakStorage watch(const at::Tensor& tensor) {
  return WeakStorage(
      c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(tensor.storage().unsafeGetStorageImpl()));
}

/// What was alive when the gradient of the first parameter was complete, and after the backward.
struct Alive {
  bool late_activation, early_activation, after;
};

Alive run(bool retain_graph) {
  const at::Tensor x = torch::randn({4}, torch::requires_grad());
  at::Tensor early = x.exp();
  at::Tensor late = (early * early).sin();
  const at::Tensor loss = (late * late).sum();
  const WeakStorage watched_early = watch(early), watched_late = watch(late);
  early.reset();
  late.reset();
  Alive alive{};
  x.register_hook([&](const at::Tensor&) {
    alive.late_activation = watched_late.use_count() != 0;
    alive.early_activation = watched_early.use_count() != 0;
  });
  loss.backward({}, retain_graph);
  alive.after = watched_early.use_count() != 0 || watched_late.use_count() != 0;
  return alive;
}

TEST(EngineLifetime, SavedTensorsAreFreedByTheEndOfTheirGraph) {
  compiled_autograd::Enable on;
  for (int i = 0; i < 2; ++i) {
    const Alive alive = run(/*retain_graph=*/false);
    // The first run captures; the second finds the graph and runs it.
    EXPECT_FALSE(alive.late_activation);
    EXPECT_FALSE(alive.early_activation);
    EXPECT_FALSE(alive.after);
  }
}

TEST(EngineLifetime, RetainedGraphsKeepThem) {
  compiled_autograd::Enable on;
  const at::Tensor x = torch::randn({4}, torch::requires_grad());
  at::Tensor saved = x.exp();
  const at::Tensor loss = (saved * saved).sum();
  const WeakStorage watched = watch(saved);
  saved.reset();
  loss.backward({}, /*keep_graph=*/true);
  EXPECT_NE(watched.use_count(), 0u);
  loss.backward();
  EXPECT_EQ(watched.use_count(), 0u);
}

}  // namespace
}  // namespace ahead
