#include "conformance/aot_support.h"

namespace ahead::conformance {
namespace aot_06_intermediate_aliases_test {

TEST(AotIntermediateAliases, test_outputs_are_aliased) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    const at::Tensor b = in[0] * 2;
    return {b, b.view({-1})};
  };
  expect_with_and_without_grad(f, {at::ones({3, 3})});
  auto compiled = compiled_once(f, {at::zeros({3, 3})});
  const Tensors outs = compiled(Tensors{at::ones({3, 3})});
  outs[0].mul_(2);
  EXPECT_TRUE(same_values(outs[1], at::full({9}, 4.)));
  expect_hits(compiled);
}

TEST(AotIntermediateAliases, test_output_aliases_intermediate_single) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    return {at::mul(in[0], 3).view({-1})};
  };
  expect_with_and_without_grad(f, {at::ones({3, 3})});
  const auto compiled = compiled_once(f, {leaf({3, 3})});
  // Upstream returns the view alone. Here the caller makes it of its base, as eager does: a later
  // write to it then sends the gradient on in the layout of the base, on which rounding depends.
  EXPECT_EQ(output_slots(program(compiled, "partition.forward")), "IntermediateBase 0");
}

TEST(AotIntermediateAliases, test_output_aliases_intermediate_mutation_linear) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors { return {(in[0] + 1).view({-1})}; };
  expect_with_and_without_grad(f, {at::ones({3, 3})});
  auto compiled = compiled_once(f, {leaf({3, 3})});
  const at::Tensor x = leaf({3, 3});
  const at::Tensor out = compiled(Tensors{x})[0];
  out.mul_(3);
  out.sum().backward();
  EXPECT_TRUE(same_values(x.grad(), at::full({3, 3}, 3.)));
  expect_hits(compiled);
}

TEST(AotIntermediateAliases, test_output_aliases_intermediate_no_grad) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    const at::Tensor out = at::mul(in[0], 3);
    return {out.view({-1}), in[1].add(1)};
  };
  expect_compiled_like_eager(f, {at::ones({3, 3}), leaf({3, 3})});
  const auto compiled = compiled_once(f, {at::ones({3, 3}), leaf({3, 3})});
  EXPECT_EQ(output_slots(program(compiled, "partition.forward")), "Output 0, Output 1");
}

TEST(AotIntermediateAliases, test_output_aliases_intermediate_no_grad_view) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        const at::Tensor y = in[0] * 2;
        at::Tensor view;
        {
          at::NoGradGuard no_grad;
          view = y.view({-1});
        }
        return {y.sum(), view};
      },
      {leaf({3, 3})}, {.write_to_outputs = false, .backward = false});
  auto compiled = compiled_by_call(
      [](const at::Tensor& x) {
        const at::Tensor y = x * x;
        at::NoGradGuard no_grad;
        return std::make_tuple(y, y.view({-1}));
      },
      {.fullgraph = true}, leaf({3, 3}));
  const at::Tensor x = leaf({3, 3});
  std::get<0>(compiled(x)).sum().backward();
  EXPECT_TRUE(same_values(x.grad(), 2 * x));
  expect_hits(compiled);
}

TEST(AotIntermediateAliases, test_output_aliases_intermediate_returned_multiple_times) {
  expect_with_and_without_grad(
      [](const Tensors& in) -> Tensors {
        const at::Tensor out = at::mul(in[0], 3);
        return {out, out.view({-1}), out};
      },
      {at::ones({3, 3})});
}

TEST(AotIntermediateAliases, test_output_aliases_intermediate_multiple) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    const at::Tensor out = at::mul(in[0], 3);
    return {out.view({-1}), out.view({-1})};
  };
  expect_with_and_without_grad(f, {at::ones({3, 3})});
  const auto compiled = compiled_once(f, {leaf({3, 3})});
  EXPECT_EQ(output_slots(program(compiled, "partition.forward")), "IntermediateBase 0");
}

