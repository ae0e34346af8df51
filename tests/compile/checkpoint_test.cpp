#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "models/memory.h"
#include "support/eager.h"
#include "support/hits.h"

namespace ahead {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

const CheckpointPolicy everything_again = CheckpointPolicy::recompute_everything();

bool all_equal(const Tensors& a, const Tensors& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].defined() != b[i].defined() || (a[i].defined() && !a[i].equal(b[i]))) return false;
  }
  return true;
}

/// A few layers with dropout between them.
struct Block : torch::nn::Module {
  explicit Block(int64_t width = 32)
      : up(register_module("up", torch::nn::Linear(width, 4 * width))),
        down(register_module("down", torch::nn::Linear(4 * width, width))) {}
  Tensor forward(const Tensor& x) {
    const Tensor h = torch::dropout(torch::gelu(up(x)), 0.3, is_training());
    return x + torch::tanh(down(h));
  }
  torch::nn::Linear up, down;
};

using Blocks = std::vector<std::shared_ptr<Block>>;

Blocks make_blocks(size_t count, int64_t width = 32) {
  Blocks blocks;
  for (size_t i = 0; i < count; ++i) blocks.push_back(std::make_shared<Block>(width));
  return blocks;
}

Tensors parameters_of(const Blocks& blocks) {
  Tensors parameters;
  for (const auto& block : blocks) {
    for (const Tensor& parameter : block->parameters()) parameters.push_back(parameter);
  }
  return parameters;
}

struct Outcome {
  Tensor loss;
  Tensors gradients;
  bool operator==(const Outcome& other) const {
    return loss.equal(other.loss) && all_equal(gradients, other.gradients);
  }
};

/// The loss of a function and its gradients, from the same random numbers each time.
template <class F>
Outcome run(F&& f, const Tensors& parameters) {
  torch::manual_seed(7);
  const Tensor loss = f();
  return {loss.detach(), torch::autograd::grad({loss}, parameters, {}, std::nullopt,
                                               /*create_graph=*/false, /*allow_unused=*/true)};
}

TEST(Checkpoint, GivesTheSameBits) {
  const Blocks blocks = make_blocks(3);
  const Tensor x = leaf({8, 32});
  Tensors wanted = parameters_of(blocks);
  wanted.push_back(x);
  const auto plain = [&] {
    Tensor y = x;
    for (const auto& block : blocks) y = block->forward(y);
    return y.square().sum();
  };
  const auto checkpointed = [&] {
    Tensor y = x;
    for (const auto& block : blocks) y = checkpoint(everything_again, block, y);
    return y.square().sum();
  };
  EXPECT_TRUE(run(plain, wanted) == run(checkpointed, wanted));
}

TEST(Checkpoint, AccumulatesIntoTheGradientsOfCapturedParameters) {
  const Tensor w = leaf({4, 4}), x = at::randn({2, 4});
  const auto f = [w](const Tensor& in) { return in.mm(w).sin().mm(w).sin().mm(w); };
  f(x).sum().backward();
  const Tensor expected = w.grad().clone();
  w.mutable_grad().reset();
  int calls = 0;
  const auto hook = w.register_hook([&](const Tensor& gradient) {
    ++calls;
    return gradient;
  });
  const Tensor y = checkpoint(everything_again, f, x);
  EXPECT_TRUE(y.requires_grad());
  y.sum().backward();
  EXPECT_TRUE(w.grad().equal(expected));
  EXPECT_EQ(calls, 1);
  w.remove_hook(hook);
}

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
  Outcome eager, again;
  const int64_t eager_peak = memory.peak([&] {
    eager =
        run([&] { return forward([](auto& block, const Tensor& y) { return block->forward(y); }); },
            wanted);
  });
  const int64_t peak = memory.peak([&] {
    again = run(
        [&] {
          return forward(
              [](auto& block, const Tensor& y) { return checkpoint(everything_again, block, y); });
        },
        wanted);
  });
  EXPECT_TRUE(eager == again);
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
    return run(
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
  Outcome eager, flat, nested;
  const int64_t eager_peak = memory.peak([&] { eager = loss(false, false); });
  const int64_t flat_peak = memory.peak([&] { flat = loss(true, false); });
  const int64_t nested_peak = memory.peak([&] { nested = loss(true, true); });
  EXPECT_TRUE(eager == flat);
  EXPECT_TRUE(eager == nested);
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
  std::vector<Outcome> outcomes;
  std::vector<int64_t> peaks;
  const std::vector<CheckpointPolicy> policies = {CheckpointPolicy::save_everything(),
                                                  save_products, everything_again};
  for (const CheckpointPolicy& policy : policies) {
    peaks.push_back(memory.peak([&] {
      outcomes.push_back(run(
          [&] {
            Tensor y = x;
            for (const auto& block : blocks) y = checkpoint(policy, block, y);
            return y.sum();
          },
          wanted));
    }));
  }
  EXPECT_TRUE(outcomes[0] == outcomes[1]);
  EXPECT_TRUE(outcomes[0] == outcomes[2]);
  EXPECT_GT(peaks[0], peaks[1]);
  EXPECT_GT(peaks[1], peaks[2]);
}

