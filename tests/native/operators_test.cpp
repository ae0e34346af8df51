#include <torch/torch.h>

#include <sstream>

#include "ahead/ahead.h"
#include "native/like_eager.h"

namespace ahead::operators_test {

using at::Tensor;
using native::test::expect_like_eager;
using native::test::fused_graphs;
using Tensors = std::vector<Tensor>;

Tensor randn(at::IntArrayRef sizes) {
  return torch::randn(sizes);
}

/// Whether an operator of these graphs is computed by itself rather than in a kernel. Sub-graphs
/// are indented further.
bool is_alone(const std::string& graphs, const std::string& op) {
  for (size_t at = graphs.find(op); at != std::string::npos; at = graphs.find(op, at + 1)) {
    const size_t line = graphs.rfind('\n', at) + 1;
    if (graphs[line] == '#') continue;
    if (graphs.compare(line, 3, "  %") == 0) return true;
  }
  return false;
}

TEST(Operators, CrossEntropyIsOneKernelWithItsSoftmax) {
  const Tensor weight = torch::rand({37}) + 0.1;
  for (const int64_t reduction : {0, 1, 2}) {
    for (const bool is_weighted : {false, true}) {
      SCOPED_TRACE("reduction " + std::to_string(reduction));
      const std::string graphs = expect_like_eager(
          [=](const Tensors& t) -> Tensors {
            const auto weights = is_weighted ? std::optional<Tensor>(weight) : std::nullopt;
            return {at::cross_entropy_loss(t[0] * 2, t[1], weights, reduction, 5)};
          },
          [] {
            return Tensors{randn({9, 37}), at::arange(9) * 5 % 37};
          });
      // The sum of the weights, which eager gives as zero, is wanted here by nobody.
      EXPECT_FALSE(is_alone(graphs, "aten.nll_loss_backward")) << graphs;
      EXPECT_FALSE(is_alone(graphs, "aten._log_softmax")) << graphs;
    }
  }
}

TEST(Operators, LabelSmoothingAndIgnoredRows) {
  expect_like_eager(
      [](const Tensors& t) -> Tensors {
        return {at::cross_entropy_loss(t[0], t[1], {}, at::Reduction::Mean, 3, 0.1)};
      },
      [] {
        return Tensors{randn({12, 20}), at::arange(12) % 4};
      });
}

TEST(Operators, LossOfNothingIsNoNumber) {
  const auto function = [](const Tensor& x, const Tensor& target) {
    return at::cross_entropy_loss(x.exp(), target, {}, at::Reduction::Mean, 1);
  };
  auto compiled = compile(function, {.backend = "native", .confirm = Confirm::Never});
  const Tensor x = randn({4, 6});
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(at::isnan(compiled(x, at::ones({4}, at::kLong))).item<bool>());
    const Tensor target =
        at::ones({4}, at::kLong).index_fill_(0, at::full({1}, 2, at::kLong), i + 2);
    EXPECT_TRUE(at::allclose(compiled(x, target), function(x, target)));
  }
}

TEST(Operators, EmbeddingsWithWhatReadsThem) {
  const std::string graphs = expect_like_eager(
      [](const Tensors& t) -> Tensors {
        const Tensor x = at::embedding(t[0], t[1]) + t[2];
        return {at::layer_norm(x, {24}, t[3], t[4])};
      },
      [] {
        return Tensors{randn({13, 24}), at::arange(28).view({4, 7}) * 5 % 13, randn({7, 24}),
                       randn({24}), randn({24})};
      });
  EXPECT_FALSE(is_alone(graphs, "aten.embedding(")) << graphs;
}

TEST(Operators, PicksWithWhatReadsThem) {
  expect_like_eager(
      [](const Tensors& t) -> Tensors {
        const Tensor rows = at::index_select(t[0], 0, t[1]).exp() * 2;
        return {rows, at::gather(t[0], 1, t[2]).sin() + 1};
      },
      [] {
        return Tensors{randn({11, 18}), at::tensor({3, 3, 10, 0}),
                       at::arange(40).view({5, 8}) * 7 % 18};
      });
}

