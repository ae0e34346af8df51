#include <map>

#include "conformance/aot_26_export.h"
#include "support/round_trip.h"

namespace ahead::conformance {
namespace aot_26_export_test {

using aot::ExportedModule;
using aot::ExportOptions;
using Names = std::vector<std::string>;
using Positions = GraphSignature::Names;

/// A module whose forward is given.
template <class Forward>
struct WithForward : torch::nn::Module {
  explicit WithForward(Forward f) : run(std::move(f)) {}
  template <class... Args>
  requires std::invocable<Forward&, const Args&...>
  auto forward(const Args&... args) { return run(args...); }
  Forward run;
};

template <class Forward>
auto module_of(Forward forward) {
  return std::make_shared<WithForward<Forward>>(std::move(forward));
}

ExportOptions joint(int64_t loss = 0) {
  return {.trace_joint = true, .output_loss_index = loss};
}

void expect_says(const std::string& said, const std::string& text) {
  EXPECT_NE(said.find(text), std::string::npos) << said;
}

size_t count_of(const Graph& graph, const std::string& op) {
  size_t found = 0;
  for (const Node& node : graph.nodes()) found += node.op().name() == op ? 1 : 0;
  return found;
}

/// The operators of a graph, in order.
std::string ops_of(const Graph& graph) {
  std::string ops;
  for (const Node& node : graph.nodes()) ops += (ops.empty() ? "" : " ") + node.op().name();
  return ops;
}

TEST(AotExport, test_aot_export_module_joint) {
  ConvBn module, other;
  const at::Tensor x = torch::randn({1, 1, 3, 3});
  const ExportedModule exported = aot::export_module(module, {x}, joint());
  const GraphSignature& signature = exported.signature;
  EXPECT_EQ(exported.graph.inputs().size(), 8u);
  EXPECT_EQ(exported.graph.outputs().size(), 9u);
  const Names parameters{"conv.weight", "conv.bias", "bn.weight", "bn.bias"};
  const Names buffers{"bn.running_mean", "bn.running_var", "bn.num_batches_tracked"};
  EXPECT_EQ(signature.parameters(), parameters);
  EXPECT_EQ(signature.buffers(), buffers);
  EXPECT_EQ(signature.user_inputs(), Names{"arg0"});
  EXPECT_EQ(signature.user_outputs(), (Names{"out0", "out1"}));
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(signature.inputs_to_parameters().at(i), parameters[static_cast<size_t>(i)]);
    EXPECT_EQ(signature.gradients_to_parameters().at(5 + i), parameters[static_cast<size_t>(i)]);
  }
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(signature.inputs_to_buffers().at(4 + i), buffers[static_cast<size_t>(i)]);
    EXPECT_EQ(signature.buffers_to_mutate().at(i), buffers[static_cast<size_t>(i)]);
  }
  EXPECT_EQ(signature.gradients_to_parameters().size(), 4u);
  EXPECT_TRUE(signature.gradients_to_user_inputs().empty());
  EXPECT_EQ(signature.loss_output, 3);
  EXPECT_EQ(output_slots(exported.graph),
            "MutatedInput 4, MutatedInput 5, MutatedInput 6, Output 0, Output 1, GradOf 0, GradOf "
            "1, GradOf 2, GradOf 3");
  expect_round_trip(exported.graph);

  const ExportedModule inference = aot::export_module(module, {x});
  EXPECT_EQ(inference.graph.inputs().size(), 8u);
  EXPECT_EQ(inference.graph.outputs().size(), 5u);
  EXPECT_EQ(inference.signature.loss_output, -1);

  // The numbers are eager's.
  torch::NoGradGuard no_grad;
  for (size_t i = 0; i < 4; ++i) other->parameters()[i].copy_(module->parameters()[i]);
  const auto results = exported.prepare().run({x});
  at::AutoGradMode grad(true);
  const auto [loss, y] = other->forward(x);
  loss.backward();
  expect_same({loss.detach(), y}, results.outputs);
  expect_same(other->buffers(), module->buffers());
  for (const std::string& name : parameters)
    expect_same({other->named_parameters()[name].grad()}, {results.gradients.at(name)});
}

