#include <gtest/gtest.h>
#include <torch/torch.h>

#include <regex>

#include "ahead/ahead.h"
#include "conformance/ca_functions.h"
#include "support/engine_check.h"

/// Upstream is mostly told beforehand that sizes change and captures once. Where it is not told
/// here, the first size is captured as it is and the second one for all others, so one capture
/// there is two here.
namespace ahead::conformance {
namespace ca_03_sizes_test {

using test::all_reasons;
using test::expect_as_eager;
using test::grads_of;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;
using Tensors = std::vector<at::Tensor>;

/// What a program leaves for each size must be eager's, and all sizes must be captured twice.
compiled_autograd::Stats expect_two_captures(const std::function<Tensors(int64_t)>& program,
                                             const std::vector<int64_t>& sizes) {
  const auto stats = expect_as_eager([&] {
    Tensors all;
    for (int64_t size : sizes) {
      for (const at::Tensor& tensor : program(size)) all.push_back(tensor);
    }
    return all;
  });
  EXPECT_EQ(stats.captures, 2u) << all_reasons();
  EXPECT_EQ(stats.eager_fallbacks, 0u);
  return stats;
}

Tensors train(int64_t batch) {
  torch::nn::Sequential net(torch::nn::Linear(4, 4), torch::nn::ReLU(), torch::nn::Linear(4, 4));
  net->forward(torch::randn({batch, 4})).sum().backward();
  return grads_of(*net);
}

TEST(CaScopes, test_compile_api) {
  expect_two_captures(train, {1, 2, 3});
}

TEST(CaBasic, test_compiled_autograd_does_not_specialize_on_bw_symints) {
  expect_two_captures(
      [](int64_t size) {
        const at::Tensor x = leaf({size, 6});
        (x * 2).reshape({size * 2, 3}).sin().sum().backward();
        return Tensors{x.grad()};
      },
      {4, 5, 7});
  // The sizes of what is reshaped are expressions, not numbers.
  const std::string text = compiled_autograd::graphs().back()->str();
  const std::regex reshaped(R"(aten\.(_unsafe_view|view|reshape)\(%\w+, \[size\("s\d+"\), 6\])");
  EXPECT_TRUE(std::regex_search(text, reshaped)) << text;
}

/// A model and the same one compiled, trained side by side.
struct SideBySide {
  torch::nn::Sequential net{torch::nn::Linear(4, 4), torch::nn::ReLU(), torch::nn::Linear(4, 4)};
  Compiled<torch::nn::Sequential> compiled = compile(net);
  bool is_marked = false;

