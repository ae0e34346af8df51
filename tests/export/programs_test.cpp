#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "export/modules.h"
#include "models/models.h"
#include "support/eager.h"
#include "support/round_trip.h"

namespace ahead::exported_modules {
namespace programs_test {

using aot::export_module;
using aot::ExportedModule;
using Tensors = std::vector<at::Tensor>;
using OutputKind = GraphSignature::OutputKind;

/// Two modules of one kind with the same numbers.
template <class Holder, class... Args>
std::pair<Holder, Holder> twins(const Args&... args) {
  torch::manual_seed(3);
  Holder first(args...);
  torch::manual_seed(3);
  return {first, Holder(args...)};
}

void expect_same_state(const torch::nn::Module& expected, const torch::nn::Module& actual) {
  expect_same(expected.parameters(), actual.parameters());
  expect_same(expected.buffers(), actual.buffers());
}

void expect_complete(const ExportedModule& exported) {
  expect_round_trip(exported.graph);
  for (const Graph::Input& input : exported.graph.inputs()) {
    EXPECT_NE(input.slot.kind, Slot::Kind::Captured);
    EXPECT_FALSE(input.captured.defined());
  }
  EXPECT_EQ(GraphSignature::parse(exported.signature.str()), exported.signature);
}

/// Trains one module eagerly and the other by its exported joint graph, with SGD of one's own.
template <class Module, class MakeBatch>
void expect_trains_alike(Module eager, Module exported_from, const MakeBatch& make_batch,
                         const aot::ExportOptions& options) {
  const ExportedModule exported = export_module(exported_from, make_batch(), options);
  expect_complete(exported);
  torch::manual_seed(7);
  Tensors eager_losses, losses;
  std::vector<Tensors> batches;
  for (int step = 0; step < 4; ++step) batches.push_back(make_batch());
  torch::manual_seed(11);
  for (const Tensors& batch : batches) {
    eager->zero_grad();
    auto result = eager->forward(batch[0], batch[1]);
    at::Tensor loss;
    if constexpr (std::is_same_v<decltype(result), at::Tensor>) {
      loss = result;
    } else {
      loss = std::get<0>(result);
    }
    loss.backward();
    eager_losses.push_back(loss.detach());
    const torch::NoGradGuard no_grad;
    for (at::Tensor& parameter : eager->parameters()) {
      if (parameter.grad().defined()) parameter.sub_(parameter.grad(), 0.1);
      parameter.mutable_grad() = at::Tensor();  // a shared one is listed twice
    }
  }
  torch::manual_seed(11);
  const GraphSignature& signature = exported.signature;
  for (const Tensors& batch : batches) {
    Tensors arguments = exported.tensors;
    arguments.insert(arguments.end(), batch.begin(), batch.end());
    const Tensors made = interpret(exported.graph, arguments);
    losses.push_back(made[static_cast<size_t>(signature.loss_output)]);
    const torch::NoGradGuard no_grad;
    for (const auto& [position, name] : signature.buffers_to_mutate())
      exported.tensor(name).copy_(made[static_cast<size_t>(position)]);
    for (const auto& [position, name] : signature.gradients_to_parameters())
      exported.tensor(name).sub_(made[static_cast<size_t>(position)], 0.1);
  }
  expect_same(eager_losses, losses);
  expect_same_state(*eager, *exported_from);
}

constexpr auto joint = [] {
  return aot::ExportOptions{.trace_joint = true, .output_loss_index = 0};
};

TEST(ExportPrograms, TrainsAClassifierWithAnOptimizerOfOnesOwn) {
  auto [eager, other] = twins<Classifier>();
  expect_trains_alike(
      eager, other,
      [] {
        return Tensors{torch::randn({6, 8}), torch::randint(4, {6})};
      },
      joint());
}

TEST(ExportPrograms, NamesOfAClassifier) {
  Classifier module;
  const ExportedModule exported =
      export_module(module, {torch::randn({6, 8}), torch::randint(4, {6})},
                    {.trace_joint = true,
                     .output_loss_index = 0,
                     .input_names = {"x", "targets"},
                     .output_names = {"loss", "scores"}});
  const GraphSignature& signature = exported.signature;
  using Names = std::vector<std::string>;
  EXPECT_EQ(signature.parameters(), (Names{"first.weight", "first.bias", "norm.weight", "norm.bias",
                                           "last.weight", "last.bias"}));
  EXPECT_EQ(signature.buffers(),
            (Names{"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}));
  EXPECT_EQ(signature.user_inputs(), (Names{"x", "targets"}));
  EXPECT_EQ(signature.user_outputs(), (Names{"loss", "scores"}));
  EXPECT_EQ(
      signature.buffers_to_mutate(),
      (GraphSignature::Names{
          {0, "norm.running_mean"}, {1, "norm.running_var"}, {2, "norm.num_batches_tracked"}}));
  EXPECT_EQ(signature.loss_output, 3);
  EXPECT_EQ(signature.gradients_to_parameters().size(), 6u);
  EXPECT_EQ(signature.gradients_to_parameters().at(5), "first.weight");
  EXPECT_EQ(signature.find_output(OutputKind::Gradient, "last.bias"), 10);
  EXPECT_TRUE(signature.input_tokens().empty() && signature.output_tokens().empty());
  EXPECT_EQ(exported.tensor("last.bias").unsafeGetTensorImpl(),
            module->last->bias.unsafeGetTensorImpl());
  EXPECT_NE(error_of([&] {
              exported.tensor("nothing");
            }).find("there is no parameter, buffer or constant of this name"),
            std::string::npos);
}

TEST(ExportPrograms, ServesAClassifierInEvaluation) {
  Classifier module;
  module->forward(torch::randn({6, 8}), torch::randint(4, {6}));
  module->eval();
  const torch::NoGradGuard no_grad;
  const Tensors example{torch::randn({6, 8}), torch::randint(4, {6})};
  const ExportedModule exported = export_module(module, example);
  expect_complete(exported);
  EXPECT_TRUE(exported.signature.buffers_to_mutate().empty());
  EXPECT_EQ(exported.graph.str().find("dropout"), std::string::npos);
  const aot::ExportedFunction serve = exported.prepare();
  for (int call = 0; call < 3; ++call) {
    const Tensors batch{torch::randn({6, 8}), torch::randint(4, {6})};
    const auto [loss, scores] = module->forward(batch[0], batch[1]);
    expect_same({loss, scores}, serve(batch));
    expect_same({loss, scores}, exported(batch));
  }
}

TEST(ExportPrograms, SharedParametersAreOneInput) {
  auto [eager, other] = twins<Tied>();
  const auto make_batch = [] {
    return Tensors{torch::randint(12, {2, 5}), torch::randint(12, {2, 5})};
  };
  const ExportedModule exported = export_module(other, make_batch(), joint());
  const GraphSignature& signature = exported.signature;
  ASSERT_EQ(signature.parameters().size(), 3u);
  EXPECT_EQ(signature.inputs[0].name, "head");
  EXPECT_EQ(signature.inputs[0].also, std::vector<std::string>{"embedding.weight"});
  EXPECT_EQ(signature.find_output(OutputKind::Gradient, "embedding.weight"),
            signature.find_output(OutputKind::Gradient, "head"));
  EXPECT_EQ(exported.tensor("embedding.weight").unsafeGetTensorImpl(),
            exported.tensor("head").unsafeGetTensorImpl());
  expect_trains_alike(eager, other, make_batch, joint());
}

TEST(ExportPrograms, TrainsAGpt) {
  const models::GptOptions options{
      .layers = 2, .width = 32, .heads = 2, .vocabulary = 40, .context = 12};
  auto [eager, other] = twins<models::Gpt>(options);
  const auto make_batch = [&] {
    return Tensors{torch::randint(options.vocabulary, {2, options.context}),
                   torch::randint(options.vocabulary, {2, options.context})};
  };
  expect_trains_alike(eager, other, make_batch, joint());
}

TEST(ExportPrograms, TrainsAnLstm) {
  auto [eager, other] = twins<models::Lstm>(16, 8);
  const auto make_batch = [&] { return Tensors{torch::randn({5, 4, 16}), torch::randn({4, 8})}; };
  expect_trains_alike(eager, other, make_batch, joint());
}

struct SequenceImpl : torch::nn::Module {
  SequenceImpl() {
    lstm = register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(5, 4).num_layers(2)));
    head = register_module("head", torch::nn::Linear(4, 3));
  }
  at::Tensor forward(const at::Tensor& sequence, const at::Tensor& targets) {
    const at::Tensor last = std::get<0>(lstm->forward(sequence))[-1];
    return torch::nn::functional::cross_entropy(head->forward(last), targets);
  }
  torch::nn::LSTM lstm{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Sequence);

TEST(ExportPrograms, TrainsLayersOfLstms) {
  auto [eager, other] = twins<Sequence>();
  expect_trains_alike(
      eager, other,
      [] {
        return Tensors{torch::randn({6, 2, 5}), torch::randint(3, {2})};
      },
      joint());
}

struct CheckpointedImpl : torch::nn::Module {
  CheckpointedImpl() {
    first = register_module("first", torch::nn::Linear(8, 8));
    last = register_module("last", torch::nn::Linear(8, 4));
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& targets) {
    const at::Tensor y = ahead::checkpoint(
        CheckpointPolicy::recompute_everything(),
        [this](const at::Tensor& in) {
          return torch::dropout(first->forward(in).relu(), 0.2, true);
        },
        x);
    return torch::nn::functional::cross_entropy(last->forward(y), targets);
  }
  torch::nn::Linear first{nullptr}, last{nullptr};
};
TORCH_MODULE(Checkpointed);

TEST(ExportPrograms, TrainsAcrossCheckpoints) {
  auto [eager, other] = twins<Checkpointed>();
  expect_trains_alike(
      eager, other,
      [] {
        return Tensors{torch::randn({6, 8}), torch::randint(4, {6})};
      },
      joint());
}

TEST(ExportPrograms, CountersAveragesAndAMaskThatIsNotRegistered) {
  auto [eager, other] = twins<Counting>();
  const ExportedModule exported = export_module(other, Tensors{torch::randn({4, 3})});
  expect_complete(exported);
  EXPECT_EQ(exported.signature.constants(), std::vector<std::string>{"constant0"});
  EXPECT_EQ(exported.tensor("constant0").data_ptr(), other->mask.data_ptr());
  const aot::ExportedFunction function = exported.prepare();
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = torch::randn({4, 3});
    expect_same({eager->forward(x).detach()}, function({x}));
  }
  EXPECT_EQ(other->calls.item<int64_t>(), 3);
  expect_same_state(*eager, *other);
}

struct ModesImpl : torch::nn::Module {
  ModesImpl() { linear = register_module("linear", torch::nn::Linear(3, 3)); }
  std::map<std::string, at::Tensor> forward(const at::Tensor& x, int64_t times, double scale,
                                            bool with_bias, const std::optional<at::Tensor>& mask) {
    at::Tensor y = x;
    for (int64_t i = 0; i < times; ++i) y = (y.matmul(linear->weight) * scale).tanh();
    if (with_bias) y = y + linear->bias;
    if (mask) y = y * *mask;
    return {{"mean", y.mean()}, {"all", y}};
  }
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(Modes);

TEST(ExportPrograms, ArgumentsOfAnyKindAndSeveralResults) {
  Modes module;
  const at::Tensor x = torch::randn({2, 3}), mask = torch::rand({2, 3});
  const auto check = [&](int64_t times, bool with_bias, const std::optional<at::Tensor>& given) {
    const ExportedModule exported =
        export_module(module, std::make_tuple(x, times, 0.5, with_bias, given));
    expect_complete(exported);
    const auto expected = module->forward(x, times, 0.5, with_bias, given);
    Tensors inputs{x};
    if (given) inputs.push_back(*given);
    expect_same({expected.at("all").detach(), expected.at("mean").detach()}, exported(inputs));
    return exported.graph.num_nodes();
  };
  const size_t shorter = check(1, false, std::nullopt);
  EXPECT_GT(check(3, true, mask), shorter);
  EXPECT_LT(check(1, true, std::nullopt), check(1, true, mask));
}

struct InListImpl : torch::nn::Module {
  at::Tensor forward(const std::vector<at::Tensor>& parts) { return torch::cat(parts).cumsum(0); }
};
TORCH_MODULE(InList);

TEST(ExportPrograms, ForwardsOfAnyNumberOfTensors) {
  const Tensors parts{torch::randn({2}), torch::randn({3}), torch::randn({1})};
  expect_same({InList()->forward(parts)}, export_module(InList(), parts)(parts));
  torch::nn::Sequential sequential(torch::nn::Linear(3, 4), torch::nn::ReLU(),
                                   torch::nn::Linear(4, 2));
  const at::Tensor x = torch::randn({5, 3});
  expect_same({sequential->forward(x).detach()}, export_module(sequential, {x})({x}));
  EXPECT_EQ(export_module(sequential, {x}).signature.parameters()[2], "2.weight");
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(3, 4).num_layers(2));
  const at::Tensor sequence = torch::randn({6, 2, 3});
  const auto [y, state] = lstm->forward(sequence);
  expect_same({y.detach(), std::get<0>(state).detach(), std::get<1>(state).detach()},
              export_module(lstm, {sequence})({sequence}));
}

/// Doubles the gradient that it hands on.
struct Louder : torch::autograd::Function<Louder> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight) {
    context->save_for_backward({x, weight});
    return x * weight;
  }
  static Tensors backward(torch::autograd::AutogradContext* context, const Tensors& gradients) {
    const Tensors saved = context->get_saved_variables();
    return {gradients[0] * saved[1] * 2, gradients[0] * saved[0] * 2};
  }
};

struct LouderImpl : torch::nn::Module {
  LouderImpl() { weight = register_parameter("weight", torch::rand({3})); }
  at::Tensor forward(const at::Tensor& x) { return Louder::apply(x, weight).sum(); }
  at::Tensor weight;
};

TEST(ExportPrograms, ParametersInFunctionsOfOnesOwn) {
  auto module = std::make_shared<LouderImpl>();
  const at::Tensor x = leaf({3});
  const ExportedModule exported = export_module(module, {x}, joint());
  const auto results = exported.prepare().run({x});
  module->forward(x).backward();
  expect_same({module->weight.grad(), x.grad()},
              {results.gradients.at("weight"), results.gradients.at("arg0")});
  EXPECT_EQ(exported.signature.gradients_to_user_inputs(), (GraphSignature::Names{{2, "arg0"}}));
}

/// The sum; its backward counts, and doubles the gradient that comes in, in place.
struct CountedSum : torch::autograd::Function<CountedSum> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& count) {
    context->saved_data["count"] = count;
    context->saved_data["sizes"] = x.sizes();
    return x.sum();
  }
  static Tensors backward(torch::autograd::AutogradContext* context, Tensors gradients) {
    context->saved_data["count"].toTensor().mul_(5).add_(1);
    return {gradients[0].mul_(2).expand(context->saved_data["sizes"].toIntVector()), at::Tensor()};
  }
};