TEST(AotExport, test_aot_export_simplified_basic) {
  const auto f = [](const Tensors& inputs) {
    return Tensors{inputs[0] * inputs[1], inputs[1] * inputs[1].detach()};
  };
  const at::Tensor x = leaf({2}), y = leaf({2});
  {
    const torch::NoGradGuard no_grad;
    const JointGraph inference = aot::export_joint(f, {x, y});
    EXPECT_EQ(input_slots(inference), "Primal 0, Primal 1");
    expect_same(f({x, y}), interpret(inference, {x, y}));
  }
  const JointGraph joint = aot::export_joint(f, {x, y});
  EXPECT_EQ(input_slots(joint), "Primal 0, Primal 1, Tangent 0, Tangent 1");
  EXPECT_EQ(output_slots(joint), "Output 0, Output 1, GradOf 0, GradOf 1");
  expect_round_trip(joint);
  const PartitionedGraphs halves = partition_default(joint);
  const Tensors made = interpret(halves.forward, {x, y});
  const Tensors eager = f({x, y});
  expect_same({eager[0].detach(), eager[1].detach()}, {made[0], made[1]});
  const Tensors tangents{torch::randn({2}), torch::randn({2})};
  Tensors backward(made.begin() + 2, made.end());
  backward.insert(backward.end(), tangents.begin(), tangents.end());
  expect_same(torch::autograd::grad(eager, {x, y}, tangents), interpret(halves.backward, backward));
}

TEST(AotExport, test_aot_export_metadata_mutation_banned) {
  const auto f = [](at::Tensor x) {
    x.t_();
    return x.sum();
  };
  const at::Tensor x = torch::randn({2, 4});
  const std::string banned = "Found an input that received a metadata mutation";
  expect_says(error_of([&] { aot::export_module(module_of(f), {x}); }), banned);
  expect_says(error_of([&] {
                aot::export_module(module_of(f), {as_non_leaf(leaf({2, 4}))}, joint());
              }),
              banned);
  expect_says(error_of([&] {
                aot::export_joint([&](const Tensors& inputs) { return Tensors{f(inputs[0])}; },
                                  {x});
              }),
              banned);
  EXPECT_EQ(x.sizes(), (std::vector<int64_t>{2, 4}));
}

struct BuffersImpl : torch::nn::Module {
  explicit BuffersImpl(bool mutates) : mutates(mutates) {
    buffer = register_buffer("buffer1", torch::ones({6, 4}));
  }
  at::Tensor forward(at::Tensor x, at::Tensor y) {
    y.mul_(4);
    if (mutates) buffer.mul_(5);
    return x.cos().sum() + y.tan().sum() + buffer.sum();
  }
  bool mutates;
  at::Tensor buffer;
};

TEST(AotExport, test_aot_export_forward_mutation_no_buffer_mut) {
  auto module = std::make_shared<BuffersImpl>(false), eager = std::make_shared<BuffersImpl>(false);
  const Tensors inputs{torch::ones({6, 4}), torch::zeros({6, 4}) + 2};
  const ExportedModule exported = aot::export_module(module, inputs);
  EXPECT_EQ(output_slots(exported.graph), "MutatedInput 2, Output 0");
  EXPECT_EQ(exported.signature.user_inputs_to_mutate(), (Positions{{0, "arg1"}}));
  EXPECT_TRUE(exported.signature.buffers_to_mutate().empty());
  const Tensors own{inputs[0].clone(), inputs[1].clone()};
  expect_same({eager->forward(own[0], own[1])}, exported(inputs));
  expect_same(own, inputs);
}

