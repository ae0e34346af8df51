#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "support/compiled_check.h"
#include "support/hits.h"

/// Functions that change the shape of tensors in place: t_, transpose_, squeeze_, unsqueeze_.
namespace ahead {
namespace shape_changes_test {

using Tensors = std::vector<at::Tensor>;

TEST(ShapeChanges, WhatIsSavedAfterAViewChangedItsShape) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        in[0].narrow(0, 0, 1).unsqueeze_(-1);
        return {at::prelu(in[0], in[1])};
      },
      {at::randn({2, 3}), leaf({1})});
}

TEST(ShapeChanges, WhatIsComputedAgainFromATensorWhoseViewChangedItsShape) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        const at::Tensor view = in[0].view({1, 3});
        const at::Tensor result = (in[0] + 1) * in[1];
        view.transpose_(0, 1);
        return {result};
      },
      {at::randn({3}), leaf({3})});
}

void expect_second_derivative_like_eager(const aot::FlatFunction& function) {
  auto compiled = compiled_by_call(function, {.fullgraph = true}, Tensors{leaf({2, 3}).sin()});
  const at::Tensor input = leaf({2, 3});
  const auto gradients = [&](const aot::FlatFunction& called) -> Tensors {
    const at::Tensor loss = called({input.sin()})[0].square().sum();
    const at::Tensor first =
        torch::autograd::grad({loss}, {input}, {}, true, /*create_graph=*/true)[0];
    return {first, torch::autograd::grad({first.square().sum()}, {input})[0]};
  };
  const Tensors expected = gradients(function);
  const Tensors actual = gradients([&](const Tensors& in) { return compiled(in); });
  EXPECT_TRUE(at::equal(expected[0], actual[0]));
  EXPECT_TRUE(at::allclose(expected[1], actual[1]));
  expect_hits(compiled);
}

TEST(ShapeChanges, SecondDerivativeByAnInputThatChangesItsShape) {
  expect_second_derivative_like_eager([](const Tensors& in) -> Tensors {
    in[0].t_();
    return {at::mm(in[0], in[0].t())};
  });
  expect_second_derivative_like_eager([](const Tensors& in) -> Tensors {
    in[0].t_();
    return {in[0].amin({0}, true)};
  });
}

TEST(ShapeChanges, CapturedTensorTellsItsNewSizes) {
  const auto make = [] {
    const at::Tensor captured = at::arange(6.0).view({2, 1, 3});
    return aot::FlatFunction([captured](const Tensors& in) -> Tensors {
      captured.squeeze_();
      captured.t_();
      return {in[0] * captured.size(0) + captured.stride(1), captured.clone()};
    });
  };
  const aot::FlatFunction eager = make();
  auto compiled = compile(make(), {.fullgraph = true, .confirm = 0});
  for (int call = 0; call < 7; ++call) {
    const Tensors input = {at::randn({2})};
    const Tensors expected = eager(input), actual = compiled(input);
    EXPECT_TRUE(at::equal(expected[0], actual[0])) << call;
    EXPECT_TRUE(at::equal(expected[1], actual[1])) << call;
  }
  expect_hits(compiled, 3);
}

TEST(ShapeChanges, CapturedTensorHasEagersShapeWhereTheFunctionCannotBeCompiled) {
  const at::Tensor captured = at::ones({2, 1, 3});
  const int64_t version = captured._version();
  auto compiled = compile(aot::FlatFunction([captured](const Tensors& in) -> Tensors {
                            captured.squeeze_();
                            return {in[0].to_sparse().to_dense() * captured.size(1)};
                          }),
                          {.fullgraph = true, .confirm = 0});
  EXPECT_THROW(compiled(Tensors{at::randn({2})}), Unsupported);
  EXPECT_EQ(captured.sizes(), (at::IntArrayRef{2, 3}));
  EXPECT_EQ(captured._version(), version + 1);
}

TEST(ShapeChanges, ViewOfATensorThatChangesItsShapeAfterwards) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        const at::Tensor made = at::outer(in[0], in[0]);
        const at::Tensor before = made.narrow(1, 1, 2);
        made.t_();
        return {before, made.narrow(1, 1, 2)};
      },
      {leaf({3})});
}

TEST(ShapeChanges, ViewWithoutGradModeOfATensorThatChangedItsShape) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        const at::Tensor made = at::outer(in[0], in[0]);
        made.t_();
        at::NoGradGuard no_grad;
        return {made.transpose(1, 1)};
      },
      {leaf({3})});
}

