#include "conformance/aot_support.h"

namespace ahead::conformance {
namespace aot_07_multi_output_views_test {

const char* const refused = "Such functions do not allow the output views";

TEST(AotMultiOutputViews, test_output_aliases_input_multi_output_view_should_raise_autograd_error) {
  const aot::FlatFunction unbind = [](const Tensors& in) -> Tensors { return in[0].unbind(0); };
  for (const bool compile_it : {false, true}) {
    SCOPED_TRACE(compile_it ? "compiled" : "eager");
    auto compiled = compiled_once(unbind, {leaf({3, 3}).mul(1)});
    const auto call = [&](const at::Tensor& x) {
      return compile_it ? compiled(Tensors{x}) : unbind({x});
    };
    const auto refuses = [](const std::string& error) {
      return error.find(refused) != std::string::npos;
    };
    at::Tensor x = leaf({3, 3}).mul(1);
    Tensors rows = call(x);
    EXPECT_TRUE(refuses(error_of([&] { rows[0].mul_(2); })));

    x = leaf({3, 3}).mul(1);
    rows = call(x);
    EXPECT_TRUE(refuses(error_of([&] {
      x.mul_(2);
      rows[0].grad_fn();
    })));

    x = leaf({3, 3}).mul(1);
    rows = call(x);
    EXPECT_TRUE(refuses(error_of([&] {
      x.detach().mul_(2);
      rows[0].grad_fn();
    }))) << "through a detached alias";
    if (compile_it) expect_hits(compiled);
  }
}

TEST(AotMultiOutputViews, test_output_aliases_input_multi_output_view) {
  expect_compiled_like_eager([](const Tensors& in) -> Tensors { return in[0].unbind(0); },
                             {leaf({3, 3})}, {.non_leaf_inputs = true});
  const aot::FlatFunction with_view = [](const Tensors& in) -> Tensors {
    Tensors outs = in[0].unbind(0);
    outs.push_back(in[0].view({-1}));
    return outs;
  };
  expect_compiled_like_eager(with_view, {leaf({3, 3})}, {.non_leaf_inputs = true});
  auto compiled = compile(with_view, {.fullgraph = true, .confirm = 0});
  for (int call = 0; call < 3; ++call) {
    const at::Tensor eager_leaf = leaf({3, 3}), own_leaf = eager_leaf.detach().clone();
    own_leaf.set_requires_grad(true);
    const at::Tensor eager_x = eager_leaf.mul(1), own_x = own_leaf.mul(1);
    const Tensors eager = with_view({eager_x}), own = compiled(Tensors{own_x});
    EXPECT_EQ(own[0].grad_fn()->name(), eager[0].grad_fn()->name());
    for (const at::Tensor& out : {eager.back(), own.back()}) out.mul_(3);
    for (const at::Tensor& x : {eager_x, own_x}) x.mul_(2);
    EXPECT_EQ(tensor_difference(eager.back(), own.back()), "");
    (eager.back() * eager.back()).sum().backward();
    (own.back() * own.back()).sum().backward();
    EXPECT_EQ(tensor_difference(eager_leaf.grad(), own_leaf.grad()), "");
  }
  expect_hits(compiled);
}

/// Writes to the last output and differentiates everything that can still be differentiated.
void expect_last_output_writable(const aot::FlatFunction& f) {
  auto compiled = compile(f, {.fullgraph = true, .confirm = 0});
  for (int call = 0; call < 3; ++call) {
    const at::Tensor eager_leaf = leaf({3, 3}), own_leaf = eager_leaf.detach().clone();
    own_leaf.set_requires_grad(true);
    const Tensors eager = f({eager_leaf}), own = compiled(Tensors{own_leaf});
    const std::string expected = error_of([&] { eager.back().mul_(2); });
    const std::string actual = error_of([&] { own.back().mul_(2); });
    EXPECT_EQ(expected.empty(), actual.empty()) << expected << actual;
    if (!expected.empty()) continue;
    eager.back().sum().backward();
    own.back().sum().backward();
    EXPECT_EQ(tensor_difference(eager_leaf.grad(), own_leaf.grad()), "");
    for (size_t i = 0; i < eager.size(); ++i) {
      EXPECT_EQ(tensor_difference(eager[i].detach(), own[i].detach()), "");
    }
  }
  expect_hits(compiled);
}

TEST(AotMultiOutputViews, test_output_aliases_intermediate_multi_output_view) {
  const auto returning = [](bool base, bool view) -> aot::FlatFunction {
    return [base, view](const Tensors& in) -> Tensors {
      const at::Tensor out = at::mul(in[0], 3);
      Tensors outs = out.unbind(0);
      if (base) outs.push_back(out);
      if (view) outs.push_back(out.view({-1}));
      return outs;
    };
  };
  for (const bool base : {false, true}) {
    for (const bool view : {false, true}) {
      SCOPED_TRACE(std::string(base ? "with" : "without") + " base, " +
                   (view ? "with" : "without") + " view");
      expect_compiled_like_eager(returning(base, view), {leaf({3, 3})});
      expect_last_output_writable(returning(base, view));
    }
  }
}

}  // namespace aot_07_multi_output_views_test
}  // namespace ahead::conformance
