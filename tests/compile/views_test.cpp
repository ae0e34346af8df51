#include <gtest/gtest.h>
#include <torch/torch.h>

#include "ahead/ahead.h"
#include "support/compiled_check.h"
#include "support/hits.h"

/// Arguments and results that are views, and what autograd makes of writes to them.
namespace ahead {
namespace views_test {

using Tensors = std::vector<at::Tensor>;

/// One argument: a view of something computed from a leaf.
std::function<CallInputs()> view_of_computed(std::function<at::Tensor(const at::Tensor&)> view,
                                             at::IntArrayRef sizes) {
  return [view = std::move(view), sizes = sizes.vec()] {
    const at::Tensor leaf = at::randn(sizes).set_requires_grad(true);
    return CallInputs{{view(leaf.mul(1))}, {leaf}};
  };
}

TEST(CompileViews, SignsOfZerosBehindAWriteToAViewAreEagers) {
  const auto part = [](const at::Tensor& whole) { return whole.narrow(0, 1, 4); };
  const auto times_zero = [](const Tensors& in) -> Tensors {
    in[0].mul_(-1).mul_(0);
    return {};
  };
  expect_compiled_like_eager(times_zero, view_of_computed(part, {6}));
  const auto one_element = [](const Tensors& in) -> Tensors {
    in[0].sin_();
    return {in[0].select(0, 1)};
  };
  expect_compiled_like_eager(one_element, view_of_computed(part, {6}));
  const auto columns = [](const at::Tensor& whole) { return whole.t().narrow(0, 0, 2); };
  const auto with_reads = [](const Tensors& in) -> Tensors {
    const at::Tensor before = in[0].exp();
    in[0].neg_();
    return {before * in[0]};
  };
  expect_compiled_like_eager(with_reads, view_of_computed(columns, {3, 4}));
}

TEST(CompileViews, StridedViewBeyondAnArgumentThatIsWrittenTo) {
  const auto beyond = [](const Tensors& in) -> Tensors {
    // The backward has a copy of the argument from here.
    const at::Tensor before = in[1] * in[0].sin();
    const at::Tensor behind = in[0].as_strided({2}, {1}, 2);
    in[0].slice(0, 0, 1).zero_();
    return {before + in[1] * behind.cos()};
  };
  const auto first_half = [] {
    const at::Tensor weight = leaf({2});
    return CallInputs{{at::randn({4}).narrow(0, 0, 2), weight}, {weight}};
  };
  expect_compiled_like_eager(beyond, first_half);
}

TEST(CompileViews, StridedViewBeyondAnArgumentIsSavedAsThat) {
  const auto beyond = [](const Tensors& in) -> Tensors {
    return {in[0].as_strided({4}, {1}, 0).square()};
  };
  const auto overlapping = [] {
    const at::Tensor whole = leaf({4});
    return CallInputs{{whole.narrow(0, 0, 3), whole.narrow(0, 1, 2)}, {whole}};
  };
  expect_compiled_like_eager(beyond, overlapping);
  auto compiled =
      compile(aot::FlatFunction(beyond), {.fullgraph = true, .confirm = Confirm::Never});
  for (int call = 0; call < 3; ++call) {
    const at::Tensor whole = leaf({4}), twice = whole * 2;
    const at::Tensor result = compiled(Tensors{twice.narrow(0, 0, 3)})[0];
    twice.detach().zero_();
    EXPECT_THROW(result.sum().backward(), c10::Error);
  }
  EXPECT_EQ(compiled.stats().cache_hits, 2u);
}

/// Eager gives the view the history of the whole, whose second half gets a gradient, too.
TEST(CompileViews, StridedViewBeyondAHalfThatIsWrittenToRunsEagerly) {
  const auto beyond = [](const Tensors& in) -> Tensors {
    const at::Tensor whole = in[0].as_strided({4}, {1}, 0);
    in[0].mul_(2);
    return {whole.square()};
  };
  auto compiled = compile(aot::FlatFunction(beyond), {.confirm = 0});
  for (int call = 0; call < 4; ++call) {
    const at::Tensor leaf = at::randn({4}).requires_grad_();
    const auto gradient = [&](const auto& function) {
      const at::Tensor computed = leaf * 1;
      return torch::autograd::grad({function(Tensors{computed.narrow(0, 0, 2)})[0].sum()},
                                   {leaf})[0];
    };
    EXPECT_TRUE(at::equal(gradient(compiled), gradient(beyond)));
  }
  expect_runs_eagerly(compiled);
  auto whole = compile(aot::FlatFunction(beyond), {.fullgraph = true, .confirm = 0});
  EXPECT_THROW(whole(Tensors{(at::randn({4}).requires_grad_() * 1).narrow(0, 0, 2)}), Unsupported);
}

TEST(CompileViews, StridedViewOfTheGapsOfAnArgumentThatIsWrittenToRunsEagerly) {
  const auto gaps = [](const Tensors& in) -> Tensors {
    const at::Tensor view = in[0].as_strided({2}, {1}, 0);
    in[0].mul_(2);
    return {view.square()};
  };
  auto compiled = compile(aot::FlatFunction(gaps), {.confirm = 0});
  for (int call = 0; call < 4; ++call) {
    const at::Tensor leaf = at::randn({4}).requires_grad_();
    const auto gradient = [&](const auto& function) {
      const Tensors every_second{(leaf * 1).slice(0, 0, 4, 2)};
      return torch::autograd::grad({function(every_second)[0].sum()}, {leaf})[0];
    };
    EXPECT_TRUE(at::equal(gradient(compiled), gradient(gaps)));
  }
  expect_runs_eagerly(compiled);
}

TEST(CompileViews, ViewOfAnIntermediateIsAViewOutsideToo) {
  const auto transposed = [](const Tensors& in) -> Tensors {
    return {at::lerp(in[1], in[0], in[1]).permute({2, 1, 0})};
  };
  expect_compiled_like_eager(transposed, {leaf({}), at::randn({2, 4, 2})});
  const auto product = [](const Tensors& in) -> Tensors {
    return {at::mm(in[0], in[0].narrow(0, 1, 3)).t()};
  };
  expect_compiled_like_eager(product, {leaf({4, 3})});
  auto compiled =
      compiled_by_call(aot::FlatFunction(product), {.fullgraph = true}, Tensors{leaf({4, 3})});
  EXPECT_TRUE(compiled(Tensors{leaf({4, 3})})[0].is_view());
  expect_hits(compiled);
}

TEST(CompileViews, ViewsOfADetachedTensorKeepTheirBaseAfterAWrite) {
  const auto without_grad_mode = [](const Tensors& in) -> Tensors {
    const at::Tensor detached = in[0].detach();
    at::Tensor part;
    {
      at::NoGradGuard no_grad;
      part = detached.narrow(0, 2, 1);
    }
    in[0].tanh_();
    return {detached, part};
  };
  expect_compiled_like_eager(without_grad_mode, {at::randn({3})});
  const auto written_without_grad_mode = [](const Tensors& in) -> Tensors {
    const at::Tensor detached = in[0].detach();
    const at::Tensor part = detached.split(1)[0];
    at::NoGradGuard no_grad;
    part.mul_(2);
    return {detached, part};
  };
  expect_compiled_like_eager(written_without_grad_mode, {at::randn({2})});
}

TEST(CompileViews, ViewsOfACopyThatReshapeMadeKeepTheirBaseAfterAWrite) {
  const auto f = [](const Tensors& in) -> Tensors {
    const at::Tensor copy = in[0].flatten().square_();
    const Tensors parts = copy.split(1);
    return {parts[3], parts[4]};
  };
  expect_compiled_like_eager(f, {at::randn({3, 3}).t()});
}

TEST(CompileViews, DetachedArgumentThatGetsAHistoryKeepsItsMemory) {
  const auto f = [](const Tensors& in) -> Tensors {
    const at::Tensor detached = in[0].detach();
    return {detached.mul_(in[1])};
  };
  expect_compiled_like_eager(f, {at::randn({3}), leaf({})});
}

TEST(CompileViews, DetachedResultsThatGetAHistoryAreRefusedWhereTheyShareMemory) {
  // A graph would return memory of its own, or with a version of its own.
  const std::vector<aot::FlatFunction> functions = {
      [](const Tensors& in) -> Tensors {
        const at::Tensor view = in[0].detach().unsqueeze(1);
        view.mul_(in[1]);
        return {view};
      },
      [](const Tensors& in) -> Tensors {
        const at::Tensor same = in[0].detach();
        same.mul_(in[1]);
        return {same.view({3, 1})};
      },
      [](const Tensors& in) -> Tensors {
        const at::Tensor made = in[0] * 2, same = made.detach();
        same.mul_(in[1]);
        return {made, same};
      },
      [](const Tensors& in) -> Tensors {
        const at::Tensor made = in[0] * 2, first = made.detach(), second = made.detach();
        first.mul_(in[1]);
        return {first, second};
      },
  };
  for (const aot::FlatFunction& function : functions) {
    auto strict = compile(function, {.fullgraph = true, .confirm = 0});
    EXPECT_THROW(strict(Tensors{at::randn({3}), leaf({1})}), Unsupported);
    auto compiled = compile(function, {.confirm = 0});
    for (int call = 0; call < 3; ++call) {
      const Tensors results = compiled(Tensors{at::ones({3}), leaf({1})});
      const at::Tensor before = results.back().detach().clone();
      results.front().detach().mul_(2);
      EXPECT_TRUE(at::equal(results.back().detach(), before * 2)) << "they share memory";
    }
    expect_runs_eagerly(compiled);
  }
}

TEST(CompileViews, ViewOfALeafThatIsMadeInsideAndReturnedIsNoLeaf) {
  const auto f = [](const Tensors& in) -> Tensors {
    const at::Tensor made = in[0].exp().detach().requires_grad_();
    return {made, made.narrow(0, 1, 2)};
  };
  expect_compiled_like_eager(f, {at::randn({3})}, {.write_to_outputs = false});
}

TEST(CompileViews, ResultThatHasNoDerivativeIsRefused) {
  const auto f = [](const Tensors& in) -> Tensors {
    const at::Tensor made = in[0].detach().requires_grad_();
    return {in[0].sin(), at::randint_like(made, 5)};
  };
  auto compiled = compile(aot::FlatFunction(f), {.fullgraph = true, .confirm = 0});
  EXPECT_THROW(compiled(Tensors{leaf({3})}), Unsupported);
}

TEST(CompileViews, ArgumentWhoseVersionCountsWritesToAnotherOneIsSavedAfterThem) {
  const auto f = [](const Tensors& in) -> Tensors {
    in[0].mul_(2);
    return {in[1] * in[2]};
  };
  const auto make_inputs = [] {
    const at::Tensor whole = at::randn({4}), x = leaf({2});
    return CallInputs{{whole.narrow(0, 0, 2), whole.narrow(0, 2, 2), x}, {x}};
  };
  expect_compiled_like_eager(f, make_inputs);
  const auto make_empty = [] {
    const at::Tensor x = leaf({0, 1}), computed = x.mul(1);
    return CallInputs{{computed, computed.view({0, 1}), computed.view({0, 1})}, {x}};
  };
  expect_compiled_like_eager(f, make_empty);
}

TEST(CompileViews, DetachedAliasOfAnArgumentThatHasAGradient) {
  const auto alias_is_written = [](const Tensors& in) -> Tensors {
    in[1].mul_(2);
    return {in[0].sin(), in[1].narrow(0, 0, 1)};
  };
  const auto alias_is_read = [](const Tensors& in) -> Tensors {
    in[0].mul_(2);
    return {in[1] + 1, in[0].sin()};
  };
  const auto alias_comes_first = [&](const Tensors& in) {
    return alias_is_written({in[1], in[0]});
  };
  const auto make_inputs = [](bool alias_first) {
    return [alias_first] {
      const at::Tensor x = leaf({4}), computed = x.mul(1);
      const at::Tensor alias = computed.detach().narrow(0, 0, 2);
      return CallInputs{alias_first ? Tensors{alias, computed} : Tensors{computed, alias}, {x}};
    };
  };
  expect_compiled_like_eager(alias_is_written, make_inputs(false));
  expect_compiled_like_eager(alias_is_read, make_inputs(false));
  expect_compiled_like_eager(alias_comes_first, make_inputs(true));
}

TEST(CompileViews, DetachedAliasOfAnArgumentThatHasNoGradient) {
  const auto f = [](const Tensors& in) -> Tensors {
    in[0].mul_(2);
    in[1].add_(1);
    return {in[0] + 1, in[1].narrow(0, 1, 1)};
  };
  const auto make_inputs = [] {
    const at::Tensor x = at::randn({4});
    return CallInputs{{x, x.detach().narrow(0, 0, 2)}, {}};
  };
  expect_compiled_like_eager(f, make_inputs);
}

TEST(CompileViews, AliasesThatGetAHistoryAutogradCannotFollowAreRefused) {
  const auto f = [](const Tensors& in) -> Tensors {
    in[1].mul_(in[0].narrow(0, 0, 2).exp());
    return {in[0].sin()};
  };
  auto compiled = compile(aot::FlatFunction(f), {.fullgraph = true, .confirm = 0});
  const at::Tensor computed = leaf({4}).mul(1);
  EXPECT_THROW(compiled(Tensors{computed, computed.detach().narrow(0, 0, 2)}), Unsupported);
}

/// The gradient of a sum, taken inside; zeros where there is none.
at::Tensor gradient_of(const at::Tensor& y, const at::Tensor& x) {
  at::AutoGradMode grad_mode(true);
  const at::Tensor gradient =
      torch::autograd::grad({y.sum()}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true,
                            /*allow_unused=*/true)[0];
  return gradient.defined() ? gradient : at::zeros_like(x);
}

TEST(CompileViews, GradientByAnArgumentOfWhichAnotherIsAViewThatWasWrittenTo) {
  const auto f = [](const Tensors& in) -> Tensors {
    in[1].mul_(in[2]);
    return {gradient_of(in[1], in[0])};
  };
  const auto make_inputs = [] {
    const at::Tensor whole = at::randn({4}), x = leaf({3});
    return CallInputs{{whole, whole.narrow(0, 1, 3), x}, {x}};
  };
  expect_compiled_like_eager(f, make_inputs);
}

TEST(CompileViews, BaseThatSharesMemoryIsNoViewWithoutGradMode) {
  const auto f = [](const Tensors& in) -> Tensors {
    at::NoGradGuard no_grad;
    in[0].mul_(2);
    return {gradient_of(in[0], in[2])};
  };
  const auto make_inputs = [] {
    const at::Tensor x = leaf({4}), y = leaf({});
    return CallInputs{{x, x.detach(), y}, {x, y}};
  };
  expect_compiled_like_eager(f, make_inputs);
}

TEST(CompileViews, ArgumentsThatShareMemoryStayTheViewsThatTheyAre) {
  const auto write_with_grad_mode = [](const Tensors& in) -> Tensors {
    at::AutoGradMode grad_mode(true);
    in[0].mul_(2);
    return {in[1] + 1};
  };
  const auto with_views_made = [](bool grad_mode) {
    return [grad_mode] {
      at::AutoGradMode outside(true);
      const at::Tensor x = leaf({4}), computed = x.mul(1);
      at::AutoGradMode inside(grad_mode);
      return CallInputs{{computed.narrow(0, 0, 3), computed.narrow(0, 1, 3)}, {x}};
    };
  };
  at::NoGradGuard no_grad;
  expect_compiled_like_eager(write_with_grad_mode, with_views_made(true));
  auto compiled =
      compile(aot::FlatFunction(write_with_grad_mode), {.fullgraph = true, .confirm = 0});
  EXPECT_THROW(compiled(with_views_made(false)().passed), c10::Error);
}

TEST(CompileViews, ProductIntoALayoutForWhichEagerRoundsOtherwiseIsRefused) {
  const auto f = [](const Tensors& in) -> Tensors {
    in[0].addmm_(in[1], in[2]);
    return {};
  };
  auto compiled = compile(aot::FlatFunction(f), {.fullgraph = true, .confirm = 0});
  const at::Tensor a = at::randn({2, 3}), b = at::randn({3, 2});
  EXPECT_THROW(compiled(Tensors{at::randn({2, 2}).t(), a, b}), Unsupported);
  expect_compiled_like_eager(f, {at::randn({2, 4}).narrow(1, 0, 2), a, b});
}

TEST(CompileViews, GradientOfZerosMeetsOneThatDoesNotComeIn) {
  const auto f = [](const Tensors& in) -> Tensors {
    const Tensors parts = in[0].chunk(2, 1);
    return {at::softplus(parts[0]), at::normal(parts[1], in[0].square())};
  };
  expect_compiled_like_eager(f, {leaf({2, 2})});
}

TEST(CompileViews, ViewsOfATensorThatWasWrittenTo) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        const at::Tensor y = (in[0] * 2).tanh_();
        return {y.view(-1), y.select(0, 1)};
      },
      {leaf({2, 3})});
}

