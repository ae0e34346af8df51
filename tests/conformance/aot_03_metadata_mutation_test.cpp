#include "conformance/aot_support.h"

namespace ahead::conformance {
namespace aot_03_metadata_mutation_test {

TEST(AotMetadataMutation, test_input_mutation_metadata) {
  expect_with_and_without_grad(
      [](const Tensors& in) -> Tensors {
        in[0].transpose_(1, 0);
        return {in[0] + in[1]};
      },
      {at::randn({3, 3}), at::randn({3, 3})});
}

TEST(AotMetadataMutation, test_input_mutation_metadata2) {
  expect_with_and_without_grad(
      [](const Tensors& in) -> Tensors {
        in[0].transpose_(1, 0);
        in[0].mul_(2);
        return {in[0] + 1};
      },
      {at::randn({3, 4})});
}

TEST(AotMetadataMutation, test_input_data_and_metadata_mutation) {
  expect_with_and_without_grad(
      [](const Tensors& in) -> Tensors {
        in[0].t_();
        in[0].select(0, 0).mul_(2);
        return {in[0].view(in[0].sizes())};
      },
      {at::randn({3, 3})});
}

TEST(AotMetadataMutation, test_view_and_inplace_view) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    in[0].t_();
    return {in[0].view(in[0].sizes()), in[1].view({-1})};
  };
  const Tensors inputs = {at::randn({2, 3}), at::randn({2, 3})};
  expect_with_and_without_grad(f, inputs);
  // Nothing is computed, so there is nothing to differentiate inside.
  const auto compiled = compiled_once(f, inputs);
  EXPECT_EQ(output_slots(program(compiled, "inference")), "");
}

TEST(AotMetadataMutation, test_input_output_view_metadata_mutate_multiple) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    in[1].mul_(3);
    in[2].t_();
    return {in[0].view({2, 2}), in[1].view({2, 2}), in[2].view({2, 2})};
  };
  const Tensors inputs = {at::randn({2, 2}), at::randn({2, 2}), at::randn({2, 2})};
  expect_with_and_without_grad(f, inputs);
  const auto compiled = compiled_once(f, inputs);
  EXPECT_EQ(output_slots(program(compiled, "inference")), "MutatedInput 1");
}

TEST(AotMetadataMutation, test_input_mutation_output_view_multiple) {
  expect_with_and_without_grad(
      [](const Tensors& in) -> Tensors {
        in[1].transpose_(1, 0);
        in[2].mul_(2);
        return {in[3] + 1, in[1].diagonal(), in[0] + in[2]};
      },
      {at::randn({3, 3}), at::randn({3, 3}), at::randn({3, 3}), at::randn({3, 3})});
}

TEST(AotMetadataMutation, test_output_all_alias_types) {
  expect_with_and_without_grad(
      [](const Tensors& in) -> Tensors {
        in[0].transpose_(1, 0);
        const at::Tensor intermediate = in[0].mul(2);
        return {intermediate.squeeze(), intermediate.unsqueeze(0), in[0].squeeze()};
      },
      {at::randn({1, 2})});
}

TEST(AotMetadataMutation, test_input_metadata_mutation_aliases) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    in[0].t_();
    return {in[0] * in[1]};
  };
  const auto twice = [](const at::Tensor& base) -> Tensors {
    return {base.view({3, 3}), base.view({3, 3})};
  };
  expect_compiled_like_eager(f, twice(at::randn({9})));
  expect_compiled_like_eager(f, twice(leaf({9})), {.non_leaf_inputs = true});
  const auto compiled = compiled_once(f, twice(at::randn({9})));
  EXPECT_EQ(input_slots(program(compiled, "inference")), "Primal 0, Primal 1");
}

TEST(AotMetadataMutation, test_metadata_only_mutation) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    in[0].t_();
    return {in[0] + 1};
  };
  auto compiled = compiled_once(f, {at::randn({3, 4})});
  const at::Tensor x = at::randn({3, 4}), values = x.clone();
  compiled(Tensors{x});
  expect_hits(compiled);
  EXPECT_EQ(x.sizes(), at::IntArrayRef({4, 3}));
  EXPECT_TRUE(same_values(x, values.t()));
  EXPECT_EQ(output_slots(program(compiled, "inference")), "Output 0");
}

TEST(AotMetadataMutation, test_data_and_metadata_mutation) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    in[0].t_();
    in[0].mul_(2);
    return {in[0] + 1};
  };
  expect_with_and_without_grad(f, {at::randn({3, 4})});
  auto compiled = compiled_once(f, {at::randn({3, 4})});
  const at::Tensor x = at::randn({3, 4}), values = x.clone();
  compiled(Tensors{x});
  expect_hits(compiled);
  EXPECT_TRUE(same_values(x, values.t() * 2));
}

TEST(AotMetadataMutation, test_metadata_mutation) {
  at::NoGradGuard no_grad;
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        in[0].unsqueeze_(0);
        in[1].squeeze_(0);
        return {in[0] + 1};
      },
      {at::randn({3, 4}), at::randn({1, 5})});
}

TEST(AotMetadataMutation, test_xform_metadata_only_mutation) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        in[0].t_();
        return {in[0] * in[1]};
      },
      {leaf({3, 4}), leaf({4, 3})}, {.non_leaf_inputs = true});
}

}  // namespace aot_03_metadata_mutation_test
}  // namespace ahead::conformance
