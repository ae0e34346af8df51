#include <torch/headeronly/version.h>

#include <atomic>

#include "conformance/aot_support.h"
#include "models/models.h"

namespace ahead::conformance {
namespace aot_01_front_end_test {

using torch::autograd::grad;

/// Traces a function and replays its graph on other inputs.
void expect_replay_like_eager(const aot::FlatFunction& f, const Tensors& traced_with,
                              const Tensors& inputs) {
  const Graph graph = trace(f, traced_with);
  const Tensors expected = f(inputs), actual = interpret(graph, inputs);
  ASSERT_EQ(expected.size(), actual.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(tensor_difference(expected[i].detach(), actual[i]), "");
  }
}

TEST(AotFrontEnd, test_make_fx) {
  expect_replay_like_eager([](const Tensors& in) -> Tensors { return {in[0].sin()}; },
                           {at::randn({3})}, {at::randn({3})});
}

TEST(AotFrontEnd, test_make_fx_grad) {
  expect_replay_like_eager(
      [](const Tensors& in) -> Tensors { return grad({in[0].sin().sum()}, {in[0]}); }, {leaf({3})},
      {leaf({3})});
}

TEST(AotFrontEnd, test_scalar_device) {
  expect_replay_like_eager([](const Tensors& in) -> Tensors { return {in[0] + in[1]}; },
                           {at::randn({3}), at::tensor(5)}, {at::randn({3}), at::tensor(6)});
}

/// The Jacobian of a function of one vector, by one backward for each element of the result.
at::Tensor jacobian(const std::function<at::Tensor(const at::Tensor&)>& f, const at::Tensor& x) {
  const at::Tensor y = f(x);
  Tensors rows;
  for (const at::Tensor& element : y.reshape({-1}).unbind(0)) {
    const Tensors row = grad({element}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true,
                             /*allow_unused=*/true);
    rows.push_back(row[0].defined() ? row[0] : at::zeros_like(x));
  }
  return at::stack(rows);
}

TEST(AotFrontEnd, test_make_fx_jacrev) {
  expect_replay_like_eager(
      [](const Tensors& in) -> Tensors {
        const auto f = [](const at::Tensor& x) { return x.sin() * x; };
        const auto first = [&](const at::Tensor& x) { return jacobian(f, x); };
        return {jacobian(first, in[0])};
      },
      {leaf({3})}, {leaf({3})});
}

TEST(AotFrontEnd, test_make_fx_vjp) {
  expect_replay_like_eager(
      [](const Tensors& in) -> Tensors {
        const at::Tensor y = in[0].sin().sum() * in[0].cos();
        return grad({y}, {in[0]}, {in[1]}, /*retain_graph=*/true, /*create_graph=*/true);
      },
      {leaf({3}), at::randn({3})}, {leaf({3}), at::randn({3})});
}

TEST(AotFrontEnd, test_make_fx_functionalize) {
  const Graph graph = trace(
      [](const at::Tensor& a) {
        const at::Tensor b = a * 2;
        b.relu_();
        return b;
      },
      at::randn({3}));
  EXPECT_EQ(count(graph, "aten.relu"), 1u);
  EXPECT_EQ(count(graph, "aten.relu_"), 0u);
}

/// Adds one to every element, with the graph that the trace is of, as a backend of the test's own.
struct CountingBackend {
  explicit CountingBackend(const std::string& name) {
    register_backend(name, [this](const Graph& graph, const std::vector<TensorMeta>&) {
      ++compilations;
      last_nodes = graph.num_nodes();
      auto interpreter = std::make_shared<Interpreter>(graph);
      return [this, interpreter](Tensors&& args) {
        ++runs;
        return (*interpreter)(std::move(args));
      };
    });
  }
  std::atomic<int> compilations{0}, runs{0};
  std::atomic<size_t> last_nodes{0};
};

TEST(AotFrontEnd, test_nnc_jit) {
  static CountingBackend backend("conformance.jit");
  auto compiled =
      compiled_by_call([](const at::Tensor& x) { return x.sin(); },
                       {.backend = "conformance.jit", .fullgraph = true}, at::randn({10}));
  EXPECT_EQ(backend.compilations, 1);
  EXPECT_EQ(backend.runs, 0) << "the first call is the function's own";
  const at::Tensor x = at::randn({10});
  EXPECT_TRUE(same_values(compiled(x), x.sin()));
  EXPECT_EQ(backend.runs, 1);
}

TEST(AotFrontEnd, test_nnc_scalar) {
  expect_compiled_like_eager([](const Tensors& in) -> Tensors { return {in[0].sin()}; },
                             {at::randn({})});
}

TEST(AotFrontEnd, test_nnc_pytrees) {
  auto compiled = compiled_by_call(
      [](const std::vector<at::Tensor>& x) -> std::vector<at::Tensor> {
        return {x[0].sin(), x[1].cos()};
      },
      {}, Tensors{at::randn({3}), at::randn({3})});
  const Tensors inputs = {at::randn({3}), at::randn({3})};
  const Tensors outs = compiled(inputs);
  EXPECT_TRUE(same_values(outs[0], inputs[0].sin()));
  EXPECT_TRUE(same_values(outs[1], inputs[1].cos()));
  expect_hits(compiled);
}

TEST(AotFrontEnd, test_external_calls) {
  expect_compiled_like_eager([](const Tensors& in) -> Tensors { return {at::mv(in[0], in[1])}; },
                             {at::randn({10, 10}), at::randn({10})});
}

TEST(AotFrontEnd, test_nnc_passthrough) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        return {in[0] + in[1], in[1]};
      },
      {at::randn({10}), at::randn({10})});
  using Dictionary = std::map<std::string, at::Tensor>;
  auto compiled = compiled_by_call(
      [](Dictionary x) {
        x["a"] = x["a"] * 2;
        return x;
      },
      {.fullgraph = true}, Dictionary{{"a", at::randn({10})}, {"b", at::randn({10})}});
  const Dictionary inputs = {{"a", at::randn({10})}, {"b", at::randn({10})}};
  const Dictionary out = compiled(inputs);
  EXPECT_TRUE(same_values(out.at("a"), inputs.at("a") * 2));
  EXPECT_TRUE(out.at("b").is_same(inputs.at("b")));
  expect_hits(compiled);
}

