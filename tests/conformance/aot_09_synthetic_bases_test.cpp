#include "conformance/aot_support.h"

namespace ahead::conformance {
namespace aot_09_synthetic_bases_test {

/// Compares with views of a base without grad, and with views of one that requires grad and is no
/// leaf.
void expect_views_with_and_without_grad(const aot::FlatFunction& f,
                                        const std::function<Tensors(const at::Tensor&)>& views,
                                        at::IntArrayRef sizes) {
  {
    SCOPED_TRACE("without grad");
    expect_compiled_like_eager(f, views(at::randn(sizes)));
  }
  SCOPED_TRACE("with grad");
  expect_compiled_like_eager(f, views(leaf(sizes)), {.non_leaf_inputs = true});
}

TEST(AotSyntheticBases, test_input_mutation_aliases_other_input) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    in[0].mul_(2);
    return {in[0] + in[1]};
  };
  const auto views = [](const at::Tensor& base) -> Tensors { return {base[0], base[0]}; };
  expect_views_with_and_without_grad(f, views, {2, 2});
  const auto compiled = compiled_once(f, views(at::randn({2, 2})));
  EXPECT_EQ(program(compiled, "inference").inputs().size(), 1u);
}

TEST(AotSyntheticBases, test_input_mutation_aliases_other_input2) {
  expect_views_with_and_without_grad(
      [](const Tensors& in) -> Tensors {
        in[0].mul_(2);
        return {in[0] + in[1]};
      },
      [](const at::Tensor& base) -> Tensors {
        return {base[0], base};
      },
      {2, 2});
}

TEST(AotSyntheticBases, test_input_mutation_aliases_and_output_alias) {
  expect_views_with_and_without_grad(
      [](const Tensors& in) -> Tensors {
        in[0].mul_(3);
        return {in[1].view(in[1].sizes())};
      },
      [](const at::Tensor& base) -> Tensors {
        return {base.view({-1}), base.view({-1})};
      },
      {2, 2});
}

/// Calls with an int between the tensors.
struct WithNumbers {
  int64_t factor = 2;
  std::tuple<at::Tensor, at::Tensor> operator()(const at::Tensor& a, int64_t number,
                                                const at::Tensor& b, int64_t other,
                                                const at::Tensor& c) const {
    a.mul_(2);
    return {a + b * number, c * other * factor};
  }
};

void expect_numbers_between(const std::function<CallInputs()>& make_inputs) {
  auto compiled = compile(WithNumbers(), {.fullgraph = true, .confirm = 0});
  const auto call = [](auto& f, const Tensors& in) -> Tensors {
    const auto [first, second] = f(in[0], 3, in[1], 4, in[2]);
    return {first, second};
  };
  WithNumbers eager;
  for (int i = 0; i < 3; ++i) {
    torch::manual_seed(i);
    const CallInputs expected_in = make_inputs();
    torch::manual_seed(i);
    const CallInputs actual_in = make_inputs();
    const Tensors expected = call(eager, expected_in.passed);
    const Tensors actual = call(compiled, actual_in.passed);
    for (size_t k = 0; k < 2; ++k) EXPECT_EQ(tensor_difference(expected[k], actual[k]), "");
    for (size_t k = 0; k < 3; ++k)
      EXPECT_EQ(tensor_difference(expected_in.passed[k], actual_in.passed[k]), "");
    if (expected_in.leaves.empty()) continue;
    (expected[0].square().sum() + expected[1].sum()).backward();
    (actual[0].square().sum() + actual[1].sum()).backward();
    for (size_t k = 0; k < expected_in.leaves.size(); ++k) {
      EXPECT_EQ(tensor_difference(expected_in.leaves[k].grad(), actual_in.leaves[k].grad()), "");
    }
  }
  expect_hits(compiled);
}

TEST(AotSyntheticBases, test_input_aliased_with_mutation_nontensor_interleaved) {
  expect_numbers_between([]() -> CallInputs {
    const at::Tensor base = at::randn({4});
    return {{base.view({2, 2}), base.view({2, 2}), at::randn({2})}, {}};
  });
}

TEST(AotSyntheticBases, test_input_aliased_with_mutation_multiple_nontensors) {
  expect_numbers_between([]() -> CallInputs {
    const at::Tensor source = leaf({4}), other = leaf({2});
    const at::Tensor base = source.mul(1);
    return {{base.view({2, 2}), base.view({2, 2}), other}, {source, other}};
  });
}

