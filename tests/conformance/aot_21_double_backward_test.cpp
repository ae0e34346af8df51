#include "conformance/aot_support.h"

namespace ahead::conformance {
namespace aot_21_double_backward_test {

using torch::autograd::grad;

TEST(AotDoubleBackward, test_compiled_backward_double_backward) {
  auto compiled =
      compile([](const at::Tensor& x) { return x * x; }, {.fullgraph = true, .confirm = 0});
  for (int call = 0; call < 3; ++call) {
    const at::Tensor x = leaf({3});
    const at::Tensor first = grad({compiled(x).sum()}, {x}, {}, true, /*create_graph=*/true)[0];
    EXPECT_TRUE(same_values(first, 2 * x));
    ASSERT_TRUE(first.requires_grad());
    EXPECT_NE(first.grad_fn(), nullptr);
    // Upstream stops here; eager does not.
    EXPECT_TRUE(same_values(grad({first.sum()}, {x})[0], at::full({3}, 2.)));
  }
  expect_hits(compiled);
}

/// The gradient of a penalty on the gradient.
at::Tensor penalty(const at::Tensor& gradient) {
  return gradient.square().sum();
}

TEST(AotDoubleBackward, test_double_backward_with_compile) {
  const auto f = [](const at::Tensor& x, const at::Tensor& w) { return (x * w).sin() * x; };
  const auto second_inside = [&f](const at::Tensor& x, const at::Tensor& w) {
    const at::Tensor first = grad({f(x, w).sum()}, {x}, {}, true, true)[0];
    return grad({penalty(first)}, {w}, {}, true, true)[0];
  };
  const auto first_inside = [&f](const at::Tensor& x, const at::Tensor& w) {
    return grad({f(x, w).sum()}, {x}, {}, true, true)[0];
  };
  const at::Tensor x = leaf({4}), w = leaf({4});
  const at::Tensor expected = second_inside(x, w);
  const auto expect_equal = [&](const at::Tensor& actual, const char* where) {
    EXPECT_EQ(tensor_difference(expected.detach(), actual.detach()), "") << where;
  };

  auto all_inside = compile(second_inside, {.fullgraph = true, .confirm = 0});
  auto half_inside = compile(first_inside, {.fullgraph = true, .confirm = 0});
  auto all_outside = compile(f, {.fullgraph = true, .confirm = 0});
  for (int call = 0; call < 3; ++call) {
    expect_equal(all_inside(x, w), "all inside");
    expect_equal(grad({penalty(half_inside(x, w))}, {w})[0], "second outside");
    const at::Tensor first = grad({all_outside(x, w).sum()}, {x}, {}, true, true)[0];
    EXPECT_EQ(tensor_difference(first_inside(x, w).detach(), first.detach()), "");
    expect_equal(grad({penalty(first)}, {w})[0], "all outside");
    EXPECT_FALSE(grad({all_outside(x, w).sum()}, {x})[0].requires_grad());
  }
  expect_hits(all_inside);
  expect_hits(half_inside);

  // With tangents that require grad themselves.
  const at::Tensor tangent = leaf({4});
  const auto of_tangent = [&](auto& function) {
    const at::Tensor first = grad({function(x, w)}, {x}, {tangent}, true, true)[0];
    return grad({penalty(first)}, {tangent})[0];
  };
  EXPECT_EQ(tensor_difference(of_tangent(f), of_tangent(all_outside)), "");
  expect_hits(all_outside);

  auto refusing =
      compiled_by_call(f, {.fullgraph = true, .double_backward = false}, leaf({4}), leaf({4}));
  const at::Tensor out = refusing(x, w).sum();
  const std::string error = error_of([&] {
    const at::Tensor first = grad({out}, {x}, {}, true, true)[0];
    grad({penalty(first)}, {w});
  });
  EXPECT_NE(error.find("double"), std::string::npos) << error;
}

}  // namespace aot_21_double_backward_test
}  // namespace ahead::conformance
