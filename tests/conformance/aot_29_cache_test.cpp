#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/util/ScopeExit.h>

#include <set>

#include "conformance/aot_support.h"

/// Upstream caches compiled graphs by a key. Ahead keeps the programs of a callable in memory: a
/// call that none of them fits is a miss and makes one, others are hits. What decides is what
/// upstream has in its key; CompileStats has the counters, Graph::hash names a graph.
namespace ahead::conformance {
namespace aot_29_cache_test {

const Options once{.fullgraph = true, .dynamic = Dynamic::Static, .confirm = Confirm::Never};

/// Expects so many misses and hits, and that nothing ran eagerly.
template <class F>
void expect_counts(const Compiled<F>& compiled, uint64_t misses, uint64_t hits) {
  const CompileStats stats = compiled.stats();
  EXPECT_EQ(stats.traces, misses);
  EXPECT_EQ(stats.observed_calls, misses);
  EXPECT_EQ(stats.cache_hits, hits);
  EXPECT_EQ(stats.eager_calls, 0u);
}

at::Tensor f(const at::Tensor& x, const at::Tensor& y) {
  return (x.sin() * y).exp();
}

/// Compares the result and the gradients of one call with eager's.
template <class F, class G>
void expect_same_call(const F& eager, const G& compiled, const Tensors& inputs) {
  Tensors shown[2];
  for (const bool is_eager : {true, false}) {
    const Tensors in = with_grad(inputs);
    const at::Tensor out = is_eager ? eager(in) : compiled(in);
    out.sum().backward();
    shown[is_eager ? 0 : 1].push_back(out.detach());
    for (const at::Tensor& x : in) shown[is_eager ? 0 : 1].push_back(x.grad());
  }
  for (size_t i = 0; i < shown[0].size(); ++i) EXPECT_TRUE(same_values(shown[0][i], shown[1][i]));
}

// Counters.

TEST(AotCache, test_local_cache_stats) {
  auto compiled = compile(f, once);
  const at::Tensor x = at::randn({3}), y = at::randn({3});
  expect_counts(compiled, 0, 0);
  compiled(x, y);
  expect_counts(compiled, 1, 0);
  EXPECT_EQ(compiled.explain(x, y), "program 0 fits");
  compiled(x, y);
  expect_counts(compiled, 1, 1);
}

TEST(AotCache, test_basic) {
  auto compiled = compile(f, once);
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = at::randn({3, 4}), y = at::randn({4});
    EXPECT_TRUE(same_values(compiled(x, y), f(x, y)));
  }
  expect_counts(compiled, 1, 2);
}

TEST(AotCache, test_autograd_function) {
  const auto loss = [](const Tensors& in) { return f(in[0], in[1]); };
  auto compiled = compile(loss, once);
  for (int call = 0; call < 3; ++call)
    expect_same_call(loss, compiled, {at::randn({3}), at::randn({3})});
  expect_counts(compiled, 1, 2);
}

TEST(AotCache, test_multi_graph_specialization) {
  auto compiled = compile(f, once);
  for (int round = 0; round < 2; ++round) {
    for (const int64_t size : {2, 3, 5}) {
      const at::Tensor x = at::randn({size}), y = at::randn({size});
      EXPECT_TRUE(same_values(compiled(x, y), f(x, y)));
    }
    expect_counts(compiled, 3, round == 0 ? 0 : 3);
  }
}

TEST(AotCache, test_autograd_inductor_guards) {
  const auto loss = [](const Tensors& in) { return f(in[0], in[1]); };
  auto compiled = compile(loss, once);
  for (int round = 0; round < 2; ++round) {
    for (const int64_t size : {2, 3, 5})
      expect_same_call(loss, compiled, {at::randn({size}), at::randn({size})});
    expect_counts(compiled, 3, round == 0 ? 0 : 3);
  }
  EXPECT_EQ(compiled.stats().recompiles, 2u);
}

TEST(AotCache, test_autograd_guard_single_entry) {
  const auto loss = [](const Tensors& in) { return in[0].sin(); };
  auto compiled = compile(loss, once);
  const auto call = [&](int64_t size) { expect_same_call(loss, compiled, {at::randn({size})}); };
  call(4);
  expect_counts(compiled, 1, 0);
  call(4);
  expect_counts(compiled, 1, 1);
  EXPECT_EQ(compiled.stats().guard_failures, 0u);
  call(6);
  expect_counts(compiled, 2, 1);
  EXPECT_EQ(compiled.stats().guard_failures, 1u);
  call(6);
  call(4);
  expect_counts(compiled, 2, 3);
  EXPECT_EQ(compiled.stats().guard_failures, 1u);
}

TEST(AotCache, test_clear_fx_graph_cache) {
  auto compiled = compile(f, once);
  const at::Tensor x = at::randn({3});
  compiled(x, x);
  EXPECT_FALSE(compiled.programs().empty());
  compiled.reset();
  EXPECT_TRUE(compiled.programs().empty());
  EXPECT_TRUE(same_values(compiled(x, x), f(x, x)));
  compiled(x, x);
  expect_counts(compiled, 2, 1);
}

TEST(AotCache, test_fx_graph_cache_off) {
  auto compiled = compile(f, {.fullgraph = true, .confirm = Confirm::EveryCall});
  const at::Tensor x = at::randn({3});
  for (int call = 0; call < 4; ++call) EXPECT_TRUE(same_values(compiled(x, x), f(x, x)));
  EXPECT_EQ(compiled.stats().observed_calls, 4u);
  EXPECT_EQ(compiled.stats().cache_hits, 0u);
  EXPECT_EQ(compiled.stats().eager_calls, 0u);
}

TEST(AotCache, test_inference_graph_cache_hit_with_compiled_autograd_enabled) {
  const compiled_autograd::Enable on;
  auto compiled = compile(f, once);
  const at::NoGradGuard no_grad;
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = leaf({3});
    EXPECT_TRUE(same_values(compiled(x, x), f(x, x)));
  }
  expect_counts(compiled, 1, 2);
}