TEST(AotSyntheticBases, test_input_data_and_metadata_mutation_aliases_other_input) {
  expect_views_with_and_without_grad(
      [](const Tensors& in) -> Tensors {
        in[0].mul_(2);
        in[1].t_();
        return {in[0] * in[1]};
      },
      [](const at::Tensor& base) -> Tensors {
        return {base[0], base[0]};
      },
      {2, 2, 2});
}

TEST(AotSyntheticBases, test_input_mutation_aliases_and_none_require_gradients) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    in[0].mul_(2);
    return {in[1] + 1, in[2] + 1};
  };
  const auto detached_views = []() -> Tensors {
    const at::Tensor base = at::randn({2, 2});
    return {base.detach(), base.detach(), leaf({2, 2})};
  };
  expect_compiled_like_eager(f, detached_views());
  const auto views = []() -> Tensors {
    const at::Tensor base = at::randn({2, 2});
    return {base.view({-1}), base.view({-1}), leaf({2, 2})};
  };
  expect_compiled_like_eager(f, views());
}

TEST(AotSyntheticBases, test_input_mutation_aliases_bases_out_of_order) {
  // The bases of (1, 3) and of (0, 2) are different; only the first pair is written to.
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    in[1].mul_(2);
    in[3].unsqueeze_(0);
    return {in[0] + in[2] + in[3], in[1].view({-1})};
  };
  const auto views = [](const at::Tensor& first, const at::Tensor& second) -> Tensors {
    return {first.view({2, 2}), second.view({2, 2}), first.view({2, 2}), second.view({2, 2})};
  };
  expect_compiled_like_eager(f, views(at::randn({4}), at::randn({4})));
  expect_compiled_like_eager(f, views(leaf({4}), leaf({4})), {.non_leaf_inputs = true});
}

TEST(AotSyntheticBases, test_input_mutation_alias_everything) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    in[1].mul_(2);
    in[2].transpose_(1, 0);
    const at::Tensor product = in[1] * in[2], view = in[0].view({-1});
    return {view, product.view({-1}), product.t(), in[1], product};
  };
  const auto views = [](const at::Tensor& base, const at::Tensor& other) -> Tensors {
    return {other, base.view({2, 2}), base.view({2, 2})};
  };
  expect_compiled_like_eager(f, views(at::randn({4}), at::randn({2, 2})));
  expect_compiled_like_eager(f, views(leaf({4}), leaf({2, 2})), {.non_leaf_inputs = true});
}

TEST(AotSyntheticBases, test_synthetic_base_base_attribute_is_none) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    in[0].mul_(2);
    return {in[0] + in[1]};
  };
  const at::Tensor base = at::randn({2, 4});
  expect_compiled_like_eager(f, {base[0].detach(), base[1].detach()});
}

TEST(AotSyntheticBases, test_merge_view_inputs_error_different_bases) {
  // Upstream refuses views of one storage through two bases. Here they are merged as well.
  at::NoGradGuard no_grad;
  const auto f = [](const at::Tensor& a, const at::Tensor& b) {
    a.mul_(2);
    return a + b;
  };
  auto compiled = compile(f, {.fullgraph = true, .confirm = 0});
  for (int call = 0; call < 3; ++call) {
    const at::Tensor first = at::randn({4}), second = first.detach(), expected = 4 * first;
    const at::Tensor result = compiled(first.view({2, 2}), second.view({2, 2}));
    EXPECT_TRUE(same_values(result.view({4}), expected));
    EXPECT_TRUE(same_values(first, expected / 2));
  }
  expect_hits(compiled);
}

TEST(AotSyntheticBases, ViewsOfOtherTypesAreRefused) {
  const auto f = [](const at::Tensor& a, const at::Tensor& b) {
    a.mul_(2);
    return at::view_as_real(b) + 1;
  };
  auto strict = compile(f, {.fullgraph = true, .confirm = 0});
  const at::Tensor written = at::randn({4, 2}), before = written.clone();
  EXPECT_THROW(strict(written, at::view_as_complex(written)), Unsupported);
  EXPECT_TRUE(same_values(written, 2 * before)) << "the call itself has run";
  auto compiled = compile(f);
  for (int call = 0; call < 4; ++call) {
    const at::Tensor pairs = at::randn({4, 2}), expected = 2 * pairs + 1;
    EXPECT_TRUE(same_values(compiled(pairs, at::view_as_complex(pairs)), expected));
  }
  expect_runs_eagerly(compiled, 2);
}

