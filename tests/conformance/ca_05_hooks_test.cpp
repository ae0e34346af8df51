#include <gtest/gtest.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>
#include <torch/torch.h>

#include "ahead/backend.h"
#include "ahead/compile.h"
#include "ahead/compiled_autograd.h"
#include "ahead/interpret.h"
#include "base/libtorch.h"
#include "support/autograd_hooks.h"
#include "support/engine_check.h"
#include "support/hits.h"

namespace ahead::conformance {
namespace ca_05_hooks_test {

using compiled_autograd::stats;
using test::AccumulatedHook;
using test::expect_as_eager;
using test::grads_of;
using test::PostHook;
using test::PreHook;
using test::scaled;
using torch::autograd::variable_list;
using Tensors = std::vector<at::Tensor>;

torch::nn::Sequential net_of(int64_t layers) {
  torch::nn::Sequential net;
  for (int64_t i = 0; i < layers; ++i) net->push_back(torch::nn::Linear(4, 4));
  return net;
}

/// Three nets in turn, each prepared in the same way; the captures must be as many as stated.
void expect_one_capture(const std::function<void(torch::nn::Sequential&, at::Tensor&)>& prepare) {
  const auto counted = expect_as_eager([&] {
    Tensors all;
    for (int i = 0; i < 3; ++i) {
      torch::nn::Sequential net = net_of(2);
      at::Tensor out = net->forward(torch::randn({2, 4}));
      prepare(net, out);
      out.sum().backward();
      for (const at::Tensor& grad : grads_of(*net)) all.push_back(grad);
    }
    return all;
  });
  EXPECT_EQ(counted.captures, 1u);
}

TEST(CaHooks, test_tensor_grad_hook1) {
  expect_one_capture([](torch::nn::Sequential& net, at::Tensor&) {
    net->parameters()[0].register_hook([](const at::Tensor& grad) { return grad * 2; });
  });
}

TEST(CaHooks, test_tensor_grad_hook2) {
  expect_one_capture([](torch::nn::Sequential&, at::Tensor& out) {
    out.grad_fn()->add_pre_hook(
        std::make_unique<PreHook>([](const variable_list& g) { return scaled(g, 2); }));
  });
}

TEST(CaHooks, test_tensor_grad_hook3) {
  expect_one_capture([](torch::nn::Sequential&, at::Tensor& out) {
    out.grad_fn()->add_post_hook(std::make_unique<PostHook>(
        [](const variable_list& gi, const variable_list&) { return scaled(gi, 2); }));
  });
}

TEST(CaHooks, test_reorder_acc_grad) {
  const auto model = torch::nn::Sequential(torch::nn::Conv2d(4, 4, 3), torch::nn::Conv2d(4, 4, 3));
  const at::Tensor x = torch::randn({1, 4, 8, 8});
  expect_as_eager([&] {
    auto net = model;
    net->zero_grad();
    const at::Tensor loss = net->forward(x).sum();
    loss.backward({}, /*keep_graph=*/true);
    loss.backward({}, /*keep_graph=*/true);
    Tensors grads;
    for (const at::Tensor& p : net->parameters()) grads.push_back(p.grad());
    return grads;
  });
}

/// A net all of whose accumulators are prepared by a function.
Tensors with_accumulators(const std::function<void(const at::Tensor&, torch::autograd::Node&)>& f) {
  torch::nn::Sequential net = net_of(3);
  std::vector<decltype(torch::autograd::Edge::function)> keep;
  for (const at::Tensor& p : net->parameters()) {
    keep.push_back(torch::autograd::impl::grad_accumulator(p));
    f(p, *keep.back());
  }
  net->forward(torch::randn({2, 4})).sum().backward();
  return grads_of(*net);
}

std::unique_ptr<PostHook> changes_grad(const at::Tensor& p,
                                       std::function<void(at::Tensor&)> change) {
  const c10::weak_intrusive_ptr<c10::TensorImpl> weak(p.getIntrusivePtr());
  return std::make_unique<PostHook>([weak, change](const variable_list& gi, const variable_list&) {
    at::NoGradGuard no_grad;
    at::Tensor tensor(weak.lock());
    change(tensor.mutable_grad());
    return gi;
  });
}

TEST(CaHooks, test_reorder_post_hook1) {
  expect_as_eager([] {
    return with_accumulators([](const at::Tensor& p, torch::autograd::Node& node) {
      node.add_post_hook(changes_grad(p, [](at::Tensor& grad) { grad.div_(4); }));
    });
  });
}

TEST(CaHooks, test_reorder_post_hook2) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4});
    const at::Tensor y = x.sin(), z = y.exp();
    y.grad_fn()->add_post_hook(std::make_unique<PostHook>(
        [](const variable_list& gi, const variable_list& go) -> variable_list {
          return {gi[0] + go[0]};
        }));
    z.grad_fn()->add_post_hook(std::make_unique<PostHook>(
        [](const variable_list& gi, const variable_list&) -> variable_list {
          return {gi[0] * 3};
        }));
    z.sum().backward();
    return Tensors{x.grad()};
  });
}

