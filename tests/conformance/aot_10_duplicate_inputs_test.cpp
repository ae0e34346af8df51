#include "conformance/aot_support.h"

namespace ahead::conformance {
namespace aot_10_duplicate_inputs_test {

TEST(AotDuplicateInputs, test_dupe_arg_torture) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    in[0].t_();
    in[1].unsqueeze_(0);
    return {in[0] + in[1]};
  };
  const at::Tensor x = at::randn({2, 2});
  expect_compiled_like_eager(f, {x, x});
  const at::Tensor y = leaf({2, 2});
  expect_compiled_like_eager(f, {y, y}, {.non_leaf_inputs = true});
}

TEST(AotDuplicateInputs, test_dupe_arg_returned_as_output) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    in[0].select(0, 0).mul_(2);
    return {in[2]};
  };
  const at::Tensor a = at::randn({2}), b = at::randn({2});
  expect_compiled_like_eager(f, {a, b, a});
  const at::Tensor c = leaf({2}), d = leaf({2});
  expect_compiled_like_eager(f, {c, d, c}, {.non_leaf_inputs = true});
}

/// Upstream asserts that a call is like the one that was compiled; Ahead compiles anew.
void expect_right_for_both(const aot::FlatFunction& f, bool duplicated_first) {
  auto compiled = compile(f, {.fullgraph = true, .confirm = 0});
  for (int call = 0; call < 4; ++call) {
    const bool duplicated = (call % 2 == 0) == duplicated_first;
    const at::Tensor eager = at::randn({2, 2}), own = eager.clone();
    const at::Tensor eager_other = at::randn({2, 2}), own_other = eager_other.clone();
    const Tensors expected = f({eager, duplicated ? eager : eager_other});
    const Tensors actual = compiled(Tensors{own, duplicated ? own : own_other});
    EXPECT_EQ(tensor_difference(expected[0], actual[0]), "");
    EXPECT_EQ(tensor_difference(eager, own), "");
    EXPECT_EQ(tensor_difference(eager_other, own_other), "");
  }
  expect_hits(compiled, 2);
}

TEST(AotDuplicateInputs, test_invalid_dupe_left_bias) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    in[0].t_();
    return {in[0] + in[1]};
  };
  expect_right_for_both(f, true);
  expect_right_for_both(f, false);
}

TEST(AotDuplicateInputs, test_invalid_dupe) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    in[0].unsqueeze_(0);
    in[1].unsqueeze_(0);
    return {in[0] + in[1]};
  };
  expect_right_for_both(f, true);
  expect_right_for_both(f, false);
}

TEST(AotDuplicateInputs, test_invalid_requires_grad) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors { return {in[0] * in[1]}; };
  for (const bool grad_first : {true, false}) {
    auto compiled = compile(f, {.fullgraph = true, .confirm = 0});
    for (int call = 0; call < 4; ++call) {
      const bool grad = (call % 2 == 0) == grad_first;
      const at::Tensor x = leaf({3}), y = at::randn({3}).set_requires_grad(grad);
      compiled(Tensors{x, y})[0].sum().backward();
      EXPECT_TRUE(same_values(x.grad(), y));
      EXPECT_EQ(y.grad().defined(), grad);
      if (!grad) continue;
      EXPECT_TRUE(same_values(y.grad(), x));
    }
    expect_hits(compiled, 2);
  }
}

TEST(AotDuplicateInputs, test_requires_grad_fake_via_dynamo_recompiles) {
  auto compiled = compile([](const at::Tensor& x, const at::Tensor& y) { return x * y; },
                          {.fullgraph = true, .confirm = 0});
  const at::Tensor x = leaf({3}), y = leaf({3}), z = at::randn({3});
  compiled(x, y);
  const std::string reason = compiled.explain(x, z);
  EXPECT_NE(reason.find("grad"), std::string::npos) << reason;
  compiled(x, z);
  EXPECT_EQ(compiled.stats().traces, 2u);
}

TEST(AotDuplicateInputs, test_arg_dupe_via_dynamo_recompiles) {
  auto compiled = compile(
      [](const at::Tensor& x, const at::Tensor& y) {
        x.mul_(2);
        return x + y;
      },
      {.fullgraph = true, .confirm = 0});
  for (int round = 0; round < 2; ++round) {
    const at::Tensor x = at::ones({3}), y = at::ones({3});
    EXPECT_TRUE(same_values(compiled(x, y), at::full({3}, 3.)));
    EXPECT_TRUE(same_values(compiled(y, y), at::full({3}, 4.)));
  }
  expect_hits(compiled, 2);
}