TEST(AotFrontEnd, test_resnet18_backward_trace) {
  torch::manual_seed(1);
  models::ResNet net(/*depth=*/4, /*channels=*/8, /*classes=*/5);
  net->eval();
  auto compiled =
      compiled_by_call(net, {.fullgraph = true}, at::randn({2, 3, 8, 8}), at::randint(5, {2}));
  const at::Tensor images = at::randn({2, 3, 8, 8}), targets = at::randint(5, {2});
  const Tensors expected = grad({net->forward(images, targets)}, net->parameters());
  const Tensors actual = grad({compiled(images, targets)}, net->parameters());
  ASSERT_EQ(expected.size(), actual.size());
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(tensor_difference(expected[i], actual[i]), "") << "parameter " << i;
  expect_hits(compiled);
}

TEST(AotFrontEnd, test_input_mutation_simple_with_none_and_nontensor) {
  for (const bool requires_grad : {false, true}) {
    auto compiled = compile([](const at::Tensor& a, const std::optional<at::Tensor>& b,
                               int64_t c) { return b.has_value() ? a * *b : a * c; },
                            {.fullgraph = true, .confirm = 0});
    for (int call = 0; call < 3; ++call) {
      const at::Tensor a = at::randn({3}).set_requires_grad(requires_grad);
      const at::Tensor out = compiled(a, std::nullopt, 7);
      EXPECT_TRUE(same_values(out, a * 7));
      EXPECT_EQ(out.requires_grad(), requires_grad);
      if (!requires_grad) continue;
      out.sum().backward();
      EXPECT_TRUE(same_values(a.grad(), at::full({3}, 7.)));
    }
    expect_hits(compiled);
  }
}

