#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "support/compiled_check.h"
#include "support/hits.h"

namespace ahead {
namespace compile_test {

using Tensors = std::vector<at::Tensor>;

TEST(Compile, FunctionWithGradient) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors { return {torch::tanh(in[0].matmul(in[1]) + in[2]).sum()}; },
      {leaf({4, 4}), leaf({4, 4}), leaf({4})});
}

TEST(Compile, SeveralOutputs) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        at::Tensor a = in[0].sin(), b = in[0] * in[1];
        return {a, b, a + b, in[1].exp()};
      },
      {leaf({3}), leaf({3})});
}

TEST(Compile, InputMutation) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        in[0].mul_(2);
        in[0].mul_(in[1]);
        return {in[0] * 3, in[1].cos()};
      },
      {at::randn({3}), leaf({3})});
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        in[0].mul_(3).mul_(in[1]);
        return {in[0].exp()};
      },
      {leaf({3}), leaf({3})}, {.non_leaf_inputs = true});
}

TEST(Compile, OutputsThatAreOrViewInputs) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        in[0].mul_(2);
        return {in[0], in[0].view(-1), in[1].t(), in[1].detach(), in[1], in[1].select(0, 1)};
      },
      {leaf({2, 3}), leaf({2, 3})}, {.non_leaf_inputs = true});
}

TEST(Compile, OutputsThatViewEachOther) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        at::Tensor y = in[0] * 2, z = in[0] * 3;
        return {y.view(-1), y, y.t(), z.view(-1), z.select(1, 1), y};
      },
      {leaf({2, 3})});
}

TEST(Compile, MultiOutputViews) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        std::vector<at::Tensor> parts = (in[0] * 2).split(1);
        std::vector<at::Tensor> rows = in[0].unbind(1);
        parts.insert(parts.end(), rows.begin(), rows.end());
        return parts;
      },
      {leaf({2, 3})});
}

TEST(Compile, NoGradMode) {
  at::NoGradGuard no_grad;
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        in[0].mul_(2);
        return {in[0].view(-1), in[0] + in[1], in[1].t()};
      },
      {at::randn({2, 3}), leaf({2, 3})}, {.backward = false});
}

TEST(Compile, InputGetsAnotherShape) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        in[0].t_();
        in[1].unsqueeze_(0);
        return {in[0] * 2, in[0].select(0, 0)};
      },
      {leaf({2, 3}), at::randn({3})}, {.non_leaf_inputs = true});
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        in[0].transpose_(0, 1).mul_(in[1]);
        return {in[0] * 2, in[0]};
      },
      {leaf({2, 3}), leaf({3, 2})}, {.non_leaf_inputs = true});
}

TEST(Compile, InputGetsAGradient) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        in[0].requires_grad_(true);
        return {in[0] * in[1], in[0]};
      },
      {at::randn({3}), leaf({3})});
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        const at::Tensor y = in[0] * 2;
        in[0].requires_grad_(false);
        return {y, in[0] * 3};
      },
      {leaf({3})});
}

TEST(Compile, GradModeIsLeftAsTheFunctionLeavesIt) {
  const auto f = [](const at::Tensor& x) {
    const at::Tensor y = x * 2;
    at::GradMode::set_enabled(false);
    return y;
  };
  auto compiled = compile(f, {.fullgraph = true, .confirm = 0});
  for (int call = 0; call < 3; ++call) {
    at::AutoGradMode restore(true);
    EXPECT_TRUE(compiled(leaf({2})).requires_grad());
    EXPECT_FALSE(at::GradMode::is_enabled());
  }
  expect_hits(compiled);
}

TEST(Compile, WholeStepWithBackwardInside) {
  torch::manual_seed(1);
  auto net = torch::nn::Linear(3, 2), eager_net = torch::nn::Linear(3, 2);
  for (size_t i = 0; i < 2; ++i) {
    eager_net->parameters()[i].detach().copy_(net->parameters()[i].detach());
  }
  const auto step = [](torch::nn::Linear& module, const at::Tensor& x) {
    const at::Tensor loss = module->forward(x).square().mean();
    loss.backward();
    return loss.detach();
  };
  auto compiled =
      compile([&](const at::Tensor& x) { return step(net, x); }, {.fullgraph = true, .confirm = 0});
  torch::optim::SGD steps(net->parameters(), 0.1), eager_steps(eager_net->parameters(), 0.1);
  for (int i = 0; i < 6; ++i) {
    if (i % 3 == 0) {
      steps.zero_grad();
      eager_steps.zero_grad();
    }
    const at::Tensor x = at::randn({4, 3});
    EXPECT_TRUE(at::equal(step(eager_net, x), compiled(x)));
    for (size_t k = 0; k < 2; ++k) {
      EXPECT_TRUE(at::equal(net->parameters()[k].grad(), eager_net->parameters()[k].grad()));
    }
    steps.step();
    eager_steps.step();
  }
  // Gradients are made in one kind of call and added to in the other.
  expect_hits(compiled, 2);
  EXPECT_EQ(compiled.stats().cache_hits, 4u);
}

