#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/compile.h"
#include "ahead/compiled_autograd.h"
#include "conformance/ca_functions.h"
#include "support/engine_check.h"
#include "support/hits.h"

namespace ahead::conformance {
namespace ca_01_engine_test {

using compiled_autograd::Disable;
using compiled_autograd::Enable;
using compiled_autograd::stats;
using test::all_reasons;
using test::expect_as_eager;
using test::grads_of;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;
using Tensors = std::vector<at::Tensor>;

torch::nn::Sequential small_net() {
  return torch::nn::Sequential(torch::nn::Linear(4, 4), torch::nn::ReLU(), torch::nn::Linear(4, 4),
                               torch::nn::ReLU());
}

Tensors train_once() {
  torch::nn::Sequential net = small_net();
  net->forward(torch::randn({2, 4})).sum().backward();
  return grads_of(*net);
}

TEST(CaScopes, test_reset) {
  {
    Enable on;
    train_once();
  }
  compiled_autograd::reset();
  EXPECT_EQ(stats().captures + stats().compiles + stats().cache_misses, 0u);
  train_once();
  EXPECT_EQ(stats().captures, 0u);
}

TEST(CaScopes, test_compile_api_disable) {
  torch::manual_seed(1);
  const Tensors expected = train_once();
  compiled_autograd::reset();
  Enable on;
  Disable off;
  torch::manual_seed(1);
  const Tensors got = train_once();
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(tensor_difference(expected[i], got[i]), "") << i;
  const auto counted = stats();
  EXPECT_EQ(counted.captures + counted.cache_hits + counted.eager_fallbacks, 0u);
}

TEST(CaScopes, test_optimize_assert) {
  compiled_autograd::reset();
  auto model = compiled_by_call([](const at::Tensor& x) { return (x * x).sum(); }, {}, leaf({4}));
  const at::Tensor x = leaf({4});
  at::Tensor loss;
  {
    Enable on;
    loss = model(x);
  }
  loss.backward();
  EXPECT_TRUE(same_values(x.grad(), 2 * x.detach()));
  EXPECT_EQ(stats().captures, 0u);
  expect_hits(model);
}

struct CompilesInBackward : Function<CompilesInBackward> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x * 2; }
  static variable_list backward(AutogradContext*, const variable_list& grads) {
    auto twice = compile([](const at::Tensor& g) { return g + g; }, {.confirm = 0});
    twice(grads[0]);
    return {twice(grads[0])};
  }
};

TEST(CaScopes, test_nested_compile) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4});
    CompilesInBackward::apply(x.exp()).sin().sum().backward();
    return Tensors{x.grad()};
  });
}

template <bool create_graph>
struct RunsABackward : Function<RunsABackward<create_graph>> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x * 2; }
  static variable_list backward(AutogradContext*, const variable_list& grads) {
    at::AutoGradMode on(true);
    const at::Tensor y = torch::full({4}, 3.0, torch::requires_grad());
    return {grads[0] *
            torch::autograd::grad({(y * y).sum()}, {y}, {}, {}, create_graph)[0].detach()};
  }
};

TEST(CaScopes, test_no_nested_compiled_autograd) {
  const auto with = [](auto apply) {
    return expect_as_eager([apply] {
      const at::Tensor x = leaf({4});
      apply(x.exp()).sum().backward();
      return Tensors{x.grad()};
    });
  };
  EXPECT_EQ(with([](const at::Tensor& x) { return RunsABackward<false>::apply(x); }).captures, 1u);
  EXPECT_EQ(with([](const at::Tensor& x) { return RunsABackward<true>::apply(x); }).captures, 1u);
}

TEST(CaScopes, test_multiple_torch_compile) {
  const auto captures = [](bool enabled) {
    compiled_autograd::reset();
    auto model =
        compiled_by_call([](const at::Tensor& x) { return (x.sin() * x).sum(); }, {}, leaf({4}));
    std::optional<Enable> on;
    if (enabled) on.emplace();
    model(leaf({4})).backward();
    expect_hits(model);
    return stats().captures;
  };
  EXPECT_EQ(captures(false), 0u);
  EXPECT_EQ(captures(true), 1u);
  EXPECT_EQ(captures(false), 0u);
}

