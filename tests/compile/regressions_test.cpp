#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "support/compiled_check.h"
#include "support/like_eager.h"

/// Programs that were compiled wrongly once, found by the fuzzer and made small.
namespace ahead {
namespace {

using Tensors = std::vector<at::Tensor>;

at::Tensor leaf(at::IntArrayRef sizes) {
  return at::randn(sizes).set_requires_grad(true);
}

TEST(CompileRegressions, ResultThatWasWrittenToAndIsSaved) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        at::Tensor y = in[0] * in[0];
        return {at::elu_(y)};
      },
      {leaf({3})});
}

TEST(CompileRegressions, ViewsOfATensorThatWasWrittenTo) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        const at::Tensor y = (in[0] * 2).tanh_();
        return {y.view(-1), y.select(0, 1)};
      },
      {leaf({2, 3})});
}

TEST(CompileRegressions, NewLeafThatSharesMemoryWithAnInput) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        return {in[0], in[0].detach().requires_grad_()};
      },
      {at::randn({3})});
}

TEST(CompileRegressions, ResultOfALeafMadeInsideBesideAnUnusedInputWithGradient) {
  auto compiled = compile(aot::FlatFunction([](const Tensors& in) -> Tensors {
                            return {in[1].detach().requires_grad_().sqrt()};
                          }),
                          {.fullgraph = true});
  EXPECT_THROW(compiled(Tensors{leaf({3}), at::rand({3})}), Unsupported);
}

TEST(CompileRegressions, GradientOfZerosOfOneOfTwoResults) {
  const auto f = [](const Tensors& in) -> Tensors { return {at::floor(in[0]), at::mish(in[0])}; };
  auto compiled = compile(aot::FlatFunction(f), {.fullgraph = true});
  const at::Tensor x = leaf({3});
  compiled(Tensors{x})[0].sum().backward();
  ASSERT_TRUE(x.grad().defined());
  EXPECT_TRUE(at::equal(x.grad(), at::zeros({3})));
}

TEST(CompileRegressions, GradientOfZerosBesideOneThatDoesNotComeIn) {
  const auto f = [](const Tensors& in) -> Tensors {
    const at::Tensor y = at::fmod(in[0], 2);
    in[1].eq_(in[0]);
    return {y};
  };
  auto compiled = compile(aot::FlatFunction(f), {.fullgraph = true});
  const at::Tensor x = leaf({3}), written = at::randn({3});
  compiled(Tensors{x, written});
  written.sum().backward();
  ASSERT_TRUE(x.grad().defined());
  EXPECT_TRUE(at::equal(x.grad(), at::zeros({3})));
}

TEST(CompileRegressions, CapturedTensorThatIsOnlyReturned) {
  const at::Tensor captured = at::randn({2});
  expect_compiled_like_eager(
      [captured](const Tensors& in) -> Tensors {
        return {in[0] * 2, captured};
      },
      {leaf({3})}, {.write_to_outputs = false});
}

TEST(CompileRegressions, GradientThatDoesNotDependOnWhatComesIn) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        const at::Tensor y = in[1] * 1;
        y.eq_(in[1]);
        return {in[0] * 2, y};
      },
      {leaf({3}), leaf({3})});
}

TEST(CompileRegressions, ViewOfAViewThatWasMadeWithoutGradMode) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        at::Tensor y;
        {
          at::NoGradGuard no_grad;
          y = in[0].t();
        }
        return {y.narrow(0, 0, 1)};
      },
      {leaf({2, 2})});
}

TEST(CompileRegressions, ViewThatWasMadeWithoutGradientOfSomethingNew) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        const at::Tensor y = in[0] * 2;
        at::NoGradGuard no_grad;
        return {y.squeeze(0)};
      },
      {leaf({1, 2})});
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        at::Tensor y = in[0] * 2;
        {
          at::NoGradGuard no_grad;
          y = y.slice(0, 0, 1);
        }
        return {y.select(0, 0)};
      },
      {leaf({2, 2})});
}

