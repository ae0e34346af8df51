#include <torch/custom_class.h>
#include <torch/library.h>

#include "conformance/aot_support.h"

/// Effects and their tokens. Where upstream looks at a token in a graph, these look at what
/// lift_effect_tokens() makes of the graph that a backend is given.
namespace ahead::conformance {
namespace aot_19_effects_test {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

std::vector<double>& records() {
  static std::vector<double> all;
  return all;
}

Tensor record_now(const Tensor& x) {
  records().push_back(x.sum().item<double>());
  return x.clone();
}
void record_nothing(const Tensor& x) {
  records().push_back(x.sum().item<double>());
}
std::tuple<Tensor, std::vector<Tensor>> record_many(const Tensor& x) {
  records().push_back(x.sum().item<double>());
  return {x * 2, {x * 3, x * 4}};
}
std::tuple<Tensor, std::vector<Tensor>> record_many_meta(const Tensor& x) {
  return {at::empty_like(x), {at::empty_like(x), at::empty_like(x)}};
}
struct Total : torch::CustomClassHolder {
  double sum = 0;
};
Tensor add_to_total(const c10::intrusive_ptr<Total>& total, const Tensor& x) {
  total->sum += x.sum().item<double>();
  return x + 1;
}

TORCH_LIBRARY(aot19, m) {
  m.class_<Total>("Total").def(torch::init<>());
  m.def("record(Tensor x) -> Tensor");
  m.def("record_nothing(Tensor x) -> ()");
  m.def("record_many(Tensor x) -> (Tensor, Tensor[])");
  m.def("add(__torch__.torch.classes.aot19.Total total, Tensor x) -> Tensor");
}
TORCH_LIBRARY_IMPL(aot19, CompositeExplicitAutograd, m) {
  m.impl("record_nothing", record_nothing);
  m.impl("add", add_to_total);
}
TORCH_LIBRARY_IMPL(aot19, CPU, m) {
  m.impl("record", record_now);
  m.impl("record_many", record_many);
}
TORCH_LIBRARY_IMPL(aot19, Meta, m) {
  m.impl("record", [](const Tensor& x) { return at::empty_like(x); });
  m.impl("record_many", record_many_meta);
}

template <class Signature, class... Args>
auto call(const char* name, Args&&... args) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>().call(
      std::forward<Args>(args)...);
}
Tensor record(const Tensor& x) {
  return call<Tensor(const Tensor&)>("aot19::record", x);
}

/// Records in its forward, in its backward, or both.
template <bool in_forward, bool in_backward>
struct Recorded : Function<Recorded<in_forward, in_backward>> {
  static Tensor forward(AutogradContext*, const Tensor& x) {
    return in_forward ? record(x) : x.clone();
  }
  static variable_list backward(AutogradContext*, variable_list grads) {
    return {in_backward ? record(grads[0]) * 2 : grads[0] * 2};
  }
};

/// The graph of a stage as a backend that asks for tokens gets it.
template <class F>
Graph lifted(const Compiled<F>& compiled, const std::string& stage) {
  Graph graph = program(compiled, stage);
  lift_effect_tokens(graph);
  graph.verify();
  return graph;
}

size_t count_nodes(const Graph& graph, const std::string& name) {
  size_t count = 0;
  for (const Node& node : graph.nodes()) count += node.op().name() == name ? 1 : 0;
  return count;
}

/// Expects hits to record what the function itself does, and nothing to run eagerly.
void expect_same_records(const aot::FlatFunction& f, const Tensors& inputs) {
  const auto run = [&](const aot::FlatFunction& g) {
    const Tensors given = with_grad(inputs);
    records().clear();
    for (const Tensor& result : g(given)) {
      if (result.requires_grad()) result.sum().backward({}, /*retain_graph=*/true);
    }
    return std::exchange(records(), {});
  };
  for (const Partitioner partitioner : {Partitioner::Default, Partitioner::MinCut}) {
    auto compiled =
        compile(f, {.fullgraph = true, .partitioner = partitioner, .confirm = Confirm::Never});
    const std::vector<double> expected = run(f);
    EXPECT_FALSE(expected.empty());
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(run([&](const Tensors& args) { return compiled(args); }), expected);
    expect_hits(compiled);
  }
}

TEST(AotEffects, test_print) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    print("moo");
    const Tensor y = in[0] + in[0];
    print("moo {}", y);
    return {y};
  };
  auto compiled = compiled_once(f, {torch::ones({3})});
  Graph graph = lifted(compiled, "inference");
  EXPECT_EQ(input_slots(graph), "Token 0, Primal 0");
  EXPECT_EQ(output_slots(graph), "Token 0, Output 0");
  EXPECT_EQ(count_nodes(graph, "ahead.call"), 2u);
  EXPECT_EQ(unlift_effect_tokens(graph), 1u);
  EXPECT_EQ(count_nodes(graph, "ahead.make_token"), 1u);
  EXPECT_EQ(count_nodes(graph, "ahead.sink_token"), 1u);
  EXPECT_EQ(input_slots(graph), "Primal 0");
  expect_compiled_like_eager(f, {torch::ones({3})});
}