TEST(AotExport, test_aot_export_forward_mutation_multiple_mut) {
  auto module = std::make_shared<BuffersImpl>(true), eager = std::make_shared<BuffersImpl>(true);
  const Tensors inputs{torch::ones({6, 4}), torch::zeros({6, 4}) + 2};
  const ExportedModule exported = aot::export_module(module, inputs);
  EXPECT_EQ(output_slots(exported.graph), "MutatedInput 0, MutatedInput 2, Output 0");
  EXPECT_EQ(exported.signature.buffers_to_mutate(), (Positions{{0, "buffer1"}}));
  EXPECT_EQ(exported.signature.user_inputs_to_mutate(), (Positions{{1, "arg1"}}));
  const Tensors own{inputs[0].clone(), inputs[1].clone()};
  expect_same({eager->forward(own[0], own[1])}, exported(inputs));
  expect_same(own, inputs);
  expect_same(eager->buffers(), module->buffers());
}

TEST(AotExport, test_aot_export_input_mutation_on_input_requiring_grad_banned) {
  const auto f = [](at::Tensor x) {
    x.mul_(4);
    return x;
  };
  const at::Tensor x = as_non_leaf(leaf({2}));
  const ExportedModule exported = aot::export_module(module_of(f), {x});
  ASSERT_EQ(output_slots(exported.graph), "MutatedInput 0, Output 0");
  EXPECT_EQ(exported.graph.outputs()[0].value, exported.graph.outputs()[1].value);
  const auto summed = [f](at::Tensor y) { return f(y).sum(); };
  expect_says(error_of([&] { aot::export_module(module_of(summed), {x}, joint()); }),
              "Found a graph input that requires gradients, and received a mutation");
}

TEST(AotExport, test_aot_export_synthetic_bases_banned) {
  const auto f = [](at::Tensor x, const at::Tensor& y) {
    x.mul_(2);
    return x + y;
  };
  const at::Tensor base = torch::randn({4}), x = base.view({2, 2}), y = base.view({4}).view({2, 2});
  const std::string banned = "Encountered aliased inputs that are mutated";
  expect_says(error_of([&] { aot::export_module(module_of(f), {x, y}); }), banned);
  expect_says(error_of([&] {
                aot::export_joint(
                    [&](const Tensors& inputs) { return Tensors{f(inputs[0], inputs[1])}; },
                    {x, y});
              }),
              banned);
}

TEST(AotExport, test_aot_export_input_dupes_banned) {
  const auto f = [](at::Tensor x, const at::Tensor& y) {
    x.mul_(2);
    return x + y;
  };
  const at::Tensor x = torch::randn({2, 2});
  const std::string banned = "Encountered duplicated inputs that are mutated in the graph";
  expect_says(error_of([&] { aot::export_module(module_of(f), {x, x}); }), banned);
  expect_says(error_of([&] {
                aot::export_joint(
                    [&](const Tensors& inputs) { return Tensors{f(inputs[0], inputs[1])}; },
                    {x, x});
              }),
              banned);
  // Where nothing is written to them, each is an input of its own.
  const auto pure = [](const at::Tensor& a, const at::Tensor& b) { return a * 2 + b; };
  const ExportedModule exported = aot::export_module(module_of(pure), {x, x});
  expect_same({pure(x, x.sin())}, exported({x, x.sin()}));
  const at::Tensor y = leaf({2, 2}), tangent = torch::randn({2, 2});
  const JointGraph joint = aot::export_joint(
      [&](const Tensors& inputs) { return Tensors{pure(inputs[0], inputs[1])}; }, {y, y});
  EXPECT_EQ(output_slots(joint), "Output 0, GradOf 0, GradOf 1");
  expect_same({pure(x, y).detach(), tangent * 2, tangent}, interpret(joint, {x, y, tangent}));
}

TEST(AotExport, test_aot_export_multiple_outputs_require_grad_banned) {
  const auto f = [](const at::Tensor& x) {
    const at::Tensor y = x * 2;
    return std::make_tuple(y, y.sum());
  };
  expect_says(error_of([&] { aot::export_module(module_of(f), {leaf({2})}, joint(1)); }),
              "Found an output of the forward that requires gradients, that was not");
}