TEST(CaHooks, test_reorder_post_hook3) {
  expect_as_eager([] {
    const at::Tensor x = leaf({1, 2, 5, 5}), w = leaf({2, 2, 3, 3}), b = leaf({2});
    const at::Tensor y = torch::conv2d(x, w, b);
    y.grad_fn()->add_post_hook(std::make_unique<PostHook>(
        [](const variable_list& gi, const variable_list&) -> variable_list {
          return {gi[0], gi[1] * 2, gi[2]};
        }));
    y.sin().sum().backward();
    return Tensors{x.grad(), w.grad(), b.grad()};
  });
}

TEST(CaHooks, test_reorder_all_bwd_hooks) {
  expect_as_eager([] {
    return with_accumulators([](const at::Tensor& p, torch::autograd::Node& node) {
      p.register_hook([](const at::Tensor& grad) { return grad - 2; });
      node.add_pre_hook(
          std::make_unique<PreHook>([](const variable_list& g) { return scaled(g, 0.2); }));
      torch::autograd::impl::set_post_acc_grad_hooks(
          p, std::make_unique<AccumulatedHook>([](const at::Tensor& tensor) {
            at::NoGradGuard no_grad;
            tensor.mutable_grad().add_(3);
          }));
      node.add_post_hook(changes_grad(p, [](at::Tensor& grad) { grad.mul_(0.5); }));
    });
  });
}

TEST(CaHooks, test_reorder_multi_post_hooks) {
  expect_as_eager([] {
    return with_accumulators([](const at::Tensor& p, torch::autograd::Node& node) {
      node.add_post_hook(changes_grad(p, [](at::Tensor& grad) { grad.mul_(0.5); }));
      node.add_post_hook(changes_grad(p, [](at::Tensor& grad) { grad.add_(5); }));
    });
  });
}

TEST(CaHooks, test_reorder_multi_pre_hooks) {
  expect_as_eager([] {
    return with_accumulators([](const at::Tensor&, torch::autograd::Node& node) {
      node.add_pre_hook(
          std::make_unique<PreHook>([](const variable_list& g) { return scaled(g, 0.2); }));
      node.add_pre_hook(std::make_unique<PreHook>(
          [](const variable_list& g) -> variable_list { return {g[0] - 1}; }));
    });
  });
}

TEST(CaHooks, test_reorder_multi_tensor_pre_hooks) {
  expect_as_eager([] {
    return with_accumulators([](const at::Tensor& p, torch::autograd::Node&) {
      p.register_hook([](const at::Tensor& grad) { return grad * 3; });
      p.register_hook([](const at::Tensor& grad) { return grad - 2; });
    });
  });
}

std::vector<int64_t> events;

struct NotedSaved : torch::autograd::SavedVariableHooks {
  void call_pack_hook(const at::Tensor& tensor) override {
    events.push_back(1);
    packed = tensor.detach();
  }
  at::Tensor call_unpack_hook() override {
    events.push_back(2);
    return packed;
  }
  at::Tensor packed;
};

struct SavingNode : torch::autograd::Node {
  variable_list apply(variable_list&& grads) override { return {grads[0] * saved.unpack()}; }
  torch::autograd::SavedVariable saved;
};

TEST(CaHooks, test_saved_tensor_unpack_hook_ordering) {
  expect_as_eager([] {
    events.clear();
    const at::Tensor x = leaf({4});
    at::Tensor y = (x * x).detach();
    const NodePtr node = make_autograd_node<SavingNode>();
    auto& saved = static_cast<SavingNode&>(*node).saved;
    saved = torch::autograd::SavedVariable(x.detach(), false);
    saved.register_hooks(std::make_unique<NotedSaved>());
    node->set_next_edges({torch::autograd::impl::gradient_edge(x)});
    torch::autograd::impl::set_gradient_edge(y, {node, node->add_input_metadata(y)});
    const at::Tensor loss = y.sum();
    loss.register_hook([](const at::Tensor& grad) {
      events.push_back(3);
      return grad;
    });
    loss.backward();
    EXPECT_EQ(events, std::vector<int64_t>({1, 3, 2}));
    return Tensors{x.grad()};
  });
}