TEST(AotFrontEnd, test_output_dict) {
  using Dictionary = std::map<std::string, at::Tensor>;
  auto of_tensor = compiled_by_call(
      [](const at::Tensor& x) {
        return Dictionary{{"a", x}, {"b", x * 2}};
      },
      {.fullgraph = true}, leaf({4}));
  const at::Tensor x = leaf({4});
  const Dictionary outs = of_tensor(x);
  EXPECT_TRUE(outs.at("a").is_same(x));
  outs.at("b").sum().backward();
  EXPECT_TRUE(same_values(x.grad(), at::full({4}, 2.)));
  expect_hits(of_tensor);

  auto of_dictionary = compiled_by_call(
      [](const Dictionary& x) {
        return Dictionary{{"c", x.at("a") * x.at("b")}, {"d", x.at("b")}};
      },
      {.fullgraph = true}, Dictionary{{"a", leaf({4})}, {"b", leaf({4})}});
  const Dictionary inputs = {{"a", leaf({4})}, {"b", leaf({4})}};
  const Dictionary results = of_dictionary(inputs);
  EXPECT_TRUE(results.at("d").is_same(inputs.at("b")));
  results.at("c").sum().backward();
  EXPECT_TRUE(same_values(inputs.at("a").grad(), inputs.at("b")));
  expect_hits(of_dictionary);
}

TEST(AotFrontEnd, test_complex_linear) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        return {at::linear(in[0], in[1], in[2]).sum().abs(), at::linear(in[0], in[1], in[2])};
      },
      with_grad({at::randn({1, 10}, at::kComplexFloat), at::randn({4, 10}, at::kComplexFloat),
                 at::randn({4}, at::kComplexFloat)}));
}

/// Expects sparse tensors of the same parts.
void expect_same_parts(const at::Tensor& expected, const at::Tensor& actual) {
  ASSERT_TRUE(expected.is_sparse());
  ASSERT_TRUE(actual.is_sparse());
  EXPECT_EQ(expected.sizes(), actual.sizes());
  EXPECT_EQ(expected.is_coalesced(), actual.is_coalesced());
  expect_same({expected._indices(), expected._values()}, {actual._indices(), actual._values()});
}

TEST(AotFrontEnd, test_embedding_bag_view_dynamic) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        return {std::get<0>(at::embedding_bag(in[2], in[0], in[1], /*scale_grad_by_freq=*/false,
                                              /*mode=*/1, /*sparse=*/true))
                    .view({-1})};
      },
      {at::arange(3), at::arange(3), leaf({100, 8})});
  for (const Dynamic dynamic : {Dynamic::Static, Dynamic::Automatic}) {
    auto make = [] {
      torch::manual_seed(4);
      return torch::nn::EmbeddingBag(torch::nn::EmbeddingBagOptions(100, 8).sparse(true));
    };
    auto eager = make(), own = make();
    auto compiled = compile(
        [own](const at::Tensor& x, const at::Tensor& y) mutable {
          return own->forward(x, y).view({-1});
        },
        {.fullgraph = true, .dynamic = dynamic, .confirm = Confirm::Never});
    for (const int64_t size : {3, 3, 5, 8, 5, 3, 8}) {
      const at::Tensor x = at::arange(size), y = at::arange(size);
      const at::Tensor expected = eager->forward(x, y).view({-1}), actual = compiled(x, y);
      expect_same({expected.detach()}, {actual.detach()});
      eager->zero_grad();
      own->zero_grad();
      expected.pow(2).sum().backward();
      actual.pow(2).sum().backward();
      expect_same_parts(eager->weight.grad(), own->weight.grad());
    }
    expect_hits(compiled, 3);
    EXPECT_LE(compiled.stats().compilations, dynamic == Dynamic::Static ? 3u : 2u);
  }
}

TEST(AotFrontEnd, test_squeeze_mutation) {
  expect_with_and_without_grad(
      [](const Tensors& in) -> Tensors {
        const at::Tensor b = in[0].clone().squeeze(-1);
        b.add_(1).mul_(2);
        return {in[0] + b};
      },
      {at::randn({3, 1})});
}

TEST(AotFrontEnd, test_list_codegen) {
  const compiled_autograd::Disable off;  // it would capture the backward that is counted
  // Backends take one list, whose tensors they may let go of.
  static CountingBackend backend("conformance.boxed");
  auto compiled = compiled_by_call([](const at::Tensor& x) { return x.sin(); },
                                   {.backend = "conformance.boxed", .fullgraph = true}, leaf({4}));
  EXPECT_EQ(backend.runs, 0);
  const at::Tensor x = leaf({4});
  compiled(x).sum().backward();
  EXPECT_EQ(backend.runs, 2);
  EXPECT_TRUE(same_values(x.grad(), x.detach().cos()));
}