TEST(ShapeChanges, ViewOfAnInputThatChangesItsShapeAfterwards) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        const at::Tensor before = in[0].narrow(0, 1, 1), detached = in[0].detach().select(1, 2);
        in[0].t_();
        return {before, detached};
      },
      {at::randn({3, 4}).narrow(0, 1, 2)});
}

TEST(ShapeChanges, ViewBesideWhatIsLeftOfATensorIsRefused) {
  auto compiled = compile(aot::FlatFunction([](const Tensors& in) -> Tensors {
                            const at::Tensor made = in[0] * 2;
                            const at::Tensor before = made.narrow(0, 3, 2);
                            made.as_strided_({2}, {1}, 0);
                            return {made, before};
                          }),
                          {.fullgraph = true, .confirm = 0});
  try {
    compiled(Tensors{at::randn({5})});
    FAIL() << "nothing is thrown";
  } catch (const Unsupported& error) {
    EXPECT_NE(error.msg().find("the caller cannot repeat"), std::string::npos) << error.msg();
  }
}

TEST(ShapeChanges, ViewThatIsWhatAnInputBecomesLater) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        const at::Tensor before = in[0].t();
        in[0].t_();
        return {before};
      },
      {at::randn({2, 3})});
}

TEST(ShapeChanges, WithAndWithoutGradModeIsRefused) {
  auto compiled = compile(aot::FlatFunction([](const Tensors& in) -> Tensors {
                            {
                              at::NoGradGuard no_grad;
                              in[0].squeeze_();
                            }
                            in[0].unsqueeze_(-1);
                            return {};
                          }),
                          {.fullgraph = true, .confirm = 0});
  EXPECT_THROW(compiled(Tensors{leaf({1}) * 1}), Unsupported);
  // Of a square, which has the same sizes afterwards.
  auto square = compile(aot::FlatFunction([](const Tensors& in) -> Tensors {
                          in[0].squeeze_(-1);
                          at::NoGradGuard no_grad;
                          in[0].transpose_(1, 0);
                          return {};
                        }),
                        {.fullgraph = true, .confirm = 0});
  EXPECT_THROW(square(Tensors{leaf({2, 2}) * 1}), Unsupported);
}

TEST(ShapeChanges, ViewOfAnExpandedLeafWhoseAliasChangesItsShapeIsRefused) {
  auto compiled = compile(aot::FlatFunction([](const Tensors& in) -> Tensors {
                            const at::Tensor view = in[0][0];
                            in[0].detach().squeeze_();
                            return {view};
                          }),
                          {.fullgraph = true, .confirm = 0});
  const at::Tensor expanded = at::randn({1}).expand({2}).detach().set_requires_grad(true);
  EXPECT_THROW(compiled(Tensors{expanded}), Unsupported);

  auto by_argument = compile(aot::FlatFunction([](const Tensors& in) -> Tensors {
                               const at::Tensor view = in[0].squeeze();
                               in[1].t_();
                               return {view};
                             }),
                             {.fullgraph = true, .confirm = 0});
  EXPECT_THROW(by_argument(Tensors{expanded, expanded.detach()}), Unsupported);
}

TEST(ShapeChanges, NobodyWritesToOneOfSeveralViewsOfWhatChangedItsShape) {
  const aot::FlatFunction parts = [](const Tensors& in) -> Tensors {
    const at::Tensor view = in[0].view_as(in[0]);
    in[0].squeeze_();
    return {view.split(3)[0]};
  };
  expect_compiled_like_eager(parts, {leaf({4})}, {.non_leaf_inputs = true});
  auto compiled = compiled_by_call(parts, {.fullgraph = true}, Tensors{leaf({4}) * 1});
  const at::Tensor part = compiled(Tensors{leaf({4}) * 1})[0];
  expect_hits(compiled);
  EXPECT_THROW(part.mul_(2), c10::Error);
  EXPECT_NO_THROW(part.detach().mul_(2));

  auto whole = compiled_by_call(aot::FlatFunction([](const Tensors& in) -> Tensors {
                                  const at::Tensor view = in[0].view_as(in[0]);
                                  in[0].squeeze_();
                                  return {view.narrow(0, 0, 3)};
                                }),
                                {.fullgraph = true}, Tensors{leaf({4}) * 1});
  EXPECT_NO_THROW(whole(Tensors{leaf({4}) * 1})[0].mul_(2));
  expect_hits(whole);
}

TEST(ShapeChanges, OfAnArgumentOfWhichAnotherIsAViewIsRefused) {
  auto compiled = compile(aot::FlatFunction([](const Tensors& in) -> Tensors {
                            in[1].mul_(2);
                            in[0].t_();
                            return {};
                          }),
                          {.fullgraph = true, .confirm = 0});
  const at::Tensor whole = leaf({1, 2}) * 1;
  EXPECT_THROW(compiled(Tensors{whole, whole.view({2})}), Unsupported);
  EXPECT_THROW(compiled(Tensors{whole, whole.detach()}), Unsupported);
}