struct CountedImpl : torch::nn::Module {
  CountedImpl() {
    weight = register_parameter("weight", torch::ones({3}));
    count = register_buffer("count", torch::ones({}));
  }
  at::Tensor forward(const at::Tensor& x) {
    count.mul_(3);
    return CountedSum::apply(x * weight * count.clone(), count);
  }
  at::Tensor weight, count;
};

TEST(ExportPrograms, WritesOfTheBackward) {
  auto eager = std::make_shared<CountedImpl>(), module = std::make_shared<CountedImpl>();
  const at::Tensor x = torch::randn({3});
  const ExportedModule exported = export_module(module, {x}, joint());
  expect_complete(exported);
  EXPECT_EQ(exported.signature.buffers_to_mutate(), (GraphSignature::Names{{0, "count"}}));
  EXPECT_EQ(exported.graph.str().find("copy_"), std::string::npos);
  const aot::ExportedFunction function = exported.prepare();
  for (int call = 0; call < 3; ++call) {
    eager->zero_grad();
    const at::Tensor loss = eager->forward(x);
    loss.backward();
    const auto results = function.run({x});
    expect_same({loss.detach(), eager->weight.grad(), eager->count},
                {results.outputs[0], results.gradients.at("weight"), module->count});
  }
  EXPECT_NE(error_of([&] {
              aot::export_joint(
                  [](const Tensors& i) { return Tensors{CountedSum::apply(i[0], i[1])}; },
                  {leaf({3}), torch::ones({})});
            }).find("does not support input mutations"),
            std::string::npos);
}

