#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "passes/random_states.h"
#include "random/generator_state.h"
#include "random/random_form.h"
#include "support/eager.h"
#include "support/noisy_gradient.h"

/// Random operators as functions of a state, and graphs that take and return such states.
namespace ahead {
namespace forms_test {

using Tensors = std::vector<at::Tensor>;

const Operator& operator_named(const char* name) {
  const Operator* op = Operator::find(name);
  EXPECT_NE(op, nullptr) << name;
  return *op;
}

Slot seed_slot(int32_t index) {
  return {Slot::Kind::Seed, index};
}
Slot offset_slot(int32_t index) {
  return {Slot::Kind::Offset, index};
}

TEST(RandomForms, DrawWhatTheOperatorDrawsFromThatState) {
  const Operator* form = random_form(operator_named("aten.bernoulli.p"));
  ASSERT_NE(form, nullptr);
  EXPECT_EQ(form->name(), "ahead.random.aten.bernoulli.p");
  EXPECT_EQ(Operator::find("ahead.random.aten.bernoulli.p"), form);
  EXPECT_EQ(drawn_by(*form), Operator::find("aten.bernoulli.p"));
  torch::manual_seed(1);
  const GeneratorState state = GeneratorState::of_default(at::kCPU);
  const at::Tensor x = at::zeros({40}), expected = at::bernoulli(x, 0.5);
  const GeneratorState after = GeneratorState::of_default(at::kCPU);
  for (int run = 0; run < 2; ++run) {
    torch::jit::Stack stack{state.seed, state.offset, x, 0.5, c10::IValue()};
    form->handle().callBoxed(stack);
    ASSERT_EQ(stack.size(), 2u);
    EXPECT_TRUE(at::equal(stack[0].toTensor(), expected));
    EXPECT_TRUE(at::equal(stack[1].toTensor(), after.offset));
  }
  EXPECT_TRUE(at::equal(GeneratorState::of_default(at::kCPU).offset, after.offset));
}

TEST(RandomForms, HaveNoneForWhatIsNoFunctionOfTensors) {
  EXPECT_EQ(random_form(operator_named("aten.bernoulli.out")), nullptr);
  EXPECT_EQ(Operator::find("ahead.random.aten.no_such_operator"), nullptr);
  EXPECT_EQ(drawn_by(operator_named("aten.bernoulli.p")), nullptr);
}

/// A function of two draws, one of which is written in place.
Tensors two_draws(const Tensors& in) {
  const at::Tensor noise = at::rand_like(in[0]);
  return {in[0] * noise + at::empty_like(in[0]).normal_(1, 2)};
}

TEST(FunctionalizeRandom, TakesSeedAndOffsetLastAndReturnsTheNewOffset) {
  const at::Tensor x = torch::randn({30});
  Graph graph = trace(two_draws, {x});
  EXPECT_EQ(passes::functionalize_random(graph), 2u);
  graph.verify();
  ASSERT_EQ(graph.inputs().size(), 3u);
  EXPECT_EQ(graph.inputs()[1].slot, seed_slot(0));
  EXPECT_EQ(graph.inputs()[2].slot, offset_slot(0));
  ASSERT_EQ(graph.outputs().size(), 2u);
  EXPECT_EQ(graph.outputs()[1].slot, offset_slot(0));
  for (const Node& node : graph.nodes()) EXPECT_FALSE(node.has(Tag::Random)) << node.op().name();

  const GeneratorState state = GeneratorState::of_default(at::kCPU);
  const Tensors first = interpret(graph, {x, state.seed, state.offset});
  const Tensors again = interpret(Graph::parse(graph.str()), {x, state.seed, state.offset});
  EXPECT_TRUE(at::equal(GeneratorState::of_default(at::kCPU).offset, state.offset));
  const at::Tensor expected = two_draws({x})[0];
  EXPECT_TRUE(same_bits(expected, first[0]));
  EXPECT_TRUE(same_bits(expected, again[0]));
  EXPECT_TRUE(at::equal(first[1], GeneratorState::of_default(at::kCPU).offset));
}

/// Draws, and returns a list, so that it has no functional form.
std::vector<at::Tensor> draw_list(const at::Tensor& x) {
  return {at::rand_like(x), at::randn_like(x)};
}

TORCH_LIBRARY(ahead_random_test, library) {
  library.def("draw_list(Tensor x) -> Tensor[]", {at::Tag::nondeterministic_seeded});
}
TORCH_LIBRARY_IMPL(ahead_random_test, CPU, library) {
  library.impl("draw_list", draw_list);
}
TORCH_LIBRARY_IMPL(ahead_random_test, Meta, library) {
  library.impl("draw_list", draw_list);
}

TEST(FunctionalizeRandom, OperatorsWithoutAFormDrawFromTheGeneratorInTurn) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("ahead_random_test::draw_list", "")
                             .typed<std::vector<at::Tensor>(const at::Tensor&)>();
  const auto f = [](const Tensors& in) {
    const at::Tensor first = at::rand_like(in[0]);
    const Tensors both = op.call(in[0]);
    return Tensors{first, both[0] * both[1], at::rand_like(in[0]) + op.call(in[0])[0]};
  };
  auto compiled =
      compile(f, {.fullgraph = true, .confirm = Confirm::Never, .functionalize_rng = true});
  const Tensors in{at::ones({9})};
  for (int call = 0; call < 3; ++call) {
    torch::manual_seed(call);
    const Tensors expected = f(in);
    const at::Tensor left = random_state();
    torch::manual_seed(call);
    expect_same(expected, compiled(in));
    EXPECT_TRUE(at::equal(left, random_state()));
  }
  EXPECT_EQ(compiled.stats().cache_hits, 2u);
}

TEST(FunctionalizeRandom, TellsForwardAndBackwardOfAJointGraphApart) {
  const at::Tensor x = leaf({4});
  JointGraph joint =
      trace_joint([](const Tensors& in) { return Tensors{NoisyGradient::apply(in[0])}; }, {x});
  EXPECT_GT(passes::functionalize_random(joint), 0u);
  joint.verify();
  std::vector<Slot> inputs, outputs;
  for (const Graph::Input& input : joint.inputs()) inputs.push_back(input.slot);
  for (const Graph::Output& output : joint.outputs()) outputs.push_back(output.slot);
  const std::vector<Slot> states{seed_slot(0), offset_slot(0), seed_slot(1), offset_slot(1)};
  ASSERT_GE(inputs.size(), 4u);
  EXPECT_EQ(std::vector<Slot>(inputs.end() - 4, inputs.end()), states);
  EXPECT_EQ(std::vector<Slot>(outputs.end() - 2, outputs.end()),
            (std::vector<Slot>{offset_slot(0), offset_slot(1)}));
}

bool all(const Node&) {
  return true;
}

TEST(NameStates, HandsStatesOn) {
  const Graph traced = trace(two_draws, {torch::randn({30})});
  Graph graph(traced);
  EXPECT_EQ(passes::name_states(graph, all, passes::HandOn::States), 2u);
  graph.verify();
  size_t reads = 0, writes = 0;
  for (const Node& node : graph.nodes()) {
    reads += &node.op() == &generator_state_operator() ? 1 : 0;
    writes += &node.op() == &set_generator_state_operator() ? 1 : 0;
  }
  EXPECT_EQ(reads, 1u);
  EXPECT_EQ(writes, 1u);
  torch::manual_seed(4);
  const Tensors expected = interpret(traced, {at::ones({30})});
  const at::Tensor left = random_state();
  torch::manual_seed(4);
  EXPECT_TRUE(same_bits(expected[0], interpret(graph, {at::ones({30})})[0]));
  EXPECT_TRUE(at::equal(left, random_state()));
}

TEST(NameStates, GivesBackWhatNobodyElseNeeds) {
  const Graph traced = trace(
      [](const Tensors& in) { return Tensors{in[0] * at::rand_like(in[0])}; }, {at::ones({3})});
  Graph graph(traced);
  EXPECT_EQ(passes::name_states(graph, all, passes::HandOn::Nothing), 1u);
  EXPECT_NE(graph.hash(), traced.hash());
  EXPECT_EQ(passes::draw_directly(graph), 1u);
  EXPECT_EQ(graph.hash(), traced.hash());
}

/// The programs of a compiled function that end like this.
std::vector<Graph> graphs_of(const std::vector<Program>& programs, const std::string& name) {
  std::vector<Graph> graphs;
  for (const Program& program : programs) {
    if (program.name == name) graphs.push_back(*program.graph);
  }
  return graphs;
}

bool has_slot(const Graph& graph, Slot slot) {
  return graph.find_input(slot) >= 0;
}

TEST(FunctionalizeRng, TheForwardsMaskIsDrawnAgainInTheBackward) {
  auto compiled = compile([](const at::Tensor& x) { return at::dropout(x.sin(), 0.5, true).sum(); },
                          {.confirm = Confirm::Never, .functionalize_rng = true});
  const auto eager = [](const at::Tensor& x) { return at::dropout(x.sin(), 0.5, true).sum(); };
  for (int call = 0; call < 3; ++call) {
    const at::Tensor a = at::ones({100, 200}).requires_grad_(),
                     b = at::ones({100, 200}).requires_grad_();
    torch::manual_seed(call);
    const at::Tensor loss = compiled(a);
    at::rand({3});
    loss.backward();
    torch::manual_seed(call);
    eager(b).backward();
    EXPECT_TRUE(same_bits(b.grad(), a.grad()));
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0u);
  EXPECT_EQ(compiled.stats().cache_hits, 2u);
  const auto forward = graphs_of(compiled.programs(), "backend.forward");
  const auto backward = graphs_of(compiled.programs(), "partition.backward");
  ASSERT_EQ(forward.size(), 1u);
  ASSERT_EQ(backward.size(), 1u);
  EXPECT_TRUE(has_slot(forward[0], seed_slot(0)));
  EXPECT_TRUE(has_slot(forward[0], offset_slot(0)));
  EXPECT_NE(backward[0].str().find("ahead.random.aten.bernoulli.p"), std::string::npos)
      << backward[0].str();
  // The input of sin, and the state.
  int64_t saved = 0;
  for (const Graph::Input& input : backward[0].inputs()) {
    if (input.slot.kind == Slot::Kind::Saved && input.value->meta.dtype == at::kFloat) ++saved;
  }
  EXPECT_EQ(saved, 1) << backward[0].str();
}

TEST(FunctionalizeRng, GraphsThatDrawNothingAreAsTheyWere) {
  auto compiled = compile([](const at::Tensor& x) { return x.sin(); },
                          {.confirm = Confirm::Never, .functionalize_rng = true});
  compiled(at::ones({3}));
  for (const Program& program : compiled.programs())
    EXPECT_FALSE(has_slot(*program.graph, seed_slot(0))) << program.name;
}

TEST(FunctionalizeRng, ThreadsDrawDifferentNumbers) {
  auto compiled = compile([](const at::Tensor& x) { return x * at::rand({64}); },
                          {.confirm = Confirm::Never, .functionalize_rng = true});
  compiled(at::ones({64}));
  std::vector<std::vector<at::Tensor>> drawn(4);
  std::vector<std::thread> threads;
  for (auto& own : drawn) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) own.push_back(compiled(at::ones({64})));
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<float> firsts;
  for (const auto& own : drawn) {
    for (const at::Tensor& numbers : own) firsts.insert(numbers[0].item<float>());
  }
  EXPECT_GT(firsts.size(), 195u);
  EXPECT_EQ(compiled.stats().cache_hits, 200u);
}

}  // namespace forms_test
}  // namespace ahead
