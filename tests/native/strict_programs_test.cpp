#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>

#include "ahead/ahead.h"
#include "models/models.h"
#include "models/speed_models.h"
#include "support/eager.h"
#include "support/fuzzing.h"

namespace ahead::native::strict_programs_test {

using at::Tensor;
using Tensors = std::vector<at::Tensor>;
using Function = std::function<Tensors(const Tensors&)>;

Options strictly(CompileMode mode = CompileMode::Blocking) {
  return {.backend = "native", .strict = true, .compile_mode = mode, .fullgraph = true};
}

void expect_same_bits(const Tensors& actual, const Tensors& expected, const std::string& where) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i)
    EXPECT_EQ(tensor_difference(expected[i], actual[i], CompareLayout::Meaningful, 0), "")
        << where << ", result " << i;
}

template <class Compiled>
void expect_kernels_ran(const Compiled& compiled) {
  const CompileStats stats = compiled.stats();
  EXPECT_GT(stats.kernels, 0U);
  EXPECT_EQ(stats.kernels_failed, 0U);
  EXPECT_GT(stats.cache_hits, 0U);
  EXPECT_EQ(stats.eager_calls, 0U);
}

/// The results, and the gradients of the sum of each that has a history.
Tensors with_gradients(const Function& function, const Tensors& inputs) {
  torch::manual_seed(1);
  Tensors all = function(inputs), leaves;
  for (const Tensor& input : inputs) {
    if (input.requires_grad()) leaves.push_back(input);
  }
  const size_t num_results = all.size();
  for (size_t i = 0; i < num_results; ++i) {
    if (!all[i].requires_grad()) continue;
    for (const Tensor& gradient :
         torch::autograd::grad({all[i].sum()}, leaves, {}, /*retain_graph=*/true, false, true))
      all.push_back(gradient.defined() ? gradient : torch::zeros({}));
  }
  for (Tensor& one : all) one = one.detach();
  return all;
}

void expect_eagers_bits(const Function& function, const Tensors& inputs) {
  auto compiled = ahead::compile(function, strictly());
  const Tensors expected = with_gradients(function, inputs);
  for (int call = 0; call < 4; ++call)
    expect_same_bits(with_gradients([&](const Tensors& in) { return compiled(in); }, inputs),
                     expected, "call " + std::to_string(call));
  expect_kernels_ran(compiled);
}

Tensor leaf(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
  return torch::randn(sizes, at::kDouble).to(dtype).requires_grad_();
}

TEST(StrictPrograms, ModelsTrain) {
  std::vector<models::Workload> workloads = models::workloads();
  for (const std::string& name : models::speed_models())
    workloads.push_back(models::speed_workload(name, models::SpeedSize::Small));
  for (const models::Workload& workload : workloads) {
    const auto step = [&](const auto& loss_of) {
      torch::manual_seed(3);
      for (const Tensor& parameter : workload.parameters) parameter.mutable_grad() = Tensor();
      const Tensor loss = loss_of(workload.inputs)[0];
      loss.backward();
      Tensors all = {loss.detach()};
      for (const Tensor& parameter : workload.parameters) all.push_back(parameter.grad());
      return all;
    };
    auto compiled = ahead::compile(workload.loss, strictly());
    const Tensors expected = step(workload.loss);
    for (int i = 0; i < 3; ++i)
      expect_same_bits(step(compiled), expected, workload.name + ", step " + std::to_string(i));
    // Between products there is but one operator there.
    const bool has_groups = workload.name != "mlp";
    EXPECT_EQ(compiled.stats().kernels > 0, has_groups) << workload.name;
    EXPECT_EQ(compiled.stats().eager_calls, 0U) << workload.name;
  }
}

