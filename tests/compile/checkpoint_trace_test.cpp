#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "compile/checkpoint_blocks.h"
#include "models/memory.h"
#include "support/hits.h"
#include "support/trace_check.h"

/// Checkpoints in functions that are traced and compiled.
namespace ahead {
namespace checkpoint_trace_test {

using at::Tensor;
using Tensors = std::vector<Tensor>;

TEST(CheckpointInTrace, TagsTheNodesOfTheFunction) {
  const Tensor x = leaf({4});
  const auto policy = [](const Operator& op) {
    if (op.name() == "aten.sin") return Saving::MustSave;
    if (op.name() == "aten.cos") return Saving::PreferSave;
    return op.name() == "aten.exp" ? Saving::PreferRecompute : Saving::MustRecompute;
  };
  const Graph graph = trace(
      [&](const Tensor& in) {
        const Tensor y = checkpoint(
            policy, [](const Tensor& t) { return t.sin().cos().exp().tanh().neg(); }, in.abs());
        return y.abs();
      },
      x);
  std::string tags;
  for (const Node& node : graph.nodes()) {
    tags += node.op().name() + (node.has(Tag::MustSave) ? " must_save" : "") +
            (node.has(Tag::MustRecompute) ? " must_recompute" : "") + "; ";
  }
  EXPECT_EQ(tags,
            "aten.abs; aten.sin must_save; aten.cos; aten.exp; aten.tanh must_recompute; "
            "aten.neg must_save; aten.abs; ");
  EXPECT_NE(graph.str().find("aten.cos(%2) !prefer_save"), std::string::npos) << graph.str();
  EXPECT_NE(graph.str().find("!prefer_recompute"), std::string::npos);
}

TEST(CheckpointInTrace, PartitionersObeyTheTags) {
  const Tensor x = leaf({4, 4}), w = leaf({4, 4});
  const auto layer = [](const Tensor& in, const Tensor& weight) {
    return in.mm(weight).sin().mm(weight).exp();
  };
  const JointGraph joint = trace_joint(
      [&](const Tensor& in, const Tensor& weight) {
        const Tensor once = checkpoint(everything_again, layer, in, weight);
        return checkpoint(everything_again, layer, once, weight).sum();
      },
      x, w);
  for (const PartitionedGraphs& halves : {partition_default(joint), partition_min_cut(joint)}) {
    // Each region computes its products again and starts from the result of the one before.
    EXPECT_EQ(count(halves.backward, "aten.mm") + 4, count(joint, "aten.mm") + 2)
        << halves.backward.str();
    EXPECT_EQ(halves.saved.size(), 4U) << halves.forward.str();
    EXPECT_NE(halves.explain().find("tagged must_recompute"), std::string::npos);
    EXPECT_NE(halves.explain().find("tagged must_save"), std::string::npos);
  }
}

TEST(CheckpointInTrace, NeverDrawsAgain) {
  const Tensor x = leaf({16});
  const JointGraph joint = trace_joint(
      [](const Tensor& in) {
        return checkpoint(
                   everything_again,
                   [](const Tensor& t) { return torch::dropout(t.sin(), 0.5, true).exp(); }, in)
            .sum();
      },
      x);
  for (const PartitionedGraphs& halves : {partition_default(joint), partition_min_cut(joint)}) {
    for (const Node& node : halves.backward.nodes()) EXPECT_FALSE(node.has(Tag::Random));
    EXPECT_NE(halves.explain().find("random: a second run would draw other numbers"),
              std::string::npos);
  }
}

TEST(CheckpointInTrace, CompiledGivesEagersBits) {
  const Blocks blocks = make_blocks(3);
  const Tensor x = leaf({8, 32});
  Tensors wanted = parameters_of(blocks);
  wanted.push_back(x);
  const auto loss = [&](const Tensor& in) {
    Tensor y = in;
    for (const auto& block : blocks) y = checkpoint(everything_again, block, y);
    return y.square().sum();
  };
  auto compiled = compile(loss, {.fullgraph = true, .confirm = 0});
  for (int i = 0; i < 3; ++i) {
    expect_same(loss_and_gradients([&] { return loss(x); }, wanted),
                loss_and_gradients([&] { return compiled(x); }, wanted));
  }
  expect_hits(compiled);
}

TEST(CheckpointInTrace, CompiledNeedsLessMemory) {
  const Blocks blocks = make_blocks(8, 32);
  for (const auto& block : blocks) block->eval();
  const Tensor x = leaf({512, 32});
  const Tensors wanted = parameters_of(blocks);
  const auto loss = [&](bool with_checkpoints) {
    return [&, with_checkpoints](const Tensor& in) {
      Tensor y = in;
      for (const auto& block : blocks) {
        y = with_checkpoints ? checkpoint(everything_again, block, y) : block->forward(y);
      }
      return y.sum();
    };
  };
  models::MemoryCounter memory;
  std::vector<int64_t> peaks;
  for (const bool with_checkpoints : {false, true}) {
    auto compiled = compile(loss(with_checkpoints),
                            {.fullgraph = true, .partitioner = Partitioner::Default, .confirm = 0});
    loss_and_gradients([&] { return compiled(x); }, wanted);
    peaks.push_back(memory.peak([&] { loss_and_gradients([&] { return compiled(x); }, wanted); }));
    expect_hits(compiled);
  }
  EXPECT_LT(peaks[1], peaks[0] * 2 / 3);
}

TEST(CheckpointInTrace, ACompiledFunctionMayBeCheckpointed) {
  const Tensor x = leaf({4}), w = leaf({4});
  const auto f = [w](const Tensor& in) { return (in * w).sin().exp(); };
  auto compiled = compile(f, {.fullgraph = true, .confirm = 0});
  for (int i = 0; i < 3; ++i) {
    const Tensor y = checkpoint(everything_again, compiled, x);
    expect_same(torch::autograd::grad({f(x).sum()}, {x, w}),
                torch::autograd::grad({y.sum()}, {x, w}));
  }
  // What is checkpointed must do the same when it is called again, so that it runs as it is.
  EXPECT_EQ(compiled.stats().calls, 0u);
}

}  // namespace checkpoint_trace_test
}  // namespace ahead