  /// How many captures the backward for each of these sizes made.
  std::vector<uint64_t> captures_for(const std::vector<int64_t>& sizes) {
    std::vector<uint64_t> captures;
    for (const int64_t size : sizes) {
      const at::Tensor x = torch::randn({size, 4});
      if (is_marked) mark_dynamic(x, 0);
      net->zero_grad();
      net->forward(x).sum().backward();
      const Tensors expected = grads_of(*net);
      const uint64_t before = compiled_autograd::stats().captures;
      net->zero_grad();
      const compiled_autograd::Enable on({.fullgraph = true});
      compiled(x).sum().backward();
      expect_same(expected, grads_of(*net));
      captures.push_back(compiled_autograd::stats().captures - before);
    }
    return captures;
  }
};
using Counts = std::vector<uint64_t>;

TEST(CaSizes, test_dynamic_shapes_from_forward) {
  SideBySide sides;
  compiled_autograd::reset();
  // Calls of sizes that were not seen are observed, and leave eager's nodes.
  EXPECT_EQ(sides.captures_for({3, 4, 5, 6}), (Counts{1, 1, 0, 0})) << all_reasons();
  sides.captures_for({3, 4, 5, 6});
  compiled_autograd::reset();
  const uint64_t hits = sides.compiled.stats().cache_hits;
  // What a program saved says which sizes change, so the first capture is for all.
  EXPECT_EQ(sides.captures_for({3, 4, 5, 6}), (Counts{1, 0, 0, 0})) << all_reasons();
  EXPECT_EQ(sides.compiled.stats().cache_hits - hits, 4u);
}

TEST(CaSizes, test_dynamic_shapes_eager_node) {
  const at::Tensor w = leaf({4, 4});
  const auto function = [&](const at::Tensor& x) { return x.matmul(w).relu(); };
  auto compiled = compile(function);
  for (const int64_t size : {3, 5, 7, 3, 5, 7}) compiled(torch::randn({size, 4}));
  compiled_autograd::reset();
  for (const int64_t size : {5, 7, 3}) {
    const at::Tensor x = torch::randn({size, 4});
    const at::Tensor expected = torch::autograd::grad({function(x).sum()}, {w})[0];
    const compiled_autograd::Enable on({.fullgraph = true});
    expect_same({expected}, {torch::autograd::grad({compiled(x).sum()}, {w})[0]});
  }
  EXPECT_EQ(compiled_autograd::stats().captures, 1u) << all_reasons();
  EXPECT_EQ(compiled.stats().eager_calls, 0u);
}

TEST(CaSizes, test_dynamic_shapes_annotations) {
  SideBySide sides;
  sides.is_marked = true;
  compiled_autograd::reset();
  EXPECT_EQ(sides.captures_for({3, 5}), (Counts{1, 0})) << all_reasons();
  sides.captures_for({3, 5, 3, 5});
  compiled_autograd::reset();
  const uint64_t hits = sides.compiled.stats().cache_hits;
  EXPECT_EQ(sides.captures_for({5, 3}), (Counts{1, 0})) << all_reasons();
  EXPECT_EQ(sides.compiled.stats().cache_hits - hits, 2u);
}

TEST(CaSizes, test_torch_compile_api_dynamic_shapes) {
  const auto program = [] {
    Tensors all;
    for (int64_t size : {10, 20, 30}) {
      const at::Tensor x = leaf({size, 4});
      (x.sin() * x).mean().backward();
      all.push_back(x.grad());
    }
    return all;
  };
  EXPECT_EQ(expect_as_eager(program, 3, {.dynamic = true}).captures, 1u) << all_reasons();
}

TEST(CaSizes, test_verbose_logs_dynamic_shapes) {
  const std::vector<std::pair<int64_t, int64_t>> pairs = {{10, 40}, {11, 41}, {12, 42}};
  const auto stats = expect_as_eager([&] {
    Tensors all;
    for (const auto& [first, second] : pairs) {
      torch::nn::Linear a(4, 4), b(3, 2);
      const at::Tensor loss = a->forward(torch::randn({first, 4})).relu().sum() +
                              b->forward(torch::randn({second, 3})).tanh().sum();
      loss.backward();
      for (const at::Tensor& grad : grads_of(*a)) all.push_back(grad);
      for (const at::Tensor& grad : grads_of(*b)) all.push_back(grad);
    }
    return all;
  });
  EXPECT_EQ(stats.captures, 2u) << all_reasons();
  ASSERT_EQ(compiled_autograd::reasons().size(), 2u) << all_reasons();
  EXPECT_EQ(compiled_autograd::reasons()[0], "Cache miss due to no backward was captured before");
}

TEST(CaLogs, test_verbose_logs_cpp) {
  expect_two_captures(train, {10, 11, 12});
  ASSERT_EQ(compiled_autograd::reasons().size(), 2u) << all_reasons();
  EXPECT_EQ(compiled_autograd::reasons()[0], "Cache miss due to no backward was captured before");
  EXPECT_NE(compiled_autograd::reasons()[1].find("changed tensor sizes"), std::string::npos);
}

TEST(CaFunctions, test_custom_fn_saved_tensors) {
  expect_two_captures(backward_of<Sine<true>>, {10, 100, 10, 15, 20, 25});
}

TEST(CaFunctions, test_autograd_cpp_node_basic) {
  const auto traceable = expect_two_captures(backward_of<Sine<true>>, {10, 100, 10, 20, 10});
  EXPECT_EQ(traceable.compiles, 2u);
  const auto other = expect_two_captures(backward_of<Sine<false>>, {10, 100, 10, 20, 10});
  EXPECT_EQ(other.compiles, 4u) << "before and after the function";
}

struct Spread : Function<Spread> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x.sum();
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const at::Tensor x = context->get_saved_variables()[0];
    return {grads[0].expand_symint({x.sym_size(0)}) * x};
  }
};

TEST(CaFunctions, test_custom_fn_saved_shape_tensor) {
  expect_two_captures(backward_of<Spread>, {10, 100, 10, 15, 20, 25});
}

struct Rich : Function<Rich> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& y,
                            const at::Tensor& fixed) {
    context->save_for_backward({x, y});
    context->saved_data["fixed"] = fixed;
    context->saved_data["bool"] = true;
    context->saved_data["int"] = 1;
    context->saved_data["words"] = c10::List<std::string>({"a", "b"});
    c10::Dict<std::string, int64_t> numbers;
    numbers.insert("one", 1);
    context->saved_data["numbers"] = numbers;
    return x;
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor fixed = context->saved_data["fixed"].toTensor();
    const bool all_there = context->saved_data["bool"].toBool() &&
                           context->saved_data["words"].toList().size() == 2 &&
                           context->saved_data["numbers"].toGenericDict().size() == 1;
    const at::Tensor factor = saved[0].sum() + saved[1].sum() + fixed.sum();
    return {all_there ? grads[0] * factor * context->saved_data["int"].toInt() : grads[0],
            at::Tensor(), at::Tensor()};
  }
};

TEST(CaFunctions, test_autograd_cpp_node_saved_basic) {
  expect_two_captures(
      [](int64_t size) {
        const at::Tensor x = leaf({size}), y = torch::randn({size}), fixed = torch::randn({2, 2});
        Rich::apply(x.exp(), y, fixed).sum().backward();
        return Tensors{x.grad()};
      },
      {10, 20, 10, 30});
}

struct HoldsAView : Function<HoldsAView> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    context->saved_data["view"] = x.view_symint(x.sym_sizes());
    return x * 2;
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const at::Tensor saved = context->get_saved_variables()[0];
    return {grads[0] * context->saved_data["view"].toTensor() * saved};
  }
};

TEST(CaFunctions, test_autograd_cpp_node_saved_dynamic) {
  expect_two_captures(backward_of<HoldsAView>, {10, 100, 10, 20, 10});
}

}  // namespace ca_03_sizes_test
}  // namespace ahead::conformance