/// A step of AdamW for a network of two layers, by operators, with its gradients taken inside.
Tensors adamw_step(const Tensors& in) {
  constexpr double rate = 1e-2, decay = 0.05, epsilon = 1e-8;
  const Tensor hidden = torch::relu(in[0].mm(in[2]) + in[3]);
  const Tensor loss = torch::mse_loss(hidden.mm(in[4]) + in[5], in[1]);
  const Tensors parameters(in.begin() + 2, in.begin() + 6);
  const Tensors gradients = torch::autograd::grad({loss}, parameters);
  const at::NoGradGuard no_grad;
  Tensors results = {loss.detach()}, first, second;
  for (size_t i = 0; i < 4; ++i) {
    const Tensor& gradient = gradients[i];
    first.push_back(in[6 + i].lerp(gradient, 0.1));
    second.push_back((in[10 + i] * 0.999).addcmul(gradient, gradient, 0.001));
    const Tensor size = (second.back() / 0.3).sqrt() + epsilon;
    results.push_back((parameters[i] * (1 - rate * decay)).addcdiv(first.back(), size, -rate));
  }
  results.insert(results.end(), first.begin(), first.end());
  results.insert(results.end(), second.begin(), second.end());
  return results;
}

TEST(StrictPrograms, ManyStepsOfAdamW) {
  torch::manual_seed(0);
  const Tensor x = torch::randn({37, 19}), target = torch::randn({37, 5});
  const std::vector<std::vector<int64_t>> shapes{{19, 41}, {41}, {41, 5}, {5}};
  Tensors start;
  for (const auto& shape : shapes) start.push_back(torch::randn(shape) * 0.3);
  for (int moments = 0; moments < 2; ++moments) {
    for (const auto& shape : shapes) start.push_back(torch::zeros(shape));
  }
  auto compiled = ahead::compile(adamw_step, strictly());
  const auto step = [&](const auto& function, const Tensors& state) {
    Tensors inputs = {x, target};
    for (size_t i = 0; i < state.size(); ++i)
      inputs.push_back(i < 4 ? state[i].detach().clone().requires_grad_() : state[i]);
    return Tensors(function(inputs));
  };
  Tensors eager = start, native = start;
  for (int i = 0; i < 30; ++i) {
    const Tensors expected = step(adamw_step, eager), actual = step(compiled, native);
    expect_same_bits(actual, expected, "step " + std::to_string(i));
    eager.assign(expected.begin() + 1, expected.end());
    native.assign(actual.begin() + 1, actual.end());
  }
  expect_kernels_ran(compiled);
}

TEST(StrictPrograms, OptimizersThatWriteInPlace) {
  torch::manual_seed(0);
  const auto update = [](const Tensors& in) {
    const at::NoGradGuard no_grad;
    const Tensor &parameter = in[0], &gradient = in[1], &first = in[2], &second = in[3];
    parameter.mul_(0.999);
    first.mul_(0.9).add_(gradient, 0.1);
    second.mul_(0.99).addcmul_(gradient, gradient, 0.01);
    parameter.addcdiv_(first, second.sqrt().add_(1e-8), -1e-3);
    parameter.sub_(gradient.clamp(-0.5, 0.5), 0.02);
    return Tensors{parameter.square()};
  };
  auto compiled = ahead::compile(update, strictly());
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    Tensors eager;
    for (int i = 0; i < 4; ++i) eager.push_back(torch::rand({33, 21}, at::kDouble).to(dtype));
    Tensors native;
    for (const Tensor& tensor : eager) native.push_back(tensor.clone());
    for (int i = 0; i < 6; ++i) {
      expect_same_bits(compiled(native), update(eager), "results");
      expect_same_bits(native, eager, "state");
    }
  }
  expect_kernels_ran(compiled);
}

TEST(StrictPrograms, ChainsOfNormsAndActivations) {
  torch::manual_seed(0);
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    expect_eagers_bits(
        [](const Tensors& in) {
          Tensor x = in[0];
          for (int layer = 0; layer < 3; ++layer) {
            const Tensor normal = torch::layer_norm(x, {33}, in[1], in[2], 1e-5);
            x = x * 0.5 + torch::relu(normal * 1.7 - 0.3) - torch::leaky_relu(normal, 0.2);
          }
          return Tensors{x, torch::softmax(torch::gelu(x) * 3 + x, -1)};
        },
        {leaf({7, 33}, dtype), leaf({33}, dtype), leaf({33}, dtype)});
  }
}