TEST(ShapeChanges, SumOfAProductAndWhatDoesNotFitItThrows) {
  auto compiled = compile(aot::FlatFunction([](const Tensors& in) -> Tensors {
                            at::addmm(in[1], in[0], in[0]);
                            return {in[0] * 2};
                          }),
                          {.fullgraph = true, .confirm = 0});
  EXPECT_THROW(compiled(Tensors{at::randn({2, 2}), at::randn({1, 2, 2})}), c10::Error);
}

TEST(ShapeChanges, AfterAWriteBehindAnOffset) {
  const auto f = [](const Tensors& in) -> Tensors {
    in[0].relu_();
    in[0].squeeze_(0);
    return {};
  };
  expect_compiled_like_eager(f, [] { return CallInputs{{at::randn({4}).narrow(0, 2, 1)}, {}}; });
}

TEST(ShapeChanges, BesideAsStrided) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        const at::Tensor y = in[0].as_strided({2}, {1});
        in[0].t_();
        return {y * 2, in[0].as_strided({2}, {1}) * 3};
      },
      {at::randn({2, 2})});
  auto compiled = compile(aot::FlatFunction([](const Tensors& in) -> Tensors {
                            in[0].relu_();
                            in[0].t_();
                            return {in[0].as_strided({2}, {1}) * 2};
                          }),
                          {.fullgraph = true, .confirm = 0});
  EXPECT_THROW(compiled(Tensors{at::randn({2, 2})}), Unsupported);
}

TEST(ShapeChanges, CapturedTensorThatChangesItsShapeInEveryCallAndIsSaved) {
  const auto f = [](const at::Tensor& captured) {
    return [captured](const Tensors& in) -> Tensors {
      captured.squeeze_();
      return {in[0] * captured.remainder(3).to(at::kFloat)};
    };
  };
  const at::Tensor numbers = at::arange(4).view({4, 1});
  for (const Partitioner partitioner : {Partitioner::Default, Partitioner::MinCut}) {
    const at::Tensor x = leaf({4}), captured = numbers.clone(), twin = numbers.clone();
    auto eager = f(twin);
    auto compiled = compile(aot::FlatFunction(f(captured)),
                            {.fullgraph = true, .partitioner = partitioner, .confirm = 0});
    Tensors expected, actual;
    for (int call = 0; call < 4; ++call) {
      expected.push_back(eager({x})[0]);
      actual.push_back(compiled(Tensors{x})[0]);
    }
    EXPECT_EQ(captured._version(), twin._version());
    expect_hits(compiled, 2);
    for (int call = 0; call < 4; ++call) {
      const at::Tensor gradient = torch::autograd::grad({actual[call].sum()}, {x})[0];
      EXPECT_TRUE(at::equal(gradient, torch::autograd::grad({expected[call].sum()}, {x})[0]));
    }
  }
}

TEST(ShapeChanges, ExpandedArgumentThatChangesItsShapeAndIsSavedRunsEagerly) {
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

/// Eager makes the history of the view anew, by its strides, which spreads its gradient.
TEST(ShapeChanges, OfWhatSharesMemoryWithAViewOfAnExpandedLeafRunEagerly) {
  const auto f = [](const Tensors& in) -> Tensors {
    in[1].unsqueeze_(-2);
    return {in[0] * 2};
  };
  const auto make_inputs = [] {
    const at::Tensor x = at::randn({1}).expand({2}).variable_data().requires_grad_();
    return CallInputs{{x.narrow(0, 1, 1), x.detach().narrow(0, 0, 1)}, {x}};
  };
  auto compiled = compile(aot::FlatFunction(f), {.confirm = 0});
  for (int call = 0; call < 4; ++call) {
    const CallInputs inputs = make_inputs(), twins = make_inputs();
    const auto gradient = [](const Tensors& results, const CallInputs& of) {
      return torch::autograd::grad({results[0].sum()}, {of.leaves[0]})[0];
    };
    EXPECT_TRUE(
        at::equal(gradient(compiled(inputs.passed), inputs), gradient(f(twins.passed), twins)));
  }
  expect_runs_eagerly(compiled);
  auto whole = compile(aot::FlatFunction(f), {.fullgraph = true, .confirm = 0});
  EXPECT_THROW(whole(make_inputs().passed), Unsupported);
}

}  // namespace shape_changes_test
}  // namespace ahead