TEST(AotEffects, test_torchbind_custom_op) {
  const auto total = c10::make_intrusive<Total>();
  const aot::FlatFunction f = [total](const Tensors& in) -> Tensors {
    return {call<Tensor(const c10::intrusive_ptr<Total>&, const Tensor&)>("aot19::add", total,
                                                                          in[0] + 1)};
  };
  auto compiled = compiled_once(f, {torch::ones({2})});
  EXPECT_EQ(input_slots(lifted(compiled, "inference")), "Token 0, Primal 0");
  EXPECT_EQ(output_slots(lifted(compiled, "inference")), "Token 0, Output 0");
  total->sum = 0;
  EXPECT_TRUE(same_values(compiled(Tensors{torch::ones({2})})[0], torch::full({2}, 3.0)));
  EXPECT_EQ(total->sum, 4);
  expect_hits(compiled);
}

TEST(AotEffects, test_print_with_buffer_mutations) {
  const Tensor buffer = torch::full({3}, 6.0);
  const aot::FlatFunction f = [buffer](const Tensors& in) -> Tensors {
    print("moo");
    buffer.add_(5);
    const Tensor y = buffer.sum() + in[0].sum();
    print("moo");
    return {in[0] + y};
  };
  auto compiled =
      compiled_once(f, {torch::ones({3})},
                    {.fullgraph = true, .confirm = Confirm::Never, .keep_input_mutations = false});
  EXPECT_EQ(output_slots(lifted(compiled, "inference")), "Token 0, MutatedInput 2, Output 0");
  EXPECT_TRUE(same_values(compiled(Tensors{torch::ones({3})})[0], torch::full({3}, 52.0)));
  expect_hits(compiled);
}

TEST(AotEffects, test_print_with_input_mutations) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    print("moo");
    in[0].add_(5);
    print("moo");
    return {in[0] + in[0]};
  };
  auto compiled =
      compiled_once(f, {torch::ones({3})},
                    {.fullgraph = true, .confirm = Confirm::Never, .keep_input_mutations = false});
  const Graph graph = lifted(compiled, "inference");
  EXPECT_EQ(input_slots(graph), "Token 0, Primal 0");
  EXPECT_EQ(output_slots(graph), "Token 0, MutatedInput 1, Output 0");
  expect_with_and_without_grad(f, {torch::ones({3})});
}

TEST(AotEffects, test_alias_op) {
  const std::string error = error_of([] { declare_effect("aten::view"); });
  EXPECT_NE(error.find("Ops with aliasing is not supported"), std::string::npos) << error;
}

Tensors print_twice(const Tensors& in) {
  print("moo");
  const Tensor y = in[0] + in[0];
  print("moo");
  return {y};
}

TEST(AotEffects, test_compile_aot_eager) {
  expect_compiled_like_eager(print_twice, {torch::randn({2, 3})});
}

