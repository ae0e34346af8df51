#include "conformance/aot_support.h"

namespace ahead::conformance {
namespace aot_02_input_mutation_test {

TEST(AotInputMutation, test_input_mutation_simple) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    in[0].mul_(2);
    return {in[0] * 3};
  };
  expect_with_and_without_grad(f, {at::ones({3, 3})});
  const auto compiled = compiled_once(f, {leaf({3, 3}).mul(1)});
  EXPECT_EQ(output_slots(program(compiled, "partition.forward")), "MutatedInput 0, Output 0");
}

TEST(AotInputMutation, test_input_mutation_return) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    at::Tensor out = in[1];
    return {at::sin_out(out, in[0])};
  };
  expect_compiled_like_eager(f, {at::randn({3}), at::ones({3})});
  const auto compiled = compiled_once(f, {at::randn({3}), at::ones({3})});
  // The result is the caller's tensor itself, so that the graph need not return it again.
  EXPECT_EQ(output_slots(program(compiled, "inference")), "MutatedInput 1");
}

TEST(AotInputMutation, test_mutates_input_noncontiguous) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    in[0].add_(1).mul_(3);
    return {};
  };
  auto compiled =
      compiled_by_call(f, {.fullgraph = true}, Tensors{at::zeros({6}).slice(0, 0, 6, 2)});
  at::Tensor base = at::ones({6});
  compiled(Tensors{base.slice(0, 0, 6, 2)});
  expect_hits(compiled);
  EXPECT_TRUE(same_values(base, at::tensor({6., 1., 6., 1., 6., 1.}, at::kFloat)));
  expect_compiled_like_eager(f, {at::ones({6}).slice(0, 0, 6, 2)});
  expect_compiled_like_eager(f, {leaf({6}).slice(0, 0, 6, 2)}, {.non_leaf_inputs = true});
}

TEST(AotInputMutation, test_input_mutation_noncontiguous) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    in[0].mul_(2);
    return {in[0] + 1, in[0] * in[0]};
  };
  expect_compiled_like_eager(f, {at::randn({2, 2}).select(1, 0)});
  expect_compiled_like_eager(f, {leaf({2, 2}).select(1, 0)}, {.non_leaf_inputs = true});
}

/// Everything about a view that was taken of an argument before the call.
struct ViewOfArgument {
  at::Tensor source = leaf({2, 2});
  at::Tensor argument = source.mul(1);
  at::Tensor view = argument.view({-1});
};

TEST(AotInputMutation, test_input_mutation_modifies_autograd_meta_of_aliases) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    in[0].mul_(2).mul_(3);
    return {in[0] + 1};
  };
  auto compiled = compile(f, {.fullgraph = true, .confirm = 0});
  for (int call = 0; call < 3; ++call) {
    torch::manual_seed(call);
    const ViewOfArgument eager;
    torch::manual_seed(call);
    const ViewOfArgument own;
    const at::Tensor expected = f({eager.argument})[0];
    const at::Tensor actual = compiled(Tensors{own.argument})[0];
    EXPECT_EQ(tensor_difference(eager.view, own.view), "");
    EXPECT_EQ(eager.view._version(), own.view._version());
    EXPECT_EQ(eager.view.grad_fn()->name(), own.view.grad_fn()->name());
    (expected.sum() + eager.view.sum()).backward();
    (actual.sum() + own.view.sum()).backward();
    EXPECT_EQ(tensor_difference(eager.source.grad(), own.source.grad()), "");
  }
  expect_hits(compiled);
}

TEST(AotInputMutation, test_new_inp_requires_grad_now) {
  const aot::FlatFunction add = [](const Tensors& in) -> Tensors { return {in[0].add_(in[1])}; };
  expect_compiled_like_eager(add, {at::randn({3}), leaf({3})});
  expect_compiled_like_eager(add, {at::randn({3}), leaf({3})}, {.non_leaf_inputs = true});
  expect_compiled_like_eager([](const Tensors& in) -> Tensors { return {in[0].mul_(in[1])}; },
                             {at::randn({3}), leaf({3})});
  const auto compiled = compiled_once(add, {at::randn({3}), leaf({3})});
  EXPECT_EQ(output_slots(program(compiled, "partition.forward")), "MutatedInput 0");
  const Graph backward = program(compiled, "partition.backward");
  EXPECT_EQ(backward.num_nodes(), 0u);
  EXPECT_EQ(output_slots(backward), "GradOf 1");
}

/// Two views of one storage, as size, stride and offset of each.
struct TwoViews {
  std::vector<int64_t> sizes, strides;
  int64_t first, second;

  Tensors make() const {
    const at::Tensor base = at::arange(100, at::kFloat);
    return {base.as_strided(sizes, strides, first), base.as_strided(sizes, strides, second)};
  }
};

aot::FlatFunction write_both() {
  return [](const Tensors& in) -> Tensors {
    in[0].mul_(2);
    in[1].mul_(3);
    return {in[0] + in[1]};
  };
}