template <class Inputs>
constexpr bool can_be_exported = requires(const aot::FlatFunction& f, const Inputs& inputs) {
  aot::export_joint(f, inputs);
};

TEST(AotExport, test_aot_export_simplified_pytrees_banned) {
  // What upstream finds out at run time does not compile.
  static_assert(can_be_exported<Tensors>);
  static_assert(!can_be_exported<std::vector<Tensors>>);
  static_assert(!can_be_exported<std::tuple<at::Tensor, Tensors>>);
  static_assert(!can_be_exported<std::map<std::string, at::Tensor>>);
  EXPECT_TRUE((!can_be_exported<std::pair<at::Tensor, Tensors>>));
}

TEST(AotExport, test_aot_export_functionalized_rng_banned) {
  aot::Config config;
  config.options.functionalize_rng = true;
  expect_says(error_of([&] {
                aot::export_joint([](const Tensors& inputs) { return Tensors{inputs[0] + 1}; },
                                  {torch::randn({2})}, config);
              }),
              "Functionalized RNG is not currently supported in the aot_export");
}

TEST(AotExport, test_aot_export_input_mutation) {
  struct AddingImpl : torch::nn::Module {
    AddingImpl() { buffer = register_buffer("buf", torch::zeros({2})); }
    at::Tensor forward(const at::Tensor& x) {
      buffer.add_(1);
      return buffer * x;
    }
    at::Tensor buffer;
  };
  auto module = std::make_shared<AddingImpl>();
  const at::Tensor x = leaf({2});
  const ExportedModule exported = aot::export_module(
      module, {x}, {.trace_joint = true, .no_tangents = false, .keep_input_mutations = true});
  EXPECT_EQ(ops_of(exported.graph), "aten.add.Scalar aten.mul.Tensor aten.mul.Tensor aten.copy_");
  EXPECT_EQ(output_slots(exported.graph), "Output 0, GradOf 1");
  expect_round_trip(exported.graph);
  const at::Tensor tangent = torch::randn({2});
  const auto results = exported.prepare().run({x}, {tangent});
  expect_same({torch::ones({2})}, {module->buffer});
  expect_same({torch::ones({2}) * x.detach()}, results.outputs);
  expect_same({tangent * torch::ones({2})}, {results.gradients.at("arg0")});
}

// Graphs above autograd are upstream's alone: what they keep is kept here in other ways. Grad mode
// is a tag of each node, in-place operators are functional, and no copy is left that does nothing.

TEST(AotExport, test_aot_export_predispatch_func_simple) {
  const auto f = [](const at::Tensor& p) {
    at::Tensor y = p + 2;
    {
      const torch::NoGradGuard no_grad;
      y.mul_(2);
    }
    return p * 2 + y;
  };
  const at::Tensor p = torch::randn({3}), q = as_non_leaf(leaf({3}));
  for (const at::Tensor& x : {p, q}) {
    const ExportedModule exported = aot::export_module(module_of(f), {x});
    EXPECT_EQ(ops_of(exported.graph),
              "aten.add.Scalar aten.mul.Scalar aten.mul.Scalar aten.add.Tensor");
    std::vector<bool> without_grad;
    for (const Node& node : exported.graph.nodes()) without_grad.push_back(node.has(Tag::NoGrad));
    EXPECT_EQ(without_grad, (std::vector<bool>{false, true, false, false}));
    expect_same({f(x).detach()}, exported({x}));
  }
}

TEST(AotExport, test_aot_export_predispatch_composite_implicit_inplace) {
  const auto f = [](const at::Tensor& x, const at::Tensor& y) {
    return torch::matmul(x.clone().absolute_(), y);
  };
  const at::Tensor x = torch::randn({3, 3}), y = torch::randn({3, 3});
  const ExportedModule exported = aot::export_module(module_of(f), {x, y});
  EXPECT_EQ(count_of(exported.graph, "aten.abs"), 1u);
  EXPECT_EQ(exported.graph.str().find("abs_"), std::string::npos);
  expect_same({f(x, y)}, exported({x, y}));
}