TEST(CompileViews, ViewOfATensorThatWasWrittenToHasTheGradientOfItsPlace) {
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

TEST(CompileViews, StridedViewOfAViewThatWasWrittenToKeepsItsOwnHistory) {
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

TEST(CompileViews, ViewOfAViewThatWasMadeWithoutGradMode) {
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

TEST(CompileViews, ViewThatWasMadeWithoutGradientOfSomethingNew) {
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

TEST(CompileViews, ViewThatWasMadeWithoutGradientOfAWrittenArgument) {
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

TEST(CompileViews, ViewWhoseHistoryEndsAtAViewMadeWithoutGradMode) {
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

TEST(CompileViews, NewLeafThatSharesMemoryWithAnInput) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        return {in[0], in[0].detach().requires_grad_()};
      },
      {at::randn({3})});
}

TEST(CompileViews, ResultOfALeafMadeInsideBesideAnUnusedInputWithGradient) {
  const auto f = [](const Tensors& in) -> Tensors {
    return {in[1].detach().requires_grad_().sqrt()};
  };
  expect_compiled_like_eager(f, {leaf({3}), at::rand({3})});
  expect_compiled_like_eager(f, {at::rand({3}), at::rand({3})});
}

TEST(CompileViews, ViewOfALeafThatIsMadeInside) {
  const auto f = [](const Tensors& in) -> Tensors {
    return {in[0] * 2, in[1].detach().requires_grad_().view(-1)};
  };
  auto compiled = compile(aot::FlatFunction(f), {.fullgraph = true, .confirm = 0});
  EXPECT_THROW(compiled(Tensors{leaf({3}), at::randn({2})}), Unsupported);
}

TEST(CompileViews, ViewsOfADetachedTensorAfterAWrite) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        in[0].mul_(2);
        const at::Tensor y = in[0].detach();
        return {y, y.unbind(0)[1]};
      },
      {at::randn({3, 2})});
}

TEST(CompileViews, OriginOfADetachedResultIsNoViewOfIt) {
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

TEST(CompileViews, DetachedStatisticsOfABatchAreTheBaseOfTheirViews) {
  const auto f = [](const Tensors& in) -> Tensors {
    at::batch_norm(in[0], {}, {}, in[1], in[2], true, 0.1, 1e-5, false);
    const at::Tensor detached = in[2].detach();
    return {detached, detached.view({2, 1})};
  };
  expect_compiled_like_eager(f, {at::randn({3, 2}), at::randn({2}), at::rand({2})});
}

TEST(CompileViews, DetachedTwiceIsNoViewOfTheFirst) {
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

}  // namespace views_test
}  // namespace ahead
