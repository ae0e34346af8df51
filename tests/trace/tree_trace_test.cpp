#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <memory>

#include "ahead/ahead.h"
#include "support/eager.h"
#include "support/round_trip.h"

namespace tree_trace_test {

using ahead::Graph;
using ahead::Slot;

enum class Reduction { None, Mean, Sum };

struct Batch {
  at::Tensor images;
  std::optional<at::Tensor> labels = {};
  double scale = 1;
};
AHEAD_TREE(Batch, images, labels, scale)

struct Losses {
  at::Tensor total;
  std::map<std::string, at::Tensor> parts;
  int64_t count = 0;
};
AHEAD_TREE(Losses, total, parts, count)

std::vector<at::Tensor> clone(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(tensor.detach().clone());
  return copies;
}

/// The graph outputs of one kind, in the order of their indices.
std::vector<at::Tensor> of_kind(const Graph& graph, const std::vector<at::Tensor>& outputs,
                                Slot::Kind kind) {
  std::map<int32_t, at::Tensor> found;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (graph.outputs()[i].slot.kind == kind) found[graph.outputs()[i].slot.index] = outputs[i];
  }
  std::vector<at::Tensor> tensors;
  for (const auto& [index, tensor] : found) tensors.push_back(tensor);
  return tensors;
}

/// Checks that the graph of a call gives eager's results and eager's mutations; returns the graph.
template <class F, class... Args>
Graph expect_like_eager(F&& f, const Args&... args) {
  // Some kernels round otherwise when they prepare a backward.
  const at::NoGradGuard no_grad;
  const Graph graph = ahead::trace(f, args...);
  expect_round_trip(graph);

  ahead::detail::TreeFunction eager(f, args...);
  const std::vector<at::Tensor> inputs = clone(eager.inputs().leaves);
  const std::vector<at::Tensor> outputs = ahead::interpret(graph, clone(inputs));
  const std::vector<at::Tensor> mutated = clone(inputs);
  ahead::expect_same(eager(mutated), of_kind(graph, outputs, Slot::Kind::Output));
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Slot slot = graph.outputs()[i].slot;
    if (slot.kind != Slot::Kind::MutatedInput) continue;
    EXPECT_EQ(ahead::tensor_difference(mutated[slot.index], outputs[i]), "") << slot.str();
  }
  return graph;
}

size_t count(const Graph& graph, Slot::Kind kind) {
  size_t found = 0;
  for (const auto& input : graph.inputs()) found += input.slot.kind == kind;
  for (const auto& output : graph.outputs()) found += output.slot.kind == kind;
  return found;
}

at::Tensor square_plus(const at::Tensor& x, double y) noexcept {
  return x * x + y;
}

TEST(TreeTrace, FunctionsOfTensors) {
  const at::Tensor x = torch::randn({2, 3}), w = torch::randn({3, 4});
  const Graph graph =
      expect_like_eager([](const at::Tensor& a, at::Tensor b) { return a.matmul(b).tanh(); }, x, w);
  EXPECT_EQ(count(graph, Slot::Kind::Primal), 2);
  EXPECT_EQ(count(graph, Slot::Kind::Output), 1);
  expect_like_eager(square_plus, x, 2);
  expect_like_eager(&square_plus, x, 2.5f);
  expect_like_eager(std::function(square_plus), x, 2);
  expect_like_eager(at::relu, x);
  expect_like_eager([](auto... tensors) { return (tensors.sum() + ...); }, x, w, x);
  expect_like_eager([x] { return x + 1; });
}

TEST(TreeTrace, EveryWayToTakeAnArgument) {
  const at::Tensor x = torch::randn({3});
  expect_like_eager([](at::Tensor a) { return a + 1; }, x);
  expect_like_eager([](at::Tensor a) { return a = a + 1; }, x);
  expect_like_eager([](at::Tensor&& a) { return std::move(a) + 1; }, x);
  expect_like_eager([](at::Tensor& a, at::Tensor&& b) { return a * b; }, x, x);
  expect_like_eager([](auto&& a) { return a + 1; }, x);
  expect_like_eager([](auto& a, const auto& b) { return a + b; }, x, x);
  expect_like_eager([](at::TensorList list) { return at::stack(list); }, std::vector{x, x});
  expect_like_eager([](const at::Tensor& a, at::IntArrayRef shape) { return a.expand(shape); }, x,
                    std::vector<int64_t>{2, 3});
  expect_like_eager([calls = 0](const at::Tensor& a) mutable { return a + (calls = 1); }, x);
  const auto constant = [](const at::Tensor& a) { return a + 1; };
  expect_like_eager(constant, x);
  struct OnlyMoves {
    std::unique_ptr<int> number = std::make_unique<int>(2);
    at::Tensor operator()(const at::Tensor& a, double b) const { return a * *number + b; }
  };
  expect_like_eager(OnlyMoves(), x, 3);
}

