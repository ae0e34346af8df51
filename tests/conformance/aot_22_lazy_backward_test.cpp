#include <atomic>

#include "conformance/aot_support.h"

namespace ahead::conformance {
namespace aot_22_lazy_backward_test {

TEST(AotLazyBackward, test_aot_stage2_keeps_aot_config_immutable_for_lazy_backward) {
  const compiled_autograd::Disable off;  // it would capture the backward that is counted
  static std::atomic<int> compilations{0};
  register_backend("conformance.counted", [](const Graph& graph, const std::vector<TensorMeta>&) {
    ++compilations;
    auto interpreter = std::make_shared<Interpreter>(graph);
    return [interpreter](Tensors&& args) { return (*interpreter)(std::move(args)); };
  });
  const auto f = [](const at::Tensor& x) { return (x * x).sin(); };
  auto compiled =
      compiled_by_call(f, {.backend = "conformance.counted", .fullgraph = true}, leaf({4}));
  const at::Tensor x = leaf({4}), y = x.detach().clone().set_requires_grad(true);
  const at::Tensor out = compiled(x);
  EXPECT_EQ(compilations, 1) << "the forward";
  out.sum().backward();
  EXPECT_EQ(compilations, 2) << "and the backward";
  compiled(x).sum().backward();
  EXPECT_EQ(compilations, 2);
  for (int i = 0; i < 2; ++i) f(y).sum().backward();
  EXPECT_EQ(tensor_difference(x.grad(), y.grad()), "");
  expect_hits(compiled);

  auto eager = compiled_by_call(
      f, {.backend = "conformance.counted", .fullgraph = true, .lazy_backward = false}, leaf({4}));
  EXPECT_EQ(compilations, 4) << "both at once";
  eager(x).backward(at::ones({4}));
  EXPECT_EQ(compilations, 4);
  expect_hits(eager);
}

}  // namespace aot_22_lazy_backward_test
}  // namespace ahead::conformance