TEST(AotIntermediateAliases, test_output_aliases_intermediate_and_returned) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    const at::Tensor out = at::mul(in[0], 3);
    return {out.view({-1}), out};
  };
  expect_with_and_without_grad(f, {at::ones({3, 3})});
  const auto compiled = compiled_once(f, {leaf({3, 3})});
  // The base is a result itself; the view is made of it outside of the graph.
  EXPECT_EQ(output_slots(program(compiled, "partition.forward")), "Output 1");
}

TEST(AotIntermediateAliases, test_output_aliases_intermediate_and_returned_flipped) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    const at::Tensor out = at::mul(in[0], 3);
    return {out, out.view({-1})};
  };
  expect_with_and_without_grad(f, {at::ones({3, 3})});
  const auto compiled = compiled_once(f, {leaf({3, 3})});
  EXPECT_EQ(output_slots(program(compiled, "partition.forward")), "Output 0");
}

TEST(AotIntermediateAliases, test_output_aliases_intermediate_and_returned_different_grad) {
  expect_with_and_without_grad(
      [](const Tensors& in) -> Tensors {
        const at::Tensor out = at::mul(in[0], 3);
        return {out.view({-1}), out, out[0].detach()};
      },
      {at::ones({3, 3})});
}

TEST(AotIntermediateAliases, test_output_aliases_intermediate_inplace_view_with_detach) {
  expect_with_and_without_grad(
      [](const Tensors& in) -> Tensors {
        at::Tensor out = at::mul(in[0], 3);
        out.t_();
        out.detach_();
        return {out, in[0] + 1};
      },
      {at::ones({2, 4})});
}

TEST(AotIntermediateAliases, test_output_aliases_intermediate_multiple_mixed) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    const at::Tensor out1 = at::mul(in[0], 3), out2 = at::mul(in[0], 4);
    return {out1.view({-1}), out2.transpose(1, 0), out1.transpose(1, 0)};
  };
  expect_with_and_without_grad(f, {at::ones({3, 3})});
  const auto compiled = compiled_once(f, {leaf({3, 3})});
  // The view that is alone has a base as well, see test_output_aliases_intermediate_single.
  EXPECT_EQ(output_slots(program(compiled, "partition.forward")),
            "IntermediateBase 0, IntermediateBase 1");
}

TEST(AotIntermediateAliases, test_alias_of_intermediate_detach) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    const at::Tensor a = (in[0] * 3).transpose(0, 1);
    return {a.detach(), a};
  };
  expect_compiled_like_eager(f, {leaf({3, 4})});
  auto compiled = compiled_once(f, {leaf({3, 4})});
  const Tensors outs = compiled(Tensors{leaf({3, 4})});
  EXPECT_FALSE(outs[0].requires_grad());
  EXPECT_TRUE(outs[1].requires_grad() && outs[1].is_view());
  EXPECT_EQ(outs[0].data_ptr(), outs[1].data_ptr());
  expect_hits(compiled);
}

TEST(AotIntermediateAliases, test_output_aliases_intermediate) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        const at::Tensor y = in[0] * 2;
        return {y, y.view({-1})};
      },
      {at::randn({3, 4})});
}

TEST(AotIntermediateAliases, test_training_path_alias_of_intermediate_detach) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    const at::Tensor y = in[0] * in[0];
    return {y.detach(), y.view({-1})};
  };
  expect_compiled_like_eager(f, {leaf({3, 4})});
  auto compiled = compiled_once(f, {leaf({3, 4})});
  const Tensors outs = compiled(Tensors{leaf({3, 4})});
  EXPECT_EQ(outs[0].data_ptr(), outs[1].data_ptr());
  expect_hits(compiled);
}

TEST(AotIntermediateAliases, test_xform_unsafe_view_output) {
  expect_compiled_like_eager([](const Tensors& in) -> Tensors { return {(in[0] * 2).view({-1})}; },
                             {leaf({3, 4})});
}

TEST(AotIntermediateAliases, test_alias_inputs) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        const at::Tensor a = at::full({1}, 5.) * 1, b = a.view({1, 1}).squeeze();
        a.select(0, 0).fill_(6);
        b.mul_(2);
        const at::Tensor c = b * in[0];
        a.select(0, 0).fill_(9);
        return {b, c};
      },
      {at::randn({})});
}

}  // namespace aot_06_intermediate_aliases_test
}  // namespace ahead::conformance