TEST(AotFrontEnd, test_grad_context) {
  const compiled_autograd::Disable off;  // it would capture the backward that is counted
  static CountingBackend backend("conformance.lazy");
  auto compiled = compile([](const at::Tensor& x) { return x.sin(); },
                          {.backend = "conformance.lazy", .fullgraph = true, .confirm = 0});
  {
    at::NoGradGuard no_grad;
    for (int call = 0; call < 2; ++call) compiled(leaf({4}));
    EXPECT_EQ(backend.compilations, 1);
  }
  compiled(leaf({4})).sum().backward();
  EXPECT_EQ(backend.compilations, 2) << "that was eager's backward";
  const at::Tensor out = compiled(leaf({4}));
  EXPECT_EQ(backend.compilations, 2) << "the backward is compiled when it runs";
  out.sum().backward();
  EXPECT_EQ(backend.compilations, 3);
  expect_hits(compiled, 2);
}

TEST(AotFrontEnd, test_lift_after_factory) {
  if (TORCH_VERSION_MINOR < 13) GTEST_SKIP() << "an assertion of LibTorch itself, mended in 2.13";
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        const at::Tensor random = at::lift(at::randint(0, 10, {3}));
        return {in[0] * random};
      },
      {at::randn({3})});
}

TEST(AotFrontEnd, test_inference_python_dispatcher) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        namespace F = torch::nn::functional;
        return {F::interpolate(in[0], F::InterpolateFuncOptions()
                                          .scale_factor(std::vector<double>{2, 2})
                                          .mode(torch::kBilinear)
                                          .align_corners(true))};
      },
      {at::randn({2, 3, 4, 4})});
}

TEST(AotFrontEnd, test_real_weights_in_symbolic_mode) {
  // Weights that the function reaches are inputs of their own, so there is nothing to allow.
  torch::nn::Linear linear(5, 5);
  const Graph graph = trace(linear, at::randn({1, 5}));
  EXPECT_EQ(input_slots(graph).find("Primal 0, Captured 0"), 0u) << input_slots(graph);
  const at::Tensor x = at::randn({1, 5});
  EXPECT_TRUE(same_values(interpret(graph, {x})[0], linear->forward(x)));
}

TEST(AotFrontEnd, test_real_weights_in_symbolic_mode_with_inplace_ops) {
  const at::Tensor buffer = at::ones({4, 5});
  const std::string error = error_of([&] {
    trace(
        [&](const at::Tensor& x) {
          buffer.resize_({5, 5});
          return x + buffer.sum();
        },
        at::randn({2}));
  });
  EXPECT_NE(error.find("resize_"), std::string::npos) << error;
  EXPECT_EQ(buffer.sizes(), at::IntArrayRef({4, 5}));
}

TEST(AotFrontEnd, test_aot_module_simplified_fake_tensor_gm_raises) {
  // A tensor of another trace is refused.
  at::Tensor kept;
  trace_with(
      {.allow_escapes = true},
      [&](const at::Tensor& x) {
        kept = x * 2;
        return kept;
      },
      at::randn({3}));
  const std::string error =
      error_of([&] { trace([&](const at::Tensor& x) { return x + kept; }, at::randn({3})); });
  EXPECT_NE(error.find("trace"), std::string::npos) << error;
}

TEST(AotFrontEnd, test_LSTM) {
  torch::manual_seed(0);
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(92, 16).num_layers(2).bidirectional(true));
  const at::Tensor x = at::randn({64, 92}).as_strided({1, 64, 92}, {5888, 92, 1});
  auto compiled =
      compile([lstm](const at::Tensor& x) mutable { return std::get<0>(lstm->forward(x)); },
              {.fullgraph = true, .confirm = 0});
  for (int call = 0; call < 2; ++call) {
    const at::Tensor expected = std::get<0>(lstm->forward(x)), actual = compiled(x);
    EXPECT_EQ(tensor_difference(expected, actual), "");
    const Tensors expected_grads = grad({expected.sum()}, lstm->parameters());
    const Tensors grads = grad({actual.sum()}, lstm->parameters());
    for (size_t i = 0; i < grads.size(); ++i)
      EXPECT_EQ(tensor_difference(expected_grads[i], grads[i]), "");
  }
  expect_hits(compiled);
}