TEST(CompileRegressions, ViewThatWasMadeWithoutGradientOfAWrittenArgument) {
  const auto f = [](const Tensors& in) -> Tensors {
    in[1].logical_and_(in[1]);
    at::Tensor y;
    {
      at::NoGradGuard no_grad;
      y = in[1].slice(0, 0, 1);
    }
    return {y.select(0, 0)};
  };
  expect_compiled_like_eager(f, [] {
    const at::Tensor x = at::randn({2, 2}).requires_grad_();
    return CallInputs{{x, x.view({2, 2})}, {x}};
  });
}

TEST(CompileRegressions, WriteWithoutGradModeToAViewOfALeaf) {
  const auto f = [](const Tensors& in) -> Tensors {
    at::NoGradGuard no_grad;
    in[0].mul_(2);
    return {};
  };
  expect_compiled_like_eager(f, [] {
    const at::Tensor x = at::randn({3}).requires_grad_();
    return CallInputs{{x.view({3})}, {x}};
  });
}

TEST(CompileRegressions, ShapeThatChangesAfterAWriteBehindAnOffset) {
  const auto f = [](const Tensors& in) -> Tensors {
    in[0].relu_();
    in[0].squeeze_(0);
    return {};
  };
  expect_compiled_like_eager(f, [] { return CallInputs{{at::randn({4}).narrow(0, 2, 1)}, {}}; });
}

TEST(CompileRegressions, ShapeThatChangesBesideAsStrided) {
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
                          {.fullgraph = true});
  EXPECT_THROW(compiled(Tensors{at::randn({2, 2})}), Unsupported);
}

TEST(CompileRegressions, InnerGradientByWhatAnotherArgumentWasMadeFrom) {
  const auto f = [](const Tensors& in) -> Tensors {
    return torch::autograd::grad({(in[0] * in[1]).sum()}, {in[0]}, {}, true, true);
  };
  const at::Tensor x = leaf({3});
  auto compiled = compile(aot::FlatFunction(f), {.fullgraph = true});
  EXPECT_THROW(compiled(Tensors{x, x.view({3})}), Unsupported);
  const at::Tensor y = x * 2;
  EXPECT_THROW(compiled(Tensors{y, y.view({3})}), Unsupported);
  const Tensors parts = (x * 2).split(1);
  EXPECT_NO_THROW(compiled(Tensors{parts[0], parts[1] * 2}));
}

TEST(CompileRegressions, HookThatReadsAnArgumentWrittenToBeforeTheBackward) {
  const auto f = [](const Tensors& in) -> Tensors {
    const at::Tensor y = in[0] * 1;
    y.register_hook(
        [x = in[1].detach()](const at::Tensor& gradient) { return gradient + x.sum(); });
    return {y};
  };
  for (const Partitioner partitioner : {Partitioner::Default, Partitioner::MinCut}) {
    Options options{.fullgraph = true};
    options.partitioner = partitioner;
    auto compiled = compile(aot::FlatFunction(f), options);
    const at::Tensor x = leaf({3}), read = at::randn({2});
    const at::Tensor y = compiled(Tensors{x, read})[0];
    y.sum().backward({}, /*retain_graph=*/true);
    EXPECT_TRUE(at::equal(x.grad(), at::ones({3}) + read.sum()));
    read.mul_(2);
    EXPECT_THROW(y.sum().backward(), c10::Error);
  }
}

TEST(CompileRegressions, ProductsWithZerosWhoseStridesNoElementFollows) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    const at::Tensor product = in[0] * at::zeros_like(in[0]);
    in[0].mul_(at::zeros_like(in[0]));
    return {product};
  };
  expect_compiled_like_eager(f, {at::randn({0, 1})});
  expect_compiled_like_eager(f, {at::empty_strided({2, 1, 2}, {1, 8, 2}).fill_(3)});
}

TEST(CompileRegressions, GradientsThatLieOtherwiseWhereOneOutputIsDifferentiated) {
  // Both read the memory of the gradient, which lies by columns if it stems from one output only.
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        const at::Tensor y = at::group_norm(in[0], 2, in[1], in[2]);
        return {y, in[3] * y.transpose(1, 2)};
      },
      {leaf({2, 4, 3}), leaf({4}), leaf({4}), at::randn({2, 3, 4})});
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        const at::Tensor y = at::_weight_norm(in[0], in[1], 0);
        return {y, in[2] * y.t()};
      },
      {leaf({4, 3}), leaf({4, 1}), at::randn({3, 4})});
}