TEST(AotExport, test_aot_export_predispatch_func_view) {
  const auto f = [](at::Tensor x) {
    x = x * 1;
    at::Tensor y = x.view({-1});
    x.mul_(3);
    return y.sum() + x.sum();
  };
  const at::Tensor x = torch::randn({3, 2});
  const ExportedModule exported = aot::export_module(module_of(f), {x});
  // The view that is summed is one of the new contents.
  const Node* view = nullptr;
  for (const Node& node : exported.graph.nodes()) {
    if (node.op().name() == "aten.view") view = &node;
  }
  ASSERT_NE(view, nullptr);
  EXPECT_EQ(view->args()[0].value()->producer()->op().name(), "aten.mul.Scalar");
  EXPECT_EQ(count_of(exported.graph, "aten.view"), 1u);
  expect_same({f(x)}, exported({x}));
}

TEST(AotExport, test_aot_export_predispatch_with_autograd_op) {
  const auto f = [](const at::Tensor& x) {
    at::Tensor y = x * 2;
    {
      const torch::AutoGradMode enabled(true);
      y = y * 3;
    }
    return y + 1;
  };
  const at::Tensor x = torch::randn({3});
  const torch::NoGradGuard no_grad;
  const ExportedModule exported = aot::export_module(module_of(f), {x});
  std::vector<bool> without_grad;
  for (const Node& node : exported.graph.nodes()) without_grad.push_back(node.has(Tag::NoGrad));
  EXPECT_EQ(without_grad, (std::vector<bool>{true, false, true}));
  expect_same({f(x)}, exported({x}));
}

TEST(AotExport, test_aot_export_predispatch_conv_and_bn) {
  ConvBn module, other;
  const at::Tensor x = torch::randn({1, 1, 3, 3});
  const ExportedModule exported = aot::export_module(module, {x});
  EXPECT_EQ(count_of(exported.graph, "aten.convolution"), 1u);
  EXPECT_EQ(output_slots(exported.graph),
            "MutatedInput 4, MutatedInput 5, MutatedInput 6, Output 0, Output 1");
  for (const Node& node : exported.graph.nodes())
    EXPECT_FALSE(node.has(Tag::Effect)) << node.op().name();
}

TEST(AotExport, test_aot_export_predispatch_reshape) {
  const auto f = [](const at::Tensor& x) { return x.reshape({4, 4}).sum(); };
  const at::Tensor x = torch::randn({2, 8});
  const ExportedModule exported = aot::export_module(module_of(f), {x});
  EXPECT_EQ(ops_of(exported.graph), "aten.view aten.sum");
  expect_same({f(x)}, exported({x}));
}

TEST(AotExport, test_aot_export_predispatch_contiguous) {
  const auto f = [](const at::Tensor& x) { return (x * 1).contiguous() * 2; };
  const at::Tensor x = torch::randn({2, 8});
  const ExportedModule exported = aot::export_module(module_of(f), {x});
  EXPECT_EQ(ops_of(exported.graph), "aten.mul.Scalar aten.mul.Scalar");
  expect_same({f(x)}, exported({x}));
}

TEST(AotExport, test_aot_export_joint_simple_repro) {
  // A compiler author's own compiler: what it is given is exported, cut and run.
  struct LinearImpl : torch::nn::Module {
    LinearImpl() { linear = register_module("linear", torch::nn::Linear(32, 4)); }
    at::Tensor forward(const at::Tensor& x) { return linear->forward(x.reshape({32})); }
    torch::nn::Linear linear{nullptr};
  };
  auto module = std::make_shared<LinearImpl>();
  int compiled = 0;
  aot::Config config;
  config.forward = [&](const Graph& graph, const std::vector<TensorMeta>& metas) {
    ++compiled;
    auto interpreter = std::make_shared<Interpreter>(graph);
    const aot::FlatFunction run = [interpreter](const Tensors& inputs) {
      return interpreter->replay(Tensors(inputs));
    };
    Tensors examples;
    for (const TensorMeta& meta : metas)
      examples.push_back(torch::empty(meta.sizes.fixed(), meta.dtype));
    const torch::NoGradGuard no_grad;
    auto exported = std::make_shared<Interpreter>(aot::export_joint(run, examples));
    return aot::Executable(
        [exported](Tensors&& arguments) { return (*exported)(std::move(arguments)); });
  };
  config.backward = {};
  const auto optimised = aot::module(module, config);
  const at::Tensor x = torch::randn({1, 32});
  const torch::NoGradGuard no_grad;
  expect_same({module->forward(x)}, {optimised(x)});
  EXPECT_EQ(compiled, 1);
  EXPECT_EQ(optimised.stats().eager_calls, 0u);
}

