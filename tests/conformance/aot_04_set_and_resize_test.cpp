#include "conformance/aot_support.h"

namespace ahead::conformance {
namespace aot_04_set_and_resize_test {

TEST(AotSetAndResize, test_set__and_data_mutation_good) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        {
          at::NoGradGuard no_grad;
          in[0].set_(in[1]);
          in[1].mul_(2);
        }
        return {in[0] * in[1]};
      },
      {leaf({3, 3}), leaf({3, 3})});
}

TEST(AotSetAndResize, test_set__and_data_mutation_bad) {
  // Either as in eager, or a refusal; never a wrong number.
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    const at::Tensor view = in[0].view({-1});
    {
      at::NoGradGuard no_grad;
      in[0].set_(at::ones({2}));
      view.mul_(2);
    }
    return {in[0] * in[1]};
  };
  const at::Tensor a = at::randn({2}), b = at::randn({2});
  const std::string error = error_of([&] { compiled_once(f, {a, b}); });
  EXPECT_NE(error.find("set_"), std::string::npos) << error;
  EXPECT_TRUE(same_values(a, at::ones({2}))) << "the call itself has run";
  auto compiled = compile(f);
  for (int call = 0; call < 4; ++call) {
    const Tensors eager = {at::randn({2}), at::randn({2})};
    const Tensors own = {eager[0].clone(), eager[1].clone()};
    const at::Tensor eager_view = eager[0].view({-1}), own_view = own[0].view({-1});
    EXPECT_EQ(tensor_difference(f(eager)[0], compiled(own)[0]), "");
    EXPECT_EQ(tensor_difference(eager[0], own[0]), "");
    EXPECT_EQ(tensor_difference(eager_view, own_view), "");
  }
  expect_runs_eagerly(compiled, 2);
}

TEST(AotSetAndResize, test_set__not_allowed) {
  // Upstream refuses; eager runs it.
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        {
          at::NoGradGuard no_grad;
          in[0].set_(in[1]);
        }
        in[0].mul_(2);
        return {in[0] * in[1]};
      },
      {at::randn({3, 3}), at::randn({3, 3})});
}

TEST(AotSetAndResize, test_input_mutation_set__nop) {
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        const at::Tensor before = in[0].view({-1}).detach();
        in[0].set_(in[1]);
        in[0].set_(before);
        return {in[0] + in[1].reshape({-1})};
      },
      {at::randn({4}), at::randn({2, 2})});
}

TEST(AotSetAndResize, ResultsThatWereSetToAnArgument) {
  // They share its memory, but neither its base nor its version.
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        const at::Tensor fresh = in[0] * 2;
        fresh.set_(in[1]);
        return {fresh, in[0] + 1};
      },
      {at::randn({4}), at::randn({2, 2})});
  const auto f = [](const at::Tensor& x, const at::Tensor& y) {
    const at::Tensor fresh = x * 2;
    fresh.set_(y);
    y.mul_(3);
    return fresh;
  };
  auto compiled = compile(f, {.fullgraph = true, .confirm = Confirm::Never});
  for (int call = 0; call < 4; ++call) {
    const at::Tensor x = at::randn({4}), y = at::randn({2, 2}), other = y.clone();
    const at::Tensor expected = f(x, y), actual = compiled(x, other);
    EXPECT_EQ(tensor_difference(expected, actual), "");
    EXPECT_TRUE(actual.is_alias_of(other));
    EXPECT_FALSE(actual.is_view());
    EXPECT_EQ(expected._version(), actual._version());
    const int64_t version = other._version();
    actual.mul_(2);
    EXPECT_EQ(other._version(), version) << "each has a version of its own";
    EXPECT_TRUE(same_values(other, actual));
  }
  expect_hits(compiled);
}

TEST(AotSetAndResize, SetToSomethingNew) {
  // The argument, a view of it and the tensor it was set to share memory afterwards.
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        const at::Tensor fresh = in[1].sin();
        in[0].set_(fresh);
        in[0].mul_(2);
        return {in[0].view({-1}), fresh, in[0] + in[1]};
      },
      {at::randn({3}), at::randn({2, 2})});
  expect_compiled_like_eager(
      [](const Tensors& in) -> Tensors {
        in[0].set_(in[1] * 2);
        return {in[1].cos()};
      },
      {at::randn({3}), at::randn({2, 2})});
}

TEST(AotSetAndResize, GradientsOfALeafBeforeAndAfterSet) {
  // Two accumulators would have a part each, so this runs eagerly.
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    const at::Tensor before = in[0] * 2;
    {
      at::NoGradGuard no_grad;
      in[0].set_(in[1]);
    }
    return {before.sum() + (in[0] * in[1]).sum()};
  };
  auto compiled = compile(f);
  for (int call = 0; call < 4; ++call) {
    const Tensors eager = {leaf({3}), leaf({3})}, own = with_grad(eager);
    f(eager)[0].backward();
    compiled(own)[0].backward();
    for (size_t i = 0; i < 2; ++i) EXPECT_EQ(tensor_difference(eager[i].grad(), own[i].grad()), "");
  }
  expect_runs_eagerly(compiled, 2);
}