TEST(CaScopes, test_torch_compile_only_backward_call) {
  const at::Tensor x = leaf({4});
  const at::Tensor loss = x.exp().sum();
  compiled_autograd::reset();
  {
    Enable on;
    loss.backward();
  }
  EXPECT_EQ(stats().captures, 1u);
  EXPECT_TRUE(same_values(x.grad(), x.detach().exp()));
}

TEST(CaScopes, test_torch_compile) {
  const auto steps = [] {
    torch::nn::Sequential net = small_net();
    auto model = compiled_by_call([&net](const at::Tensor& x) { return net->forward(x).sum(); }, {},
                                  torch::zeros({2, 4}));
    const at::Tensor x = torch::randn({2, 4});
    Tensors all;
    for (int i = 0; i < 3; ++i) {
      model(x).backward();
      for (const at::Tensor& grad : grads_of(*net)) all.push_back(grad.clone());
      net->zero_grad();
    }
    expect_hits(model);
    return all;
  };
  // Each round compiles a function of its own, which the key tells apart.
  EXPECT_EQ(expect_as_eager(steps, 1).captures, 1u);
}

TEST(CaScopes, test_dynamo_flaky_segfault) {
  for (int i = 0; i < 3; ++i) {
    Enable on;
    EXPECT_TRUE(train_once()[0].defined());
    compiled_autograd::reset();
    EXPECT_TRUE(train_once()[0].defined());
    EXPECT_EQ(compiled_autograd::stats().captures, 1u);
    EXPECT_EQ(compiled_autograd::stats().eager_fallbacks, 0u);
  }
}

TEST(CaBasic, test_basic) {
  const auto counted = expect_as_eager(train_once);
  EXPECT_EQ(counted.captures, 1u);
  EXPECT_EQ(counted.compiles, 1u);
}

TEST(CaBasic, test_implicit_add) {
  const auto counted = expect_as_eager([] {
    const at::Tensor y = leaf({1, 4});
    Tensors all;
    for (int i = 0; i < 3; ++i) {
      (y.sin() + y.cos() + y.sigmoid() * y).sum().backward();
      all.push_back(y.grad().clone());
      y.mutable_grad().reset();
    }
    return all;
  });
  EXPECT_EQ(counted.captures, 1u);
}

TEST(CaBasic, test_output_nodes_all_leaves) {
  const auto counted = expect_as_eager([] {
    const at::Tensor y = leaf({1, 4}), z = leaf({1, 4});
    const at::Tensor out = (torch::randn({1, 4}) * y + z.sin() * y).sum();
    variable_list grads = torch::autograd::grad({out}, {y, z});
    grads.push_back(y.grad());
    grads.push_back(z.grad());
    return grads;
  });
  EXPECT_EQ(counted.captures, 1u);
}

struct Raises : Function<Raises> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x.clone(); }
  static variable_list backward(AutogradContext*, const variable_list&) {
    throw std::runtime_error("this branch must not run");
  }
};

TEST(CaBasic, test_no_output_nodes_some_leaves) {
  const auto counted = expect_as_eager([] {
    const at::Tensor y = leaf({1, 4}), z = leaf({1, 4}), a = leaf({1, 4});
    const at::Tensor out = (y.sin() * z + Raises::apply(a)).sum();
    torch::autograd::backward({out}, {}, {}, false, {y, z});
    return Tensors{y.grad(), z.grad(), a.grad()};
  });
  EXPECT_EQ(counted.captures, 1u);
}

TEST(CaBasic, test_no_output_nodes_different_leaves_will_recompile) {
  const auto counted = expect_as_eager([] {
    Tensors all;
    for (int i = 0; i < 2; ++i) {
      const at::Tensor x = leaf({4}), y = leaf({4});
      torch::autograd::backward({(x * y).sum()}, {}, {}, false, {i == 0 ? x : y});
      all.push_back(x.grad());
      all.push_back(y.grad());
    }
    return all;
  });
  EXPECT_EQ(counted.captures, 2u);
}

TEST(CaBasic, test_index_fill_value_grad_noncontiguous) {
  const auto counted = expect_as_eager([] {
    const at::Tensor x = torch::zeros({10, 20}).t();
    const at::Tensor value = torch::tensor(2.0).requires_grad_();
    const at::Tensor out = x.index_fill(0, torch::tensor({0, 2, 2}), value);
    return torch::autograd::grad({out}, {value}, {torch::full({10, 20}, 10.0).t()});
  });
  EXPECT_EQ(counted.captures, 1u);
  // The one node reads indices' values, so it runs as in eager.
  EXPECT_EQ(counted.compiles, 0u);
  EXPECT_EQ(counted.eager_nodes, 3u) << all_reasons();
  EXPECT_EQ(counted.eager_fallbacks, 0u);
}

