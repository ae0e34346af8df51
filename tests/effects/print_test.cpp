#include <gtest/gtest.h>

#include "ahead/ahead.h"
#include "support/eager.h"
#include "support/hits.h"
#include "support/journal.h"

namespace ahead {
namespace print_test {

using at::Tensor;
using journal::printed;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

TEST(Print, PutsTensorsInTheirPlaces) {
  const Tensor half = torch::tensor(0.5), three = torch::tensor(3), yes = torch::tensor(true);
  EXPECT_EQ(printed([&] { print("loss {} of {}, {{done}}: {}", half, three, yes); }),
            "loss 0.5 of 3, {done}: true\n");
  EXPECT_EQ(printed([] { print("here"); }), "here\n");
  EXPECT_EQ(printed([] { print("{}", torch::ones({2})); }), " 1\n 1\n[ CPUFloatType{2} ]\n");
  EXPECT_EQ(printed([] { print("{}", Tensor()); }), "undefined\n");
}

TEST(Print, RefusesAWrongNumberOfTensors) {
  const auto expect_error = [](const std::function<void()>& action, const std::string& text) {
    EXPECT_THROW(action(), UserError);
    EXPECT_NE(error_of(action).find(text), std::string::npos) << error_of(action);
  };
  const Tensor x = torch::ones({});
  expect_error([&] { print("{} {}", x); }, "it has places for 2 tensors, but 1 were given");
  expect_error([&] { print("none", x); }, "it has places for 0 tensors, but 1 were given");
  expect_error([&] { print("{x}", x); }, "a brace stands alone");
  expect_error([&] { print("}", x); }, "a brace stands alone");
}

TEST(Print, PrintsInEachCallOfACompiledFunction) {
  auto f = compile(
      [](const Tensor& x) {
        print("given {}", x);
        const Tensor y = x * 2;
        print("returned {}", y);
        return y;
      },
      {.fullgraph = true});
  std::string expected;
  const std::string text = printed([&] {
    for (int call = 0; call < 6; ++call) {
      f(torch::tensor(static_cast<double>(call)));
      expected += "given " + std::to_string(call) + "\nreturned " + std::to_string(2 * call) + "\n";
    }
  });
  EXPECT_EQ(text, expected);
  EXPECT_GE(f.stats().cache_hits, 3u);
  EXPECT_EQ(f.stats().eager_calls, 0u);
}

/// The identity; its backward prints the gradient.
template <bool traceable>
struct PrintGradient : torch::autograd::Function<PrintGradient<traceable>> {
  static constexpr bool is_traceable = traceable;
  static Tensor forward(AutogradContext*, const Tensor& x) { return x.clone(); }
  static variable_list backward(AutogradContext*, variable_list grads) {
    print("gradient {}", grads[0]);
    return {grads[0] * 1};
  }
};

TEST(Print, PrintsInBackwards) {
  auto f = compile(
      [](const Tensor& x) {
        print("x {}", x);
        return PrintGradient<true>::apply(x * x) * 3;
      },
      {.fullgraph = true});
  for (int call = 0; call < 5; ++call) {
    const Tensor x = torch::tensor(static_cast<double>(call)).requires_grad_();
    Tensor y;
    EXPECT_EQ(printed([&] { y = f(x); }), "x " + std::to_string(call) + "\n");
    EXPECT_EQ(printed([&] { y.backward(torch::tensor(2.0, at::kDouble).to(y.dtype())); }),
              "gradient 6\n");
    EXPECT_EQ(x.grad().item<double>(), 12.0 * call);
  }
  EXPECT_GE(f.stats().cache_hits, 2u);
}

template <bool traceable>
void expect_prints_in_compiled_autograd() {
  compiled_autograd::reset();
  for (int call = 0; call < 4; ++call) {
    const Tensor x = torch::tensor(static_cast<double>(call)).requires_grad_();
    const Tensor y =
        PrintGradient<traceable>::apply(x * x) * torch::tensor(static_cast<double>(call + 1));
    EXPECT_EQ(printed([&] {
                compiled_autograd::Enable on;
                y.backward();
              }),
              "gradient " + std::to_string(call + 1) + "\n");
    EXPECT_EQ(x.grad().item<double>(), 2.0 * call * (call + 1));
  }
  EXPECT_EQ(compiled_autograd::stats().eager_fallbacks, 0u);
  EXPECT_GE(compiled_autograd::stats().cache_hits, 2u);
}

TEST(Print, PrintsInCompiledAutograd) {
  expect_prints_in_compiled_autograd<true>();
  expect_prints_in_compiled_autograd<false>();
}

TEST(Print, PrintsInTheBackwardOfACompiledFunctionInCompiledAutograd) {
  compiled_autograd::reset();
  auto f = compiled_by_call([](const Tensor& x) { return PrintGradient<true>::apply(x * x) * 3; },
                            {.fullgraph = true}, torch::tensor(1.0).requires_grad_());
  for (int call = 0; call < 4; ++call) {
    const Tensor x = torch::tensor(static_cast<float>(call)).requires_grad_();
    const Tensor y = f(x) * 2;
    EXPECT_EQ(printed([&] {
                compiled_autograd::Enable on;
                y.backward();
              }),
              "gradient 6\n");
    EXPECT_EQ(x.grad().item<double>(), 12.0 * call);
  }
  EXPECT_EQ(compiled_autograd::stats().eager_fallbacks, 0u);
  expect_hits(f);
}

}  // namespace print_test
}  // namespace ahead
