#include "partition/whole_step.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "ahead/interpret.h"
#include "support/eager.h"

namespace ahead::partition {
namespace {

using at::Tensor;
using Tensors = std::vector<at::Tensor>;

struct Rewritten {
  Graph before, after;
  size_t run_again;
};

/// A function that takes gradients itself, as it was traced and with what runs again.
Rewritten rewrite(const aot::FlatFunction& function, const Tensors& inputs,
                  PartitionOptions options = {}, int64_t least_gain = 1) {
  Rewritten result{trace_joint(function, inputs), {}, 0};
  for (size_t i = result.before.outputs().size(); i-- > 0;) {
    if (result.before.outputs()[i].slot.kind == Slot::Kind::GradOf) result.before.erase_output(i);
  }
  result.after = result.before;
  result.run_again = recompute_inside(result.after, std::move(options), least_gain);
  result.after.verify();
  return result;
}

/// Both graphs give the same bits, from the same state of the generator.
void expect_same(const Rewritten& graphs, const Tensors& inputs) {
  torch::manual_seed(1);
  const Tensors expected = interpret(graphs.before, inputs);
  torch::manual_seed(1);
  const Tensors actual = interpret(graphs.after, inputs);
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(graphs.after.outputs()[i].slot, graphs.before.outputs()[i].slot) << i;
    ASSERT_EQ(actual[i].defined(), expected[i].defined()) << i;
    if (actual[i].defined()) {
      EXPECT_TRUE(torch::equal(actual[i], expected[i])) << i;
    }
  }
}

Tensor chain(const Tensor& x, const Tensor& w) {
  return torch::gelu(torch::tanh(x * w) + x).sin().exp().mean();
}

/// A step of gradient descent.
Tensors step(const Tensor& loss, const Tensor& w) {
  const Tensor gradient = torch::autograd::grad({loss}, {w})[0];
  torch::NoGradGuard guard;
  return {loss.detach(), w - gradient * 0.1};
}

TEST(WholeStep, ChainsRunAgain) {
  const Tensors inputs = {torch::randn({64, 96}), leaf({96})};
  const auto whole = [](const Tensors& in) { return step(chain(in[0], in[1]), in[1]); };
  const Rewritten graphs = rewrite(whole, inputs);
  EXPECT_GE(graphs.run_again, 4u);
  EXPECT_LE(peak_bytes(graphs.after), peak_bytes(graphs.before));
  expect_same(graphs, inputs);
}

TEST(WholeStep, WhatIsDrawnAndEffectsHappenOnce) {
  const Tensors inputs = {torch::randn({64, 96}), leaf({96})};
  const auto whole = [](const Tensors& in) {
    const Tensor kept = torch::dropout(torch::tanh(in[0] * in[1]).sin(), 0.5, true);
    return step(chain(kept.cos(), in[1]), in[1]);
  };
  const Rewritten graphs = rewrite(whole, inputs);
  EXPECT_GT(graphs.run_again, 0u);
  expect_same(graphs, inputs);
}

TEST(WholeStep, ResultsOfTheForwardAndOfTheBackwardKeepTheirPlaces) {
  const Tensors inputs = {torch::randn({64, 96}), leaf({96}), torch::zeros({96})};
  const auto whole = [](const Tensors& in) -> Tensors {
    const Tensor features = torch::tanh(in[0] * in[1]).sin();
    in[2].mul_(0.5).add_(features.detach().mean(0));
    const Tensor loss = chain(features.cos(), in[1]);
    const Tensor gradient = torch::autograd::grad({loss}, {in[1]})[0];
    in[2].mul_(gradient.abs().mean());
    return {gradient, features.detach(), gradient.detach() * 2, loss.detach()};
  };
  const Rewritten graphs = rewrite(whole, inputs);
  EXPECT_GT(graphs.run_again, 0u);
  expect_same(graphs, inputs);
}

TEST(WholeStep, GradientsThatAreDifferentiatedBelongToTheForward) {
  const Tensors inputs = {torch::randn({64, 8}).requires_grad_(), leaf({8, 8}), leaf({8})};
  const auto whole = [](const Tensors& in) {
    const Tensor u = torch::tanh(torch::tanh(in[0].mm(in[1])) * in[2]).sum();
    const Tensor slope = torch::autograd::grad({u}, {in[0]}, {}, true, /*create_graph=*/true)[0];
    return step(slope.pow(2).mean(), in[1]);
  };
  const Rewritten graphs = rewrite(whole, inputs);
  EXPECT_GT(graphs.run_again, 0u);
  expect_same(graphs, inputs);
}

TEST(WholeStep, SeveralBackwards) {
  const Tensors inputs = {torch::randn({64, 96}), leaf({96}), torch::randn({64, 96})};
  const auto whole = [](const Tensors& in) {
    const Tensor first = torch::autograd::grad({chain(in[0], in[1])}, {in[1]})[0];
    Tensors results = step(chain(in[2], in[1]), in[1]);
    results.push_back(first);
    return results;
  };
  const Rewritten graphs = rewrite(whole, inputs);
  EXPECT_GT(graphs.run_again, 0u);
  expect_same(graphs, inputs);
}

TEST(WholeStep, ABudgetLetsProductsRunAgain) {
  const Tensors inputs = {torch::randn({64, 32}), leaf({32, 32})};
  const auto whole = [](const Tensors& in) {
    Tensor x = in[0];
    for (int i = 0; i < 6; ++i) x = torch::tanh(x.mm(in[1])) + x;
    return step(x.pow(2).mean(), in[1]);
  };
  const Rewritten all = rewrite(whole, inputs);
  const Rewritten less = rewrite(whole, inputs, {.memory_budget = 0.3});
  EXPECT_GT(less.run_again, all.run_again);
  EXPECT_LT(peak_bytes(less.after), peak_bytes(all.before));
  expect_same(less, inputs);
}

TEST(WholeStep, NothingRunsAgainWithoutABackwardOrForLittle) {
  const Tensors inputs = {torch::randn({64, 96}), leaf({96})};
  const auto forward = [](const Tensors& in) -> Tensors { return {chain(in[0], in[1]).detach()}; };
  EXPECT_EQ(rewrite(forward, inputs).run_again, 0u);
  const auto whole = [](const Tensors& in) { return step(chain(in[0], in[1]), in[1]); };
  const Rewritten graphs = rewrite(whole, inputs, {}, int64_t{1} << 20);
  EXPECT_EQ(graphs.run_again, 0u);
  EXPECT_EQ(graphs.after.str(), graphs.before.str());
}

}  // namespace
}  // namespace ahead::partition
