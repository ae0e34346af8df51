#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/compiled_autograd.h"
#include "support/autograd_hooks.h"
#include "support/engine_check.h"

namespace ahead {
namespace lifetime_test {

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

/// Which activations of a chain are alive at each of the hooks that cut its backward into parts.
std::vector<at::Tensor> alive_at_hooks(bool retain_graph) {
  const test::EventLog log;
  const at::Tensor x = leaf({4});
  std::vector<WeakStorage> watched;
  at::Tensor shared = x.cos();
  at::Tensor h = x * 2;
  for (int part = 0; part < 4; ++part) {
    for (int i = 0; i < 2; ++i) {
      h = h.exp() * shared;
      watched.push_back(watch(h));
      h = h.sin();
      watched.push_back(watch(h));
    }
    h.register_hook([log, &watched](const at::Tensor&) {
      for (const WeakStorage& one : watched) log.add(one.use_count() != 0);
    });
  }
  watched.push_back(watch(shared));
  const at::Tensor loss = (h * h).sum();
  h.reset();
  shared.reset();
  loss.backward({}, retain_graph);
  for (const WeakStorage& one : watched) log.add(one.use_count() != 0);
  return {x.grad(), log.tensor()};
}

TEST(EngineLifetime, PartsFreeWhatEagerHasFreedAtEachHook) {
  for (bool retain_graph : {false, true}) {
    const auto stats = test::expect_as_eager([&] { return alive_at_hooks(retain_graph); });
    EXPECT_EQ(stats.captures, 1u);
    EXPECT_GT(stats.compiles, 3u);
  }
}

struct Held : torch::autograd::Function<Held> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x * 2;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    return {grads[0] * context->get_saved_variables()[0]};
  }
};

TEST(EngineLifetime, LastHolderMayBeANodeThatRunsAsInEager) {
  test::expect_as_eager([] {
    const test::EventLog log;
    const at::Tensor x = leaf({4});
    at::Tensor h = x.exp(), k = Held::apply(h);
    at::Tensor loss = (k.sin() * h).sum();
    const WeakStorage watched = watch(k), watched_too = watch(h);
    h = at::Tensor();
    k = at::Tensor();
    x.register_hook([log, watched, watched_too](const at::Tensor&) {
      log.add(watched.use_count() != 0);
      log.add(watched_too.use_count() != 0);
    });
    loss.backward();
    return std::vector<at::Tensor>{x.grad(), log.tensor()};
  });
}

}  // namespace lifetime_test
}  // namespace ahead
