#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "support/compiled_check.h"
#include "support/hits.h"

/// More programs that were compiled wrongly once, most of them for a view, found by the fuzzer and
/// made small.
namespace ahead {
namespace {

using Tensors = std::vector<at::Tensor>;

TEST(CompileRegressions, ViewOfATensorThatWasWrittenToHasTheGradientOfItsPlace) {
  const auto f = [](const Tensors& in) -> Tensors {
    const at::Tensor y = at::batch_norm(in[0], in[1], in[2], {}, {}, true, 0.1, 1e-5, false);
    const at::Tensor view = y.view({1, 5, 1});
    y.index_put_({at::zeros({1}, at::kLong)}, in[3], /*accumulate=*/true);
    return {view};
  };
  expect_compiled_like_eager(f, {at::randn({5, 1}), leaf({1}), at::randn({}), at::randn({})});
  auto compiled =
      compiled_by_call(aot::FlatFunction(f), {.fullgraph = true},
                       Tensors{at::randn({5, 1}), leaf({1}), at::randn({}), at::randn({})});
  const at::Tensor view =
      compiled(Tensors{at::randn({5, 1}), leaf({1}), at::randn({}), at::randn({})})[0];
  expect_hits(compiled);
  EXPECT_EQ(view.grad_fn()->name(), "AsStridedBackward0");
}

TEST(CompileRegressions, ExpandedArgumentThatChangesItsShapeAndIsSavedRunsEagerly) {
  const auto f = [](const Tensors& in) -> Tensors {
    in[0].squeeze_();
    return {in[0] * in[1]};
  };
  const auto make_inputs = [] {
    const at::Tensor x = leaf({2});
    return CallInputs{{at::randn({1, 1, 1}).expand({2, 1, 1}), x}, {x}};
  };
  auto compiled = compile(aot::FlatFunction(f), {.confirm = 0});
  for (int call = 0; call < 3; ++call) {
    const CallInputs inputs = make_inputs();
    const at::Tensor twin = inputs.passed[0].clone();
    EXPECT_TRUE(at::equal(compiled(inputs.passed)[0], twin.squeeze() * inputs.passed[1]));
  }
  expect_runs_eagerly(compiled);
  auto whole = compile(aot::FlatFunction(f), {.fullgraph = true, .confirm = 0});
  EXPECT_THROW(whole(make_inputs().passed), Unsupported);
}

TEST(CompileRegressions, StridedViewOfAViewThatWasWrittenToKeepsItsOwnHistory) {
  const auto f = [](const Tensors& in) -> Tensors {
    in[0].mul_(2);
    return {in[1].as_strided({1}, {2}, 1)};
  };
  const auto make_inputs = [] {
    const at::Tensor x = leaf({2}), view = x.mul(3)[0];
    return CallInputs{{view, view.view({1})}, {x}};
  };
  expect_compiled_like_eager(f, make_inputs);
}

TEST(CompileRegressions, OriginOfADetachedResultIsNoViewOfIt) {
  const auto f = [](const Tensors& in) -> Tensors {
    const at::Tensor origin = at::count_nonzero(in[0], at::IntArrayRef{-1});
    const at::Tensor detached = origin.detach();
    return {detached, detached.narrow(0, 0, 1), origin};
  };
  expect_compiled_like_eager(f, {at::randn({3, 2})});
  const auto with_view_of_origin = [](const Tensors& in) -> Tensors {
    const at::Tensor origin = in[0] * 2, detached = origin.detach();
    return {detached, detached.narrow(0, 0, 1), origin.diagonal()};
  };
  expect_compiled_like_eager(with_view_of_origin, {at::randn({3, 2})});
}

TEST(CompileRegressions, GradientByAnArgumentOfWhichAnotherIsAViewIsRefused) {
  const auto f = [](const Tensors& in) -> Tensors {
    in[2].mul_(3);
    const at::Tensor gradient =
        torch::autograd::grad({in[1].sum()}, {in[0]}, {}, /*retain_graph=*/true,
                              /*create_graph=*/true, /*allow_unused=*/true)[0];
    return {gradient.defined() ? gradient : at::zeros_like(in[0])};
  };
  const at::Tensor x = leaf({4}), view = x.mul(2).narrow(0, 1, 2), memory = at::randn({3});
  const Tensors arguments{view, view.view({2, 1}), memory, memory.narrow(0, 0, 2)};
  auto compiled = compile(aot::FlatFunction(f), {.confirm = 0});
  for (int call = 0; call < 3; ++call)
    EXPECT_TRUE(at::equal(compiled(arguments)[0], at::ones({2})));
  expect_runs_eagerly(compiled);
}

TEST(CompileRegressions, ViewWhoseHistoryEndsAtAViewMadeWithoutGradMode) {
  const auto f = [](const Tensors& in) -> Tensors {
    in[0].mul_(2);
    at::Tensor part;
    {
      at::NoGradGuard no_grad;
      part = in[0].narrow(0, 1, 3);
    }
    return {part.unbind(0)[0], part.view({3, 1}).select(0, 1)};
  };
  expect_compiled_like_eager(f, {leaf({4})}, {.non_leaf_inputs = true});
}

TEST(CompileRegressions, ClampWhoseBackwardThrowsInEagerIsRefused) {
  const auto f = [](const Tensors& in) -> Tensors {
    at::Tensor without_history;
    {
      at::NoGradGuard no_grad;
      without_history = in[1].select(1, -1);
    }
    return {at::clamp(in[0], at::celu(without_history), in[1])};
  };
  const at::Tensor x = at::randn({}), bound = leaf({1, 1});
  EXPECT_THROW(f({x, bound})[0].sum().backward(), c10::Error);
  auto compiled = compile(aot::FlatFunction(f), {.fullgraph = true, .confirm = 0});
  EXPECT_THROW(compiled(Tensors{x, bound}), Unsupported);
  const auto overwritten = [](const Tensors& in) -> Tensors {
    const at::Tensor result = at::clamp(in[0], in[0], in[0]);
    at::NoGradGuard no_grad;
    in[0].mul_(2);
    return {result};
  };
  auto written = compile(aot::FlatFunction(overwritten), {.fullgraph = true, .confirm = 0});
  EXPECT_THROW(written(Tensors{leaf({2})}), Unsupported);
  const auto fitting = [](const Tensors& in) -> Tensors {
    return {at::clamp(in[0], in[1], in[2])};
  };
  expect_compiled_like_eager(fitting, {leaf({2, 2}), leaf({2}), leaf({1, 1})});
}

TEST(CompileRegressions, DetachedStatisticsOfABatchAreTheBaseOfTheirViews) {
  const auto f = [](const Tensors& in) -> Tensors {
    at::batch_norm(in[0], {}, {}, in[1], in[2], true, 0.1, 1e-5, false);
    const at::Tensor detached = in[2].detach();
    return {detached, detached.view({2, 1})};
  };
  expect_compiled_like_eager(f, {at::randn({3, 2}), at::randn({2}), at::rand({2})});
}

TEST(CompileRegressions, DetachedTwiceIsNoViewOfTheFirst) {
  const auto f = [](const Tensors& in) -> Tensors {
    const at::Tensor y = in[0] + in[1];
    const at::Tensor first = y.detach(), second = y.detach();
    return {first, first.reshape({1, 2}), second, second.reshape({1, 2})};
  };
  expect_compiled_like_eager(f, {at::randn({2}), at::randn({2})});
  auto compiled = compiled_by_call(aot::FlatFunction(f), {.fullgraph = true},
                                   Tensors{at::randn({2}), at::randn({2})});
  const Tensors results = compiled(Tensors{at::randn({2}), at::randn({2})});
  expect_hits(compiled);
  EXPECT_FALSE(results[2].is_view());
  EXPECT_TRUE(results[1]._base().is_same(results[0]));
  EXPECT_FALSE(results[3]._base().is_same(results[0]));
  EXPECT_TRUE(results[3].is_alias_of(results[0]));
}

/// LibTorch chooses the product for a gradient by strides.
TEST(CompileRegressions, ExpandedNumberHasNoStride) {
  const auto f = [](const Tensors& in) -> Tensors {
    const at::Tensor row = in[0].expand({1});
    return {row, row * 2, row.matmul(in[1].t())};
  };
  expect_compiled_like_eager(f, {leaf({}), at::randn({2, 1})});
  auto compiled = compiled_by_call(aot::FlatFunction(f), {.fullgraph = true},
                                   Tensors{leaf({}), at::randn({2, 1})});
  const Tensors results = compiled(Tensors{leaf({}), at::randn({2, 1})});
  expect_hits(compiled);
  EXPECT_EQ(results[0].strides(), at::IntArrayRef({0}));
}

}  // namespace
}  // namespace ahead