TEST(CaBasic, test_keep_graph_usage_after_compiled) {
  const at::Tensor x = leaf({4});
  const at::Tensor loss = (x * x * 0.5 * x.detach()).sum();
  compiled_autograd::reset();
  for (int i = 0; i < 5; ++i) {
    x.mutable_grad().reset();
    {
      Enable on;
      loss.backward({}, /*keep_graph=*/true);
    }
    const at::Tensor compiled = x.grad().clone();
    x.mutable_grad().reset();
    loss.backward({}, /*keep_graph=*/true);
    EXPECT_TRUE(same_values(compiled, x.grad()));
  }
  EXPECT_EQ(compiled_autograd::stats().cache_hits, 4u);
  EXPECT_EQ(compiled_autograd::stats().eager_fallbacks, 0u);
}

at::Tensor sine_forward(const at::Tensor& x) {
  const at::AutoDispatchBelowADInplaceOrView below;
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("ca_conformance::sine", "")
                             .typed<at::Tensor(const at::Tensor&)>();
  return op.call(x);
}

/// The gradient that is registered for an operator.
struct SineOp : Function<SineOp> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return sine_forward(x);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    return {grads[0] * context->get_saved_variables()[0].cos()};
  }
};

TORCH_LIBRARY_FRAGMENT(ca_conformance, library) {
  library.def("sine(Tensor x) -> Tensor");
  library.impl("sine", c10::DispatchKey::CPU, [](const at::Tensor& x) { return x.sin(); });
  library.impl("sine", c10::DispatchKey::Autograd,
               [](const at::Tensor& x) { return SineOp::apply(x); });
}

TEST(CaBasic, test_graph_break_custom_op) {
  const auto counted = expect_as_eager(
      [] {
        static const auto op = c10::Dispatcher::singleton()
                                   .findSchemaOrThrow("ca_conformance::sine", "")
                                   .typed<at::Tensor(const at::Tensor&)>();
        const at::Tensor x = leaf({4});
        op.call(x.exp()).sum().backward();
        return Tensors{x.grad()};
      },
      3, {.fullgraph = true});
  EXPECT_EQ(counted.captures, 1u);
  EXPECT_EQ(counted.calls, 3u);
}

TEST(CaBasic, test_issue106555) {
  expect_as_eager([] {
    const at::Tensor w = leaf({4, 4});
    Tensors all;
    for (int i = 0; i < 10; ++i) {
      at::Tensor h = torch::randn({2, 4}).requires_grad_();
      for (int layer = 0; layer < 3; ++layer) h = Reentrant::apply(h * 2, w);
      h.sum().backward();
      all.push_back(w.grad().clone());
    }
    return all;
  });
}

TEST(CaAccumulateGrad, test_accumulate_without_zero) {
  // Upstream captures twice, since whether `.grad` is defined is part of its key.
  const auto counted = expect_as_eager([] {
    torch::nn::Sequential net = small_net();
    for (int i = 0; i < 10; ++i) net->forward(torch::ones({2, 4}) * i).sum().backward();
    return grads_of(*net);
  });
  // One without a gradient, one with.
  EXPECT_EQ(counted.captures, 2u);
  EXPECT_EQ(counted.eager_nodes + counted.eager_fallbacks, 0u);
}

TEST(CaAccumulateGrad, test_inplace_grad_update) {
  const auto counted = expect_as_eager([] {
    Tensors all;
    for (int i = 0; i < 10; ++i) {
      torch::nn::Sequential net = small_net();
      Tensors before;
      for (at::Tensor& p : net->parameters()) {
        p.mutable_grad() = torch::rand_like(p);
        before.push_back(p.grad());
      }
      net->forward(torch::randn({2, 4})).sum().backward();
      for (size_t k = 0; k < before.size(); ++k) {
        EXPECT_TRUE(net->parameters()[k].grad().is_same(before[k]));
        all.push_back(before[k]);
      }
    }
    return all;
  });
  EXPECT_EQ(counted.captures, 1u);
}

