#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "support/hits.h"

namespace ahead {
namespace aot_test {

using Tensors = std::vector<at::Tensor>;

/// Interprets, and counts how often it is asked to compile and how often what it made runs.
struct Counter {
  std::shared_ptr<int> compiled = std::make_shared<int>(0), calls = std::make_shared<int>(0);

  aot::GraphCompiler compiler() const {
    return [compiled = compiled, calls = calls](const Graph& graph,
                                                const std::vector<TensorMeta>& inputs) {
      EXPECT_EQ(graph.inputs().size(), inputs.size());
      ++*compiled;
      auto interpreter = std::make_shared<Interpreter>(graph);
      return [interpreter, calls](Tensors&& args) {
        EXPECT_FALSE(at::GradMode::is_enabled());
        for (const at::Tensor& arg : args) EXPECT_FALSE(arg.requires_grad());
        ++*calls;
        return (*interpreter)(std::move(args));
      };
    };
  }
};

Tensors product(const Tensors& in) {
  return {in[0].sin() * in[1]};
}

TEST(AotFunction, CompilersAreCalledWhenTheyAreNeeded) {
  Counter forward, backward, inference;
  auto compiled = aot::function(product, {.forward = forward.compiler(),
                                          .backward = backward.compiler(),
                                          .inference = inference.compiler()});
  const at::Tensor x = at::randn({3}).set_requires_grad(true), y = at::randn({3});
  for (int call = 1; call <= 2; ++call) {
    const at::Tensor z = compiled(Tensors{x, y})[0];
    EXPECT_EQ(*forward.calls, call);
    EXPECT_EQ(*backward.compiled, call - 1 == 0 ? 0 : 1);
    z.sum().backward();
    EXPECT_EQ(*backward.calls, call);
  }
  EXPECT_EQ(*forward.compiled, 1);
  EXPECT_EQ(*backward.compiled, 1);
  EXPECT_EQ(*inference.compiled, 0);
  compiled(Tensors{y, y});
  EXPECT_EQ(*inference.compiled, 1);
  EXPECT_EQ(*inference.calls, 1);
}

TEST(AotFunction, PartitionFunctionOfTheUsers) {
  int called = 0;
  auto compiled = aot::function(product, {.partition = [&](const JointGraph& joint) {
                                  ++called;
                                  return partition_default(joint);
                                }});
  const at::Tensor x = at::randn({3}).set_requires_grad(true);
  compiled(Tensors{x, x})[0].sum().backward();
  EXPECT_EQ(called, 1);
  EXPECT_TRUE(at::allclose(x.grad(), x.cos() * x + x.sin()));
}

TEST(AotModule, RunsWithTheUsersCompiler) {
  Counter forward;
  auto linear = std::make_shared<torch::nn::LinearImpl>(3, 2);
  auto compiled = aot::module(linear, {.forward = forward.compiler()});
  const at::Tensor x = at::randn({4, 3});
  EXPECT_TRUE(at::equal(compiled(x), linear->forward(x)));
  EXPECT_EQ(*forward.calls, 1);
}

TEST(Backend, RegisteredOnesAreFoundByName) {
  Counter counter;
  register_backend("counting", counter.compiler());
  EXPECT_THROW(register_backend("counting", counter.compiler()), UserError);
  const auto f = [](const at::Tensor& x) { return x * 2; };
  auto compiled = compiled_by_call(f, {.backend = "counting", .fullgraph = true}, at::randn({3}));
  EXPECT_EQ(*counter.calls, 0);
  const at::Tensor x = at::randn({3});
  EXPECT_TRUE(at::equal(compiled(x), x * 2));
  EXPECT_EQ(*counter.calls, 1);
  expect_hits(compiled);
  EXPECT_THROW(compile(f, {.backend = "unheard of"}), UserError);
}

/// Calls every operator as a program would, with whatever LibTorch does around it.
aot::Executable call_operators(const Graph& graph, const std::vector<TensorMeta>&) {
  auto interpreter = std::make_shared<Interpreter>(graph);
  return [interpreter](Tensors&& args) { return interpreter->replay(std::move(args)); };
}

TEST(Backend, ViewsItMakesAreNotSeenByAutograd) {
  const auto f = [](const Tensors& in) -> Tensors { return {(in[0] * 2).select(0, 1)}; };
  auto compiled = aot::function(f, {.forward = call_operators});
  const at::Tensor x = at::randn({2, 3}).set_requires_grad(true);
  const at::Tensor y = compiled(Tensors{x})[0];
  y.mul_(3);
  EXPECT_TRUE(at::equal(torch::autograd::grad({y.sum()}, {x})[0],
                        torch::autograd::grad({f({x})[0].mul_(3).sum()}, {x})[0]));
}

TEST(Backend, CastsNothingAgainUnderAutocast) {
  const auto f = [](const Tensors& in) -> Tensors {
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::Tensor product = in[0].matmul(in[0]);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    return {product, in[0].matmul(in[0])};
  };
  auto compiled = aot::function(f, {.forward = call_operators});
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const at::Tensor x = at::randn({4, 4});
  const Tensors expected = f({x}), results = compiled(Tensors{x});
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(results[i].dtype(), expected[i].dtype());
    EXPECT_TRUE(at::equal(results[i], expected[i]));
  }
}

TEST(Compile, FullgraphThrowsWhatTheTraceThrewOnceTheCallIsServed) {
  for (const Confirm confirm : {Confirm::Never, Confirm::Doubling}) {
    const at::Tensor total = at::zeros({3});
    auto compiled = compile(
        [total](const at::Tensor& x) {
          total.add_(x);
          return x.to_sparse().to_dense();
        },
        {.fullgraph = true, .confirm = confirm});
    if (confirm == Confirm::Doubling) compiled(at::zeros({3}));
    EXPECT_THROW(compiled(at::ones({3})), DataDependent);
    EXPECT_TRUE(at::equal(total, at::ones({3})));
  }
}

TEST(Compile, FullgraphThrowsThatANumberWhichIsReadChanges) {
  for (const Confirm confirm : {Confirm::Never, Confirm::Doubling}) {
    auto compiled = compile([](const at::Tensor& x) { return x * x.sum().item<double>(); },
                            {.fullgraph = true, .confirm = confirm});
    std::string message;
    for (int call = 1; call <= 8 && message.empty(); ++call) {
      const at::Tensor x = at::full({3}, static_cast<double>(call));
      try {
        EXPECT_TRUE(at::equal(compiled(x), x * (3.0 * call))) << call;
      } catch (const Unsupported& error) {
        message = error.msg();
      }
    }
    EXPECT_NE(message.find("value that is read"), std::string::npos) << message;
    EXPECT_NE(message.find("item<bool>()"), std::string::npos) << message;
  }
}

TEST(AotFunction, JointGraphsAreEditedBetweenCaptureAndCompilation) {
  // Gradients are clipped, in the graph; inputs and gradients are found by their slots.
  const auto clip = [](const JointGraph& captured) {
    JointGraph joint = captured;
    const int64_t x = joint.find_input({Slot::Kind::Primal, 0});
    const int64_t gradient = joint.find_output({Slot::Kind::GradOf, static_cast<int32_t>(x)});
    Value* value = joint.outputs()[static_cast<size_t>(gradient)].value;
    Node* node = joint.add_node(*Operator::find("aten.clamp"), {value, -0.5, 0.5});
    node->phase = Phase::Backward;
    joint.set_output(static_cast<size_t>(gradient), joint.add_return(node, value->meta));
    return partition_min_cut(joint);
  };
  auto compiled = aot::function(
      [](const std::vector<at::Tensor>& in) -> std::vector<at::Tensor> { return {in[0].sin()}; },
      {.partition = clip});
  const at::Tensor x = at::linspace(-3, 3, 20).set_requires_grad(true);
  compiled(std::vector<at::Tensor>{x})[0].sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), x.detach().cos().clamp(-0.5, 0.5)));
}

}  // namespace aot_test
}  // namespace ahead