TEST(TreeTrace, ArgumentsConvertAsInACall) {
  const at::Tensor x = torch::randn({3});
  auto f = [](const at::Tensor& a, std::optional<at::Tensor> b, at::Scalar c,
              const std::string& how) {
    const at::Tensor sum = b ? a + *b : a;
    return how == "scaled" ? sum * c : sum;
  };
  const Graph with = expect_like_eager(f, x, x, 3, "scaled");
  EXPECT_EQ(count(with, Slot::Kind::Primal), 2);
  const Graph without = expect_like_eager(f, x, std::nullopt, 2.5, "plain");
  EXPECT_EQ(count(without, Slot::Kind::Primal), 1);
  EXPECT_EQ(without.num_nodes(), 0);
  expect_like_eager([](auto a, auto how) { return how == "twice" ? a * 2 : a; }, x, "twice");
}

TEST(TreeTrace, ConstantsAreSpecialised) {
  auto f = [](const at::Tensor& x, Reduction reduction, int64_t times, bool negate) {
    at::Tensor y = x;
    for (int64_t i = 0; i < times; ++i) y = y * x;
    if (negate) y = -y;
    if (reduction == Reduction::Mean) return y.mean();
    return reduction == Reduction::Sum ? y.sum() : y;
  };
  const at::Tensor x = torch::randn({3});
  EXPECT_EQ(expect_like_eager(f, x, Reduction::None, 0, false).num_nodes(), 0);
  EXPECT_EQ(expect_like_eager(f, x, Reduction::Mean, 3, true).num_nodes(), 5);
  EXPECT_NE(ahead::trace(f, x, Reduction::Sum, 3, true).hash(),
            ahead::trace(f, x, Reduction::Mean, 3, true).hash());
}

TEST(TreeTrace, StructsAndCollections) {
  auto f = [](const Batch& batch, const std::vector<std::pair<at::Tensor, double>>& weights) {
    Losses losses;
    losses.total = batch.images.sum() * batch.scale;
    for (const auto& [weight, factor] : weights) {
      losses.parts["part" + std::to_string(losses.count++)] = weight.sum() * factor;
    }
    if (batch.labels) losses.parts["labels"] = *batch.labels + 1;
    return losses;
  };
  const at::Tensor x = torch::randn({2, 2});
  const std::vector<std::pair<at::Tensor, double>> weights{{x + 1, 2}, {x + 2, 3}};
  const Graph with = expect_like_eager(f, Batch{x, x + 3, 0.5}, weights);
  EXPECT_EQ(count(with, Slot::Kind::Primal), 4);
  EXPECT_EQ(count(with, Slot::Kind::Output), 4);
  const Graph without = expect_like_eager(f, Batch{x}, weights);
  EXPECT_EQ(count(without, Slot::Kind::Primal), 3);
  EXPECT_EQ(count(without, Slot::Kind::Output), 3);
}

TEST(TreeTrace, UndefinedTensorsPassThrough) {
  auto f = [](const at::Tensor& x, const at::Tensor& bias) {
    return std::tuple(bias, bias.defined() ? x + bias : x * 2, bias);
  };
  const at::Tensor x = torch::randn({3});
  const Graph graph = expect_like_eager(f, x, at::Tensor());
  EXPECT_EQ(count(graph, Slot::Kind::Primal), 1);
  EXPECT_EQ(count(graph, Slot::Kind::Output), 1);
  EXPECT_EQ(count(expect_like_eager(f, x, x + 1), Slot::Kind::Output), 3);
}

TEST(TreeTrace, IValues) {
  auto f = [](const c10::IValue& inputs) -> c10::IValue {
    const auto list = inputs.toTupleRef().elements()[0].toTensorVector();
    return std::tuple(list[0] + list[1], inputs.toTupleRef().elements()[1]);
  };
  const at::Tensor x = torch::randn({3});
  const Graph graph = expect_like_eager(f, c10::IValue(std::tuple(std::vector{x, x + 1}, x + 2)));
  EXPECT_EQ(count(graph, Slot::Kind::Primal), 3);
  EXPECT_EQ(count(graph, Slot::Kind::Output), 2);
}