TEST(AotEffects, test_compile_aot_eager_requires_grad) {
  expect_with_and_without_grad(print_twice, {torch::randn({2, 3})});
}

TEST(AotEffects, test_register_effectful_custom_op) {
  expect_same_records(
      [](const Tensors& in) -> Tensors {
        call<void(const Tensor&)>("aot19::record_nothing", in[0]);
        const Tensor y = in[0].sin();
        call<void(const Tensor&)>("aot19::record_nothing", y);
        return {y * 2};
      },
      {torch::randn({4})});
}

TEST(AotEffects, test_dce) {
  auto compiled = compiled_once(
      [](const Tensors& in) -> Tensors {
        record(in[0]);
        return {in[0] + 1};
      },
      {torch::ones({3})});
  EXPECT_EQ(count_nodes(program(compiled, "inference"), "aot19.record"), 1u);
}

TEST(AotEffects, test_effects_and_input_mutation_return) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    print("effect");
    in[0].add_(1);
    return {in[0] + in[1]};
  };
  auto compiled =
      compiled_once(f, {torch::ones({2}), torch::ones({2})},
                    {.fullgraph = true, .confirm = Confirm::Never, .keep_input_mutations = false});
  EXPECT_EQ(output_slots(lifted(compiled, "inference")), "Token 0, MutatedInput 1, Output 0");
  expect_with_and_without_grad(f, {torch::ones({2}), torch::ones({2})});
}

TEST(AotEffects, test_effects_and_aliased_outputs) {
  expect_with_and_without_grad(
      [](const Tensors& in) -> Tensors {
        const Tensor y = in[0].mul(2);
        print("effect");
        return {y.view({-1}), y.view({-1})};
      },
      {torch::randn({2, 2})});
}

TEST(AotEffects, test_effects_and_input_mutation_is_output) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    in[0].mul_(2);
    print("effect");
    return {in[0]};
  };
  auto compiled =
      compiled_once(f, {torch::ones({2})},
                    {.fullgraph = true, .confirm = Confirm::Never, .keep_input_mutations = false});
  EXPECT_TRUE(output_slots(lifted(compiled, "inference")).starts_with("Token 0, MutatedInput 1"));
  expect_with_and_without_grad(f, {torch::ones({2})});
}

/// Compiles a function of one argument that requires grad, and runs its backward once.
Compiled<aot::FlatFunction> trained(const aot::FlatFunction& f) {
  const compiled_autograd::Disable off;  // it would capture the backward that is looked at
  auto compiled = compiled_once(f, with_grad({torch::ones({3})}));
  compiled(with_grad({torch::ones({3})}))[0].sum().backward();
  expect_hits(compiled);
  return compiled;
}

TEST(AotEffects, test_effectful_op_in_backward) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    return {Recorded<true, true>::apply(in[0]).sin()};
  };
  const auto compiled = trained(f);
  EXPECT_EQ(input_slots(lifted(compiled, "backend.forward")), "Token 0, Primal 0");
  const Graph backward = lifted(compiled, "backend.backward");
  EXPECT_TRUE(input_slots(backward).ends_with("Tangent 0, Token 0")) << input_slots(backward);
  EXPECT_EQ(output_slots(backward), "GradOf 0, Token 0");
  expect_same_records(f, {torch::randn({3})});
  expect_compiled_like_eager(f, {leaf({3})});
}

TEST(AotEffects, test_regular_effectful_op_only_in_backward) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    return {Recorded<false, true>::apply(in[0]).sin()};
  };
  const auto compiled = trained(f);
  EXPECT_EQ(input_slots(lifted(compiled, "backend.forward")), "Primal 0");
  EXPECT_EQ(output_slots(lifted(compiled, "backend.backward")), "GradOf 0, Token 0");
  expect_same_records(f, {torch::randn({3})});
}

TEST(AotEffects, test_regular_effectful_op_in_forward_and_backward) {
  // What the effect returned is saved, and the effect is not in the backward.
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    return {(in[0] * record(in[0].detach())).sin()};
  };
  const auto compiled = trained(f);
  EXPECT_EQ(count_nodes(program(compiled, "partition.forward"), "aot19.record"), 1u);
  EXPECT_EQ(count_nodes(program(compiled, "partition.backward"), "aot19.record"), 0u);
  expect_same_records(f, {torch::randn({3})});
}

