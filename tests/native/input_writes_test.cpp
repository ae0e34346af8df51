#include "native/fuse/input_writes.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <limits>

#include "ahead/ahead.h"
#include "models/memory.h"
#include "native/fuse/fuse.h"

/// Kernels that write what they compute to the inputs that it is for.
namespace ahead::native::input_writes_test {

using at::Tensor;
using Tensors = std::vector<Tensor>;

struct Settled {
  Graph graph;
  std::vector<Group> groups;
};

Settled settle(const std::string& text) {
  Graph graph = Graph::parse(text);
  write_by_copies(graph);
  graph.verify();
  FusedGraph fused = fuse(graph);
  write_in_place(fused.graph);
  fused.graph.verify();
  Groups found = find_groups(fused.graph, {}, std::numeric_limits<uint64_t>::max());
  find_targets(fused.graph, found.groups);
  return {std::move(fused.graph), std::move(found.groups)};
}

size_t count(const Graph& graph, const std::string& name) {
  size_t times = 0;
  for (const Node& node : graph.nodes()) times += node.op().name() == name ? 1 : 0;
  return times;
}

size_t count_targets(const Settled& settled) {
  size_t targets = 0;
  for (const Group& group : settled.groups)
    targets += static_cast<size_t>(std::count_if(group.targets.begin(), group.targets.end(),
                                                 [](int32_t target) { return target >= 0; }));
  return targets;
}

TEST(InputWrites, OneKernelWritesParameterAndState) {
  const Settled settled = settle(R"(
graph(%0: f32[64, 32] Primal 0, %1: f32[64, 32] Primal 1, %2: f32[64, 32] Primal 2):
  %3: f32[64, 32] = aten.mul.Scalar(%1, 0.9)
  %4: f32[64, 32] = aten.add.Tensor(%3, %2, 1.0)
  _, %5: f32[64, 32] = aten.add_.Tensor(%0, %4, -0.1) !effect
  _, %6: f32[64, 32] = aten.copy_(%1, %4, false) !effect
  return (none MutatedInput 0, none MutatedInput 1)
)");
  ASSERT_EQ(settled.groups.size(), 1u) << settled.graph.str();
  EXPECT_EQ(count_targets(settled), 2u) << settled.graph.str();
}

TEST(InputWrites, LoneOperatorsStayInPlace) {
  const Settled settled = settle(R"(
graph(%0: f32[64, 32] Primal 0, %1: f32[64, 32] Primal 1):
  _, %2: f32[64, 32] = aten.add_.Tensor(%0, %1, -0.1) !effect
  return (none MutatedInput 0)
)");
  EXPECT_EQ(count(settled.graph, "aten.add_.Tensor"), 1u) << settled.graph.str();
  EXPECT_EQ(count(settled.graph, "aten.copy_"), 0u) << settled.graph.str();
}

TEST(InputWrites, ChainsAreWrittenOnce) {
  const Settled settled = settle(R"(
graph(%0: f32[64, 32] Primal 0, %1: f32[64, 32] Primal 1):
  _, %2: f32[64, 32] = aten.mul_.Scalar(%0, 0.9) !effect
  _, %3: f32[64, 32] = aten.addcmul_(%2, %1, %1, 0.1) !effect
  %4: f32[64, 32] = aten.sqrt(%3)
  return (none MutatedInput 0, %4 Output 0)
)");
  EXPECT_EQ(count(settled.graph, "aten.copy_"), 1u) << settled.graph.str();
  EXPECT_EQ(count_targets(settled), 1u) << settled.graph.str();
}

TEST(InputWrites, NotWhatIsReadInBetween) {
  // The product needs what the kernel computes, and the input as it was.
  const Settled settled = settle(R"(
graph(%0: f32[64, 32] Primal 0, %1: f32[64, 32] Primal 1):
  %2: f32[64, 32] = aten.mul.Scalar(%0, 0.9)
  %3: f32[64, 32] = aten.add.Tensor(%2, %1, 1.0)
  %4: f32[64, 32] = aten.sin(%3)
  %5: f32[32, 64]{1, 32} = aten.t(%3)
  %6: f32[64, 64] = aten.mm(%0, %5)
  _, %7: f32[64, 32] = aten.copy_(%0, %4, false) !effect
  return (none MutatedInput 0, %6 Output 0)
)");
  ASSERT_EQ(settled.groups.size(), 1u) << settled.graph.str();
  EXPECT_EQ(count_targets(settled), 0u) << settled.graph.str();
}

TEST(InputWrites, ContentsThatAreReturnedStayInPlace) {
  const Settled settled = settle(R"(
graph(%0: f32[64, 32] Primal 0, %1: f32[64, 32] Primal 1):
  %2: f32[64, 32] = aten.sin(%1)
  _, %3: f32[64, 32] = aten.add_.Tensor(%0, %2, 1.0) !effect
  return (none MutatedInput 0, %3 Output 0)
)");
  EXPECT_EQ(count(settled.graph, "aten.add_.Tensor"), 1u) << settled.graph.str();
}

using MakeOptimizer = std::function<std::shared_ptr<torch::optim::Optimizer>(const Tensors&)>;

template <class Optimizer, class Options>
MakeOptimizer of(const Options& options) {
  return [options](const Tensors& p) { return std::make_shared<Optimizer>(p, options); };
}

std::vector<MakeOptimizer> optimizers() {
  using namespace torch::optim;
  return {of<SGD>(SGDOptions(0.1)),
          of<SGD>(SGDOptions(0.1).momentum(0.9)),
          of<SGD>(SGDOptions(0.1).momentum(0.9).weight_decay(0.01).dampening(0.1)),
          of<SGD>(SGDOptions(0.1).momentum(0.9).weight_decay(0.01).nesterov(true)),
          of<RMSprop>(RMSpropOptions(0.01)),
          of<RMSprop>(RMSpropOptions(0.01).momentum(0.9).centered(true).weight_decay(0.01)),
          of<Adagrad>(AdagradOptions(0.05))};
}

/// Leaves of a kind: plain ones, transposed ones, and parts of one storage.
std::vector<Tensors> leaves_of_all_kinds(at::ScalarType dtype) {
  const Tensor base = torch::randn({3, 24, 16}, dtype);
  std::vector<Tensors> kinds = {
      {torch::randn({33, 17}, dtype), torch::randn({40}, dtype), torch::randn({1}, dtype)},
      {torch::randn({17, 33}, dtype).t(), torch::randn({4, 6, 5}, dtype).permute({2, 0, 1})},
      {base[0], base[1], base[2].t()}};
  for (Tensors& kind : kinds) {
    for (Tensor& leaf : kind) leaf = leaf.detach().requires_grad_();
  }
  return kinds;
}

Tensor loss_of(const Tensors& leaves, const Tensor& x) {
  Tensor loss = x.mean();
  for (const Tensor& leaf : leaves) loss = loss + (leaf * leaf * x).sin().mean();
  return loss;
}

double distance(const Tensor& a, const Tensor& b) {
  return (a - b).abs().max().item<double>() / std::max(b.abs().max().item<double>(), 1.0);
}

void expect_updates_like_eager(const MakeOptimizer& make, at::ScalarType dtype, size_t kind) {
  torch::manual_seed(1);
  const Tensors eager = leaves_of_all_kinds(dtype)[kind];
  torch::manual_seed(1);
  const Tensors ours = leaves_of_all_kinds(dtype)[kind];
  const auto step_of = [&](const Tensors& leaves) {
    return [&leaves, optimizer = make(leaves)](const Tensor& x) {
      optimizer->zero_grad();
      const Tensor loss = loss_of(leaves, x);
      loss.backward();
      optimizer->step();
      return loss.detach();
    };
  };
  const auto by_eager = step_of(eager);
  const auto compiled =
      ahead::compile(step_of(ours), {.backend = "native", .fullgraph = true, .confirm = 0});
  std::vector<const void*> places;
  for (const Tensor& leaf : ours) places.push_back(leaf.const_data_ptr());
  // What bf16 rounds is rounded after each operator here and there.
  const double bound = dtype == at::kBFloat16 ? 0.04 : dtype == at::kDouble ? 1e-12 : 1e-5;
  for (int call = 0; call < 10; ++call) {
    const Tensor x = torch::rand({1}, dtype);
    EXPECT_LE(distance(compiled(x), by_eager(x)), bound);
    for (size_t i = 0; i < ours.size(); ++i) {
      EXPECT_LE(distance(ours[i].detach(), eager[i].detach()), bound) << "leaf " << i;
      EXPECT_EQ(ours[i].const_data_ptr(), places[i]);
      EXPECT_EQ(ours[i].strides(), eager[i].strides());
      EXPECT_EQ(ours[i]._version(), eager[i]._version());
    }
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0u);
  EXPECT_GT(compiled.stats().cache_hits, 4u);
  EXPECT_GT(compiled.stats().kernels, 0u);
}

TEST(InputWrites, OptimizersLikeEager) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (size_t kind = 0; kind < 3; ++kind) {
      for (size_t i = 0; i < optimizers().size(); ++i) {
        const bool is_chosen = dtype == at::kFloat ? kind == 0 || i > 1 : kind == 0 && i % 2 == 1;
        if (!is_chosen) continue;
        SCOPED_TRACE("optimizer " + std::to_string(i) + ", kind " + std::to_string(kind) + ", " +
                     c10::toString(dtype));
        expect_updates_like_eager(optimizers()[i], dtype, kind);
      }
    }
  }
}