const std::vector<TwoViews> disjoint = {
    {{4}, {1}, 0, 4}, {{4, 4}, {4, 1}, 0, 16}, {{4, 2}, {4, 1}, 0, 2},
    {{4}, {2}, 0, 1}, {{4, 4}, {9, 1}, 0, 22}, {{4, 4}, {9, 1}, 0, 23},
};
const std::vector<TwoViews> overlapping = {
    {{4}, {1}, 0, 2}, {{4, 4}, {9, 1}, 0, 24}, {{4, 4}, {9, 1}, 0, 25}};

TEST(AotInputMutation, test_input_mutation_false_aliasing) {
  for (const TwoViews& views : disjoint) {
    SCOPED_TRACE(views.second);
    expect_compiled_like_eager(write_both(), views.make());
    const auto compiled = compiled_once(write_both(), views.make());
    EXPECT_EQ(input_slots(program(compiled, "inference")), "Primal 0, Primal 1");
  }
  for (const TwoViews& views : overlapping) {
    SCOPED_TRACE(views.second);
    expect_compiled_like_eager(write_both(), views.make());
  }
}

TEST(AotInputMutation, test_backward_prologue_correctness_with_mutation) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        in[0].add_(1).mul_(2);
        return {in[1] * 2};
      },
      {at::randn({4}), leaf({4})});
}

TEST(AotInputMutation, test_mutation) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        {
          at::NoGradGuard no_grad;
          in[1].mul_(2).add_(in[0]);
        }
        return {in[0] * in[1]};
      },
      {at::ones({3}), leaf({3})});
}

TEST(AotInputMutation, test_negative_testing_mutation) {
  expect_with_and_without_grad(
      [](const Tensors& in) -> Tensors {
        at::Tensor a = in[0] * 2;
        a.slice(0, 0, 2).fill_(3);
        a.slice(0, 2, 3).mul_(2);
        return {a.view({-1}).sin()};
      },
      {at::randn({4, 2})});
}

TEST(AotInputMutation, test_aot_autograd_expand_mutation_functionalizes) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        at::Tensor expanded = in[0].expand({3, in[0].size(0)});
        expanded.select(0, 0).select(0, 1).sub_(5);
        return {expanded};
      },
      {at::arange(6)});
}

TEST(AotInputMutation, test_aot_autograd_expand_mutation_backwards) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        at::Tensor expanded = in[0].expand({3, in[0].size(0)});
        expanded.select(0, 0).select(0, 2).mul_(5);
        return {expanded * in[1]};
      },
      {at::arange(6), leaf({3, 6})});
}

TEST(AotInputMutation, test_single_data_mutation) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        in[0].mul_(2);
        return {in[0] + in[1]};
      },
      {leaf({3, 3}), leaf({3, 3})}, {.non_leaf_inputs = true});
}

TEST(AotInputMutation, test_multiple_data_mutations) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    in[0].mul_(2);
    in[2].mul_(in[0]);
    return {in[0] + in[1] + in[2]};
  };
  const Tensors inputs = {leaf({3, 3}), leaf({3, 3}), leaf({3, 3})};
  expect_compiled_like_eager(f, inputs, {.non_leaf_inputs = true});
  const auto compiled = compiled_once(f, {inputs[0].mul(1), inputs[1], inputs[2].mul(1)});
  const std::string slots = output_slots(program(compiled, "partition.forward"));
  EXPECT_EQ(slots.find("MutatedInput 0, MutatedInput 2, Output 0"), 0u) << slots;
}

TEST(AotInputMutation, test_multiple_inputs_mutation_version_increment) {
  at::NoGradGuard no_grad;
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        in[0].mul_(2);
        in[1].add_(1).mul_(in[0]);
        return {in[0] + in[1]};
      },
      {at::ones({4}), at::ones({4})});
}

TEST(AotInputMutation, test_inference_with_mutation) {
  at::NoGradGuard no_grad;
  auto compiled = compiled_by_call(
      [](const at::Tensor& x) {
        x.mul_(2);
        return x + 1;
      },
      {.fullgraph = true}, at::ones({4}));
  const at::Tensor x = at::ones({4});
  const int64_t before = x._version();
  compiled(x);
  EXPECT_EQ(x._version(), before + 1);
  expect_hits(compiled);
}

TEST(AotInputMutation, test_split_index_baked) {
  at::NoGradGuard no_grad;
  const auto compiled = compiled_once(
      [](const Tensors& in) -> Tensors {
        in[1].mul_(2);
        in[0].mul_(3);
        return {in[0] + in[1]};
      },
      {at::ones({4}), at::ones({4})},
      {.fullgraph = true, .confirm = 0, .keep_input_mutations = false});
  EXPECT_EQ(output_slots(program(compiled, "inference")),
            "MutatedInput 0, MutatedInput 1, Output 0");
}

TEST(AotInputMutation, test_no_mutation_no_epilogue) {
  const auto compiled =
      compiled_once([](const Tensors& in) -> Tensors { return {in[0] * 2}; }, {at::ones({4})});
  EXPECT_EQ(output_slots(program(compiled, "inference")), "Output 0");
}

}  // namespace aot_02_input_mutation_test
}  // namespace ahead::conformance