TEST(AotEffects, test_effect_autograd_function) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    return {Recorded<false, true>::apply(in[0])};
  };
  const auto compiled = trained(f);
  EXPECT_EQ(output_slots(lifted(compiled, "backend.forward")).find("Token"), std::string::npos);
  expect_same_records(f, {torch::randn({3})});
}

TEST(AotEffects, test_effect_tokens_codegen_with_mutation) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        const Tensor old = record(in[0]);
        in[0].add_(1);
        return {old};
      },
      {torch::ones({3})});
}

TEST(AotEffects, test_effect_tokens_codegen_multiple_outputs) {
  expect_with_and_without_grad(
      [](const Tensors& in) -> Tensors {
        print("effect");
        return {in[0] + 1, in[0] * 2, in[0] - 3};
      },
      {torch::randn({3})});
}

TEST(AotEffects, test_effect_tokens_codegen_training_path) {
  auto compiled = trained([](const Tensors& in) -> Tensors {
    print("effect");
    return {in[0] * 2};
  });
  const Tensors x = with_grad({torch::ones({3})});
  compiled(x)[0].sum().backward();
  EXPECT_TRUE(same_values(x[0].grad(), torch::full({3}, 2.0)));
}

/// A compiler that counts how many tokens its graphs take and interprets them.
aot::GraphCompiler counting_tokens(size_t& tokens) {
  return aot::with_effect_tokens(
      [&tokens](const aot::CompileRequest& request) -> aot::Executable {
        for (const auto& input : request.graph.inputs())
          tokens += input.slot.kind == Slot::Kind::Token ? 1 : 0;
        auto graph = std::make_shared<const Graph>(request.graph);
        return [graph](Tensors&& args) { return interpret(*graph, std::move(args)); };
      },
      EffectTokens::Arguments);
}

TEST(AotEffects, test_effect_tokens_codegen_single) {
  size_t tokens = 0;
  auto compiled = aot::function(
      [](const Tensors& in) -> Tensors {
        print("effect");
        return {in[0] + 1};
      },
      {.forward = counting_tokens(tokens)});
  EXPECT_TRUE(same_values(compiled(Tensors{torch::ones({2})})[0], torch::full({2}, 2.0)));
  EXPECT_EQ(tokens, 1u);
  EXPECT_EQ(compiled.stats().eager_calls, 0u);
}

TEST(AotEffects, test_effect_tokens_codegen_none_output) {
  size_t tokens = 0;
  records().clear();
  auto compiled = aot::function(
      [](const Tensors& in) -> Tensors {
        record(in[0]);
        return {};
      },
      {.forward = counting_tokens(tokens)});
  EXPECT_TRUE(compiled(Tensors{torch::ones({2})}).empty());
  EXPECT_EQ(records(), (std::vector<double>{2}));
  EXPECT_EQ(tokens, 1u);
  EXPECT_EQ(compiled.stats().eager_calls, 0u);
}

TEST(AotEffects, test_effect_tokens_no_codegen_when_zero) {
  size_t tokens = 0;
  auto compiled = aot::function([](const Tensors& in) -> Tensors { return {in[0] + 1}; },
                                {.forward = counting_tokens(tokens)});
  EXPECT_TRUE(same_values(compiled(Tensors{torch::ones({2})})[0], torch::full({2}, 2.0)));
  EXPECT_EQ(tokens, 0u);
  EXPECT_EQ(compiled.stats().eager_calls, 0u);
}

