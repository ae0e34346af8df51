#include <gtest/gtest.h>
#include <torch/csrc/autograd/generated/Functions.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>
#include <torch/torch.h>

#include "ahead/compile.h"
#include "ahead/compiled_autograd.h"
#include "base/libtorch.h"
#include "support/engine_check.h"
#include "support/hits.h"

namespace ahead {
namespace functions_test {

using test::expect_as_eager;
using test::expect_error_as_eager;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

int backward_calls = 0;

template <bool traceable>
struct Scaled : Function<Scaled<traceable>> {
  static constexpr bool is_traceable = traceable;
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, double factor) {
    context->saved_data["factor"] = factor;
    context->save_for_backward({x});
    return x * x * factor;
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    ++backward_calls;
    const at::Tensor x = context->get_saved_variables()[0];
    return {grads[0] * 2 * x * context->saved_data["factor"].toDouble(), at::Tensor()};
  }
};

template <class F>
std::vector<at::Tensor> use_scaled(double factor) {
  const at::Tensor x = leaf({4});
  (F::apply(x.sin(), factor).exp() * x).sum().backward();
  return {x.grad()};
}

TEST(EngineFunctions, TraceableOnesAreInTheGraph) {
  backward_calls = 0;
  const auto stats = expect_as_eager([] { return use_scaled<Scaled<true>>(3); });
  EXPECT_EQ(stats.captures, 1u);
  EXPECT_EQ(stats.compiles, 1u);
  EXPECT_EQ(backward_calls, 2);  // eager, capture
}

TEST(EngineFunctions, OthersAreCalledEachTime) {
  backward_calls = 0;
  const auto stats = expect_as_eager([] { return use_scaled<Scaled<false>>(3); });
  EXPECT_EQ(stats.captures, 1u);
  EXPECT_EQ(stats.compiles, 2u);
  EXPECT_EQ(backward_calls, 4);
  ASSERT_EQ(compiled_autograd::reasons().size(), 2u);
  EXPECT_NE(compiled_autograd::reasons()[1].find("is_traceable"), std::string::npos);
}

TEST(EngineFunctions, SavedNumbersCount) {
  compiled_autograd::reset();
  for (double factor : {1.0, 2.0, 1.0, 2.0}) {
    torch::manual_seed(0);
    const at::Tensor expected = use_scaled<Scaled<true>>(factor)[0];
    compiled_autograd::Enable on;
    torch::manual_seed(0);
    EXPECT_TRUE(same_values(use_scaled<Scaled<true>>(factor)[0], expected));
  }
  EXPECT_EQ(compiled_autograd::stats().captures, 2u);
}

struct Rich : Function<Rich> {
  static constexpr bool is_traceable = true;
  static variable_list forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& y) {
    context->saved_data["tensor"] = x + 1;
    context->saved_data["flag"] = true;
    context->saved_data["number"] = 5;
    context->saved_data["words"] = c10::List<std::string>({"a", "b"});
    context->save_for_backward({x, y, x});
    return {x * y, x + y};
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor extra = context->saved_data["tensor"].toTensor();
    const at::Scalar number = context->saved_data["number"].toScalar();
    const at::Tensor x_grad = grads[0] * saved[1] + grads[1] * extra * number;
    return {x_grad, grads[0] * saved[2] + grads[1]};
  }
};

TEST(EngineFunctions, SavedDataOfAllKinds) {
  const auto stats = expect_as_eager([] {
    const at::Tensor x = leaf({4}), y = leaf({4});
    const auto out = Rich::apply(x.exp(), y);
    (out[0].sin() + out[1]).sum().backward();
    const auto again = Rich::apply(x, y.exp());
    again[1].sum().backward();
    return std::vector<at::Tensor>{x.grad(), y.grad()};
  });
  EXPECT_EQ(stats.captures, 2u);
}

struct Writes : Function<Writes> {
  static constexpr bool is_traceable = true;
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->saved_data["count"] = torch::zeros({1});
    return x * 2;
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const at::Tensor count = context->saved_data["count"].toTensor();
    count.add_(1);
    return {grads[0] * count};
  }
};

TEST(EngineFunctions, TraceableThatWritesToWhatItHoldsRunsAsEager) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4});
    const at::Tensor loss = Writes::apply(x.exp()).sin().sum();
    loss.backward({}, /*keep_graph=*/true);
    loss.backward();
    return std::vector<at::Tensor>{x.grad()};
  });
}

struct OwnNode : torch::autograd::Node {
  variable_list apply(variable_list&& grads) override { return {grads[0] * 3}; }
};