TEST(AotCache, test_cache_hit_logs_aot_graphs) {
  auto compiled = compile(f, once);
  const at::Tensor x = at::randn({3});
  const auto texts = [&] {
    std::vector<std::string> all;
    for (const Program& made : compiled.programs()) all.push_back(made.name + "\n" + made.str());
    return all;
  };
  compiled(x, x);
  const std::vector<std::string> after_miss = texts();
  compiled(x, x);
  expect_counts(compiled, 1, 1);
  EXPECT_FALSE(after_miss.empty());
  EXPECT_EQ(texts(), after_miss);
}

// What programs depend on.

TEST(AotCache, test_different_inputs) {
  auto compiled = compile(f, once);
  const Tensors inputs{at::randn({3}), at::randn({4}), at::randn({3, 3}), at::randn({3, 3}).t(),
                       leaf({3})};
  for (int round = 0; round < 2; ++round) {
    for (const at::Tensor& x : inputs) EXPECT_TRUE(same_values(compiled(x, x), f(x, x)));
  }
  expect_counts(compiled, inputs.size(), inputs.size());
  const std::string reason = compiled.explain(at::randn({7}), at::randn({7}));
  EXPECT_NE(reason.find("program 0: tensor 0: expected f32[3], got f32[7]"), std::string::npos)
      << reason;
}

TEST(AotCache, test_cache_key_varies_with_different_inputs) {
  auto compiled = compile(f, once);
  for (int round = 0; round < 2; ++round) {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
      const at::Tensor x = at::ones({3}, dtype);
      EXPECT_TRUE(same_values(compiled(x, x), f(x, x)));
    }
  }
  expect_counts(compiled, 3, 3);
}

TEST(AotCache, test_different_global_configs) {
  const auto mm = [](const at::Tensor& x) { return x.mm(x) + at::ones({2, 2}); };
  auto compiled = compile(mm, once);
  const at::Tensor x = leaf({2, 2});
  uint64_t misses = 0;
  const auto expect_own_program = [&](const char* what) {
    SCOPED_TRACE(what);
    const at::Tensor expected = mm(x);
    ++misses;
    for (int call = 0; call < 2; ++call) {
      const at::Tensor out = compiled(x);
      EXPECT_TRUE(same_values(out, expected));
      EXPECT_EQ(out.requires_grad(), expected.requires_grad());
    }
    expect_counts(compiled, misses, misses);
  };
  expect_own_program("as it is");
  {
    const at::NoGradGuard no_grad;
    expect_own_program("grad mode");
  }
  {
    const auto off = c10::make_scope_exit([] {
      at::autocast::set_autocast_enabled(at::kCPU, false);
      at::autocast::clear_cache();
    });
    at::autocast::set_autocast_enabled(at::kCPU, true);
    expect_own_program("autocast");
  }
  {
    const auto off =
        c10::make_scope_exit([] { at::globalContext().setDeterministicAlgorithms(false, false); });
    at::globalContext().setDeterministicAlgorithms(true, false);
    expect_own_program("deterministic algorithms");
  }
  {
    const auto off =
        c10::make_scope_exit([] { c10::set_default_dtype(caffe2::TypeMeta::Make<float>()); });
    c10::set_default_dtype(caffe2::TypeMeta::Make<double>());
    expect_own_program("default dtype");
  }
}

