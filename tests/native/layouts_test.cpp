#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"

/// Images that lie with their channels innermost inside compiled functions, and as in eager
/// outside.
namespace ahead::layouts_test {

using at::Tensor;
using Tensors = std::vector<Tensor>;

struct Network {
  Tensors parameters;
  std::function<Tensor(const Tensor&)> run;
};

Tensor parameter(at::IntArrayRef sizes) {
  return (torch::randn(sizes) * 0.2).requires_grad_();
}

Tensor convolved(const Tensor& x, const Tensor& w, int64_t stride = 1, int64_t groups = 1) {
  return torch::conv2d(x, w, {}, stride, w.size(-1) / 2, 1, groups);
}

/// Convolutions, norms, pooling, resizing, concatenation, a residual sum, and a flat end.
Network network(bool is_training = true) {
  const Tensor w1 = parameter({16, 3, 3, 3}), w2 = parameter({16, 16, 3, 3}),
               w3 = parameter({16, 32, 1, 1}), w4 = parameter({16, 1, 3, 3}),
               scale = parameter({16}), shift = parameter({16}), last = parameter({5, 16 * 64}),
               mean = torch::zeros({16}), variance = torch::ones({16});
  const auto norm = [=](const Tensor& x) {
    return torch::batch_norm(x, scale, shift, mean, variance, is_training, 0.1, 1e-5, true);
  };
  const auto run = [=](const Tensor& x) {
    Tensor a = norm(convolved(x, w1));
    a.relu_();
    const Tensor half = torch::relu(a.mean() + norm(convolved(torch::max_pool2d(a, 2), w2)));
    const Tensor large = torch::upsample_bilinear2d(half, {a.size(2), a.size(3)}, false);
    const Tensor both = convolved(torch::cat({a, large}, 1), w3) + a;
    const Tensor small = torch::avg_pool2d(convolved(both, w4, 2, 16), 2);
    return torch::nn::functional::linear(small.flatten(1), last);
  };
  return {{w1, w2, w3, w4, scale, shift, last}, run};
}

std::string programs_of(const std::vector<Program>& programs, const std::string& stage) {
  std::string text;
  for (const Program& program : programs) {
    if (program.name.starts_with(stage)) text += program.str();
  }
  return text;
}

/// Equal but for rounding, and laid out alike.
void expect_alike(const Tensor& actual, const Tensor& expected, const std::string& what) {
  ASSERT_EQ(actual.defined(), expected.defined()) << what;
  if (!actual.defined()) return;
  EXPECT_EQ(actual.sizes(), expected.sizes()) << what;
  EXPECT_EQ(actual.strides(), expected.strides()) << what;
  const double largest = expected.abs().max().item<double>();
  EXPECT_LE((actual - expected).abs().max().item<double>(), 1e-4 * std::max(largest, 1e-3)) << what;
}

template <class Run>
Tensors with_gradients(const Run& run, const Tensor& x, const Tensors& parameters) {
  const Tensor y = run(x);
  Tensors wanted = parameters;
  wanted.push_back(x);
  Tensors all = torch::autograd::grad({y.pow(2).sum()}, wanted, {}, /*retain_graph=*/true);
  for (const Tensor& again : torch::autograd::grad({y.sin().sum()}, wanted)) all.push_back(again);
  all.push_back(y.detach());
  return all;
}

template <class Run>
void expect_like_eager(const Network& eager, const Run& compiled, const Tensor& x) {
  const Tensors expected = with_gradients(eager.run, x, eager.parameters);
  for (int call = 0; call < 3; ++call) {
    const Tensors actual = with_gradients(compiled, x, eager.parameters);
    for (size_t i = 0; i < expected.size(); ++i)
      expect_alike(actual[i], expected[i],
                   "call " + std::to_string(call) + ", " + std::to_string(i));
  }
}

TEST(Layouts, ResultsAndGradientsLieAsInEager) {
  torch::manual_seed(0);
  const Network net = network();
  auto compiled = compile(net.run, {.backend = "native", .fullgraph = true, .debug_asserts = true});
  expect_like_eager(net, compiled, torch::randn({4, 3, 32, 32}).requires_grad_());
  EXPECT_EQ(compiled.stats().eager_calls, 0u);
  const std::string text = programs_of(compiled.programs(), "choose_layouts");
  EXPECT_NE(text.find("format.channels_last"), std::string::npos) << text;
  const std::string fused = programs_of(compiled.programs(), "fused");
  EXPECT_EQ(fused.find("batch_norm"), std::string::npos) << fused;
}

TEST(Layouts, WithoutGradients) {
  torch::manual_seed(0);
  for (const bool is_training : {false, true}) {
    const Network net = network(is_training);
    auto compiled = compile(net.run, {.backend = "native", .fullgraph = true});
    const at::NoGradGuard no_grad;
    const Tensor x = torch::randn({4, 3, 32, 32}), expected = net.run(x);
    for (int call = 0; call < 4; ++call) expect_alike(compiled(x), expected, "result");
    EXPECT_NE(programs_of(compiled.programs(), "choose_layouts"), "");
  }
}

TEST(Layouts, BatchesOfOtherSizes) {
  torch::manual_seed(0);
  const Network net = network();
  auto compiled = compile(net.run, {.backend = "native"});
  for (const int64_t batch : {4, 6, 3, 5, 4, 7, 6, 1})
    expect_like_eager(net, compiled, torch::randn({batch, 3, 32, 32}).requires_grad_());
  EXPECT_LE(compiled.stats().compilations, 3u);
}

TEST(Layouts, ImagesAsResults) {
  torch::manual_seed(0);
  const Tensor w1 = parameter({16, 3, 3, 3}), w2 = parameter({16, 16, 3, 3}),
               w3 = parameter({1, 16, 3, 3});
  const auto run = [=](const Tensor& x) {
    const Tensor a = torch::max_pool2d(torch::relu(convolved(x, w1)), 2);
    const Tensor b = convolved(torch::upsample_nearest2d(a, {32, 32}), w2);
    return Tensors{a, b, torch::tanh(convolved(b, w3)), b.mean({2, 3}, true), b.view({4, -1})};
  };
  auto compiled = compile(run, {.backend = "native", .fullgraph = true, .debug_asserts = true});
  const Tensor x = torch::randn({4, 3, 32, 32}).requires_grad_();
  const Tensors wanted = {x, w1, w2, w3};
  const Tensors expected = run(x);
  for (int call = 0; call < 3; ++call) {
    const Tensors actual = compiled(x);
    for (size_t i = 0; i < expected.size(); ++i) {
      expect_alike(actual[i], expected[i], "result " + std::to_string(i));
      const auto gradients = [&](const Tensor& y) {
        return torch::autograd::grad({y.pow(2).sum()}, wanted, {}, true, false, true);
      };
      const Tensors ours = gradients(actual[i]), eagers = gradients(expected[i]);
      for (size_t k = 0; k < wanted.size(); ++k)
        expect_alike(ours[k], eagers[k], std::to_string(i) + ", gradient " + std::to_string(k));
    }
  }
}

TEST(Layouts, SecondDerivatives) {
  torch::manual_seed(0);
  const Network net = network();
  auto compiled = compile(net.run, {.backend = "native", .fullgraph = true});
  const Tensor x = torch::randn({4, 3, 32, 32}).requires_grad_();
  const auto penalty = [&](const auto& run) {
    const Tensor first =
        torch::autograd::grad({run(x).sin().sum()}, {x}, {}, true, /*create_graph=*/true)[0];
    Tensors all = torch::autograd::grad({first.pow(2).sum()}, {net.parameters[0], x});
    all.push_back(first.detach());
    return all;
  };
  const Tensors expected = penalty(net.run);
  for (int call = 0; call < 3; ++call) {
    const Tensors actual = penalty(compiled);
    for (size_t i = 0; i < expected.size(); ++i)
      expect_alike(actual[i], expected[i], std::to_string(i));
  }
}

/// The backward saves masks as its kernels need them, derivatives need them as they were drawn.
TEST(Layouts, SecondDerivativesBehindDropout) {
  torch::manual_seed(0);
  const Tensor w1 = parameter({16, 3, 3, 3}), w2 = parameter({16, 16, 3, 3});
  const auto run = [=](const Tensor& x) {
    const Tensor a = torch::max_pool2d(torch::relu(convolved(x, w1)), 2);
    return torch::relu(convolved(torch::dropout(a, 0.5, true), w2)).mean({2, 3});
  };
  auto compiled = compile(run, {.backend = "native", .confirm = Confirm::Never});
  const Tensor x = torch::randn({4, 3, 32, 32}).requires_grad_();
  const auto penalty = [&](const auto& run) {
    const Tensor first =
        torch::autograd::grad({run(x).sin().sum()}, {x}, {}, true, /*create_graph=*/true)[0];
    Tensors all = torch::autograd::grad({first.pow(2).sum()}, {w1, w2, x});
    all.push_back(first.detach());
    return all;
  };
  for (int call = 0; call < 4; ++call) {
    torch::manual_seed(call);
    const Tensors expected = penalty(run);
    torch::manual_seed(call);
    const Tensors actual = penalty(compiled);
    for (size_t i = 0; i < expected.size(); ++i)
      expect_alike(actual[i], expected[i], std::to_string(i));
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0u);
  EXPECT_NE(programs_of(compiled.programs(), "choose_layouts"), "");
}

TEST(Layouts, OtherBackendsKeepTheirs) {
  torch::manual_seed(0);
  const Network net = network();
  auto compiled = compile(net.run, {.backend = "interpreter", .fullgraph = true});
  for (int call = 0; call < 3; ++call) compiled(torch::randn({4, 3, 32, 32}));
  EXPECT_EQ(programs_of(compiled.programs(), "choose_layouts"), "");
  auto own = aot::function([&](const Tensors& in) -> Tensors { return {net.run(in[0])}; }, {});
  own(Tensors{torch::randn({4, 3, 32, 32})});
  EXPECT_EQ(programs_of(own.programs(), "choose_layouts"), "");
}

}  // namespace ahead::layouts_test
