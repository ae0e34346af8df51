#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "support/compiled_check.h"
#include "support/eager.h"
#include "support/hits.h"

/// Programs that were compiled wrongly once, found by the fuzzer and made small.
namespace ahead {
namespace {

using Tensors = std::vector<at::Tensor>;

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
                          {.fullgraph = true, .confirm = 0});
  EXPECT_THROW(compiled(Tensors{leaf({3}), at::rand({3})}), Unsupported);
}

TEST(CompileRegressions, GradientOfZerosOfOneOfTwoResults) {
  const auto f = [](const Tensors& in) -> Tensors { return {at::floor(in[0]), at::mish(in[0])}; };
  auto compiled = compiled_by_call(aot::FlatFunction(f), {.fullgraph = true}, Tensors{leaf({3})});
  const at::Tensor x = leaf({3});
  compiled(Tensors{x})[0].sum().backward();
  expect_hits(compiled);
  ASSERT_TRUE(x.grad().defined());
  EXPECT_TRUE(at::equal(x.grad(), at::zeros({3})));
}

TEST(CompileRegressions, GradientOfZerosBesideOneThatDoesNotComeIn) {
  const auto f = [](const Tensors& in) -> Tensors {
    const at::Tensor y = at::fmod(in[0], 2);
    in[1].eq_(in[0]);
    return {y};
  };
  auto compiled = compiled_by_call(aot::FlatFunction(f), {.fullgraph = true},
                                   Tensors{leaf({3}), at::randn({3})});
  const at::Tensor x = leaf({3}), written = at::randn({3});
  compiled(Tensors{x, written});
  expect_hits(compiled);
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
                          {.fullgraph = true, .confirm = 0});
  EXPECT_THROW(compiled(Tensors{at::randn({2, 2})}), Unsupported);
}

TEST(CompileRegressions, InnerGradientByWhatAnotherArgumentWasMadeFrom) {
  const auto f = [](const Tensors& in) -> Tensors {
    return torch::autograd::grad({(in[0] * in[1]).sum()}, {in[0]}, {}, true, true);
  };
  const at::Tensor x = leaf({3}), y = x * 2;
  const Tensors parts = (x * 2).split(1);
  for (const Tensors& arguments :
       {Tensors{x, x.view({3})}, Tensors{y, y.view({3})}, Tensors{parts[0], parts[1] * 2}}) {
    auto whole = compile(aot::FlatFunction(f), {.fullgraph = true, .confirm = 0});
    EXPECT_THROW(whole(arguments), Unsupported);
    auto compiled = compile(aot::FlatFunction(f), {.confirm = 0});
    for (int call = 0; call < 3; ++call) expect_same(f(arguments), compiled(arguments));
    expect_runs_eagerly(compiled);
  }
  auto compiled = compile(aot::FlatFunction(f), {.fullgraph = true, .confirm = 0});
  for (int call = 0; call < 3; ++call) {
    const Tensors arguments{leaf({3}), leaf({3})};
    expect_same(f(arguments), compiled(arguments));
  }
  expect_hits(compiled);
}

TEST(CompileRegressions, HookThatReadsAnArgumentWrittenToBeforeTheBackward) {
  const auto f = [](const Tensors& in) -> Tensors {
    const at::Tensor y = in[0] * 1;
    y.register_hook(
        [x = in[1].detach()](const at::Tensor& gradient) { return gradient + x.sum(); });
    return {y};
  };
  auto compiled = compile(aot::FlatFunction(f), {.confirm = 0});
  for (int call = 0; call < 5; ++call) {
    const at::Tensor x = leaf({3}), read = at::randn({2});
    const at::Tensor y = compiled(Tensors{x, read})[0];
    for (int backward = 0; backward < 2; ++backward) {
      const at::Tensor gradient =
          torch::autograd::grad({y.sum()}, {x}, {}, /*retain_graph=*/true)[0];
      EXPECT_TRUE(at::equal(gradient, at::ones({3}) + read.sum()));
      read.mul_(2);
    }
  }
  expect_hits(compiled);
}

TEST(CompileRegressions, ViewsOfAnExpandedArgumentBesideWrites) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    const at::Tensor y = in[1] * 3 + in[0].transpose(-1, 1) + in[3];
    in[2].fill_(0);
    return {y};
  };
  auto compiled = compile(f, {.confirm = 0});
  const at::Tensor tangent = at::randn({2, 2, 1});
  const auto gradient = [&](auto& function) {
    const at::Tensor x = at::ones({1, 1, 2}).expand({2, 1, 2}).detach().requires_grad_();
    const at::Tensor written = at::ones({}, at::kLong);
    const Tensors results = function(Tensors{x, x.transpose(-1, 1), written, written.detach()});
    (results[0] * tangent).sum().backward();
    return x.grad();
  };
  for (int call = 0; call < 3; ++call)
    EXPECT_TRUE(at::equal(gradient(f), gradient(compiled))) << call;
  expect_runs_eagerly(compiled);
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
  auto compiled = compile(aot::FlatFunction(f), {.fullgraph = true, .confirm = 0});
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
  auto compiled =
      compiled_by_call(aot::FlatFunction(f), {.fullgraph = true}, Tensors{leaf({2, 3})});
  const at::Tensor x = leaf({2, 3}), gradient = at::randn({2, 3}).t();
  compiled(Tensors{x})[0].backward(gradient);
  expect_hits(compiled);
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
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    const at::Tensor y = in[0] * 2;
    y.register_hook([](const at::Tensor& gradient) { return gradient * gradient + 1; });
    return {y.sin(), in[1] * 3};
  };
  auto compiled = compile(f, {.confirm = 0});
  for (int call = 0; call < 3; ++call) {
    const Tensors arguments{leaf({3}), leaf({3})};
    const Tensors expected = f(arguments), actual = compiled(arguments);
    expect_same(expected, actual);
    for (size_t i = 0; i < 2; ++i)
      expect_same(torch::autograd::grad({expected[i].sum()}, {arguments[i]}),
                  torch::autograd::grad({actual[i].sum()}, {arguments[i]}));
  }
  expect_hits(compiled);
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
    auto compiled = compile(function, {.fullgraph = true, .confirm = 0});
    Tensors seen;
    for (int call = 0; call < 3; ++call) {
      seen.push_back((is_compiled ? compiled(Tensors{x}) : function({x}))[0]);
      seen.push_back(x.detach().clone());
    }
    if (is_compiled) expect_hits(compiled);
    return seen;
  };
  expect_same(run(false), run(true));
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

TEST(CompileRegressions, ArgumentWhoseHistoryGrowsWithEveryCallRunsEagerly) {
  const auto f = [](const at::Tensor& written, const at::Tensor& y) {
    written.tanh_();
    return y * y;
  };
  const at::Tensor written = leaf({3}) * 1, y = leaf({3});
  auto compiled = compile(f);
  for (int call = 0; call < 6; ++call) compiled(written, y).sum().backward();
  EXPECT_TRUE(at::allclose(y.grad(), 12 * y.detach()));
  EXPECT_EQ(compiled.stats().cache_hits, 0u);
}

}  // namespace
}  // namespace ahead
