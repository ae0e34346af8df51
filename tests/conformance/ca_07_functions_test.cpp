#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/compile.h"
#include "ahead/compiled_autograd.h"
#include "conformance/ca_functions.h"
#include "support/engine_check.h"
#include "support/hits.h"

namespace ahead::conformance {
namespace ca_07_functions_test {

using compiled_autograd::stats;
using test::all_reasons;
using test::expect_as_eager;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;
using Tensors = std::vector<at::Tensor>;

struct Two : Function<Two> {
  static constexpr bool is_traceable = true;
  static variable_list forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& y) {
    context->save_for_backward({x, y});
    return {x.sin(), y.sin()};
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    return {grads[0] * saved[0].cos(), grads[1] * saved[1].cos()};
  }
};

TEST(CaFunctions, test_custom_fn_saved_multiple_tensors) {
  const auto counted = expect_as_eager([] {
    const at::Tensor x = leaf({10}), y = leaf({10});
    const auto out = Two::apply(x, y);
    (out[0] * out[1]).sum().backward();
    return Tensors{x.grad(), y.grad()};
  });
  EXPECT_EQ(counted.captures, 1u);
}

struct Twice : Function<Twice> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x, x});
    return x * x;
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    return {grads[0] * saved[0] + grads[0] * saved[1]};
  }
};

TEST(CaFunctions, test_custom_fn_saved_multiple_tensors_dedup) {
  const auto counted = expect_as_eager([] {
    const at::Tensor x = leaf({10});
    Twice::apply(x).sum().backward();
    return Tensors{x.grad()};
  });
  EXPECT_EQ(counted.captures, 1u);
  EXPECT_EQ(compiled_autograd::graphs().at(0)->inputs().size(), 2u);
}

struct Both : Function<Both> {
  static constexpr bool is_traceable = true;
  static variable_list forward(AutogradContext*, const at::Tensor& x, const at::Tensor& y) {
    return {x + y, y.clone()};
  }
  static variable_list backward(AutogradContext*, const variable_list& grads) {
    return {grads[0] * 2, grads[0] + grads[1]};
  }
};

TEST(CaFunctions, test_custom_fn_multiple_grads) {
  const auto counted = expect_as_eager([] {
    const at::Tensor x = leaf({10}), y = leaf({10});
    const auto out = Both::apply(x, y);
    (out[0] + out[1] * 3).sum().backward();
    return Tensors{x.grad(), y.grad()};
  });
  EXPECT_EQ(counted.captures, 1u);
  EXPECT_EQ(counted.eager_nodes + counted.eager_fallbacks, 0u) << all_reasons();
}

struct Mixed : Function<Mixed> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, int64_t times,
                            const at::Tensor& y) {
    context->saved_data["times"] = times;
    context->save_for_backward({x, y});
    return x * times * y;
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor g = grads[0] * context->saved_data["times"].toInt();
    return {g * saved[1], at::Tensor(), g * saved[0]};
  }
};

TEST(CaFunctions, test_custom_fn_non_variable_input) {
  const auto counted = expect_as_eager([] {
    const at::Tensor x = leaf({10}), y = leaf({10});
    Mixed::apply(x, 3, y).sum().backward();
    return Tensors{x.grad(), y.grad()};
  });
  EXPECT_EQ(counted.captures, 1u);
}

TEST(CaFunctions, test_custom_fn_with_same_graph) {
  compiled_autograd::reset();
  compiled_autograd::Enable on;
  for (int i = 0; i < 4; ++i) {
    backward_of<Sine<true, 1>>();
    backward_of<Sine<true, 2>>();
  }
  EXPECT_EQ(stats().captures, 2u);
}

TEST(CaFunctions, test_autograd_cpp_node_non_traceable) {
  const auto counted =
      expect_as_eager([] { return backward_of<Sine<false>>(); }, 3, {.fullgraph = true});
  EXPECT_EQ(counted.captures, 1u);
  EXPECT_EQ(counted.compiles, 2u);
  EXPECT_EQ(counted.calls, 3u);
}

/// Keeps the shape of its argument beside the tensors.
struct Shaped : Function<Shaped> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->saved_data["shape"] = x.sizes();
    return x.reshape({-1}) * 3;
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    return {(grads[0] * 3).reshape(context->saved_data["shape"].toIntVector())};
  }
};

TEST(CaFunctions, test_custom_fn_saved_attr) {
  const auto counted = expect_as_eager([] {
    Tensors all;
    for (const int64_t size : {2, 4, 8}) {
      const at::Tensor x = leaf({size, 3});
      Shaped::apply(x.sin()).exp().sum().backward();
      all.push_back(x.grad());
    }
    return all;
  });
  EXPECT_EQ(counted.captures, 3u) << "the shape is a constant of the function";
  EXPECT_EQ(counted.eager_nodes + counted.calls + counted.eager_fallbacks, 0u) << all_reasons();
}

TEST(CaFunctions, test_custom_fn_output_metadata) {
  const auto counted = expect_as_eager([] {
    const at::Tensor x = torch::randn({10}, at::kHalf).requires_grad_();
    Sine<true>::apply(x.exp()).sum().backward();
    EXPECT_EQ(x.grad().scalar_type(), at::kHalf);
    EXPECT_EQ(x.grad().device(), x.device());
    return Tensors{x.grad()};
  });
  EXPECT_EQ(counted.captures, 1u);
  EXPECT_EQ(counted.eager_nodes + counted.eager_fallbacks, 0u) << all_reasons();
  for (const Node& node : compiled_autograd::graphs().at(0)->nodes()) {
    EXPECT_EQ(node.op().name().find("_to_copy"), std::string::npos) << "no copies of another type";
  }
}

