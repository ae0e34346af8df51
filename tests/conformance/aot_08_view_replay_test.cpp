#include "conformance/aot_support.h"

namespace ahead::conformance {
namespace aot_08_view_replay_test {

TEST(AotViewReplay, test_output_aliases_input_view_meta_replay) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors { return {in[0].view({-1})}; };
  expect_compiled_like_eager(f, {leaf({2, 2})}, {.non_leaf_inputs = true});
  auto compiled = compile(f, {.fullgraph = true, .confirm = 0});
  for (int call = 0; call < 3; ++call) {
    EXPECT_EQ(compiled(Tensors{leaf({2, 2})})[0].grad_fn()->name(), "ViewBackward0");
  }
  expect_hits(compiled);
}

TEST(AotViewReplay, test_output_aliases_intermediate_view_meta_replay) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    const at::Tensor b = in[0].clone();
    return {b.view({-1}), b.view({-1})};
  };
  expect_compiled_like_eager(f, {leaf({2, 2})}, {.non_leaf_inputs = true});
  auto compiled = compile(f, {.fullgraph = true, .confirm = 0});
  for (int call = 0; call < 3; ++call) {
    const Tensors outs = compiled(Tensors{leaf({2, 2})});
    EXPECT_EQ(outs[0].grad_fn()->name(), "ViewBackward0");
    EXPECT_EQ(outs[1].grad_fn()->name(), "ViewBackward0");
  }
  expect_hits(compiled);
}

TEST(AotViewReplay, test_dynamic_output_aliases_input_view_meta_replay) {
  auto compiled = compile(
      [](const at::Tensor& x, const at::Tensor& sizes) {
        return std::make_tuple(x.view({sizes.size(0), -1}), x.view({-1}));
      },
      {.fullgraph = true, .confirm = 0});
  for (const int64_t n : {2, 4, 8, 2, 4, 8}) {
    const auto [sized, flat] = compiled(leaf({8, 2}), at::zeros({n}));
    // Eager calls view for both, and so does the compiled function.
    EXPECT_EQ(sized.grad_fn()->name(), "ViewBackward0");
    EXPECT_EQ(flat.grad_fn()->name(), "ViewBackward0");
    EXPECT_EQ(sized.size(0), n);
  }
  expect_hits(compiled, 3);
}

}  // namespace aot_08_view_replay_test
}  // namespace ahead::conformance