/// Calls a function that writes to a tensor eagerly and compiled, with several arguments.
template <class Function>
void expect_writes_like_eager(const Function& function, uint64_t most_eager = 0) {
  torch::manual_seed(2);
  const Tensor ours = torch::randn({32, 24}), eager = ours.clone();
  const auto bound_to = [&](const Tensor& state) {
    return [&function, state](const Tensor& x) { return function(state, x); };
  };
  const auto by_eager = bound_to(eager);
  const auto compiled =
      ahead::compile(bound_to(ours), {.backend = "native", .confirm = Confirm::Never});
  for (int call = 0; call < 10; ++call) {
    const Tensor x = torch::randn({32, 24});
    const Tensor expected = by_eager(x), actual = compiled(x);
    EXPECT_LE(distance(actual, expected), 1e-5) << call;
    EXPECT_LE(distance(ours, eager), 1e-5) << call;
    EXPECT_EQ(ours._version(), eager._version());
  }
  EXPECT_LE(compiled.stats().eager_calls, most_eager);
  EXPECT_GT(compiled.stats().cache_hits, 0u);
}

TEST(InputWrites, WhatIsReadBeforeAndAfter) {
  expect_writes_like_eager([](const Tensor& p, const Tensor& x) {
    const Tensor before = p.sin() + x;
    p.mul_(0.5).add_(x);
    return before + p.cos();
  });
  expect_writes_like_eager([](const Tensor& p, const Tensor& x) {
    const Tensor product = p.matmul(x.t());
    p.mul_(0.5).addcmul_(x, x, 0.1);
    return product + p.matmul(x.t());
  });
  expect_writes_like_eager([](const Tensor& p, const Tensor& x) {
    p.mul_(0.5).add_(x.sin());
    const Tensor between = p.sigmoid();
    p.sub_(x.cos()).mul_(0.9);
    return between + p.tanh();
  });
  expect_writes_like_eager([](const Tensor& p, const Tensor& x) {
    const Tensor softmax = p.softmax(1);
    p.copy_((p + x).softmax(1) * softmax);
    return softmax;
  });
}