TEST(ExportPrograms, TangentsInsteadOfALoss) {
  Modes module;
  const at::Tensor x = leaf({2, 3});
  const ExportedModule exported =
      export_module(module, std::make_tuple(x, int64_t{2}, 0.5, true, std::optional<at::Tensor>()),
                    {.trace_joint = true, .no_tangents = false});
  expect_complete(exported);
  const auto expected = module->forward(x, 2, 0.5, true, std::nullopt);
  const Tensors tangents{torch::randn({2, 3}), torch::randn({})};
  const Tensors gradients =
      torch::autograd::grad({expected.at("all"), expected.at("mean")},
                            {module->linear->weight, module->linear->bias, x}, tangents);
  const auto results = exported.prepare().run({x}, tangents);
  expect_same({expected.at("all").detach(), expected.at("mean").detach()}, results.outputs);
  expect_same(gradients, {results.gradients.at("linear.weight"),
                          results.gradients.at("linear.bias"), results.gradients.at("arg0")});
  EXPECT_NE(error_of([&] { exported({x}); }).find("takes 2 tangents"), std::string::npos);
}

TEST(ExportPrograms, HalvesOfAnExportedGraph) {
  auto [module, other] = twins<Classifier>();
  const Tensors batch{torch::randn({6, 8}), torch::randint(4, {6})};
  const ExportedModule exported = export_module(module, batch, joint());
  torch::manual_seed(5);
  const auto whole = exported.prepare().run(batch);
  const ExportedModule again = export_module(other, batch, joint());
  for (const bool min_cut : {false, true}) {
    const PartitionedGraphs halves =
        min_cut ? partition_min_cut(again.graph, {.static_inputs = again.signature.static_inputs()})
                : partition_default(again.graph);
    torch::manual_seed(5);
    Tensors arguments = again.tensors;
    arguments.insert(arguments.end(), batch.begin(), batch.end());
    const Tensors made = interpret(halves.forward, arguments);
    const Tensors saved(made.end() - static_cast<int64_t>(halves.saved.size()), made.end());
    const Tensors gradients = interpret(halves.backward, saved);
    expect_same({whole.outputs[0]}, {made[static_cast<size_t>(again.signature.loss_output)]});
    Tensors expected;
    for (const auto& [position, name] : again.signature.gradients_to_parameters())
      expected.push_back(whole.gradients.at(name));
    expect_same(expected, gradients);
  }
}