TEST(CaFunctions, test_autograd_cpp_node_id) {
  compiled_autograd::reset();
  compiled_autograd::Enable on;
  for (int i = 0; i < 4; ++i) backward_of<Sine<true, 1>>();
  EXPECT_EQ(stats().captures, 1u);
  for (int i = 0; i < 4; ++i) {
    backward_of<Sine<true, 2>>();
    backward_of<Sine<true, 1>>();
  }
  EXPECT_EQ(stats().captures, 2u);
}

struct Data : Function<Data> {
  static constexpr bool is_traceable = true;
  static inline int variant = 0;
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    context->saved_data["list"] = c10::List<std::string>({"a"});
    if (variant == 1) context->saved_data["more"] = true;
    if (variant == 2) context->set_materialize_grads(false);
    return x.sin();
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    return {grads[0] * context->get_saved_variables()[0].cos()};
  }
};

TEST(CaFunctions, test_autograd_cpp_node_data_dependent) {
  compiled_autograd::reset();
  compiled_autograd::Enable on;
  for (int variant : {0, 1, 2, 0}) {
    Data::variant = variant;
    backward_of<Data>();
  }
  EXPECT_EQ(stats().captures, 3u);
  EXPECT_EQ(stats().cache_hits, 1u);
}

struct Numbers : Function<Numbers> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, int64_t number) {
    context->saved_data["int"] = number;
    context->saved_data["symint"] = c10::SymInt(number);
    return x;
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const c10::SymInt number = context->saved_data["symint"].toSymInt();
    TORCH_CHECK(number == context->saved_data["int"].toSymInt());
    return {grads[0] + number, at::Tensor()};
  }
};

// What changes is lifted when it does, so the first number has a graph of its own.
TEST(CaFunctions, test_autograd_cpp_node_saved_int) {
  const auto counted = expect_as_eager(
      [] {
        Tensors gradients;
        for (int64_t number : {1, 2, 3, 1}) {
          const at::Tensor x = leaf({10, 10});
          Numbers::apply(x, number).sum().backward();
          gradients.push_back(x.grad());
        }
        return gradients;
      },
      /*runs=*/1);
  EXPECT_EQ(counted.captures, 2u);
}

struct DrawsForNothing : Function<DrawsForNothing> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x * 2; }
  static variable_list backward(AutogradContext*, const variable_list& grads) {
    at::randn({10});
    return {grads[0] * 2};
  }
};

TEST(CaBasic, test_dont_dce_side_effects) {
  const auto f = [](const at::Tensor& x) { return DrawsForNothing::apply(x).sin(); };
  auto compiled = compile(f, {.fullgraph = true, .confirm = 0});
  const auto program = [](auto& forward) {
    const at::Tensor x = leaf({10});
    forward(x).sum().backward();
    return Tensors{x.grad(), at::randn({3})};
  };
  const auto with_compiled = [&] { return program(compiled); };
  with_compiled();
  const auto counted = expect_as_eager(with_compiled);
  EXPECT_EQ(counted.captures, 1u);
  EXPECT_EQ(counted.compiles, 1u);
  const std::string text = compiled_autograd::graphs().at(0)->str();
  EXPECT_NE(text.find("aten.randn"), std::string::npos) << text;
  torch::manual_seed(0);
  const Tensors eager = program(f);
  torch::manual_seed(0);
  EXPECT_TRUE(same_values(with_compiled()[1], eager[1]));
  expect_hits(compiled);
}

TEST(CaAot, test_logs_aot_bwd_reuse) {
  auto f = compile([](const at::Tensor& x) { return x.sin().cos(); }, {.confirm = 0});
  const auto program = [&] {
    const at::Tensor x = leaf({4}), y = leaf({4}), z = leaf({4});
    (f(x) + f(y) + f(z)).sum().backward();
    return Tensors{x.grad(), y.grad(), z.grad()};
  };
  program();
  const auto counted = expect_as_eager(program);
  EXPECT_EQ(counted.captures, 1u);
  EXPECT_EQ(counted.compiles, 1u);
  expect_hits(f);
}

TEST(CaAot, test_higher_order_gradients) {
  // Upstream refuses the second order of an ahead-of-time forward; here every order is right.
  const auto orders = [](const std::function<at::Tensor(const at::Tensor&)>& f, int most) {
    Tensors all;
    const at::Tensor x = torch::tensor(2.0).requires_grad_();
    at::Tensor y = f(x);
    for (int order = 0; order < most; ++order) {
      y = torch::autograd::grad({y}, {x}, {}, true, /*create_graph=*/true)[0];
      all.push_back(y.detach());
    }
    return all;
  };
  const auto counted =
      expect_as_eager([&] { return orders([](const at::Tensor& x) { return x.pow(3); }, 4); });
  // Four captures in the first run, then none.
  EXPECT_EQ(counted.captures, 4u) << all_reasons();
  EXPECT_EQ(counted.cache_hits, 8u);
  EXPECT_EQ(counted.eager_nodes + counted.eager_fallbacks, 0u) << all_reasons();
  auto cubed = compiled_by_call([](const at::Tensor& x) { return x * x * x; }, {},
                                torch::tensor(3.0).requires_grad_());
  compiled_autograd::Enable on;
  const Tensors all = orders([&](const at::Tensor& x) { return cubed(x); }, 3);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].item<float>(), std::vector<float>({12, 12, 6})[i]);
  }
  expect_hits(cubed);
  EXPECT_EQ(compiled_autograd::stats().eager_fallbacks, 0u);
}

}  // namespace ca_07_functions_test
}  // namespace ahead::conformance