TEST(CaAccumulateGrad, test_accumulate_grad_accuracy) {
  const auto counted = expect_as_eager([] {
    torch::nn::Linear a(torch::nn::LinearOptions(10, 10).bias(false));
    torch::nn::Linear b(torch::nn::LinearOptions(10, 10).bias(false));
    const at::Tensor loss = b->forward(a->forward(torch::randn({5, 10}))).sum();
    torch::manual_seed(123);
    loss.backward();
    return Tensors{a->weight.grad(), b->weight.grad(), torch::rand({2})};
  });
  EXPECT_EQ(counted.captures, 1u);
}

TEST(CaAccumulateGrad, test_accumulate_grad_capture_lifts_current_grad) {
  const auto counted = expect_as_eager([] {
    const at::Tensor x = torch::ones({1}, torch::requires_grad());
    x.mutable_grad() = torch::ones({1});
    (x * 2).sum().backward();
    return Tensors{x.grad()};
  });
  EXPECT_EQ(counted.captures, 1u);
  EXPECT_EQ(counted.eager_nodes + counted.eager_fallbacks, 0u);
  const Graph& graph = *compiled_autograd::graphs().at(0);
  const Node& last = *graph.last();
  ASSERT_EQ(last.op().name(), "ahead.accumulate_grad_") << graph.str();
  // The variable and its current gradient are inputs of the graph.
  EXPECT_EQ(last.args()[0].value()->producer(), nullptr);
  EXPECT_EQ(last.args()[1].value()->producer(), nullptr);
  EXPECT_NE(last.args()[2].value()->producer(), nullptr);
}

TEST(CaAccumulateGrad, test_accumulate_grad_polyfill_case_1_1) {
  const auto counted = expect_as_eager([] {
    const at::Tensor x = leaf({10});
    (x * x.detach()).sum().backward();
    EXPECT_EQ(x.grad().storage().use_count(), 1u);
    return Tensors{x.grad()};
  });
  EXPECT_EQ(counted.captures, 1u);
  EXPECT_EQ(counted.eager_nodes + counted.eager_fallbacks, 0u) << all_reasons();
}

at::Tensor rows_of(const at::Tensor& table) {
  return torch::embedding(table, torch::tensor({0, 2, 2}), -1, false, /*sparse=*/true);
}

TEST(CaAccumulateGrad, test_accumulate_grad_polyfill_case_1_2) {
  const auto counted = expect_as_eager([] {
    const at::Tensor table = leaf({4, 3});
    rows_of(table).sum().backward();
    return Tensors{table.grad()};
  });
  EXPECT_EQ(counted.captures, 1u);
  EXPECT_EQ(counted.eager_fallbacks, 0u);
  // What makes the sparse gradient.
  EXPECT_EQ(counted.eager_nodes, 3u) << all_reasons();
}

TEST(CaAccumulateGrad, test_accumulate_grad_polyfill_case_1_3) {
  const auto counted = expect_as_eager([] {
    const at::Tensor table = leaf({4, 3});
    const at::Tensor rows = rows_of(table);
    (rows * rows.detach().requires_grad_()).sum().backward({}, true, /*create_graph=*/true);
    EXPECT_TRUE(table.grad().is_sparse());
    EXPECT_TRUE(table.grad().requires_grad());
    const Tensors all{table.grad().detach()};
    table.mutable_grad().reset();
    return all;
  });
  EXPECT_EQ(counted.captures, 1u);
  EXPECT_EQ(counted.eager_fallbacks, 0u);
  // What makes the sparse gradient.
  EXPECT_EQ(counted.eager_nodes, 3u) << all_reasons();
}

TEST(CaAccumulateGrad, test_accumulate_grad_polyfill_case_1_5_1) {
  const auto counted = expect_as_eager([] {
    const at::Tensor x = leaf({4});
    at::Tensor held;
    x.register_hook([&held](const at::Tensor& grad) {
      held = grad;
      return grad;
    });
    (x * x).sum().backward();
    EXPECT_FALSE(held.is_alias_of(x.grad()));
    return Tensors{x.grad(), held};
  });
  EXPECT_EQ(counted.captures, 1u);
  EXPECT_EQ(counted.eager_nodes + counted.eager_fallbacks, 0u) << all_reasons();
}