/// Calls a function on copies of an argument, eagerly and compiled, and compares the argument, its
/// memory and what else shares it. All but the first call run from graphs.
void expect_same_memory(const std::function<at::Tensor(const at::Tensor&)>& f,
                        const std::function<at::Tensor()>& make) {
  auto compiled = compile(f, {.fullgraph = true, .confirm = Confirm::Never});
  for (int call = 0; call < 4; ++call) {
    const at::Tensor eager = make(), own = make();
    const at::Tensor eager_alias = eager.detach(), own_alias = own.detach();
    const at::Tensor expected = f(eager), actual = compiled(own);
    EXPECT_EQ(tensor_difference(expected, actual), "");
    EXPECT_EQ(tensor_difference(eager, own), "");
    EXPECT_EQ(eager._version(), own._version());
    EXPECT_EQ(eager.storage().nbytes(), own.storage().nbytes());
    EXPECT_EQ(eager_alias.is_alias_of(eager), own_alias.is_alias_of(own));
    EXPECT_EQ(tensor_difference(eager_alias, own_alias), "") << "what shared the memory before";
  }
  expect_hits(compiled);
}

TEST(AotSetAndResize, test_input_mutation_storage_resize_up) {
  expect_same_memory(
      [](const at::Tensor& x) {
        at::NoGradGuard no_grad;
        x.resize_({8});
        x.copy_(at::ones({8}));
        return x.mul(2);
      },
      [] { return at::empty({0}); });
  expect_same_memory(
      [](const at::Tensor& x) {
        const at::Tensor before = x.sin();
        x.resize_({2, 4});
        x.fill_(3).mul_(2);
        return x.sum() + before.sum();
      },
      [] { return at::arange(4.0); });
}

TEST(AotSetAndResize, LargerArgumentsThatTheBackwardReadsAreRefused) {
  auto compiled = compile(
      [](const at::Tensor& x, const at::Tensor& w) {
        const at::Tensor product = x.sin() * w;  // the sine would be computed again
        x.resize_({8});
        x.fill_(1);
        return product.sum();
      },
      {.fullgraph = true, .confirm = Confirm::Never});
  const std::string error = error_of([&] { compiled(at::ones({4}), leaf({4})); });
  EXPECT_NE(error.find("its backward reads it as it was"), std::string::npos) << error;
}

TEST(AotSetAndResize, LargerArgumentsThatShareMemoryAreAnotherProgram) {
  const auto f = [](const at::Tensor& x, const at::Tensor& y) {
    x.resize_({8});
    x.fill_(3);
    return y * 2;
  };
  auto compiled = compile(f, {.confirm = Confirm::Never});
  for (int call = 0; call < 3; ++call)
    EXPECT_TRUE(same_values(compiled(at::ones({4}), at::ones({4})), at::full({4}, 2.)));
  EXPECT_EQ(compiled.stats().cache_hits, 2u);
  const at::Tensor x = at::ones({4});
  EXPECT_TRUE(same_values(compiled(x, x.detach()), at::full({4}, 6.)));
}

TEST(AotSetAndResize, test_input_mutation_storage_resize_down) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    const at::Tensor out = in[0].sin();
    at::NoGradGuard no_grad;
    in[1].resize_({0});
    return {out};
  };
  auto compiled = compile(f, {.fullgraph = true, .confirm = 0});
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = leaf({8}), y = at::ones({8});
    compiled(Tensors{x, y})[0].sum().backward();
    EXPECT_TRUE(same_values(x.grad(), x.detach().cos()));
    EXPECT_EQ(y.numel(), 0);
    EXPECT_EQ(y.storage().nbytes(), 8 * sizeof(float)) << "a smaller size keeps the memory";
  }
  expect_hits(compiled);
}

TEST(AotSetAndResize, test_input_mutation_storage_resize_before_set_) {
  expect_same_memory(
      [](const at::Tensor& x) {
        at::NoGradGuard no_grad;
        x.resize_({0});
        x.set_(at::ones({2}));
        return x + 1;
      },
      [] { return at::arange(4.0); });
}

TEST(AotSetAndResize, test_aot_autograd_raises_invalid_leaf_set) {
  const aot::FlatFunction f = [](const Tensors& in) -> Tensors {
    in[0].set_();
    return {in[0]};
  };
  const std::string expected = error_of([&] { f({leaf({3})}); });
  ASSERT_NE(expected.find("is being used in an in-place operation"), std::string::npos);
  const std::string actual = error_of([&] { compile(f)(Tensors{leaf({3})}); });
  EXPECT_EQ(actual, expected);
}

}  // namespace aot_04_set_and_resize_test
}  // namespace ahead::conformance