/// Makes tensors of another shape where memory was freed just now.
void take_freed_memory(const at::Tensor& like) {
  const at::Tensor other = like.new_ones({7, 7, 7});
  const at::Tensor another = other * 2;
}

TEST(CompileRegressions, SizesThatAreReferredToAfterAWrite) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        const at::Tensor y = in[0] * 1;
        const at::IntArrayRef sizes = y.sizes();
        y.add_(1);
        take_freed_memory(y);
        return {y.view(sizes) * 2};
      },
      {at::randn({2, 3, 4})});
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        const at::Tensor y = in[0] * 1, view = y.view({6, 4});
        const at::IntArrayRef sizes = y.sizes(), sizes_of_view = view.sizes();
        y[0].add_(1);
        take_freed_memory(y);
        take_freed_memory(view);
        return {y * at::ones(sizes), view * at::ones(sizes_of_view)};
      },
      {at::randn({2, 3, 4})});
  // LibTorch's own gradients do so, too.
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors { return {at::fft_irfft(at::fft_rfft(in[0]))}; },
      {leaf({2, 3, 4})});
}

TEST(CompileRegressions, ViewOfALeafThatIsMadeInside) {
  const auto f = [](const Tensors& in) -> Tensors {
    return {in[0] * 2, in[1].detach().requires_grad_().view(-1)};
  };
  auto compiled = compile(aot::FlatFunction(f), {.fullgraph = true});
  EXPECT_THROW(compiled(Tensors{leaf({3}), at::randn({2})}), Unsupported);
}

TEST(CompileRegressions, OneTensorTwiceBesideOthersThatShareMemory) {
  const auto f = [](const Tensors& in) -> Tensors {
    in[1].unsqueeze_(0);
    in[3].add_(1);
    return {in[0].permute({2, 1, 0}) * 2};
  };
  expect_compiled_like_eager(f, [] {
    const at::Tensor x = at::randn({2, 3}), y = at::randn({2});
    return CallInputs{{x, x, y, y.detach()}, {}};
  });
}

TEST(CompileRegressions, ViewsOfADetachedTensorAfterAWrite) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        in[0].mul_(2);
        const at::Tensor y = in[0].detach();
        return {y, y.unbind(0)[1]};
      },
      {at::randn({3, 2})});
}

TEST(CompileRegressions, GradientsThatComeInExpanded) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        return {at::batch_norm(in[0], in[1], {}, {}, {}, /*training=*/true, 0.1, 1e-5, false),
                at::linear(in[0].flatten(1), in[2]).t()};
      },
      {leaf({4, 3, 5}), leaf({3}), leaf({7, 15})});
}

TEST(CompileRegressions, GradientOfAnotherLayoutWhereNumbersAreAdded) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        return {at::addcdiv(in[1], in[1], at::square(in[0]) + 1, 2)};
      },
      {at::randn({1, 4, 4}).permute({2, 1, 0}), leaf({})});
}

TEST(CompileRegressions, TransposedGradientThatIsReachedByWhereItLies) {
  const auto f = [](const Tensors& in) -> Tensors {
    return {in[0].as_strided({3, 2}, {2, 1}) * 1};
  };
  auto compiled = compile(aot::FlatFunction(f), {.fullgraph = true});
  const at::Tensor x = leaf({2, 3}), gradient = at::randn({2, 3}).t();
  compiled(Tensors{x})[0].backward(gradient);
  EXPECT_TRUE(at::equal(x.grad(), gradient.reshape({2, 3})));
}

TEST(CompileRegressions, ExpandedGradientsForKernelsThatReadTheirMemory) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        return {at::group_norm(in[0], 2, in[1]), at::group_norm(in[2], 2, in[1]),
                at::_weight_norm(in[3], in[4], 0)};
      },
      {leaf({2, 4, 3}), leaf({4}),
       at::randn({2, 4, 3, 3}).to(at::MemoryFormat::ChannelsLast).requires_grad_(), leaf({4, 3}),
       leaf({4, 1})});
}