TEST(Compile, ArgumentsThatShareMemory) {
  const auto f = [](const Tensors& in) -> Tensors {
    in[0].mul_(2);
    in[2].mul_(in[1]);
    return {in[0] * in[2], in[2], in[0].view(-1)};
  };
  at::Tensor base = leaf({6});
  const at::Tensor plain = at::randn({8});
  {
    at::Tensor shared = at::randn({6});
    expect_compiled_like_eager(f, {shared.slice(0, 0, 4), leaf({4}), shared.slice(0, 2, 6)});
    expect_compiled_like_eager(f, {shared.slice(0, 0, 4), at::randn({4}), shared.slice(0, 2, 6)});
  }
  // They share a storage, but no element.
  expect_compiled_like_eager(f, {plain.slice(0, 0, 4), at::randn({4}), plain.slice(0, 4, 8)},
                             {.backward = false});
  expect_compiled_like_eager(f, {plain.slice(0, 0, 8, 2), at::randn({4}), plain.slice(0, 1, 8, 2)},
                             {.backward = false});
}

TEST(Compile, SharedMemoryIsGuarded) {
  const auto f = [](const Tensors& in) -> Tensors {
    in[0].mul_(2);
    return {in[0] + in[1]};
  };
  auto compiled = compile(aot::FlatFunction(f), {.fullgraph = true, .confirm = 0});
  for (int call = 0; call < 6; ++call) {
    at::Tensor a = at::arange(6.), b = at::arange(6.);
    const auto pick = [&](const at::Tensor& t) -> Tensors {
      const int64_t start = call % 3;
      return {t.slice(0, 0, 3), t.slice(0, start, start + 3)};
    };
    EXPECT_TRUE(at::equal(f(pick(a))[0], compiled(pick(b))[0])) << call;
    EXPECT_TRUE(at::equal(a, b)) << call;
  }
  expect_hits(compiled, 3);
}

TEST(Compile, ReturnsACapturedTensorItself) {
  const at::Tensor captured = leaf({3});
  const auto f = [&](const at::Tensor& x) {
    return std::vector<at::Tensor>{x * 2, captured, captured.view({3, 1})};
  };
  auto compiled = compile(f, {.fullgraph = true, .confirm = 0});
  for (int call = 0; call < 3; ++call) {
    const std::vector<at::Tensor> results = compiled(at::randn({3}));
    EXPECT_TRUE(results[1].is_same(captured));
    EXPECT_TRUE(results[2].is_alias_of(captured));
  }
  expect_hits(compiled);
}

TEST(Compile, Dropout) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        return {torch::dropout(in[0] * in[1], 0.5, true) * in[1]};
      },
      {leaf({8, 3}), leaf({8, 3})});
}

TEST(Compile, ModuleTrains) {
  auto make = [] {
    torch::manual_seed(3);
    return torch::nn::Sequential(torch::nn::Linear(4, 8), torch::nn::BatchNorm1d(8),
                                 torch::nn::ReLU(), torch::nn::Linear(8, 2));
  };
  auto eager = make(), trained = make();
  auto compiled = compile(trained, {.fullgraph = true, .confirm = 0});
  torch::optim::SGD eager_steps(eager->parameters(), 0.1), steps(trained->parameters(), 0.1);
  for (int i = 0; i < 5; ++i) {
    const at::Tensor x = at::randn({6, 4});
    eager_steps.zero_grad();
    steps.zero_grad();
    const at::Tensor a = eager->forward(x).square().sum(), b = compiled(x).square().sum();
    EXPECT_TRUE(at::equal(a, b));
    a.backward();
    b.backward();
    eager_steps.step();
    steps.step();
  }
  for (size_t i = 0; i < eager->parameters().size(); ++i) {
    EXPECT_TRUE(at::equal(eager->parameters()[i], trained->parameters()[i]));
  }
  for (size_t i = 0; i < eager->buffers().size(); ++i) {
    EXPECT_TRUE(at::equal(eager->buffers()[i], trained->buffers()[i]));
  }
  expect_hits(compiled);
  EXPECT_EQ(compiled.stats().cache_hits, 4u);
  eager->eval();
  trained->eval();
  for (int call = 0; call < 2; ++call) {
    const at::Tensor x = at::randn({6, 4});
    EXPECT_TRUE(at::equal(eager->forward(x), compiled(x)));
  }
  expect_hits(compiled, 2);
  EXPECT_EQ(compiled.stats().cache_hits, 5u);
}

TEST(Compile, AFunctionThatSeedsRunsEagerly) {
  const auto f = [](const at::Tensor& x) {
    torch::manual_seed(7);
    return x * at::rand_like(x);
  };
  const at::Tensor x = at::randn({3});
  auto compiled = compile(f);
  for (int call = 0; call < 4; ++call) {
    const at::Tensor expected = f(x), next = at::rand({3});
    EXPECT_TRUE(at::equal(compiled(x), expected));
    EXPECT_TRUE(at::equal(at::rand({3}), next));
  }
  expect_runs_eagerly(compiled, 2);
  EXPECT_EQ(compiled.stats().eager_calls, 2u);
}

TEST(Compile, ASeedIsAsInEagerThoughFullgraphThrows) {
  const auto f = [](const at::Tensor& x) {
    torch::manual_seed(7);
    return x * at::rand_like(x);
  };
  auto compiled = compile(f, {.fullgraph = true, .confirm = 0});
  torch::manual_seed(3);
  const at::Tensor x = at::randn({3});
  EXPECT_THROW(compiled(x), Unsupported);
  const at::Tensor drawn = at::rand({3});
  torch::manual_seed(3);
  f(x);
  EXPECT_TRUE(at::equal(at::rand({3}), drawn));
}

TEST(Compile, CapturedTensorThatIsOnlyReturned) {
  const at::Tensor captured = at::randn({2});
  expect_compiled_like_eager(
      [captured](const Tensors& in) -> Tensors {
        return {in[0] * 2, captured};
      },
      {leaf({3})}, {.write_to_outputs = false});
}

}  // namespace compile_test
}  // namespace ahead
