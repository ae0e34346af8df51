#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/compiled_autograd.h"
#include "support/engine_check.h"

namespace ahead {
namespace nodes_test {

using test::expect_as_eager;
using test::expect_error_as_eager;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

TEST(EngineNodes, MlpIsOneGraph) {
  const auto stats = expect_as_eager([] {
    torch::nn::Sequential net(torch::nn::Linear(4, 8), torch::nn::ReLU(), torch::nn::Linear(8, 2));
    net->forward(torch::randn({3, 4})).pow(2).sum().backward();
    std::vector<at::Tensor> grads;
    for (const at::Tensor& p : net->parameters()) grads.push_back(p.grad());
    return grads;
  });
  EXPECT_EQ(stats.captures, 1u);
  EXPECT_EQ(stats.compiles, 1u);
  EXPECT_EQ(stats.cache_hits, 2u);
  EXPECT_EQ(stats.cache_misses, 1u);
  EXPECT_EQ(stats.eager_fallbacks, 0u);
  ASSERT_EQ(compiled_autograd::graphs().size(), 1u);
  const Graph& graph = *compiled_autograd::graphs()[0];
  EXPECT_NE(graph.str().find("ahead.accumulate_grad"), std::string::npos) << graph.str();
  for (const Node& node : graph.nodes()) {
    ASSERT_NE(node.provenance, nullptr);
    EXPECT_EQ(node.phase, Phase::Backward);
    // The number of its NodeCall, in eager's order.
    EXPECT_GE(node.sequence, node.prev() == nullptr ? 1 : node.prev()->sequence);
  }
  EXPECT_EQ(*graph.last()->provenance, "torch::autograd::AccumulateGrad");
}

TEST(EngineNodes, LeafUsedSeveralTimesAddsUpInOrder) {
  const auto stats = expect_as_eager([] {
    const at::Tensor x = leaf({5});
    ((x * 3).sin() + x.exp() * x + x.pow(3)).sum().backward();
    return std::vector<at::Tensor>{x.grad()};
  });
  EXPECT_EQ(stats.captures, 1u);
}

TEST(EngineNodes, GradOfChosenInputs) {
  const auto stats = expect_as_eager([] {
    const at::Tensor x = leaf({3, 4}), w = leaf({4, 2}), b = leaf({2});
    const at::Tensor h = x.mm(w);
    const at::Tensor y = (h + b).tanh();
    variable_list grads = torch::autograd::grad({y.sum()}, {h, w});
    grads.push_back(x.grad());
    grads.push_back(b.grad());
    return grads;
  });
  EXPECT_EQ(stats.captures, 1u);
  EXPECT_EQ(stats.compiles, 1u);
}

TEST(EngineNodes, UnusedInputsGiveUndefined) {
  expect_as_eager([] {
    const at::Tensor x = leaf({3}), unused = leaf({2});
    return torch::autograd::grad({(x * x).sum()}, {x, unused}, {}, false, false, true);
  });
}

TEST(EngineNodes, BackwardWithInputsLeavesOthersAlone) {
  expect_as_eager([] {
    const at::Tensor x = leaf({3}), y = leaf({3});
    torch::autograd::backward({(x * y).sum()}, {}, false, false, {x});
    return std::vector<at::Tensor>{x.grad(), y.grad()};
  });
}

TEST(EngineNodes, SeveralRoots) {
  const auto stats = expect_as_eager([] {
    const at::Tensor x = leaf({3}), y = leaf({3});
    const at::Tensor a = x * y, b = (x + y).sin();
    torch::autograd::backward({a, b}, {torch::randn({3}), torch::randn({3})});
    return std::vector<at::Tensor>{x.grad(), y.grad()};
  });
  EXPECT_EQ(stats.captures, 1u);
}

TEST(EngineNodes, RootIsALeaf) {
  expect_as_eager([] {
    const at::Tensor x = leaf({3});
    const at::Tensor g = torch::randn({3});
    x.backward(g);
    return std::vector<at::Tensor>{x.grad(), g};
  });
}

TEST(EngineNodes, RetainedGraphRunsAgain) {
  expect_as_eager([] {
    const at::Tensor x = leaf({3, 3});
    const at::Tensor loss = (x.mm(x).sigmoid() * x).sum();
    loss.backward({}, /*keep_graph=*/true);
    const at::Tensor first = x.grad().clone();
    loss.backward({}, /*keep_graph=*/true);
    loss.backward();
    return std::vector<at::Tensor>{first, x.grad()};
  });
}

TEST(EngineNodes, SecondBackwardWithoutRetainThrowsAsEager) {
  expect_error_as_eager([] {
    const at::Tensor x = leaf({3});
    const at::Tensor loss = (x * x).sum();
    loss.backward();
    loss.backward();
    return std::vector<at::Tensor>{};
  });
  expect_error_as_eager([] {
    const at::Tensor x = leaf({3, 4});
    const at::Tensor loss = x.index({torch::tensor({0, 2}), torch::tensor({1, 1})}).sum();
    loss.backward();
    loss.backward();
    return std::vector<at::Tensor>{};
  });
}

TEST(EngineNodes, SavedTensorWrittenToThrowsAsEager) {
  expect_error_as_eager([] {
    const at::Tensor x = leaf({3});
    const at::Tensor h = x.exp();
    const at::Tensor loss = (h * h).sum();
    {
      at::NoGradGuard no_grad;
      h.mul_(2);
    }
    loss.backward();
    return std::vector<at::Tensor>{};
  });
}

TEST(EngineNodes, ManyKindsOfNodes) {
  const auto stats = expect_as_eager([] {
    const at::Tensor image = leaf({2, 3, 8, 8}), filter = leaf({4, 3, 3, 3}), table = leaf({5, 4});
    const at::Tensor c = torch::conv2d(image, filter);
    const at::Tensor bn = torch::batch_norm(c, {}, {}, {}, {}, true, 0.1, 1e-5, false);
    const at::Tensor p = torch::max_pool2d(bn, 2);
    const at::Tensor q =
        torch::scaled_dot_product_attention(p.flatten(2), p.flatten(2), p.flatten(2));
    const at::Tensor d = torch::dropout(q, 0.5, true);
    const at::Tensor e = torch::embedding(table, torch::tensor({0, 3, 3}));
    const at::Tensor z = torch::cat({d.flatten(), e.flatten()}).index({torch::arange(7)});
    (z.sum() + torch::log_softmax(d.flatten(1), 1).sum()).backward();
    return std::vector<at::Tensor>{image.grad(), filter.grad(), table.grad()};
  });
  EXPECT_EQ(stats.captures, 1u);
  EXPECT_EQ(stats.compiles, 1u);
}

TEST(EngineNodes, CopySlices) {
  const auto stats = expect_as_eager([] {
    const at::Tensor w = leaf({4, 4}), b = leaf({4});
    const at::Tensor y = w.clone();
    y.select(0, 0).mul_(b);
    y.narrow(1, 1, 2).add_(b.narrow(0, 0, 2));
    y.sin().sum().backward();
    return std::vector<at::Tensor>{w.grad(), b.grad()};
  });
  EXPECT_EQ(stats.captures, 1u);
}

TEST(EngineNodes, BroadcastAndDtypeChangesAreReduced) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4, 1}), y = leaf({3});
    const at::Tensor d = y.to(at::kDouble) * x.to(at::kDouble);
    (d.to(at::kFloat) * x).sum().backward();
    return std::vector<at::Tensor>{x.grad(), y.grad()};
  });
}