TEST(Checkpoint, CallsTheFunctionOnceForEachBackward) {
  int calls = 0;
  const Tensor x = leaf({4});
  const auto f = [&calls](const Tensor& in) {
    ++calls;
    return in.sin().exp().sin();
  };
  const Tensor y = checkpoint(everything_again, f, x);
  EXPECT_EQ(calls, 1);
  const Tensor expected = torch::autograd::grad({f(x).sum()}, {x})[0];
  calls = 0;
  for (int i = 0; i < 3; ++i) {
    const Tensors gradients = torch::autograd::grad({y.sum()}, {x}, {}, /*retain_graph=*/true);
    EXPECT_TRUE(gradients[0].equal(expected));
    EXPECT_EQ(calls, i + 1);
  }
  torch::autograd::grad({y.sum()}, {x});
  EXPECT_EQ(calls, 4);
  EXPECT_THROW(torch::autograd::grad({y.sum()}, {x}), c10::Error);
}

TEST(Checkpoint, HasDerivativesOfHigherOrder) {
  const Tensor x = leaf({4}), w = leaf({4});
  const auto f = [w](const Tensor& in) { return (in * w).sin().exp(); };
  const auto third = [&](const Tensor& y) {
    Tensor d = y;
    for (int i = 0; i < 2; ++i) {
      d = torch::autograd::grad({d.sum()}, {x}, {}, /*retain_graph=*/true,
                                /*create_graph=*/true)[0];
    }
    return torch::autograd::grad({d.sum()}, {x, w});
  };
  EXPECT_TRUE(all_equal(third(checkpoint(everything_again, f, x)), third(f(x))));
}

TEST(Checkpoint, WorksInsideAGradientTakenInside) {
  const Tensor x = leaf({4});
  const auto f = [](const Tensor& in) {
    const Tensor u = in.sin() * in.exp();
    const Tensor d = torch::autograd::grad({u.sum()}, {in}, {}, true, true)[0];
    return u * d;
  };
  EXPECT_TRUE(all_equal(torch::autograd::grad({checkpoint(everything_again, f, x).sum()}, {x}),
                        torch::autograd::grad({f(x).sum()}, {x})));
}

struct Pair {
  Tensor first;
  std::optional<Tensor> second;
};
}  // namespace
}  // namespace ahead

AHEAD_TREE(ahead::Pair, first, second)