TEST(AotSyntheticBases, ArgumentsThatAutogradDoesNotKnowAsViews) {
  // One version counter for both, or one for each; and results that are views of either.
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    in[0].mul_(2);
    in[0].add_(1);
    in[1].mul_(3);
    return {in[1].view({-1}), in[0] + in[1], in[0].t()};
  };
  const std::function<CallInputs()> separate = []() -> CallInputs {
    const at::Tensor x = at::randn({2, 2});
    return {{x, at::empty({0}).set_(x.storage(), 0, {2, 2}, {2, 1})}, {}};
  };
  const std::function<CallInputs()> shared = []() -> CallInputs {
    const at::Tensor x = at::randn({2, 2});
    return {{x, x.detach()}, {}};
  };
  expect_compiled_like_eager(f, separate);
  expect_compiled_like_eager(f, shared);
}

TEST(AotSyntheticBases, HistoryOfArgumentsThatAutogradDoesNotKnowAsViews) {
  // Only one of them gets a history in eager; a base could not tell them apart.
  const auto f = [](const at::Tensor& a, const at::Tensor& b, const at::Tensor& w) {
    a.mul_(w);
    return b * 2;
  };
  auto compiled = compile(f);
  for (int call = 0; call < 4; ++call) {
    const at::Tensor a = at::randn({3}), b = a.detach(), w = leaf({3}), before = a.clone();
    const at::Tensor result = compiled(a, b, w);
    EXPECT_FALSE(result.requires_grad());
    EXPECT_TRUE(a.requires_grad());
    EXPECT_TRUE(same_values(a, before * w) && same_values(result, before * w * 2));
  }
  expect_runs_eagerly(compiled, 2);
}

TEST(AotSyntheticBases, test_merge_view_inputs_error_mixed_base_states) {
  at::NoGradGuard no_grad;
  const at::Tensor base = at::randn({4});
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        in[0].mul_(2);
        return {in[0] + in[1]};
      },
      {base, base.view({4})}, {.backward = false});
}

TEST(AotSyntheticBases, test_inputs_overlapping_unsqueeze_with_mutation) {
  expect_views_with_and_without_grad(
      [](const Tensors& in) -> Tensors {
        in[0].add_(1).mul_(2);
        in[1].add_(1).mul_(3);
        return {in[0], in[1]};
      },
      [](const at::Tensor& base) -> Tensors {
        return {base.unsqueeze(0), base.unsqueeze(0)};
      },
      {5});
}

aot::FlatFunction write_first() {
  return [](const Tensors& in) -> Tensors {
    in[0].mul_(2);
    return {in[0].sum() + in[1]};
  };
}

TEST(AotSyntheticBases, test_synthetic_base_codegen_correctness) {
  expect_views_with_and_without_grad(write_first(),
                                     [](const at::Tensor& base) -> Tensors {
                                       return {base.slice(0, 0, 6), base.slice(0, 2, 8)};
                                     },
                                     {8});
}

TEST(AotSyntheticBases, test_synthetic_base_codegen_non_aliased_before_aliased) {
  expect_views_with_and_without_grad(
      [](const Tensors& in) -> Tensors {
        in[1].mul_(2);
        return {in[0] + in[1], in[2] * 2};
      },
      [](const at::Tensor& base) -> Tensors {
        return {at::ones({6}), base.slice(0, 0, 6), base.slice(0, 2, 8)};
      },
      {8});
}

TEST(AotSyntheticBases, test_synthetic_base_codegen_base_is_none) {
  const at::Tensor base = at::randn({8});
  expect_compiled_like_eager(write_first(),
                             {base.slice(0, 0, 6).detach(), base.slice(0, 2, 8).detach()});
}

TEST(AotSyntheticBases, test_synthetic_base_codegen_metadata_mutation_correctness) {
  expect_views_with_and_without_grad(
      [](const Tensors& in) -> Tensors {
        in[0].mul_(2);
        in[1].t_();
        // Laid out like its tangent, so that the gradient of the sum is added up in eager's order.
        return {in[0].sum() + in[1].contiguous()};
      },
      [](const at::Tensor& base) -> Tensors {
        return {base.as_strided({3, 4}, {4, 1}, 0), base.as_strided({3, 4}, {4, 1}, 4)};
      },
      {16});
}