TEST(EngineNodes, ComplexNumbers) {
  expect_as_eager([] {
    const at::Tensor x = torch::randn({4}, torch::dtype(at::kComplexFloat).requires_grad(true));
    const at::Tensor y = leaf({4});
    at::real((x * y).conj() * x).sum().backward();
    return std::vector<at::Tensor>{x.grad(), y.grad()};
  });
}

TEST(EngineNodes, NotDifferentiableThrowsAsEager) {
  expect_error_as_eager([] {
    const at::Tensor x = leaf({3});
    const at::Tensor y = torch::special_bessel_j0(x);
    y.sum().backward();
    return std::vector<at::Tensor>{};
  });
}

TEST(EngineNodes, OtherScalarsAreOtherPrograms) {
  double exponent = 2;
  const auto program = [&] {
    const at::Tensor x = leaf({3});
    x.pow(exponent).sum().backward();
    return std::vector<at::Tensor>{x.grad()};
  };
  EXPECT_EQ(expect_as_eager(program).captures, 1u);
  exponent = 3;
  expect_as_eager(program);
  compiled_autograd::reset();
  compiled_autograd::Enable on;
  for (double e : {2.0, 3.0, 4.5, 3.0, 2.0}) {
    exponent = e;
    program();
  }
  EXPECT_EQ(compiled_autograd::stats().captures, 3u);
  EXPECT_EQ(compiled_autograd::stats().cache_hits, 2u);
}

}  // namespace nodes_test
}  // namespace ahead