TEST(CompileRegressions, HookInAFunctionWithSeveralResults) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        const at::Tensor y = in[0] * 2;
        y.register_hook([](const at::Tensor& gradient) { return gradient * gradient + 1; });
        return {y.sin(), in[1] * 3};
      },
      {leaf({3}), leaf({3})});
}

TEST(CompileRegressions, GradientByAnArgumentThatIsCapturedAsWellAndWasWrittenTo) {
  const auto run = [](bool is_compiled) {
    torch::manual_seed(0);
    const at::Tensor x = leaf({3}) * 1;
    const aot::FlatFunction function = [x](const Tensors& in) -> Tensors {
      const at::Tensor written = in[0];
      written.add_(x, 3);
      return {torch::autograd::grad({written.sum()}, {x})[0]};
    };
    return is_compiled ? compile(function, {.fullgraph = true})(Tensors{x})[0] : function({x})[0];
  };
  EXPECT_EQ(tensor_difference(run(false), run(true)), "");
}

TEST(CompileRegressions, MaxPool1dIsContiguousWhereNoGradientIsAskedFor) {
  const auto pool = [](const Tensors& in) -> Tensors { return {at::max_pool1d(in[0], 2, 1)}; };
  expect_compiled_like_eager(pool, {at::randn({2, 4, 5}).transpose(1, 2)});
  expect_compiled_like_eager(pool, {leaf({2, 4, 5}).transpose(1, 2)});
}

TEST(CompileRegressions, CapturedTensorThatChangesItsShapeInEveryCallAndIsSaved) {
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
    auto compiled =
        compile(aot::FlatFunction(f(captured)), {.fullgraph = true, .partitioner = partitioner});
    Tensors expected, actual;
    for (int call = 0; call < 3; ++call) {
      expected.push_back(eager({x})[0]);
      actual.push_back(compiled(Tensors{x})[0]);
    }
    EXPECT_EQ(captured._version(), twin._version());
    for (int call = 0; call < 3; ++call) {
      const at::Tensor gradient = torch::autograd::grad({actual[call].sum()}, {x})[0];
      EXPECT_TRUE(at::equal(gradient, torch::autograd::grad({expected[call].sum()}, {x})[0]));
    }
  }
}

TEST(CompileRegressions, ViewOfATensorThatWasWrittenToHasTheGradientOfItsPlace) {
  const auto f = [](const Tensors& in) -> Tensors {
    const at::Tensor y = at::batch_norm(in[0], in[1], in[2], {}, {}, true, 0.1, 1e-5, false);
    const at::Tensor view = y.view({1, 5, 1});
    y.index_put_({at::zeros({1}, at::kLong)}, in[3], /*accumulate=*/true);
    return {view};
  };
  expect_compiled_like_eager(f, {at::randn({5, 1}), leaf({1}), at::randn({}), at::randn({})});
  auto compiled = compile(aot::FlatFunction(f), {.fullgraph = true});
  const at::Tensor view =
      compiled(Tensors{at::randn({5, 1}), leaf({1}), at::randn({}), at::randn({})})[0];
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
  auto compiled = compile(aot::FlatFunction(f));
  const CallInputs inputs = make_inputs();
  const at::Tensor twin = inputs.passed[0].clone();
  EXPECT_TRUE(at::equal(compiled(inputs.passed)[0], twin.squeeze() * inputs.passed[1]));
  EXPECT_EQ(compiled.stats().eager_calls, 1u);
  EXPECT_THROW(compile(aot::FlatFunction(f), {.fullgraph = true})(make_inputs().passed),
               Unsupported);
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
  auto compiled = compile(aot::FlatFunction(f));
  EXPECT_TRUE(at::equal(compiled(arguments)[0], at::ones({2})));
  EXPECT_EQ(compiled.stats().eager_calls, 1u);
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
  auto compiled = compile(aot::FlatFunction(f), {.fullgraph = true});
  EXPECT_THROW(compiled(Tensors{x, bound}), Unsupported);
  const auto overwritten = [](const Tensors& in) -> Tensors {
    const at::Tensor result = at::clamp(in[0], in[0], in[0]);
    at::NoGradGuard no_grad;
    in[0].mul_(2);
    return {result};
  };
  auto written = compile(aot::FlatFunction(overwritten), {.fullgraph = true});
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

}  // namespace
}  // namespace ahead