/// One hooked intermediate; how the hook is registered is up to the test.
Tensors hooked(const std::function<void(const at::Tensor& input, const at::Tensor& middle)>& hook) {
  const at::Tensor x = leaf({4});
  const at::Tensor y = x * 2;
  hook(x, y);
  (y.sin() * y).sum().backward();
  return {x.grad()};
}

/// The same with the function that registers the hook compiled, whose graphs run in the end, and
/// with its backwards captured.
template <class Hook>
void expect_hooked_as_eager(Hook hook) {
  const auto function = [hook](const at::Tensor& x) {
    const at::Tensor y = x * 2;
    hook(x, y);
    return (y.sin() * y).sum();
  };
  auto compiled = compile(function);
  const auto gradient = [](const auto& f) {
    torch::manual_seed(123);
    const at::Tensor x = leaf({4});
    f(x).backward();
    return x.grad();
  };
  const at::Tensor expected = gradient(function);
  compiled_autograd::reset();
  const compiled_autograd::Enable on;
  for (int call = 0; call < 8; ++call)
    EXPECT_EQ(tensor_difference(expected, gradient(compiled)), "") << "call " << call;
  EXPECT_GT(compiled.stats().cache_hits, 0u);
  EXPECT_EQ(compiled.stats().eager_calls, 0u);
  EXPECT_EQ(compiled_autograd::stats().eager_fallbacks, 0u);
  EXPECT_GT(compiled_autograd::stats().cache_hits, 0u);
}

TEST(CaCompileHooks, test_tensor_only_register_hook_in_graph_lambda) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4});
    x.register_hook([](const at::Tensor& grad) { return grad * 2; });
    x.backward(torch::tensor({1.0, 2.0, 3.0, 4.0}));
    return Tensors{x.grad()};
  });
}

TEST(CaCompileHooks, test_tensor_register_hook_in_graph_lambda) {
  expect_hooked_as_eager([](const at::Tensor& x, const at::Tensor&) {
    x.register_hook([](const at::Tensor& grad) { return grad * 2; });
  });
}

TEST(CaCompileHooks, test_tensor_only_register_hook_in_graph_local_inner) {
  expect_hooked_as_eager([](const at::Tensor& x, const at::Tensor& y) {
    const auto twice = [](const at::Tensor& grad) { return grad * 2; };
    x.register_hook(twice);
    y.register_hook(twice);
  });
}

at::Tensor halved(const at::Tensor& grad) {
  return grad / 2;
}

TEST(CaCompileHooks, test_tensor_register_hook_in_graph_local) {
  expect_hooked_as_eager([](const at::Tensor& x, const at::Tensor&) { x.register_hook(halved); });
}

TEST(CaCompileHooks, test_tensor_register_hook_in_graph_break_handle_local) {
  expect_hooked_as_eager([](const at::Tensor& x, const at::Tensor&) {
    x.remove_hook(x.register_hook(halved));
    x.register_hook([](const at::Tensor& grad) { return grad * 3; });
  });
}

TEST(CaCompileHooks, test_hook_on_intermediate_with_container) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4});
    const Tensors list{x * 2};
    list[0].register_hook([](const at::Tensor& grad) { return grad * 5; });
    list[0].sum().backward();
    EXPECT_TRUE(same_values(x.grad(), torch::full({4}, 10.0)));
    return Tensors{x.grad()};
  });
}

TEST(CaCompileHooks, test_tensor_register_global_hook) {
  expect_hooked_as_eager([](const at::Tensor& x, const at::Tensor&) {
    x.register_hook([](const at::Tensor& grad) { return grad * 4; });
  });
}

TEST(CaCompileHooks, test_tensor_register_multiple_hooks) {
  expect_hooked_as_eager([](const at::Tensor& x, const at::Tensor&) {
    x.register_hook([](const at::Tensor& grad) { return grad * 4; });
    x.register_hook([](const at::Tensor& grad) { return grad / 2; });
    x.register_hook([](const at::Tensor& grad) { return grad * 3; });
  });
}

TEST(CaCompileHooks, test_tensor_register_hook_in_graph_break_handle_lambda) {
  expect_hooked_as_eager([](const at::Tensor& x, const at::Tensor&) {
    const auto first = x.register_hook([](const at::Tensor& grad) { return grad * 2; });
    x.remove_hook(first);
    x.register_hook([](const at::Tensor& grad) { return grad * 3; });
  });
}

TEST(CaCompileHooks, test_hook_on_intermediate) {
  expect_hooked_as_eager([](const at::Tensor&, const at::Tensor& y) {
    y.register_hook([](const at::Tensor& grad) { return grad + 1; });
  });
}