TEST(StrictPrograms, AttentionWrittenOutByOperators) {
  torch::manual_seed(0);
  expect_eagers_bits(
      [](const Tensors& in) {
        const Tensor mask = torch::ones({128, 128}, at::kBool).triu(1);
        const Tensor scores = torch::bmm(in[0], in[1].transpose(1, 2)) / 4.0;
        const Tensor shares = torch::softmax(scores.masked_fill(mask, -1e9), -1);
        return Tensors{torch::bmm(shares, in[2]) * 2 + in[0]};
      },
      {leaf({24, 128, 16}), leaf({24, 128, 16}), leaf({24, 128, 16})});
}

TEST(StrictPrograms, ImagesKeepTheLayoutsOfEager) {
  torch::manual_seed(0);
  expect_eagers_bits(
      [](const Tensors& in) {
        Tensor x = torch::conv2d(in[0], in[1], {}, 1, 1);
        x = torch::batch_norm(x, in[2], in[3], {}, {}, true, 0.1, 1e-5, false);
        x = torch::relu(x + in[0] * 0.5) * 1.5;
        return Tensors{torch::conv2d(torch::max_pool2d(x, 2), in[1], {}, 1, 1)};
      },
      {leaf({4, 16, 20, 20}), leaf({16, 16, 3, 3}), leaf({16}), leaf({16})});
}

TEST(StrictPrograms, LoopsOverTimeMultiplyAsTheyAreWritten) {
  torch::manual_seed(0);
  expect_eagers_bits(
      [](const Tensors& in) {
        Tensor h = in[1];
        for (int64_t t = 0; t < 6; ++t) {
          const Tensor gates = in[0].select(1, t).matmul(in[2]) + h.matmul(in[3]);
          h = torch::clamp(gates * 0.5 + h, -1, 1) * 0.9;
        }
        return Tensors{h};
      },
      {leaf({32, 6, 48}), leaf({32, 64}), leaf({48, 64}), leaf({64, 64})});
}

TEST(StrictPrograms, LargeProductsAreATens) {
  torch::manual_seed(0);
  expect_eagers_bits(
      [](const Tensors& in) {
        return Tensors{torch::relu(in[0].mm(in[1]) * 0.5 + 1).mm(in[1]) - in[0] * 2};
      },
      {leaf({256, 256}), leaf({256, 256})});
}

TEST(StrictPrograms, Losses) {
  torch::manual_seed(0);
  const Tensor classes = torch::randint(9, {31}), x = leaf({31, 9}), y = torch::randn({31, 9});
  const Tensor share = torch::rand({31, 9});
  expect_eagers_bits(
      [=](const Tensors& in) {
        const Tensor z = torch::where(in[0] > 0, in[0] * 1.3, in[0] - 0.1) + y;
        return Tensors{torch::cross_entropy_loss(z, classes),
                       torch::mse_loss(z, y),
                       torch::smooth_l1_loss(z, y),
                       torch::huber_loss(z, y),
                       torch::binary_cross_entropy_with_logits(z, share),
                       torch::kl_div(torch::log_softmax(z, 1), share),
                       (z - y).abs().mean()};
      },
      {x});
}

TEST(StrictPrograms, OneProgramForManySizes) {
  torch::manual_seed(0);
  const Function function = [](const Tensors& in) {
    const Tensor x = torch::relu(in[0] * 1.1 + in[1]) - in[1].neg() * in[0];
    return Tensors{(x / 3).clamp(-2, 2), x.sum()};
  };
  auto compiled = ahead::compile(function, strictly());
  for (int i = 0; i < 30; ++i) {
    const Tensors inputs = {leaf({2 + i * 7 % 11, 24}), leaf({24})};
    expect_same_bits(with_gradients([&](const Tensors& in) { return compiled(in); }, inputs),
                     with_gradients(function, inputs), std::to_string(i));
  }
  expect_kernels_ran(compiled);
  EXPECT_LE(compiled.stats().compilations, 3U);
}