TEST(EngineFunctions, NodesThatDoNotSayWhatTheyHold) {
  const auto stats = expect_as_eager([] {
    const at::Tensor x = leaf({4});
    at::Tensor y = x.exp().detach();
    const NodePtr node = make_autograd_node<OwnNode>();
    node->set_next_edges({torch::autograd::impl::gradient_edge(x.sin())});
    torch::autograd::impl::set_gradient_edge(y, {node, node->add_input_metadata(y)});
    (y * y).sum().backward();
    return std::vector<at::Tensor>{x.grad()};
  });
  EXPECT_EQ(stats.captures, 1u);
  EXPECT_EQ(stats.compiles, 2u);
}

struct ReturnsNothing : Function<ReturnsNothing> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x * 2; }
  static variable_list backward(AutogradContext*, const variable_list&) { return {at::Tensor()}; }
};

TEST(EngineFunctions, UndefinedGradientsFlowOn) {
  expect_as_eager([] {
    const at::Tensor x = leaf({4}), y = leaf({4});
    (ReturnsNothing::apply(x.exp()).sin() * y).sum().backward();
    return std::vector<at::Tensor>{x.grad(), y.grad()};
  });
  expect_as_eager([] {
    const at::Tensor x = leaf({4});
    (ReturnsNothing::apply(x.exp()) + x.sin()).sum().backward();
    return std::vector<at::Tensor>{x.grad()};
  });
}

struct Wrong : Function<Wrong> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x * 2; }
  static variable_list backward(AutogradContext*, const variable_list& grads) {
    return {grads[0].sum() + torch::ones({7})};
  }
};

TEST(EngineFunctions, WrongShapesThrowAsEager) {
  expect_error_as_eager([] {
    const at::Tensor x = leaf({4});
    Wrong::apply(x.exp()).sum().backward();
    return std::vector<at::Tensor>{};
  });
}

struct InnerBackward : Function<InnerBackward> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x * 2;
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    at::AutoGradMode on(true);
    const at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_();
    return {torch::autograd::grad({x.pow(3).sum()}, {x})[0] * grads[0]};
  }
};

TEST(EngineFunctions, BackwardInsideABackwardIsEager) {
  const auto stats = expect_as_eager([] {
    const at::Tensor x = leaf({4});
    InnerBackward::apply(x.sin()).exp().sum().backward();
    return std::vector<at::Tensor>{x.grad()};
  });
  EXPECT_EQ(stats.captures, 1u);
}

/// Keeps half of the precision of what is saved, and counts.
struct HalfSaved : torch::autograd::SavedVariableHooks {
  static inline int packs = 0, unpacks = 0;
  void call_pack_hook(const at::Tensor& tensor) override {
    ++packs;
    packed = tensor.detach().to(at::kHalf);
  }
  at::Tensor call_unpack_hook() override {
    ++unpacks;
    return packed.to(at::kFloat);
  }
  at::Tensor packed;
};

TEST(EngineFunctions, SavedTensorHooksRunAtTheirPlace) {
  HalfSaved::packs = HalfSaved::unpacks = 0;
  const auto stats = expect_as_eager([] {
    const at::Tensor x = leaf({4});
    const at::Tensor y = x.exp().sin();
    auto& node = dynamic_cast<torch::autograd::generated::SinBackward0&>(*y.grad_fn());
    node.self_.register_hooks(std::make_unique<HalfSaved>());
    (y * y).sum().backward();
    return std::vector<at::Tensor>{x.grad()};
  });
  EXPECT_EQ(HalfSaved::packs, 4);
  EXPECT_EQ(HalfSaved::unpacks, 4);
  EXPECT_EQ(stats.captures, 1u);
  EXPECT_EQ(stats.compiles, 2u) << "before and after the node with the hooks";
}

TEST(EngineFunctions, AheadsOwnNodesAreInlined) {
  auto model = ahead::compile(
      [](const at::Tensor& x, const at::Tensor& w) { return (x.mm(w).tanh() * w.sum()).sin(); },
      {.confirm = 0});
  const auto program = [&] {
    const at::Tensor x = leaf({3, 3}), w = leaf({3, 3});
    (model(x.exp(), w) * x).sum().backward();
    return std::vector<at::Tensor>{x.grad(), w.grad()};
  };
  program();
  const auto stats = expect_as_eager(program);
  EXPECT_EQ(stats.captures, 1u);
  EXPECT_EQ(stats.compiles, 1u);
  EXPECT_EQ(compiled_autograd::reasons().size(), 1u);
  expect_hits(model);
}