TEST(AotSyntheticBases, test_synthetic_base_codegen_multiple_groups_correctness) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    in[0].mul_(2);
    in[2].mul_(3);
    return {in[0] + in[1], in[2] * in[3]};
  };
  const auto views = [](const at::Tensor& a, const at::Tensor& b) -> Tensors {
    return {a.slice(0, 0, 6), a.slice(0, 2, 8), b.slice(0, 0, 6), b.slice(0, 2, 8)};
  };
  expect_compiled_like_eager(f, views(at::randn({8}), at::randn({8})));
  expect_compiled_like_eager(f, views(leaf({8}), leaf({8})), {.non_leaf_inputs = true});
}

/// Two halves of one tensor, or two tensors, and whether a program for one fits the other.
TEST(AotSyntheticBases, test_inputs_overlapping_with_mutation_recompile) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    in[0].mul_(2);
    return {in[0] + in[1]};
  };
  auto compiled = compile(f, {.fullgraph = true, .confirm = 0});
  for (const int64_t second : {2, 5, 2, 5}) {
    const at::Tensor eager = at::arange(10, at::kFloat), own = eager.clone();
    const auto call = [&](auto& callee, const at::Tensor& base) {
      return callee(Tensors{base.narrow(0, 0, 5), base.narrow(0, second, 5)})[0];
    };
    EXPECT_TRUE(same_values(call(f, eager), call(compiled, own)));
    EXPECT_TRUE(same_values(eager, own));
  }
  expect_hits(compiled, 2);
}

TEST(AotSyntheticBases, test_different_inputs_overlapping_set_with_mutation) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    in[0].mul_(2);
    in[2].mul_(3);
    return {in[0] + in[1] + in[2] + in[3]};
  };
  auto compiled = compile(f, {.fullgraph = true, .confirm = 0});
  for (const std::vector<int64_t>& offsets : std::vector<std::vector<int64_t>>{{0, 5, 10, 12},
                                                                               {0, 2, 10, 12},
                                                                               {0, 2, 4, 6},
                                                                               {0, 5, 10, 12},
                                                                               {0, 2, 10, 12},
                                                                               {0, 2, 4, 6}}) {
    const at::Tensor eager = at::arange(20, at::kFloat), own = eager.clone();
    const auto views = [&](const at::Tensor& base) {
      Tensors made;
      for (int64_t offset : offsets) made.push_back(base.narrow(0, offset, 5));
      return made;
    };
    EXPECT_TRUE(same_values(f(views(eager))[0], compiled(views(own))[0]));
    EXPECT_TRUE(same_values(eager, own));
  }
  expect_hits(compiled, 3);
}

TEST(AotSyntheticBases, test_no_storage_overlap_guards_no_mutation) {
  auto compiled = compile([](const at::Tensor& a, const at::Tensor& b) { return a + b; },
                          {.fullgraph = true, .confirm = 0});
  const at::Tensor base = at::randn({10});
  const auto expect_sum = [&](const at::Tensor& a, const at::Tensor& b) {
    EXPECT_TRUE(same_values(compiled(a, b), a + b));
  };
  expect_sum(base.narrow(0, 0, 5), base.narrow(0, 2, 5));
  expect_sum(base.narrow(0, 0, 5), base.narrow(0, 5, 5));
  expect_sum(at::randn({5}), at::randn({5}));
  expect_hits(compiled);
}

TEST(AotSyntheticBases, test_no_storage_overlap_guards_no_aliasing) {
  auto compiled = compile(
      [](const at::Tensor& a, const at::Tensor& b) {
        a.mul_(2);
        return a + b;
      },
      {.fullgraph = true, .confirm = 0});
  for (int call = 0; call < 3; ++call) compiled(at::randn({5}), at::randn({5}));
  expect_hits(compiled);
}

TEST(AotSyntheticBases, test_inputs_overlapping_with_mutation_stress) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    for (const at::Tensor& tensor : in) tensor.mul_(1.5);
    return {in[0] + in.back()};
  };
  auto compiled = compile(f, {.fullgraph = true, .confirm = 0});
  for (int call = 0; call < 3; ++call) {
    const at::Tensor eager = at::randn({600}), own = eager.clone();
    const auto views = [](const at::Tensor& base) {
      Tensors made;
      for (int64_t i = 0; i < 50; ++i) made.push_back(base.narrow(0, 3 * i, 5));
      for (int64_t i = 0; i < 51; ++i) made.push_back(base.narrow(0, 200 + 5 * i, 5));
      return made;
    };
    EXPECT_TRUE(same_values(f(views(eager))[0], compiled(views(own))[0]));
    EXPECT_TRUE(same_values(eager, own));
  }
  expect_hits(compiled);
}

}  // namespace aot_09_synthetic_bases_test
}  // namespace ahead::conformance