TEST(StrictPrograms, SecondDerivatives) {
  torch::manual_seed(0);
  const Tensor x = leaf({13, 21});
  const auto function = [](const Tensor& x) { return (x * x * 0.3 + x).clamp_min(0.1) * x / 7; };
  auto compiled = ahead::compile(function, strictly());
  const auto derivatives = [&](const auto& of) {
    const Tensor first = torch::autograd::grad({of(x).sum()}, {x}, {}, true, true)[0];
    return Tensors{first.detach(), torch::autograd::grad({first.square().sum()}, {x})[0]};
  };
  const Tensors expected = derivatives(function);
  for (int i = 0; i < 3; ++i) expect_same_bits(derivatives(compiled), expected, "derivatives");
  expect_kernels_ran(compiled);
}

TEST(StrictPrograms, KernelsOfTheBackground) {
  torch::manual_seed(0);
  const auto function = [](const Tensor& x) { return (x * 1.37 + 0.11).relu() * x - x / 0.7; };
  auto compiled = ahead::compile(function, strictly(CompileMode::Background));
  const Tensor x = torch::randn({45, 33}), expected = function(x);
  const auto start = std::chrono::steady_clock::now();
  do {
    EXPECT_TRUE(same_bits(expected, compiled(x)));
  } while (compiled.stats().kernels == 0 &&
           std::chrono::steady_clock::now() - start < std::chrono::seconds(60));
  EXPECT_TRUE(same_bits(expected, compiled(x)));
  EXPECT_GT(compiled.stats().kernels, 0U);
}

TEST(StrictPrograms, CapturedBackwards) {
  torch::manual_seed(0);
  const Tensors leaves = {leaf({13, 21}), leaf({21})};
  const auto gradients = [&] {
    const Tensor x = torch::tanh(leaves[0] * leaves[1] * 0.3 + 1).relu() / 0.7;
    return torch::autograd::grad({x.square().sum()}, leaves);
  };
  const Tensors expected = gradients();
  compiled_autograd::reset();
  {
    const compiled_autograd::Enable enable({.backend = "native_strict", .fullgraph = true});
    for (int i = 0; i < 3; ++i) expect_same_bits(gradients(), expected, "gradients");
  }
  EXPECT_EQ(compiled_autograd::stats().cache_hits, 2U);
  EXPECT_EQ(compiled_autograd::stats().eager_fallbacks, 0U);
  compiled_autograd::reset();
}

/// A gradient is handed over only when all that its autograd node does has been done, in kernels
/// as well: what is written then is not read any more.
TEST(StrictPrograms, HooksWriteToWhatTheSameOperatorRead) {
  const auto train = [](const auto& wrap) {
    torch::manual_seed(0);
    const Tensors leaves = {leaf({8, 8}), leaf({8}), leaf({8, 8})};
    for (const Tensor& parameter : leaves) {
      parameter.register_hook([values = parameter.detach()](const Tensor& gradient) {
        at::Tensor written = values;
        written.sub_(gradient * 0.1);
      });
    }
    auto function = wrap(
        [&](const Tensor& x) { return (x.mm(leaves[0]).tanh() * leaves[1]).mm(leaves[2]).sum(); });
    for (int call = 0; call < 8; ++call) function(torch::randn({4, 8})).backward();
    return Tensors{leaves[0].detach(), leaves[1].detach(), leaves[2].detach()};
  };
  const Tensors expected = train([](auto function) { return function; });
  expect_same_bits(train([](auto function) { return ahead::compile(function, strictly()); }),
                   expected, "after training");
}

/// What is left says why.
TEST(StrictPrograms, SayWhatIsLeftToATen) {
  auto compiled =
      ahead::compile([](const Tensor& x) { return (torch::gelu(x) * 2 + 1).relu(); }, strictly());
  for (int call = 0; call < 3; ++call) compiled(torch::randn({9, 9}));
  std::string text;
  for (const Program& program : compiled.programs()) {
    if (program.name.starts_with("fused")) text += program.str();
  }
  EXPECT_NE(text.find("left aten.gelu to ATen: it would not be exact"), std::string::npos) << text;
}

}  // namespace ahead::native::strict_programs_test