TEST(EngineFunctions, NumbersInAheadsOwnNodesStayNumbers) {
  auto model = ahead::compile(
      [](const at::Tensor& x) {
        return (x * 3 + 0.1).sin() / 7 -
               (x.to(at::kDouble) * 1e300).to(at::kFloat).clamp(-1, 1) * 1e39;
      },
      {.confirm = 0});
  const auto program = [&] {
    const at::Tensor x = leaf({4});
    model(x.exp()).sum().backward();
    return std::vector<at::Tensor>{x.grad()};
  };
  program();
  const auto stats = expect_as_eager(program);
  EXPECT_EQ(stats.captures, 1u);
  EXPECT_EQ(stats.compiles, 1u);
  EXPECT_EQ(compiled_autograd::reasons().size(), 1u) << compiled_autograd::reasons().back();
  expect_hits(model);
}

TEST(EngineFunctions, AheadsOwnNodesTwiceThrowAsEager) {
  auto model = compiled_by_call([](const at::Tensor& x) { return x.exp().sin(); }, {}, leaf({3}));
  expect_error_as_eager([&] {
    const at::Tensor x = leaf({3});
    const at::Tensor loss = model(x).sum();
    loss.backward();
    loss.backward();
    return std::vector<at::Tensor>{};
  });
  expect_hits(model);
}

TEST(EngineFunctions, GradientsOfSomeInputsOfAnOwnNode) {
  auto model =
      ahead::compile([](const at::Tensor& x,
                        const at::Tensor& w) { return std::make_pair(x.mm(w), (x * 2).sin()); },
                     {.confirm = 0});
  const auto program = [&] {
    const at::Tensor x = leaf({3, 3}), w = leaf({3, 3});
    const auto [a, b] = model(x, w);
    variable_list grads = torch::autograd::grad({a.sum()}, {x}, {}, /*retain_graph=*/true);
    b.exp().sum().backward();
    return std::vector<at::Tensor>{grads[0], x.grad(), w.grad()};
  };
  program();
  expect_as_eager(program);
  expect_hits(model);
}

/// Inputs that not all results lead to, with hooks or with a history, are behind further nodes.
TEST(EngineFunctions, InputsThatSomeResultsReach) {
  auto model = ahead::compile(
      [](const at::Tensor& x, const at::Tensor& w, const at::Tensor& v) {
        const at::Tensor hidden = x.tanh();
        return std::make_pair(hidden.mm(w), (hidden * v).sigmoid());
      },
      {.confirm = 0});
  for (const int chosen : {1, 2, 3}) {
    for (const bool has_hook_of_result : {false, true}) {
      SCOPED_TRACE(chosen);
      const auto program = [&] {
        const at::Tensor x = leaf({3, 3}), w = leaf({3, 3}), v = leaf({3, 3});
        std::vector<at::Tensor> seen;
        w.register_hook([&](const at::Tensor& gradient) { seen.push_back(gradient); });
        const auto [a, b] = model(x, w, v.exp());
        if (has_hook_of_result) b.register_hook([](const at::Tensor& g) { return g * 2; });
        const at::Tensor loss = chosen == 1 ? a.sum() : chosen == 2 ? b.exp().sum() : (a * b).sum();
        loss.backward();
        std::vector<at::Tensor> shown{x.grad(), w.grad(), v.grad()};
        shown.insert(shown.end(), seen.begin(), seen.end());
        return shown;
      };
      program();
      expect_as_eager(program);
    }
  }
  expect_hits(model);
}

/// A custom function, so that the derivative of an own node has a node of its own kind.
struct OwnCube : torch::autograd::Function<OwnCube> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x * x * x;
  }
  static variable_list backward(torch::autograd::AutogradContext* context,
                                const variable_list& gradients) {
    const at::Tensor x = context->get_saved_variables()[0];
    return {gradients[0] * 3 * x * x};
  }
};

TEST(EngineFunctions, SecondDerivativesThroughAnOwnNode) {
  auto model =
      ahead::compile([](const at::Tensor& x) { return OwnCube::apply(x.sin()); }, {.confirm = 0});
  const auto program = [&] {
    const at::Tensor x = leaf({3});
    const at::Tensor slope =
        torch::autograd::grad({model(x).sum()}, {x}, {}, true, /*create_graph=*/true)[0];
    (slope.exp() * x).sum().backward();
    return std::vector<at::Tensor>{slope.detach(), x.grad()};
  };
  program();
  expect_as_eager(program);
  expect_hits(model);
}

}  // namespace functions_test
}  // namespace ahead