TEST(AotCache, test_private_builtin) {
  const auto add = [](const at::Tensor& x, int64_t number) {
    return at::_foreach_add({x, x * 2}, number)[1];
  };
  auto compiled = compile(add, once);
  const at::Tensor x = at::randn({3});
  for (int round = 0; round < 2; ++round) {
    for (const int64_t number : {2, 3})
      EXPECT_TRUE(same_values(compiled(x, number), add(x, number)));
  }
  expect_counts(compiled, 2, 2);
}

TEST(AotCache, test_nn_module_with_params) {
  torch::nn::Linear module(3, 3);
  auto compiled = compile(module, once);
  for (int call = 0; call < 3; ++call) {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& parameter : module->parameters()) parameter.mul_(1.5);
    const at::Tensor x = at::randn({2, 3});
    EXPECT_TRUE(same_values(compiled(x), module(x)));
  }
  expect_counts(compiled, 1, 2);
}

TEST(AotCache, test_tensor_constant) {
  const auto shifted = [](const at::Tensor& x) { return x + torch::tensor({1.5, 2.5, -3.0}); };
  auto compiled = compile(shifted, once);
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = at::randn({3});
    EXPECT_TRUE(same_values(compiled(x), shifted(x)));
  }
  expect_counts(compiled, 1, 2);
}

template <int scale>
struct ScaledGradient : torch::autograd::Function<ScaledGradient<scale>> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return x.sin();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0] * scale};
  }
};

TEST(AotCache, test_custom_autograd_function) {
  const auto g = [](const Tensors& in) { return ScaledGradient<2>::apply(in[0]).exp(); };
  auto compiled = compile(g, once);
  for (int call = 0; call < 3; ++call) expect_same_call(g, compiled, {at::randn({3})});
  expect_counts(compiled, 1, 2);
}

TEST(AotCache, test_custom_autograd_function_miss) {
  const auto g = [](const Tensors& in, bool other) {
    return (other ? ScaledGradient<3>::apply(in[0]) : ScaledGradient<2>::apply(in[0])).exp();
  };
  auto compiled = compile(g, once);
  for (int round = 0; round < 2; ++round) {
    for (const bool other : {false, true}) {
      expect_same_call([&](const Tensors& in) { return g(in, other); },
                       [&](const Tensors& in) { return compiled(in, other); }, {at::randn({3})});
    }
  }
  expect_counts(compiled, 2, 2);
}

at::Tensor checkpointed(const at::Tensor& x, Saving saving) {
  return checkpoint(
      CheckpointPolicy(saving),
      [](const at::Tensor& y) { return at::dropout(y.sin().exp(), 0.5, true).tanh(); }, x);
}

TEST(AotCache, test_different_sac_policies_cause_cache_miss) {
  const auto g = [](const Tensors& in, int64_t policy) {
    return checkpointed(in[0], static_cast<Saving>(policy)).sum();
  };
  auto compiled = compile(g, once);
  const at::Tensor x = leaf({40, 50});
  std::set<uint64_t> graphs;
  for (int round = 0; round < 2; ++round) {
    for (const Saving saving : {Saving::MustSave, Saving::MustRecompute})
      compiled(Tensors{x}, static_cast<int64_t>(saving)).backward();
  }
  expect_counts(compiled, 2, 2);
  for (const Program& made : compiled.programs()) {
    if (made.name == "partition.backward") graphs.insert(made.graph->hash());
  }
  EXPECT_EQ(graphs.size(), 2u);
}

TEST(AotCache, test_same_sac_policy_causes_cache_hit) {
  const auto g = [](const at::Tensor& x) { return checkpointed(x, Saving::MustRecompute).sum(); };
  auto compiled = compile(g, once);
  for (int call = 0; call < 3; ++call) compiled(leaf({40, 50})).backward();
  expect_counts(compiled, 1, 2);
}

TEST(AotCache, test_checkpoint_with_dropout_caches_correctly) {
  const auto g = [](const Tensors& in) { return checkpointed(in[0], Saving::MustRecompute); };
  auto compiled = compile(g, once);
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = at::randn({40, 50});
    expect_same_call(
        [&](const Tensors& in) {
          torch::manual_seed(call);
          return g(in);
        },
        [&](const Tensors& in) {
          torch::manual_seed(call);
          return compiled(in);
        },
        {x});
  }
  expect_counts(compiled, 1, 2);
}