TEST(Operators, PlacesThatAreComputedStayInMemory) {
  expect_like_eager(
      [](const Tensors& t) -> Tensors {
        const Tensor table = t[0].exp();
        return {at::embedding(table, (t[1] + 1) * 2).tanh() * at::embedding(table, t[1])};
      },
      [] {
        return Tensors{randn({16, 9}), at::arange(6)};
      });
}

/// What an error says.
template <class Function>
std::string error_of(const Function& function) {
  try {
    function();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "none";
}

TEST(Operators, PlacesThatDoNotExistAreEagersErrors) {
  const Tensor x = randn({4, 6});
  const auto check = [&](const auto& function, const Tensor& good, const Tensors& bad) {
    auto compiled = compile(function, {.backend = "native", .confirm = Confirm::Never});
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(at::allclose(compiled(x, good), function(x, good)));
    EXPECT_NE(fused_graphs(compiled).find("ahead.call"), std::string::npos);
    for (const Tensor& places : bad) {
      const std::string expected = error_of([&] { function(x, places); });
      EXPECT_NE(expected, "none");
      EXPECT_EQ(error_of([&] { compiled(x, places); }), expected);
    }
    EXPECT_TRUE(at::allclose(compiled(x, good), function(x, good)));
    EXPECT_GE(compiled.stats().cache_hits, 2u);
  };
  const Tensor good = at::tensor({0, 3, 2, 1}, at::kLong);
  const Tensors bad = {at::tensor({0, 6, 2, 1}, at::kLong), at::tensor({0, 3, 2, -1}, at::kLong),
                       at::tensor({int64_t{0}, int64_t{1} << 32, int64_t{2}, int64_t{1}})};
  check([](const Tensor& x, const Tensor& at) { return at::embedding(x, at).exp() * 2; }, good,
        bad);
  check([](const Tensor& x, const Tensor& at) { return at::index_select(x, 0, at).exp() * 2; },
        good, bad);
  check([](const Tensor& x, const Tensor& at) { return x.gather(1, at.unsqueeze(1)).exp() * 2; },
        good, bad);
  check([](const Tensor& x, const Tensor& at) { return at::cross_entropy_loss(x.exp(), at); }, good,
        bad);
}

TEST(Operators, ProbabilitiesThatAreNoneAreEagersErrors) {
  const auto function = [](const Tensor& x, const Tensor& y) {
    return at::binary_cross_entropy(x * 2, y) + at::binary_cross_entropy(x * 2, y, {}, 0).exp();
  };
  auto compiled = compile(function, {.backend = "native", .confirm = Confirm::Never});
  const Tensor good = torch::rand({40, 50}) / 2, target = torch::rand({40, 50});
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(at::allclose(compiled(good, target), function(good, target)));
  EXPECT_FALSE(is_alone(fused_graphs(compiled), "aten.binary_cross_entropy"));
  for (const double wrong : {-1e-30, 0.51, std::nan(""), HUGE_VAL}) {
    const Tensor bad = good.clone();
    bad[39][49] = wrong;
    const std::string expected = error_of([&] { function(bad, target); });
    EXPECT_NE(expected, "none");
    EXPECT_EQ(error_of([&] { compiled(bad, target); }), expected);
  }
}

TEST(Operators, LossesWithWhatTheyReadAndTheirGradients) {
  for (const int64_t reduction : {0, 1, 2}) {
    expect_like_eager(
        [reduction](const Tensors& t) -> Tensors {
          const Tensor x = t[0] * 2, y = t[1] + 1;
          return {at::huber_loss(x, y, reduction, 0.7),
                  at::smooth_l1_loss(x, y, reduction, 0.5),
                  at::binary_cross_entropy_with_logits(x, t[2].sigmoid(), {}, {}, reduction),
                  at::kl_div(at::log_softmax(x, -1), at::softmax(y, -1), reduction),
                  at::log_sigmoid(x) * y,
                  at::cosine_similarity(x, y, 1)};
        },
        [] {
          return Tensors{randn({6, 17}), randn({6, 17}), randn({6, 17})};
        });
  }
}

TEST(Operators, GroupAndInstanceNorms) {
  for (const int64_t groups : {1, 2, 6}) {
    SCOPED_TRACE(groups);
    const std::string graphs = expect_like_eager(
        [groups](const Tensors& t) -> Tensors {
          const Tensor x = at::silu(at::group_norm(t[0] * 1.5, groups, t[1], t[2]));
          return {at::instance_norm(x, t[2], t[1], {}, {}, true, 0.1, 1e-5, false).relu()};
        },
        [] {
          return Tensors{randn({3, 6, 4, 9}), randn({6}), randn({6})};
        });
    EXPECT_FALSE(is_alone(graphs, "aten.native_group_norm(")) << graphs;
    EXPECT_FALSE(is_alone(graphs, "aten.native_batch_norm(")) << graphs;
  }
  expect_like_eager(
      [](const Tensors& t) -> Tensors {
        return {at::group_norm(t[0].exp(), 4).tanh(), at::group_norm(t[1].exp(), 4).tanh()};
      },
      [] {
        return Tensors{randn({3, 12, 20}), randn({5, 8})};
      });
}

TEST(Operators, GradientsOfChannelsInTheKernelOfAGroupNorm) {
  const std::string graphs = expect_like_eager(
      [](const Tensors& t) -> Tensors {
        const Tensor x = at::conv2d(t[0], t[3], t[1], 1, 1);
        return {at::silu(at::group_norm(x, 2, t[1], t[2]))};
      },
      [] {
        return Tensors{randn({70, 6, 5, 20}), randn({6}), randn({6}), randn({6, 6, 3, 3})};
      });
  EXPECT_FALSE(is_alone(graphs, "aten.native_group_norm_backward")) << graphs;
}

TEST(Operators, GroupNormsAreComputedAgainRatherThanSaved) {
  const std::string graphs = expect_like_eager(
      [](const Tensors& t) -> Tensors {
        return {at::silu(at::group_norm(at::silu(at::group_norm(t[0], 2, t[1])), 3, t[1]))};
      },
      [] {
        return Tensors{randn({4, 6, 5, 20}), randn({6})};
      });
  std::istringstream lines(graphs);
  size_t in_backward = 0;
  for (std::string line; std::getline(lines, line);) {
    const bool is_norm = line.find("aten.native_group_norm(") != std::string::npos;
    in_backward += is_norm && line.find("!backward") != std::string::npos;
  }
  EXPECT_EQ(in_backward, 2u) << graphs;
}

TEST(Operators, ViewsBetweenThemStayInsideKernels) {
  const std::string graphs = expect_like_eager(
      [](const Tensors& t) -> Tensors {
        const Tensor rows = at::softmax(t[0].exp().view({24, 10}) * 2, 1);
        const Tensor turned = rows.view({4, 6, 10}).transpose(0, 1);
        return {turned.sin() * t[1], rows};
      },
      [] {
        return Tensors{randn({4, 60}), randn({6, 4, 10})};
      });
  EXPECT_FALSE(is_alone(graphs, "aten._softmax(")) << graphs;
  EXPECT_FALSE(is_alone(graphs, "aten.exp(")) << graphs;
  EXPECT_FALSE(is_alone(graphs, "aten.sin(")) << graphs;
}

TEST(Operators, BatchNormByKeptStatistics) {
  const Tensor mean = randn({5}), variance = torch::rand({5}) + 0.5;
  const auto function = [=](const Tensor& x, const Tensor& weight, const Tensor& bias) {
    const Tensor y = at::batch_norm(x, weight, bias, mean, variance, false, 0.1, 1e-5, false);
    return y.relu() + x;
  };
  auto compiled = compile(function, {.backend = "native", .confirm = Confirm::Never});
  const torch::NoGradGuard no_grad;
  for (int i = 0; i < 3; ++i) {
    const Tensor x = randn({3, 5, 4, 7}), weight = randn({5}), bias = randn({5});
    EXPECT_TRUE(at::allclose(compiled(x, weight, bias), function(x, weight, bias), 1e-5, 1e-5));
  }
  EXPECT_FALSE(is_alone(fused_graphs(compiled), "batch_norm")) << fused_graphs(compiled);
}

}  // namespace ahead::operators_test