TEST(TreeTrace, VoidFunctionsOnlyMutate) {
  const at::Tensor x = torch::randn({3}), y = torch::randn({3});
  const Graph graph =
      expect_like_eager([](at::Tensor& a, const at::Tensor& b) { a.add_(b); }, x, y);
  EXPECT_EQ(count(graph, Slot::Kind::MutatedInput), 1);
  EXPECT_EQ(count(graph, Slot::Kind::Output), 0);
  expect_like_eager([](Batch& batch) { batch.images.mul_(batch.scale); }, Batch{x, y, 3});
}

TEST(TreeTrace, ResultsCanBePutTogetherAgain) {
  auto f = [](const at::Tensor& x) {
    return Losses{x.sum(), {{"max", x.max()}, {"nothing", at::Tensor()}}, 7};
  };
  const at::Tensor x = torch::randn({3});
  ahead::detail::TreeFunction function(f, x);
  const Graph graph = ahead::trace(ahead::aot::FlatFunction(std::ref(function)), {x});
  EXPECT_EQ(function.inputs().spec.str(), "(Tensor)");
  EXPECT_EQ(function.outputs().str(),
            "Losses{total: Tensor, parts: {\"max\": Tensor, \"nothing\": undefined}, count: 7}");
  const Losses losses = ahead::unflatten(function.result(), ahead::interpret(graph, {x}));
  EXPECT_TRUE(at::equal(losses.total, x.sum()));
  EXPECT_TRUE(at::equal(losses.parts.at("max"), x.max()));
  EXPECT_FALSE(losses.parts.at("nothing").defined());
  EXPECT_EQ(losses.count, 7);
}

TEST(TreeTrace, JointGraphs) {
  const at::Tensor x = torch::randn({2, 3}, at::requires_grad());
  const at::Tensor w = torch::randn({3, 2}, at::requires_grad());
  const ahead::JointGraph graph = ahead::trace_joint(
      [](const Batch& batch, const at::Tensor& weight) {
        return std::vector{batch.images.matmul(weight).tanh().sum()};
      },
      Batch{x}, w);
  expect_round_trip(graph);
  const auto outputs = ahead::interpret(graph, {x.detach(), w.detach(), at::ones({})});
  const auto expected = torch::autograd::grad({x.matmul(w).tanh().sum()}, {x, w});
  ahead::expect_same(expected, of_kind(graph, outputs, Slot::Kind::GradOf));
}

TEST(TreeTrace, FlatFunctionsKeepTheirMeaning) {
  const at::Tensor x = torch::randn({3}), w = torch::randn({3});
  const std::vector<at::Tensor> inputs{x, w};
  auto f = [](const std::vector<at::Tensor>& in) {
    return std::vector<at::Tensor>{in[0] * in[1], at::Tensor()};
  };
  const ahead::aot::FlatFunction flat = f;
  const Graph graph = ahead::trace(f, {x, w});
  EXPECT_EQ(count(graph, Slot::Kind::Output), 2);
  for (const Graph& same :
       {ahead::trace(f, inputs), ahead::trace(flat, inputs), ahead::trace(flat, {x, w}),
        ahead::trace(f, inputs, ahead::TraceOptions()),
        ahead::trace(f, {x, w}, {.allow_escapes = true}), ahead::trace(flat, inputs, {}),
        ahead::trace(std::ref(f), inputs)}) {
    EXPECT_EQ(same.str(), graph.str());
  }
  EXPECT_EQ(ahead::trace_joint(f, inputs).str(), ahead::trace_joint(f, {x, w}).str());

  auto product = [](const std::vector<at::Tensor>& in) { return in[0] * in[1]; };
  expect_like_eager(product, inputs);
}

TEST(TreeTrace, OptionsComeFirst) {
  at::Tensor kept;
  auto f = [&](const at::Tensor& x) {
    kept = x * 2;
    return x + 1;
  };
  const at::Tensor x = torch::randn({3});
  EXPECT_THROW(ahead::trace(f, x), ahead::Unsupported);
  EXPECT_EQ(ahead::trace_with({.allow_escapes = true}, f, x).num_nodes(), 2);
  EXPECT_EQ(ahead::trace_joint_with({.allow_escapes = true}, f, x).num_nodes(), 2);
}