TEST(AotDuplicateInputs, test_arg_dupe_via_dynamo_recompiles_many_args) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    in[0].mul_(2);
    in[2].mul_(3);
    return {in[0] + in[1] + in[2] + in[3]};
  };
  auto compiled = compile(f, {.fullgraph = true, .confirm = 0});
  const auto expect_equal = [&](const std::vector<size_t>& pick) {
    const at::Tensor seed = at::randn({4, 3});
    const auto arguments = [&] {
      Tensors tensors, picked;
      for (int64_t i = 0; i < 4; ++i) tensors.push_back(seed[i].clone());
      for (size_t i : pick) picked.push_back(tensors[i]);
      return picked;
    };
    EXPECT_TRUE(same_values(f(arguments())[0], compiled(arguments())[0]));
  };
  for (int round = 0; round < 2; ++round) {
    expect_equal({0, 1, 2, 3});
    expect_equal({0, 0, 2, 2});
    expect_equal({0, 0, 1, 1});
    expect_equal({0, 0, 2, 3});
  }
  expect_hits(compiled, 3);
}

TEST(AotDuplicateInputs, test_arg_dupe_via_dynamo_recompiles_many_args_param) {
  const at::Tensor parameter = leaf({3});
  auto compiled = compile(
      [parameter](const at::Tensor& a, const at::Tensor& b) {
        a.mul_(2);
        return (a + b) * parameter;
      },
      {.fullgraph = true, .confirm = 0});
  for (int round = 0; round < 2; ++round) {
    const at::Tensor x = at::ones({3}), y = at::ones({3});
    EXPECT_TRUE(same_values(compiled(x, y), parameter * 3));
    EXPECT_TRUE(same_values(compiled(y, y), parameter * 4));
  }
  expect_hits(compiled, 2);
}

TEST(AotDuplicateInputs, test_arg_dupe_via_dynamo_recompiles_many_args_param_non_tensor_arg) {
  const at::Tensor parameter = leaf({3});
  auto compiled = compile(
      [parameter](const at::Tensor& a, int64_t e, const at::Tensor& b, int64_t f) {
        a.mul_(e);
        return (a + b * f) * parameter;
      },
      {.fullgraph = true, .confirm = 0});
  for (int round = 0; round < 2; ++round) {
    const at::Tensor x = at::ones({3}), y = at::ones({3});
    EXPECT_TRUE(same_values(compiled(x, 2, y, 3), parameter * 5));
    EXPECT_TRUE(same_values(compiled(y, 2, y, 3), parameter * 8));
    EXPECT_TRUE(same_values(compiled(at::ones({3}), 2, at::ones({3}), 4), parameter * 6));
  }
  expect_hits(compiled, 3);
}

TEST(AotDuplicateInputs, test_arg_dupe_via_dynamo_recompiles_many_with_global) {
  const at::Tensor global = at::ones({3});
  const auto f = [global](const at::Tensor& a, const at::Tensor& b) {
    a.mul_(2);
    return a + b + global;
  };
  auto compiled = compile(f, {.fullgraph = true, .confirm = 0});
  for (int call = 0; call < 2; ++call)
    EXPECT_TRUE(same_values(compiled(at::ones({3}), at::ones({3})), at::full({3}, 4.)));
  expect_hits(compiled);
  // The argument is the captured tensor itself.
  EXPECT_TRUE(same_values(compiled(global, at::ones({3})), at::full({3}, 5.)));
  EXPECT_TRUE(same_values(global, at::full({3}, 2.)));
  // And the other way round: a program for the captured tensor must not be used for another one.
  auto other = compile(f, {.fullgraph = true, .confirm = 0});
  EXPECT_TRUE(same_values(other(global, at::ones({3})), at::full({3}, 9.)));
  for (int call = 0; call < 2; ++call)
    EXPECT_TRUE(same_values(other(at::ones({3}), at::ones({3})), at::full({3}, 7.)));
}

TEST(AotDuplicateInputs, test_duplicate_args_with_mutation) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    in[1].mul_(2);
    return {in[0] + in[1]};
  };
  const at::Tensor x = at::randn({4}), y = leaf({4});
  expect_compiled_like_eager(f, {x, x});
  expect_compiled_like_eager(f, {y, y}, {.non_leaf_inputs = true});
}

TEST(AotDuplicateInputs, test_three_way_duplicate_with_mutation) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    in[0].mul_(2);
    in[2].mul_(3);
    return {in[0] + in[1] * in[2]};
  };
  const at::Tensor x = at::randn({4}), y = leaf({4});
  expect_compiled_like_eager(f, {x, x, x});
  expect_compiled_like_eager(f, {y, y, y}, {.non_leaf_inputs = true});
}

TEST(AotDuplicateInputs, test_duplicate_args_no_mutation) {
  const at::Tensor x = at::randn({4}), y = leaf({4});
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors { return {in[0] * in[1]}; };
  expect_compiled_like_eager(f, {x, x});
  expect_compiled_like_eager(f, {y, y});
}

}  // namespace aot_10_duplicate_inputs_test
}  // namespace ahead::conformance