TEST(ExportPrograms, WritesToArgumentsAreRepeated) {
  struct WritingImpl : torch::nn::Module {
    at::Tensor forward(at::Tensor x, at::Tensor y) {
      x.mul_(2);
      y.select(0, 0).mul_(x.sum());
      return x.cos() * y;
    }
  };
  for (const bool in_graph : {false, true}) {
    auto module = std::make_shared<WritingImpl>();
    const auto make = [] {
      torch::manual_seed(1);
      return Tensors{torch::randn({3}), torch::randn({2, 3})};
    };
    Tensors eager = make(), inputs = make();
    const ExportedModule exported =
        export_module(module, make(), {.keep_input_mutations = in_graph});
    expect_complete(exported);
    EXPECT_EQ(exported.signature.user_inputs_to_mutate().size(), in_graph ? 0u : 2u);
    EXPECT_EQ(exported.graph.str().find("copy_") != std::string::npos, in_graph);
    for (int call = 0; call < 2; ++call) {
      expect_same({module->forward(eager[0], eager[1])}, exported(inputs));
      expect_same(eager, inputs);
    }
  }
}

TEST(ExportPrograms, ABackendRunsAnExportedModule) {
  static int compiled = 0;
  static std::vector<bool> static_inputs;
  register_backend("export_test", aot::GraphCompiler([](const aot::CompileRequest& request) {
                     ++compiled;
                     static_inputs = request.static_inputs;
                     auto interpreter = std::make_shared<Interpreter>(request.graph);
                     return aot::Executable([interpreter](Tensors&& arguments) {
                       return (*interpreter)(std::move(arguments));
                     });
                   }));
  torch::nn::Linear module(3, 2);
  const at::Tensor x = torch::randn({4, 3});
  const aot::ExportedFunction function = export_module(module, {x}).prepare("export_test");
  for (int call = 0; call < 2; ++call) expect_same({module->forward(x).detach()}, function({x}));
  EXPECT_EQ(compiled, 1);
  EXPECT_EQ(static_inputs, (std::vector<bool>{true, true, false}));
}

TEST(ExportPrograms, DecomposesOperatorsAndNamesWhatThatCaptures) {
  torch::nn::Sequential module(torch::nn::Linear(3, 3), torch::nn::SiLU());
  const at::Tensor x = torch::randn({2, 3}), half = torch::full({}, 0.5);
  const DecompositionTable table{{"aten.silu", [half](const std::vector<c10::IValue>& arguments) {
                                    const at::Tensor& y = arguments[0].toTensor();
                                    return Tensors{y * ((y * half).tanh() * half + half)};
                                  }}};
  const ExportedModule exported = export_module(module, {x}, {.decompositions = table});
  expect_complete(exported);
  EXPECT_EQ(exported.graph.str().find("aten.silu"), std::string::npos);
  EXPECT_EQ(exported.signature.constants().size(), 1u);
  EXPECT_TRUE(torch::allclose(module->forward(x), exported({x})[0]));
}

}  // namespace programs_test
}  // namespace ahead::exported_modules
