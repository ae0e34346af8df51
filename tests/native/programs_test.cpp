#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>

#include "ahead/ahead.h"
#include "models/models.h"
#include "models/speed_models.h"

namespace ahead::native {
namespace {

using Tensors = std::vector<at::Tensor>;
using Function = std::function<at::Tensor(const Tensors&)>;

/// How far a tensor is from what it should be, relative to its largest element.
double distance(const at::Tensor& actual, const at::Tensor& expected) {
  if (actual.numel() == 0) return 0;
  const at::Tensor wide = expected.to(at::kDouble);
  const double largest = wide.abs().max().item<double>();
  return (actual.to(at::kDouble) - wide).abs().max().item<double>() / std::max(largest, 1e-30);
}

template <class Compiled>
bool has_kernels(const Compiled& compiled) {
  for (const Program& program : compiled.programs()) {
    const bool is_fused = program.name.rfind("fused.", 0) == 0;
    if (is_fused && program.str().find("ahead.call") != std::string::npos) return true;
  }
  return false;
}

Tensors gradients(const at::Tensor& result, const Tensors& inputs) {
  Tensors leaves;
  for (const at::Tensor& input : inputs) {
    if (input.requires_grad()) leaves.push_back(input);
  }
  return torch::autograd::grad({result.sum()}, leaves, {}, /*retain_graph=*/true, false, true);
}

/// A function by kernels gives what it gives eagerly, with its gradient taken twice, and has
/// kernels.
void expect_like_eager(const Function& function, const Tensors& inputs, double tolerance = 1e-5) {
  auto compiled = ahead::compile(function, {.backend = "native", .fullgraph = true});
  torch::manual_seed(1);
  const at::Tensor expected = function(inputs);
  const Tensors expected_gradients = gradients(expected, inputs);
  for (int call = 0; call < 4; ++call) {
    torch::manual_seed(1);
    const at::Tensor actual = compiled(inputs);
    ASSERT_EQ(actual.sizes(), expected.sizes());
    EXPECT_EQ(actual.strides(), expected.strides());
    EXPECT_EQ(actual.scalar_type(), expected.scalar_type());
    EXPECT_LE(distance(actual.detach(), expected.detach()), tolerance) << "call " << call;
    for (int backward = 0; backward < 2; ++backward) {
      const Tensors actual_gradients = gradients(actual, inputs);
      for (size_t i = 0; i < expected_gradients.size(); ++i) {
        ASSERT_EQ(actual_gradients[i].defined(), expected_gradients[i].defined());
        if (!actual_gradients[i].defined()) continue;
        EXPECT_LE(distance(actual_gradients[i], expected_gradients[i]), tolerance)
            << "call " << call << ", gradient " << i;
      }
    }
  }
  EXPECT_GT(compiled.stats().cache_hits, 0u);
  EXPECT_EQ(compiled.stats().eager_calls, 0u);
  EXPECT_TRUE(has_kernels(compiled));
}

at::Tensor leaf(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
  return torch::randn(sizes, at::kDouble).to(dtype).requires_grad_();
}

TEST(Native, ProductsOfALoopOverTimeAreMerged) {
  torch::manual_seed(0);
  expect_like_eager(
      [](const Tensors& in) {
        at::Tensor h = in[1], c = in[2];
        for (int64_t t = 0; t < 6; ++t) {
          const Tensors gates = (in[0].select(1, t).matmul(in[3]) + h.matmul(in[4])).chunk(4, 1);
          c = torch::sigmoid(gates[0]) * c + torch::sigmoid(gates[1]) * torch::tanh(gates[2]);
          h = torch::sigmoid(gates[3]) * torch::tanh(c);
        }
        return h;
      },
      {leaf({5, 6, 3}), leaf({5, 8}), leaf({5, 8}), leaf({3, 32}), leaf({8, 32})}, 3e-5);
}

/// Views of a merged product's parts begin where these do.
TEST(Native, ViewsOfProductsThatAreMerged) {
  torch::manual_seed(0);
  const auto each = [](const std::function<at::Tensor(const at::Tensor&)>& use) {
    expect_like_eager(
        [use](const Tensors& in) {
          at::Tensor sum = torch::zeros({1});
          for (int64_t t = 0; t < 6; ++t)
            sum = sum + torch::tanh(use(in[0].select(0, t).matmul(in[1])) * (t + 1.0)).sum();
          return sum;
        },
        {leaf({6, 8, 5}), leaf({5, 12})}, 3e-5);
  };
  each([](const at::Tensor& y) { return torch::cumsum(y.t(), 0); });
  each([](const at::Tensor& y) { return torch::cumsum(y.view({4, 2, 12}).transpose(0, 1), 0); });
  each([](const at::Tensor& y) { return torch::cumsum(y.chunk(3, 1)[1].t(), 0); });
  each([](const at::Tensor& y) { return torch::cumsum(y.slice(0, 2, 7).select(1, 3), 0); });
  each([](const at::Tensor& y) { return torch::cumsum(y.as_strided({3, 4}, {24, 2}, 13), 0); });
}

TEST(Native, ProductsWithAMatrixAndWithItsTransposeAreNotMerged) {
  torch::manual_seed(0);
  expect_like_eager(
      [](const Tensors& in) {
        at::Tensor sum = torch::zeros({4, 4});
        for (size_t i = 0; i < 3; ++i)
          sum = sum + torch::tanh(in[i].mm(in[3])) * torch::sigmoid(in[i].mm(in[3].t()));
        return sum;
      },
      {leaf({4, 4}), leaf({4, 4}), leaf({4, 4}), leaf({4, 4})});
}

TEST(Native, ProductsOfOperatorsAreRounded) {
  torch::manual_seed(0);
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const auto left_over = [](const at::Tensor& x, const at::Tensor& y, const at::Tensor& product) {
      return torch::relu(product - x * y) + (x * y - product).abs() * 2;
    };
    auto compiled =
        ahead::compile(left_over, {.backend = "native", .fullgraph = true, .confirm = 0});
    for (int call = 0; call < 3; ++call) {
      const at::Tensor x = torch::randn({37, 41}, dtype), y = torch::randn({37, 41}, dtype);
      EXPECT_EQ(compiled(x, y, x * y).abs().max().item<double>(), 0) << "call " << call;
    }
    EXPECT_EQ(compiled.stats().cache_hits, 2u);
    EXPECT_TRUE(has_kernels(compiled));
  }
}

/// Elements of a result are looked for behind the start of its memory.
TEST(Native, WritesToNumbersInTheMiddleOfTensors) {
  torch::manual_seed(0);
  const auto write = [](const Tensors& in) -> Tensors {
    in[0].tanh_().mul_(2);
    in[1].add_(1);
    return {in[0] * in[1]};
  };
  auto compiled = ahead::compile(write, {.backend = "native", .fullgraph = true, .confirm = 0});
  for (int call = 0; call < 4; ++call) {
    const at::Tensor whole = torch::randn({40}), twin = whole.clone();
    const auto passed = [](const at::Tensor& of) {
      const at::Tensor one = of.as_strided({}, {}, 32).variable_data();
      return Tensors{one, one.view(at::IntArrayRef())};
    };
    const at::Tensor expected = write(passed(twin))[0], actual = compiled(passed(whole))[0];
    EXPECT_LE(distance(actual, expected), 1e-6);
    EXPECT_LE(distance(whole, twin), 1e-6);
  }
  EXPECT_EQ(compiled.stats().cache_hits, 3u);
}

TEST(Native, ModelsTrain) {
  std::vector<models::Workload> workloads = models::workloads();
  for (const std::string& name : models::speed_models())
    workloads.push_back(models::speed_workload(name, models::SpeedSize::Small));
  for (const models::Workload& workload : workloads) {
    const auto step = [&](const auto& loss_of) {
      for (const at::Tensor& parameter : workload.parameters)
        parameter.mutable_grad() = at::Tensor();
      const at::Tensor loss = loss_of(workload.inputs)[0];
      loss.backward();
      Tensors all = {loss.detach()};
      for (const at::Tensor& parameter : workload.parameters) all.push_back(parameter.grad());
      return all;
    };
    auto compiled = ahead::compile(workload.loss, {.backend = "native"});
    const Tensors expected = step(workload.loss);
    // Thousands of activations are gated by their sign. Where rounding decides about one of them,
    // the sums that are the gradients of norms change by as much as one of their terms.
    const double tolerance = workload.name == "resnet8" ? 2e-2 : 1e-4;
    for (int i = 0; i < 3; ++i) {
      const Tensors actual = step(compiled);
      for (size_t k = 0; k < expected.size(); ++k) {
        if (!expected[k].defined()) continue;
        EXPECT_LE(distance(actual[k], expected[k]), k == 0 ? 1e-5 : tolerance)
            << workload.name << " " << k;
      }
    }
    EXPECT_TRUE(has_kernels(compiled)) << workload.name;
  }
}

/// A whole step of training as one function, with Ahead's AdamW inside.
TEST(Native, WholeSteps) {
  for (const std::string& name : models::speed_models()) {
    SCOPED_TRACE(name);
    const auto train = [&](const std::string& backend) {
      const models::Workload workload = models::speed_workload(name, models::SpeedSize::Small);
      optim::AdamW optimizer(workload.parameters, torch::optim::AdamWOptions(1e-3));
      auto step = ahead::compile(
          [&] {
            optimizer.zero_grad();
            const at::Tensor loss = workload.loss(workload.inputs)[0];
            loss.backward();
            optimizer.step();
            return loss.detach();
          },
          {.backend = backend, .fullgraph = true});
      std::vector<double> losses;
      for (int i = 0; i < 8; ++i) losses.push_back(step().template item<double>());
      EXPECT_GE(step.stats().cache_hits, 3u);
      EXPECT_EQ(step.stats().eager_calls, 0u);
      EXPECT_EQ(has_kernels(step), backend == "native");
      return losses;
    };
    const std::vector<double> expected = train("interpreter"), actual = train("native");
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(actual[i], expected[i], 1e-3 * std::abs(expected[i]) + 1e-6) << i;
  }
}

/// The products of a loop's weight gradients are merged where the optimizer writes to the weights,
/// too.
TEST(Native, ProductsAreMergedInGraphsThatWrite) {
  torch::manual_seed(0);
  const at::Tensor w = leaf({16, 16}), x = torch::randn({2, 16});
  const auto products = [](const auto& compiled) {
    std::string last;
    for (const Program& program : compiled.programs())
      if (program.name.rfind("fused.", 0) == 0) last = program.str();
    size_t count = 0;
    for (size_t at = 0; (at = last.find("= aten.mm(", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  auto step = ahead::compile(
      [&] {
        at::Tensor h = x;
        for (int t = 0; t < 8; ++t) h = torch::tanh(h.mm(w)) + x;
        const at::Tensor gradient = torch::autograd::grad({h.pow(2).mean()}, {w})[0];
        torch::NoGradGuard guard;
        w.sub_(gradient * 0.01);
        return gradient;
      },
      {.backend = "native", .fullgraph = true});
  for (int i = 0; i < 6; ++i) {
    const at::Tensor copy = w.detach().clone().requires_grad_();
    at::Tensor h = x;
    for (int t = 0; t < 8; ++t) h = torch::tanh(h.mm(copy)) + x;
    const at::Tensor expected = torch::autograd::grad({h.pow(2).mean()}, {copy})[0];
    EXPECT_LE(distance(step(), expected), 1e-5) << i;
    EXPECT_LE(distance(w.detach(), (copy - expected * 0.01).detach()), 1e-6) << i;
  }
  EXPECT_GE(step.stats().cache_hits, 2u);
  EXPECT_LE(products(step), 17u);  // 8 forward, 7 backward and a merged one or two
}

TEST(Native, OneProgramForManySizes) {
  torch::manual_seed(0);
  const at::Tensor w = leaf({24});
  const auto f = [w](const at::Tensor& x) {
    return (torch::layer_norm(torch::gelu(x), {24}) * w).pow(2).mean();
  };
  auto compiled = ahead::compile(f, {.backend = "native"});
  for (int i = 0; i < 40; ++i) {
    const at::Tensor x = leaf({2 + i * 7 % 11, 24});
    const Tensors expected = torch::autograd::grad({f(x)}, {x, w});
    const Tensors actual = torch::autograd::grad({compiled(x)}, {x, w});
    EXPECT_LE(distance(actual[0], expected[0]), 3e-5) << i;
    EXPECT_LE(distance(actual[1], expected[1]), 3e-5) << i;
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0u);
  EXPECT_LE(compiled.stats().compilations, 3u);
}

}  // namespace
}  // namespace ahead::native