TEST(AotFrontEnd, test_nn_parameter_construction) {
  // The history of the result leads to a leaf that no caller knows.
  const auto f = [](const at::Tensor& x) {
    return x.sin() + at::ones({1}).set_requires_grad(true);
  };
  auto compiled = compile(f, {.fullgraph = true});
  for (int call = 0; call < 5; ++call) {
    const at::Tensor x = at::rand({4, 4});
    const at::Tensor expected = f(x), actual = compiled(x);
    EXPECT_TRUE(same_values(expected, actual));
    EXPECT_TRUE(actual.requires_grad());
    EXPECT_FALSE(actual.is_leaf());
    actual.sum().backward();
    EXPECT_FALSE(x.grad().defined());
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0u);
  EXPECT_EQ(compiled.stats().cache_hits, 2u);
}

TEST(AotFrontEnd, ReturnsALeafThatItMakes) {
  // The backward of the other result reaches that leaf, which is more than a graph can tell.
  auto compiled = compile([](const at::Tensor& x) {
    const at::Tensor parameter = at::ones({1}).set_requires_grad(true);
    return std::make_tuple(parameter, x * parameter);
  });
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = at::randn({3});
    const auto [parameter, out] = compiled(x);
    EXPECT_TRUE(same_values(out, x));
    out.sum().backward();
    EXPECT_TRUE(at::allclose(parameter.grad(), x.sum()));
  }
  expect_runs_eagerly(compiled, 2);
}

TEST(AotFrontEnd, test_data_ptr_access_fails_in_forward) {
  const std::string of_input = error_of([] {
    trace([](const at::Tensor& x) { return x * x.data_ptr<float>()[0]; }, at::randn({3}));
  });
  EXPECT_NE(of_input.find("data_ptr"), std::string::npos) << of_input;
  const std::string of_intermediate = error_of([] {
    trace(
        [](const at::Tensor& x) {
          const at::Tensor y = x.clone();
          return x * y.data_ptr<float>()[0];
        },
        at::randn({3}));
  });
  EXPECT_NE(of_intermediate.find("data_ptr"), std::string::npos) << of_intermediate;
}

TEST(AotFrontEnd, test_joint_custom_pass) {
  int calls = 0;
  const auto pass = [&calls](const JointGraph& joint) {
    ++calls;
    EXPECT_EQ(input_slots(joint), "Primal 0, Tangent 0");
    return partition_default(joint);
  };
  auto compiled = compile([](const at::Tensor& x) { return x.sin(); },
                          {.fullgraph = true, .partitioner = pass, .confirm = 0});
  compiled(at::randn({3}));
  EXPECT_EQ(calls, 0);
  compiled(leaf({3}));
  EXPECT_EQ(calls, 1);
}

TEST(AotFrontEnd, test_multiple_aot_autograd_calls_dupe_args) {
  // Two compiled functions in a row; what the first returns is one tensor twice for small inputs.
  const auto first = [](const at::Tensor& x) {
    const at::Tensor y = x * 2;
    return std::make_tuple(y, x.size(0) < 3 ? y : x + 1);
  };
  const auto second = [](const at::Tensor& a, const at::Tensor& b) {
    a.mul_(3);
    return a + b;
  };
  auto compiled_first = compile(first, {.fullgraph = true, .confirm = 0});
  auto compiled_second = compile(second, {.fullgraph = true, .confirm = 0});
  for (const int64_t size : {2, 4, 2, 4}) {
    const at::Tensor x = at::randn({size});
    const auto [a, b] = first(x);
    const auto [c, d] = compiled_first(x);
    EXPECT_TRUE(same_values(second(a, b), compiled_second(c, d)));
  }
  expect_hits(compiled_first, 2);
  expect_hits(compiled_second, 2);
}

}  // namespace aot_01_front_end_test
}  // namespace ahead::conformance