template <class F, class... Args>
std::string message_of(F&& f, const Args&... args) {
  try {
    ahead::trace(f, args...);
  } catch (const ahead::Unsupported& error) {
    return error.msg();
  }
  return "nothing was thrown";
}

TEST(TreeTrace, AssignmentsToArgumentsAreRefused) {
  const at::Tensor x = torch::randn({3});
  EXPECT_EQ(
      message_of([](Batch& batch, at::Tensor& a) { a = a + batch.images; }, Batch{x}, x),
      "[trace] arguments: the function assigns to tensor 1 of its arguments, which are passed by "
      "reference. Write into a tensor with copy_ or another in-place operator, or return the new "
      "value.");
  EXPECT_EQ(
      message_of([](std::vector<at::Tensor>& list) { list.push_back(list[0] + 1); },
                 std::vector{x}),
      "[trace] arguments: the function was given ([Tensor]) and left ([Tensor, Tensor]). Write "
      "into a tensor with copy_ or another in-place operator, or return the new value.");
  EXPECT_NE(message_of([](Batch& batch) { batch.scale += 1; }, Batch{x}).find("scale: 2.0"),
            std::string::npos);
  EXPECT_NE(message_of([](c10::IValue list) { list.toTensorList().push_back(at::ones({})); },
                       c10::IValue(std::vector{x}))
                .find("and left ([Tensor, Tensor])"),
            std::string::npos);
}

struct ScaleImpl : torch::nn::Module {
  ScaleImpl() : weight(register_parameter("weight", torch::randn({3}))) {}
  at::Tensor forward(const at::Tensor& x) { return x * weight; }
  std::pair<at::Tensor, int64_t> forward(const at::Tensor& x, int64_t power) {
    return {(x * weight).pow(power), power};
  }
  at::Tensor weight;
};
TORCH_MODULE(Scale);

struct AttendImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x, std::optional<at::Tensor> mask = std::nullopt,
                     double scale = 2) {
    return (mask ? x * *mask : x) * scale;
  }

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(std::optional<at::Tensor>())},
                           {2, torch::nn::AnyValue(2.0)})
};
TORCH_MODULE(Attend);

struct PlainNet : torch::nn::Module {
  template <class... Tensors>
  at::Tensor forward(const Tensors&... tensors) {
    return (tensors + ...);
  }
};

TEST(TreeTrace, Modules) {
  const at::Tensor x = torch::randn({2, 3});
  torch::nn::Sequential sequential(torch::nn::Linear(3, 4), torch::nn::ReLU(),
                                   torch::nn::Linear(4, 1));
  const Graph graph = expect_like_eager(sequential, x);
  EXPECT_EQ(count(graph, Slot::Kind::Primal), 1);
  EXPECT_EQ(count(graph, Slot::Kind::Captured), 4);
  expect_like_eager(*sequential, x);
  expect_like_eager(sequential.ptr(), x);
  expect_like_eager(torch::nn::Linear(3, 2), x);
  expect_like_eager(torch::nn::AnyModule(torch::nn::Linear(3, 2)), x);
  expect_like_eager([&](const at::Tensor& in) { return sequential->forward(in).sum(); }, x);
}

TEST(TreeTrace, ModulesWithAnyForward) {
  const at::Tensor x = torch::randn({3});
  Scale scale;
  expect_like_eager(scale, x);
  expect_like_eager(scale, x, int64_t{3});
  expect_like_eager(std::make_shared<ScaleImpl>(), x);
  Attend attend;
  expect_like_eager(attend, x);
  expect_like_eager(attend, x, x);
  EXPECT_EQ(count(expect_like_eager(attend, x, std::nullopt, 3), Slot::Kind::Primal), 1);
  auto plain = std::make_shared<PlainNet>();
  expect_like_eager(plain, x, x + 1);
  expect_like_eager(plain.get(), x, x + 1, x + 2);

  torch::nn::LSTM lstm(torch::nn::LSTMOptions(3, 4));
  const Graph graph = expect_like_eager(lstm, torch::randn({5, 2, 3}));
  EXPECT_EQ(count(graph, Slot::Kind::Output), 3);
}

TEST(TreeTrace, JointGraphsOfModules) {
  const at::Tensor x = torch::randn({2, 3});
  torch::nn::Sequential net(torch::nn::Linear(3, 4), torch::nn::Tanh());
  const ahead::JointGraph graph = ahead::trace_joint(net, x);
  expect_round_trip(graph);
  EXPECT_EQ(count(graph, Slot::Kind::GradOf), 2);
}

}  // namespace tree_trace_test