namespace ahead {
namespace {

TEST(Checkpoint, TakesTrees) {
  const Tensor x = leaf({4}), y = leaf({4});
  const auto f = [](const Pair& pair, double scale, const std::string& mode, Tensors more) {
    Tensor sum = pair.first.sin() * scale;
    if (mode == "all" && pair.second) sum = sum + pair.second->exp();
    for (const Tensor& other : more) sum = sum * other.cos();
    return std::make_pair(sum, std::vector<Tensor>{sum.sin(), sum.tanh()});
  };
  const auto gradients = [&](const std::pair<Tensor, Tensors>& result) {
    return torch::autograd::grad({(result.first + result.second[0] * result.second[1]).sum()},
                                 {x, y});
  };
  const Pair pair{x, y};
  const Tensors more{y, x};
  EXPECT_TRUE(all_equal(gradients(checkpoint(everything_again, f, pair, 0.5, "all", more)),
                        gradients(f(pair, 0.5, "all", more))));
}

TEST(Checkpoint, MayReturnNothing) {
  const Tensor x = leaf({4});
  const Tensor sum = at::zeros({4});
  const auto f = [](const Tensor& in, Tensor total) { total.add_(in.sin().exp()); };
  checkpoint(everything_again, f, x, sum);
  const Tensor expected = torch::autograd::grad({x.sin().exp().sum()}, {x})[0];
  EXPECT_TRUE(torch::autograd::grad({sum.sum()}, {x})[0].equal(expected));
  EXPECT_TRUE(sum.equal(x.sin().exp()));
}

TEST(Checkpoint, WritesOnceToWhatItWritesTo) {
  torch::nn::BatchNorm1d norm(4);
  const Tensor x = leaf({8, 4}), counter = at::zeros({});
  auto f = [norm, counter](const Tensor& in) mutable {
    counter.add_(1);
    return torch::relu(norm(in * counter)) * counter;
  };
  torch::nn::BatchNorm1d other(4);
  const Tensor plain_counter = at::zeros({});
  auto plain = [other, plain_counter](const Tensor& in) mutable {
    plain_counter.add_(1);
    return torch::relu(other(in * plain_counter)) * plain_counter;
  };
  for (int i = 0; i < 3; ++i) {
    const Tensor a = torch::autograd::grad({checkpoint(everything_again, f, x).sum()}, {x})[0];
    const Tensor b = torch::autograd::grad({plain(x).sum()}, {x})[0];
    EXPECT_TRUE(a.equal(b)) << i;
    EXPECT_TRUE(norm->running_mean.equal(other->running_mean)) << i;
    EXPECT_TRUE(norm->running_var.equal(other->running_var)) << i;
    EXPECT_TRUE(norm->num_batches_tracked.equal(other->num_batches_tracked)) << i;
    EXPECT_TRUE(counter.equal(plain_counter)) << i;
    EXPECT_EQ(counter._version(), plain_counter._version()) << i;
  }
}

TEST(Checkpoint, ComputesAgainUnderTheSameAutocast) {
  const Tensor x = leaf({4, 4}), w = leaf({4, 4});
  const auto f = [w](const Tensor& in) { return in.mm(w).sin().mm(w).to(at::kFloat).sum(); };
  const auto under_autocast = [&](auto&& call) {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    const Tensor loss = call();
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    return torch::autograd::grad({loss}, {x, w});
  };
  EXPECT_TRUE(all_equal(under_autocast([&] { return f(x); }),
                        under_autocast([&] { return checkpoint(everything_again, f, x); })));
}

TEST(Checkpoint, LeavesRandomNumbersAsEagerDoes) {
  const Tensor x = leaf({64});
  const auto f = [](const Tensor& in) { return torch::dropout(in.sin(), 0.5, true).exp(); };
  const auto numbers = [&](auto&& call) {
    torch::manual_seed(3);
    const Tensor y = call();
    const Tensor before = at::rand({3});
    const Tensor gradient = torch::autograd::grad({y.sum()}, {x})[0];
    return Tensors{y, before, gradient, at::rand({3})};
  };
  EXPECT_TRUE(all_equal(numbers([&] { return f(x); }),
                        numbers([&] { return checkpoint(everything_again, f, x); })));
}

TEST(Checkpoint, MakesNoDifferenceWithoutGradients) {
  int calls = 0;
  const auto f = [&calls](const Tensor& in) {
    ++calls;
    return in.sin();
  };
  at::NoGradGuard no_grad;
  const Tensor x = leaf({4});
  EXPECT_TRUE(checkpoint(everything_again, f, x).equal(x.sin()));
  EXPECT_EQ(calls, 1);
}

TEST(Checkpoint, NoticesThatWhatItReadWasWrittenTo) {
  const Tensor x = leaf({4}), c = at::randn({4});
  const Tensor y = checkpoint(
      everything_again, [c](const Tensor& in) { return (in + c).sin(); }, x);
  at::Tensor(c).add_(1);
  try {
    torch::autograd::grad({y.sum()}, {x});
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_NE(error.msg().find("modified by an inplace operation"), std::string::npos);
    EXPECT_NE(error.msg().find("checkpointed"), std::string::npos);
  }
}

TEST(Checkpoint, NoticesAFunctionThatDoesSomethingElse) {
  bool first = true;
  const Tensor x = leaf({4});
  const Tensor y = checkpoint(
      everything_again,
      [&first](const Tensor& in) {
        const Tensor y = in.sin().exp();
        return std::exchange(first, false) ? y : y.exp();
      },
      x);
  EXPECT_THROW(torch::autograd::grad({y.sum()}, {x}), UserError);
}

TEST(Checkpoint, LeavesNothingBehindWhenTheFunctionThrows) {
  const Tensor x = leaf({4});
  EXPECT_THROW(checkpoint(
                   everything_again,
                   [](const Tensor& in) -> Tensor {
                     in.sin();
                     throw std::runtime_error("no");
                   },
                   x),
               std::runtime_error);
  x.sin().exp().sum().backward();
  EXPECT_TRUE(x.grad().equal(x.detach().sin().exp() * x.detach().cos()));
}

TEST(Checkpoint, FreesTheFunctionAfterTheBackward) {
  const auto token = std::make_shared<int>(0);
  const Tensor x = leaf({4});
  {
    const Tensor y = checkpoint(
        everything_again, [token](const Tensor& in) { return in.sin().exp(); }, x);
    EXPECT_GT(token.use_count(), 1);
    y.sum().backward();
    EXPECT_EQ(token.use_count(), 1);
  }
  {
    Tensor y = x.exp();
    checkpoint(
        everything_again, [token](Tensor in) { in.sin_().exp_(); }, y);
  }
  EXPECT_EQ(token.use_count(), 1);
}

// In a trace.

std::vector<std::string> operators_of(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes()) names.push_back(node.op().name());
  return names;
}

int64_t count(const Graph& graph, const std::string& name) {
  const auto names = operators_of(graph);
  return std::count(names.begin(), names.end(), name);
}

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
    EXPECT_EQ(count(halves.backward, "aten.mm") - count(joint, "aten.mm") + 4, 2)
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
    EXPECT_TRUE(run([&] { return loss(x); }, wanted) == run([&] { return compiled(x); }, wanted));
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
    run([&] { return compiled(x); }, wanted);
    peaks.push_back(memory.peak([&] { run([&] { return compiled(x); }, wanted); }));
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
    EXPECT_TRUE(all_equal(torch::autograd::grad({y.sum()}, {x, w}),
                          torch::autograd::grad({f(x).sum()}, {x, w})));
  }
  // What is checkpointed must do the same when it is called again, so that it runs as it is.
  EXPECT_EQ(compiled.stats().calls, 0u);
}

}  // namespace
}  // namespace ahead