TEST(CaAccumulateGrad, test_accumulate_grad_polyfill_case_1_5_2) {
  const auto counted = expect_as_eager([] {
    const at::Tensor x = torch::randn({8}).slice(0, 0, 8, 2).requires_grad_();
    (x * 2).sum().backward();
    EXPECT_TRUE(x.grad().is_contiguous());
    return Tensors{x.grad()};
  });
  EXPECT_EQ(counted.captures, 1u);
  EXPECT_EQ(counted.eager_nodes + counted.eager_fallbacks, 0u) << all_reasons();
}

/// A backward onto a table whose `.grad` is given.
Tensors onto(const at::Tensor& before, bool sparse, bool create_graph, bool& is_same) {
  const at::Tensor table = leaf({4, 3});
  table.mutable_grad() = before;
  const at::Tensor out = sparse ? rows_of(table) : table * 2;
  (out * torch::ones({3}, torch::requires_grad())).sum().backward({}, create_graph, create_graph);
  is_same = table.grad().is_same(before);
  EXPECT_EQ(table.grad().requires_grad(), create_graph);
  Tensors all{table.grad().detach()};
  table.mutable_grad().reset();
  return all;
}

at::Tensor sparse_grad() {
  const Disable not_counted;
  const at::Tensor table = leaf({4, 3});
  rows_of(table).sum().backward();
  return table.grad();
}

TEST(CaAccumulateGrad, test_accumulate_grad_polyfill_case_2_1) {
  bool is_same = true;
  const auto counted = expect_as_eager([&] { return onto(sparse_grad(), false, false, is_same); });
  EXPECT_FALSE(is_same);
  EXPECT_EQ(counted.captures, 1u);
  EXPECT_EQ(counted.eager_nodes + counted.eager_fallbacks, 0u) << all_reasons();
  EXPECT_NE(all_reasons().find("its `.grad` is sparse"), std::string::npos) << all_reasons();
}

TEST(CaAccumulateGrad, test_accumulate_grad_polyfill_case_2_3_1) {
  bool is_same = false;
  const auto counted = expect_as_eager([&] {
    return onto(torch::ones({4, 3}), false, false, is_same);
  });
  EXPECT_TRUE(is_same);
  EXPECT_EQ(counted.captures, 1u);
  EXPECT_EQ(counted.eager_nodes + counted.eager_fallbacks, 0u) << all_reasons();
}

TEST(CaAccumulateGrad, test_accumulate_grad_polyfill_case_2_3_2) {
  bool is_same = false;
  const auto counted = expect_as_eager([&] { return onto(sparse_grad(), true, false, is_same); });
  EXPECT_TRUE(is_same);
  EXPECT_EQ(counted.captures, 1u);
  // What makes the sparse gradient.
  EXPECT_EQ(counted.eager_nodes, 3u) << all_reasons();
}

TEST(CaAccumulateGrad, test_accumulate_grad_polyfill_case_2_3_3) {
  bool is_same = false;
  const auto counted = expect_as_eager([&] {
    return onto(torch::ones({4, 3}), true, false, is_same);
  });
  EXPECT_TRUE(is_same);
  EXPECT_EQ(counted.captures, 1u);
  // What makes the sparse gradient.
  EXPECT_EQ(counted.eager_nodes, 3u) << all_reasons();
}

TEST(CaAccumulateGrad, test_accumulate_grad_polyfill_case_3_1) {
  bool is_same = true;
  const auto counted = expect_as_eager([&] { return onto(sparse_grad(), false, true, is_same); });
  EXPECT_FALSE(is_same);
  EXPECT_EQ(counted.captures, 1u);
  EXPECT_EQ(counted.eager_nodes + counted.eager_fallbacks, 0u) << all_reasons();
  EXPECT_NE(all_reasons().find("its `.grad` is sparse"), std::string::npos) << all_reasons();
}

TEST(CaAccumulateGrad, test_accumulate_grad_polyfill_case_3_2) {
  bool is_same = true;
  const auto counted = expect_as_eager([&] {
    return onto(torch::ones({4, 3}), false, true, is_same);
  });
  EXPECT_FALSE(is_same);
  EXPECT_EQ(counted.captures, 1u);
  EXPECT_EQ(counted.eager_nodes + counted.eager_fallbacks, 0u) << all_reasons();
}

}  // namespace ca_01_engine_test
}  // namespace ahead::conformance