TEST(CaCompileHooks, test_hook_on_intermediate_used_before_and_after) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4});
    const at::Tensor y = x * 2;
    const at::Tensor before = y.sin();
    at::Tensor seen;
    y.register_hook([&seen](const at::Tensor& grad) {
      seen = grad.clone();
      return grad * 2;
    });
    (before + y.cos()).sum().backward();
    return Tensors{x.grad(), seen};
  });
}

TEST(CaCompileHooks, test_hook_on_intermediate_from_split) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4, 2});
    const auto parts = (x * 2).split(2);
    parts[1].register_hook([](const at::Tensor& grad) { return grad * 3; });
    (parts[0].sin() + parts[1].cos()).sum().backward();
    return Tensors{x.grad()};
  });
}

TEST(CaCompileHooks, test_intermediary_hooks) {
  expect_hooked_as_eager([](const at::Tensor&, const at::Tensor& y) {
    y.register_hook([](const at::Tensor& grad) { return grad * 2; });
  });
}

TEST(CaCompileHooks, test_intermediary_hooks_same_on_aot_eager) {
  auto tail = compile([](const at::Tensor& y) { return (y.sin() * y).sum(); }, {.confirm = 0});
  const auto program = [&] {
    const at::Tensor x = leaf({4});
    const at::Tensor y = x * 2;
    for (double factor : {2.0, 5.0}) {
      y.register_hook([factor](const at::Tensor& grad) { return grad * factor; });
    }
    tail(y).backward();
    return Tensors{x.grad()};
  };
  program();
  expect_as_eager(program);
  expect_hits(tail);
}

TEST(CaCompileHooks, test_intermediary_hooks_same_on_inductor) {
  // Upstream's compiler stands for any backend that is not the reference one.
  int calls = 0;
  const std::string backend = "conformance.intermediary_hooks";
  register_backend(backend, [&calls](const Graph& graph, const std::vector<TensorMeta>&) {
    return [&calls, run = std::make_shared<Interpreter>(graph)](Tensors args) {
      ++calls;
      return (*run)(std::move(args));
    };
  });
  auto tail = compile([](const at::Tensor& y) { return (y.sin() * y).sum(); },
                      {.backend = backend, .confirm = 0});
  const auto program = [&](const std::function<at::Tensor(const at::Tensor&)>& f) {
    const at::Tensor x = leaf({4});
    const at::Tensor y = x.exp();
    for (double factor : {2.0, 5.0}) {
      y.register_hook([factor](const at::Tensor& grad) { return grad * factor; });
    }
    f(y).backward();
    return Tensors{x.grad()};
  };
  const auto with_compiled = [&] { return program([&](const at::Tensor& y) { return tail(y); }); };
  with_compiled();
  EXPECT_EQ(calls, 0) << "that was the function itself";
  with_compiled();
  const auto counted = expect_as_eager(with_compiled, 3, {.backend = backend});
  EXPECT_EQ(counted.captures, 1u);
  // Two of the function before; then its forward, and each time the graphs before and after the
  // hooks.
  EXPECT_EQ(calls, 2 + 2 + 3 * 3);
  EXPECT_EQ(counted.eager_nodes + counted.cuts, 0u) << test::all_reasons();
  expect_hits(tail);
  torch::manual_seed(123);
  const Tensors eager = program([](const at::Tensor& y) { return (y.sin() * y).sum(); });
  torch::manual_seed(123);
  EXPECT_TRUE(same_values(with_compiled()[0], eager[0]));
}

TEST(CaCompileHooks, HooksThatTheCallerRegistersAreNotTheFunctions) {
  auto tail = compile([](const at::Tensor& y) { return (y.sin() * y).sum(); }, {.fullgraph = true});
  for (int call = 0; call < 7; ++call) {
    const at::Tensor x = leaf({4}), y = x.exp();
    y.register_hook([](const at::Tensor& grad) { return grad * 2; });
    tail(y).backward();
    const at::Tensor own = x.detach().clone().requires_grad_();
    const at::Tensor z = own.exp();
    z.register_hook([](const at::Tensor& grad) { return grad * 2; });
    (z.sin() * z).sum().backward();
    EXPECT_TRUE(same_values(x.grad(), own.grad()));
  }
  EXPECT_EQ(tail.stats().observed_calls, 3u) << "calls 1, 2 and 4";
  EXPECT_EQ(tail.stats().cache_hits, 4u);
}