// Names of graphs.

Graph traced(const aot::FlatFunction& function, const Tensors& inputs) {
  return trace(function, inputs);
}

TEST(AotCache, test_basic_hash_key) {
  const auto g = [](const Tensors& in) -> Tensors { return {f(in[0], in[1])}; };
  const Tensors inputs{at::randn({3}), at::randn({3})};
  EXPECT_EQ(traced(g, inputs).hash(), traced(g, inputs).hash());
}

TEST(AotCache, test_cache_key_stable_across_calls) {
  const auto hash_of = [] {
    auto compiled = compile(f, once);
    compiled(at::randn({3}), at::randn({3}));
    EXPECT_EQ(compiled.stats().eager_calls, 0u);
    return program(compiled, "trace").hash();
  };
  EXPECT_EQ(hash_of(), hash_of());
}

TEST(AotCache, test_different_graphs) {
  const Tensors inputs{at::randn({3})};
  EXPECT_NE(
      traced([](const Tensors& in) -> Tensors { return {in[0].sin().cos()}; }, inputs).hash(),
      traced([](const Tensors& in) -> Tensors { return {in[0].cos().sin()}; }, inputs).hash());
}

TEST(AotCache, test_cache_key_varies_with_different_graphs) {
  const Tensors inputs{at::randn({3})};
  EXPECT_NE(traced([](const Tensors& in) -> Tensors { return {in[0] + 1}; }, inputs).hash(),
            traced([](const Tensors& in) -> Tensors { return {in[0] + 2}; }, inputs).hash());
}

TEST(AotCache, test_graph_module_hash_preserves_kernel_idx_strings) {
  const Tensors inputs{at::randn({3}), at::randn({3})};
  const auto divided = [&](const char* mode) {
    return traced([&](const Tensors& in) -> Tensors { return {at::div(in[0], in[1], mode)}; },
                  inputs)
        .hash();
  };
  EXPECT_EQ(divided("floor"), divided("floor"));
  EXPECT_NE(divided("floor"), divided("trunc"));
}

TEST(AotCache, test_sanitize_gm_for_cache) {
  Graph graph = traced([](const Tensors& in) -> Tensors { return {in[0].sin()}; }, {leaf({3})});
  const uint64_t before = graph.hash();
  const std::string other = "elsewhere";
  graph.first()->sequence = 17;
  graph.first()->provenance = graph.first()->place = &other;
  EXPECT_EQ(graph.hash(), before);
}

TEST(AotCache, test_runtime_only_configs_do_not_change_key) {
  const auto hash_of = [](Options options) {
    auto compiled = compile(f, std::move(options));
    compiled(leaf({3}), leaf({3}));
    expect_counts(compiled, 1, 0);
    return program(compiled, "partition.forward").hash();
  };
  const uint64_t expected = hash_of(once);
  Options options = once;
  options.debug_asserts = true;
  EXPECT_EQ(hash_of(options), expected);
  options.recompile_limit = 3;
  EXPECT_EQ(hash_of(options), expected);
  options.record_places = true;
  EXPECT_EQ(hash_of(options), expected);
}

TEST(AotCache, test_normal_torch_function) {
  const auto g = [](const at::Tensor& x) { return x.sin() + at::exp(x.neg()); };
  auto compiled = compile(g, once);
  for (int call = 0; call < 2; ++call) {
    const at::Tensor x = at::randn({3});
    EXPECT_TRUE(same_values(compiled(x), g(x)));
  }
  expect_counts(compiled, 1, 1);
}

TEST(AotCache, test_cache_key_for_module) {
  const auto hash_of = [] {
    torch::nn::Linear module(3, 2);
    return trace([module](const at::Tensor& x) mutable { return module(x); }, at::randn({4, 3}))
        .hash();
  };
  EXPECT_EQ(hash_of(), hash_of());
}

TEST(AotCache, test_cache_key_for_multiple_outputs) {
  const Tensors inputs{at::randn({3})};
  const auto two = [](const Tensors& in) -> Tensors { return {in[0].sin(), in[0].cos()}; };
  const auto one = [](const Tensors& in) -> Tensors { return {in[0].sin()}; };
  EXPECT_EQ(traced(two, inputs).hash(), traced(two, inputs).hash());
  EXPECT_NE(traced(two, inputs).hash(), traced(one, inputs).hash());
}

}  // namespace aot_29_cache_test
}  // namespace ahead::conformance