TEST(InputWrites, PartsAndResultsThatAreTheInput) {
  expect_writes_like_eager([](const Tensor& p, const Tensor& x) {
    p.narrow(0, 3, 8).mul_(0.5).add_(x.narrow(0, 0, 8).sin());
    return p.sin() + x;
  });
  expect_writes_like_eager([](const Tensor& p, const Tensor& x) {
    return p.mul_(0.5).add_(x.sin());
  });
  expect_writes_like_eager([](const Tensor& p, const Tensor& x) {
    const Tensor flat = p.view({-1});
    p.mul_(0.5).add_(x.sin());
    return flat.cos();
  });
}

TEST(InputWrites, NothingIsWrittenBeforeAValueIsAnother) {
  expect_writes_like_eager([](const Tensor& p, const Tensor& x) {
    p.mul_(0.5).add_(x);
    if ((x.sum() > 0).item<bool>()) return p.sin() + x;
    return p.cos() - x;
  });
}

TEST(InputWrites, UpdatesTakeNoMemory) {
  const Tensor weight = torch::randn({256, 256}).requires_grad_(), x = torch::randn({4, 256});
  torch::optim::SGD optimizer({weight}, torch::optim::SGDOptions(0.1).momentum(0.9).nesterov(true));
  const auto compiled = ahead::compile(
      [&](const Tensor& x) {
        optimizer.zero_grad();
        const Tensor loss = x.matmul(weight).square().mean();
        loss.backward();
        optimizer.step();
        return loss.detach();
      },
      {.backend = "native", .fullgraph = true, .confirm = Confirm::Never});
  models::MemoryCounter counter;
  int64_t peak = 0;
  for (int call = 0; call < 8; ++call) peak = counter.peak([&] { compiled(x); });
  EXPECT_GT(compiled.stats().cache_hits, 2u);
  // The new gradient lies where the old one did.
  EXPECT_LT(peak, 64 * 1024);
}

TEST(InputWrites, BisectSeesArgumentsAsTheyWere) {
  const Tensor state = torch::randn({64, 32}), x = torch::randn({64, 32});
  const BisectReport report = bisect(
      [&](const Tensor& x) {
        state.mul_(0.5).add_(x.sin());
        return state.cos();
      },
      x);
  EXPECT_GT(report.kernels_checked, 0u) << report.str();
  EXPECT_FALSE(report.found()) << report.str();
}

}  // namespace ahead::native::input_writes_test