// Ahead's own.

// Modules that are exported without gradients have such sizes: test_aot_export_unbacked_arg.
TEST(AotExport, SizesThatAreReadFromTensorsAreRefused) {
  const auto f = [](const Tensors& inputs) -> Tensors {
    return {at::zeros({inputs[0].item<int64_t>()})};
  };
  EXPECT_THROW(aot::export_joint(f, {at::full({}, 3, at::kLong)}), DataDependent);
}

TEST(AotExport, JointsWithoutTangents) {
  const auto loss = [](const Tensors& inputs) { return Tensors{(inputs[0] * inputs[1]).sum()}; };
  const at::Tensor x = leaf({3}), y = leaf({3});
  aot::Config config;
  config.no_tangents = true;
  const JointGraph graph = aot::export_joint(loss, {x, y}, config);
  EXPECT_EQ(input_slots(graph), "Primal 0, Primal 1");
  EXPECT_EQ(count_of(graph, "aten.ones_like"), 1u);
  expect_round_trip(graph);
  loss({x, y})[0].backward();
  const Tensors made = interpret(graph, {x, y});
  expect_same({loss({x, y})[0].detach(), x.grad(), y.grad()}, made);
  expect_says(
      error_of([&] {
        aot::export_joint([](const Tensors& i) { return Tensors{i[0] * i[1]}; }, {x, y}, config);
      }),
      "without tangents the gradient is that of a scalar, and this result is none");
  expect_says(error_of([&] {
                aot::export_joint(
                    [](const Tensors& i) {
                      return Tensors{i[0].sum(), i[1].sum()};
                    },
                    {x, y}, config);
              }),
              "2 results require grad: without tangents it has to be one");
}

TEST(AotExport, WhatSimpleJointsRefuse) {
  const at::Tensor x = leaf({2, 3}), captured = leaf({3});
  const auto says = [&](const aot::FlatFunction& f, const Tensors& inputs) {
    return error_of([&] { aot::export_joint(f, inputs); });
  };
  expect_says(says([](const Tensors& i) { return Tensors{i[0].view({6})}; }, {x}),
              "does not support outputs that alias inputs");
  expect_says(says([](const Tensors& i) { return Tensors{i[0]}; }, {x}),
              "does not support outputs that alias inputs");
  expect_says(says(
                  [](const Tensors& i) {
                    const at::Tensor y = i[0] * 2;
                    return Tensors{y, y.view({6})};
                  },
                  {x}),
              "does not support outputs that alias others");
  expect_says(says(
                  [](const Tensors& i) {
                    i[0].mul_(2);
                    return Tensors{i[0] + 1};
                  },
                  {torch::randn({3})}),
              "does not support input mutations");
  expect_says(says([&](const Tensors& i) { return Tensors{i[0] * captured}; }, {x}),
              "the function captured a tensor that requires grad");
  // Others stay with the graph, and calls are as before.
  const at::Tensor constant = torch::randn({3});
  const auto f = [&](const Tensors& i) { return Tensors{i[0] * constant}; };
  const torch::NoGradGuard no_grad;
  expect_same(f({x}), interpret(aot::export_joint(f, {x}), {x}));
}

}  // namespace aot_26_export_test
}  // namespace ahead::conformance