TEST(CaCompileHooks, test_input_hooks_same) {
  auto f = compile([](const at::Tensor& x) { return (x.sin() * x).sum(); }, {.confirm = 0});
  const auto program = [&] {
    const at::Tensor x = leaf({4});
    x.register_hook([](const at::Tensor& grad) { return grad * 2; });
    f(x).backward();
    return Tensors{x.grad()};
  };
  program();
  expect_as_eager(program);
  expect_hits(f);
}

TEST(CaCompileHooks, test_complex_state_mutation_in_intermediary_hooks_same_on_inductor) {
  const auto counted = expect_as_eager([] {
    auto count = std::make_shared<int64_t>(0);
    const at::Tensor x = leaf({4});
    for (int i = 0; i < 2; ++i) {
      const at::Tensor y = x * 2;
      for (int k = 0; k < 2; ++k) {
        y.register_hook([count](const at::Tensor& grad) { return grad + ++*count; });
      }
      y.exp().sum().backward();
    }
    return Tensors{x.grad(), torch::tensor(*count)};
  });
  EXPECT_EQ(counted.captures, 2u);  // without and with a `.grad`
  EXPECT_EQ(counted.eager_nodes + counted.cuts, 0u) << test::all_reasons();
}

TEST(CaCompileHooks, test_hook_with_closure) {
  const auto counted = expect_as_eager([] {
    Tensors all;
    for (double value : {2.0, 3.0}) {
      const at::Tensor held = torch::full({4}, value);
      for (const at::Tensor& grad : hooked([held](const at::Tensor&, const at::Tensor& y) {
             y.register_hook([held](const at::Tensor& g) { return g * held; });
           })) {
        all.push_back(grad);
      }
    }
    return all;
  });
  EXPECT_EQ(counted.captures, 1u);
}

TEST(CaCompileHooks, test_intermediate_hook_with_closure_aot) {
  auto tail = compile([](const at::Tensor& y) { return (y.sin() * y).sum(); }, {.confirm = 0});
  const auto program = [&] {
    Tensors all;
    for (double value : {2.0, 3.0}) {
      const at::Tensor x = leaf({4}), held = torch::full({4}, value);
      const at::Tensor y = x * 2;
      y.register_hook([held](const at::Tensor& grad) { return grad * held; });
      tail(y).backward();
      all.push_back(x.grad());
    }
    return all;
  };
  program();
  EXPECT_EQ(expect_as_eager(program).captures, 1u);
  expect_hits(tail);
}

TEST(CaCompileHooks, test_no_recompile_on_hook_identity_change) {
  compiled_autograd::reset();
  compiled_autograd::Enable on;
  for (double factor : {1.0, 2.0}) {
    const at::Tensor x = leaf({4});
    const at::Tensor y = x * 2;
    y.register_hook([factor](const at::Tensor& grad) { return grad * factor; });
    y.sum().backward();
    EXPECT_TRUE(same_values(x.grad(), torch::full({4}, 2 * factor)));
  }
  EXPECT_EQ(stats().captures, 1u);
}

TEST(CaCompileHooks, test_functools_arg_vary) {
  compiled_autograd::reset();
  compiled_autograd::Enable on;
  auto factor = std::make_shared<double>(1);
  for (double value : {1.0, 2.0}) {
    *factor = value;
    const at::Tensor x = leaf({4});
    x.register_hook([factor](const at::Tensor& grad) { return grad * *factor; });
    (x * 5).sum().backward();
    EXPECT_TRUE(same_values(x.grad(), torch::full({4}, 5 * value)));
  }
  EXPECT_EQ(stats().captures, 1u);
}

TEST(CaCompileHooks, test_recompile) {
  compiled_autograd::reset();
  compiled_autograd::Enable on;
  const at::Tensor x = leaf({4});
  int calls = 0;
  torch::autograd::impl::set_post_acc_grad_hooks(
      x, std::make_unique<AccumulatedHook>([&calls](const at::Tensor&) { ++calls; }));
  for (int i = 0; i < 5; ++i) {
    x.mutable_grad().reset();
    x.sin().sum().backward();
  }
  EXPECT_EQ(calls, 5);
  EXPECT_EQ(stats().captures, 1u);
}

TEST(CaWrappedHooks, test_invoke_in_pt2_compiled_autograd_side_effect) {
  compiled_autograd::reset();
  compiled_autograd::Enable on;
  int calls = 0;
  for (int i = 1; i <= 3; ++i) {
    const at::Tensor x = leaf({4});
    const at::Tensor y = x + x;
    y.register_hook([&calls](const at::Tensor& grad) {
      ++calls;
      return grad * grad;
    });
    y.sum().backward();
    EXPECT_EQ(calls, i);
  }
  EXPECT_EQ(stats().captures, 1u);
}

}  // namespace ca_05_hooks_test
}  // namespace ahead::conformance
