#include "subclass/wrapped_check.h"

/// Functions of wrappers and plain tensors, both of which they write to and give gradients.
namespace ahead::wrapped::beside_plain_test {

/// Not a leaf, so that it may be written to.
at::Tensor computed(at::IntArrayRef sizes) {
  return leaf(sizes) * 1;
}

/// Calls a function eagerly and compiled on what is made of equal leaves: a wrapper and two plain
/// ones. Compares results, arguments, gradients that two backwards added up, and tangents.
void expect_like_eager(const std::function<Tensors(const Tensors&)>& make,
                       const Function& function) {
  auto compiled = ahead::compile(function, {.fullgraph = true, .confirm = Confirm::Never});
  for (int call = 0; call < 3; ++call) {
    Tensors leaves[2], arguments[2], results[2], tangents[2];
    for (int side = 0; side < 2; ++side) {
      torch::manual_seed(call);
      leaves[side] = {two({2, 2}, true), leaf({2, 2}), leaf({})};
      arguments[side] = make(leaves[side]);
      results[side] = side == 0 ? function(arguments[side]) : compiled(arguments[side]);
      for (const at::Tensor& argument : arguments[side]) results[side].push_back(argument);
      for (int round = 0; round < 2; ++round) {
        for (const at::Tensor& result : results[side]) {
          if (!result.requires_grad() || result.is_leaf()) continue;
          tangents[side].push_back(at::ones_like(result.detach()));
          result.backward(tangents[side].back(), /*retain_graph=*/true);
        }
      }
      for (const at::Tensor& leaf : leaves[side]) results[side].push_back(leaf.grad());
      for (const at::Tensor& tangent : tangents[side]) results[side].push_back(tangent);
    }
    ASSERT_EQ(results[0].size(), results[1].size());
    for (size_t i = 0; i < results[0].size(); ++i)
      EXPECT_EQ(difference(results[0][i], results[1][i]), "") << i << " in call " << call;
    for (size_t i = 0; i < arguments[0].size(); ++i)
      EXPECT_EQ(arguments[0][i]._version(), arguments[1][i]._version()) << i;
  }
  EXPECT_EQ(compiled.stats().eager_calls, 0U);
  EXPECT_EQ(compiled.stats().cache_hits, 2U);
}

void expect_refused(const std::string& why, const Tensors& arguments, const Function& function) {
  auto compiled = ahead::compile(function, {.fullgraph = true, .confirm = Confirm::Never});
  const std::string error = error_of([&] { compiled(arguments); });
  EXPECT_NE(error.find(why), std::string::npos) << error;
}

TEST(SubclassBesidePlain, GradientsThatAreAddedUpShareNoMemory) {
  // All gradients are the tangent, which the second backward must not write to.
  expect_like_eager(
      [](const Tensors& x) {
        return Tensors{x[0] * 1, x[0] * 1};
      },
      [](const Tensors& x) { return Tensors{x[0] + x[1]}; });
  auto compiled = ahead::compile([](const Tensors& x) { return x[0] + x[1]; });
  const at::Tensor x = two({2}, true), y = two({2}, true);
  for (int call = 0; call < 4; ++call) {
    const at::Tensor tangent = at::ones_like(x.detach());
    compiled(Tensors{x, y}).backward(tangent);
    for (const at::Tensor& one : plain_tensors(tangent)) EXPECT_TRUE(at::equal(one, at::ones({2})));
    for (const at::Tensor& grad : {x.grad(), y.grad()})
      for (const at::Tensor& sum : plain_tensors(grad))
        EXPECT_TRUE(at::equal(sum, at::full({2}, call + 1.0))) << call;
  }
}

TEST(SubclassBesidePlain, APlainNumberHasAGradientOfAWrapper) {
  expect_like_eager(
      [](const Tensors& x) {
        return Tensors{x[0].detach(), x[2]};
      },
      [](const Tensors& x) { return Tensors{x[0] * x[1]}; });
}

TEST(SubclassBesidePlain, CountsAllWritesToAPlainTensor) {
  expect_like_eager(
      [](const Tensors& x) {
        return Tensors{x[0].detach(), x[1] * 1};
      },
      [](const Tensors& x) {
        x[1].mul_(2).sin_();
        return Tensors{x[0] * 2};
      });
}

TEST(SubclassBesidePlain, APlainTensorGetsAHistory) {
  expect_like_eager(
      [](const Tensors& x) {
        return Tensors{x[0], x[1], x[1].detach().clone()};
      },
      [](const Tensors& x) {
        x[2].mul_(x[1]);
        return Tensors{x[0] * 2};
      });
}

TEST(SubclassBesidePlain, AWrapperGetsAHistory) {
  expect_like_eager(
      [](const Tensors& x) {
        return Tensors{x[0].detach(), x[1]};
      },
      [](const Tensors& x) {
        x[0].mul_(x[1]);
        return Tensors{x[0].squeeze(0)};
      });
}

TEST(SubclassBesidePlain, ReturnsAViewTwice) {
  auto compiled = ahead::compile(
      [](const Tensors& x) {
        const at::Tensor row = x[1].select(0, 0);
        return Tensors{row, row, x[0].detach().unbind(0)[0], x[0].detach().unbind(0)[1]};
      },
      {.fullgraph = true, .confirm = Confirm::Never});
  for (int call = 0; call < 3; ++call) {
    const at::Tensor plain = computed({2, 2});
    const Tensors results = compiled(Tensors{two({2, 2}), plain});
    EXPECT_TRUE(results[0].is_same(results[1]));
    EXPECT_TRUE(results[0].is_alias_of(plain));
  }
  EXPECT_EQ(compiled.stats().cache_hits, 2U);
}

TEST(SubclassBesidePlain, DrawsInTheOrderOfMemory) {
  expect_like_eager(
      [](const Tensors&) {
        const auto gapped = [] { return at::randn({4, 8}).slice(1, 0, 8, 2); };
        return Tensors{TwoTensor::make(gapped(), gapped())};
      },
      [](const Tensors& x) {
        x[0].mul_(2).normal_(0, 1);
        return Tensors{x[0] * 2};
      });
}

TEST(SubclassBesidePlain, RefusesWhatItWouldDoOtherwise) {
  const at::Tensor wrapper = two({2, 2}), plain = computed({2, 2});
  expect_refused("changes the shape of an argument in place", {wrapper, plain},
                 [](const Tensors& x) {
                   return Tensors{x[0] * 2, x[1].t_()};
                 });
  expect_refused("as_strided", {wrapper}, [](const Tensors& x) {
    x[0].as_strided({1}, {1}).mul_(2);
    return Tensors{x[0] * 2};
  });
  expect_refused("aliased inputs that are mutated", {wrapper, plain, plain.select(0, 0)},
                 [](const Tensors& x) {
                   x[1].mul_(2);
                   return Tensors{x[0] * 2, x[2] * 2};
                 });
  expect_refused("writes to a wrapper that is a view", {wrapper.select(0, 0), leaf({2})},
                 [](const Tensors& x) { return Tensors{x[0].mul_(x[1]) * 2}; });
  expect_refused("makes it require grad", {wrapper},
                 [](const Tensors& x) { return Tensors{x[0].detach().requires_grad_().t()}; });
}

}  // namespace ahead::wrapped::beside_plain_test