TEST(AotEffects, test_static_input_indices_with_effect_tokens) {
  std::vector<bool> seen;
  const aot::GraphCompiler compiler = aot::with_effect_tokens(
      [&](const aot::CompileRequest& request) -> aot::Executable {
        seen = request.static_inputs;
        auto graph = std::make_shared<const Graph>(request.graph);
        return [graph](Tensors&& args) { return interpret(*graph, std::move(args)); };
      },
      EffectTokens::Arguments);
  auto compiled = aot::function(
      [](const Tensors& in) -> Tensors {
        print("effect");
        return {in[0] + in[1]};
      },
      {.forward = compiler, .num_params_buffers = 1});
  EXPECT_TRUE(
      same_values(compiled(Tensors{torch::ones({2}), torch::ones({2})})[0], torch::full({2}, 2.0)));
  EXPECT_EQ(seen, (std::vector<bool>{false, true, false}));
  EXPECT_EQ(compiled.stats().eager_calls, 0u);
}

TEST(AotEffects, test_force_save_effectful_ops) {
  JointGraph joint(Graph::parse(R"(
graph(%x: f32[8] Primal 0 requires_grad, %t: f32[8] Tangent 0):
  %a: f32[8] = aot19.record(%x) !effect
  %y: f32[8] = aten.mul.Tensor(%x, %a)
  %g: f32[8] = aten.mul.Tensor(%t, %a) !backward
  return (%y Output 0 requires_grad, %g GradOf 0)
)"));
  for (const auto& halves : {partition_default(joint), partition_min_cut(joint)}) {
    EXPECT_EQ(count_nodes(halves.forward, "aot19.record"), 1u);
    EXPECT_EQ(count_nodes(halves.backward, "aot19.record"), 0u);
    ASSERT_EQ(halves.saved.size(), 1u);
    EXPECT_EQ(halves.saved[0].reason, "has an effect that must happen once");
  }
}

TEST(AotEffects, test_force_save_effectful_ops_nested_tuple) {
  JointGraph joint(Graph::parse(R"(
graph(%x: f32[8] Primal 0 requires_grad, %t: f32[8] Tangent 0):
  %a: f32[8], [%b: f32[8], %c: f32[8]] = aot19.record_many(%x) !effect
  %y: f32[8] = aten.mul.Tensor(%x, %a)
  %g: f32[8] = aten.mul.Tensor(%t, %a) !backward
  %h: f32[8] = aten.mul.Tensor(%g, %b) !backward
  %i: f32[8] = aten.mul.Tensor(%h, %c) !backward
  return (%y Output 0 requires_grad, %i GradOf 0)
)"));
  for (const auto& halves : {partition_default(joint), partition_min_cut(joint)}) {
    EXPECT_EQ(count_nodes(halves.backward, "aot19.record_many"), 0u);
    EXPECT_EQ(halves.saved.size(), 3u);
  }
}

TEST(AotEffects, test_backward_epilogue_tokens_correctness) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    return {Recorded<true, true>::apply(in[0])};
  };
  auto compiled = trained(f);
  const Tensors x = with_grad({torch::ones({3})});
  compiled(x)[0].sum().backward();
  EXPECT_TRUE(same_values(x[0].grad(), torch::full({3}, 2.0)));
  expect_same_records(f, {torch::randn({3})});
}

TEST(AotEffects, test_backward_epilogue_tokens_and_rng_correctness) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    return {Recorded<true, true>::apply(in[0]) + torch::rand_like(in[0])};
  };
  auto compiled = trained(f);
  const Tensors x = with_grad({torch::ones({3})});
  compiled(x)[0].sum().backward();
  EXPECT_TRUE(same_values(x[0].grad(), torch::full({3}, 2.0)));
  expect_compiled_like_eager(f, {leaf({3})});
}

TEST(AotEffects, test_backward_epilogue_multi_token_codegen) {
  const auto compiled = trained([](const Tensors& in) -> Tensors {
    return {Recorded<false, true>::apply(Recorded<false, true>::apply(in[0]).sin())};
  });
  const Graph backward = lifted(compiled, "backend.backward");
  EXPECT_EQ(count_nodes(backward, "ahead.call"), 2u);
  EXPECT_EQ(output_slots(backward), "GradOf 0, Token 0");
}

}  // namespace aot_19_effects_test
}  // namespace ahead::conformance
