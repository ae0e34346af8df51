#include <torch/library.h>

#include <gtest/gtest.h>

#include "support/trace_check.h"

namespace ahead {
namespace custom_op_test {

using at::Tensor;
using Tensors = std::vector<at::Tensor>;

Tensor twice_plus(const Tensor& x, double offset) {
  return x * 2 + offset;
}
Tensor twice_plus_meta(const Tensor& x, double) {
  return at::empty_like(x);
}
Tensor square_no_meta(const Tensor& x) {
  Tensor result = at::empty_like(x);
  const float* in = x.const_data_ptr<float>();
  float* out = result.mutable_data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) out[i] = in[i] * in[i];
  return result;
}
void scale_in_place(Tensor& x, const Tensor& by) {
  x.mul_(by);
}
Tensor bump(Tensor& counter, const Tensor& x) {
  counter.add_(1);
  return x * counter;
}

/// Each step sees what the one before wrote, where its arguments are the same memory.
void step_both(Tensor& x, Tensor& y) {
  x.mul_(2);
  y.add_(x);
  x.sub_(1);
}
void add_all(Tensor& x, at::TensorList others) {
  for (const Tensor& other : others) x.add_(other);
}

void scale_by_stride(Tensor& x) {
  x.mul_(static_cast<double>(x.stride(0)));
}

TORCH_LIBRARY(ahead_test, m) {
  m.def("twice_plus(Tensor x, float offset) -> Tensor");
  m.def("square_no_meta(Tensor x) -> Tensor");
  m.def("scale_in_place(Tensor(a!) x, Tensor by) -> ()");
  m.def("bump(Tensor(a!) counter, Tensor x) -> Tensor");
  m.def("step_both(Tensor(a!) x, Tensor(b!) y) -> ()");
  m.def("scale_by_stride(Tensor(a!) x) -> ()");
  m.def("add_all(Tensor(a!) x, Tensor[] others) -> ()");
}
TORCH_LIBRARY_IMPL(ahead_test, CPU, m) {
  m.impl("twice_plus", twice_plus);
  m.impl("square_no_meta", square_no_meta);
  m.impl("scale_in_place", scale_in_place);
  m.impl("bump", bump);
  m.impl("step_both", step_both);
  m.impl("add_all", add_all);
  m.impl("scale_by_stride", scale_by_stride);
}
TORCH_LIBRARY_IMPL(ahead_test, Meta, m) {
  m.impl("twice_plus", twice_plus_meta);
}

template <class Signature, class... Args>
auto call(const char* name, Args&&... args) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>().call(
      std::forward<Args>(args)...);
}

Tensor input(at::IntArrayRef sizes = {2, 3}) {
  torch::manual_seed(0);
  return torch::randn(sizes);
}

TEST(CustomOp, WithAMetaKernelIsOneNode) {
  const auto before = trace_stats().real_kernel_calls;
  auto graph = expect_like_eager([] {
    return Scene{
        [](const Tensors& in) {
          return Tensors{
              call<Tensor(const Tensor&, double)>("ahead_test::twice_plus", in[0], 0.5).sin()};
        },
        {input()},
        {},
        {}};
  });
  EXPECT_EQ(count(graph, "ahead_test.twice_plus"), 1u);
  EXPECT_EQ(trace_stats().real_kernel_calls, before);
}

TEST(CustomOp, WithoutAMetaKernelRunsItsKernelOnZeros) {
  const auto before = trace_stats().real_kernel_calls;
  auto graph = expect_like_eager([] {
    return Scene{[](const Tensors& in) {
                   return Tensors{call<Tensor(const Tensor&)>("ahead_test::square_no_meta", in[0])};
                 },
                 {input()},
                 {},
                 {}};
  });
  EXPECT_EQ(count(graph, "ahead_test.square_no_meta"), 1u);
  EXPECT_EQ(trace_stats().real_kernel_calls, before + 1);
  TraceOptions options;
  options.allow_real_kernels = false;
  auto function = [](const Tensors& in) {
    return Tensors{call<Tensor(const Tensor&)>("ahead_test::square_no_meta", in[0])};
  };
  EXPECT_THROW(trace(function, {input()}, options), Unsupported);
}

TEST(CustomOp, ThatWritesToAnIntermediate) {
  auto graph = expect_like_eager([] {
    return Scene{[](const Tensors& in) {
                   Tensor y = in[0] + 1;
                   call<void(Tensor&, const Tensor&)>("ahead_test::scale_in_place", y, in[0]);
                   return Tensors{y, y.view({-1})};
                 },
                 {input()},
                 {},
                 {}};
  });
  EXPECT_EQ(count(graph, "ahead_test.scale_in_place"), 1u);
}

TEST(CustomOp, ThatWritesToAViewOfAnInput) {
  expect_like_eager([] {
    return Scene{[](const Tensors& in) {
                   Tensor row = in[0].select(0, 1);
                   call<void(Tensor&, const Tensor&)>("ahead_test::scale_in_place", row, in[1]);
                   return Tensors{in[0] * 2};
                 },
                 {input(), input({3})},
                 {},
                 {}};
  });
}

TEST(CustomOp, ThatWritesToACapturedTensorAndReturnsAnother) {
  expect_like_eager([] {
    Tensor counter = torch::zeros({});
    return Scene{[counter](const Tensors& in) mutable {
                   Tensor a =
                       call<Tensor(Tensor&, const Tensor&)>("ahead_test::bump", counter, in[0]);
                   Tensor b = call<Tensor(Tensor&, const Tensor&)>("ahead_test::bump", counter, a);
                   return Tensors{b};
                 },
                 {input()},
                 {counter},
                 {}};
  });
}

TEST(CustomOp, SeesItsWritesThroughArgumentsThatAreTheSame) {
  const auto on = [](auto&& choose) {
    expect_like_eager([choose] {
      return Scene{[choose](const Tensors& in) {
                     Tensor base = in[0] + 1;
                     auto [x, y] = choose(base);
                     call<void(Tensor&, Tensor&)>("ahead_test::step_both", x, y);
                     return Tensors{base * 2, x.sin(), y.cos()};
                   },
                   {input({4, 3})},
                   {},
                   {}};
    });
  };
  on([](const Tensor& base) { return std::pair(base, base); });
  on([](const Tensor& base) { return std::pair(base, base.view({4, 3})); });
  on([](const Tensor& base) { return std::pair(base.select(0, 1), base.select(0, 1)); });
  on([](const Tensor& base) { return std::pair(base.select(0, 1), base.select(0, 2)); });
}

TEST(CustomOp, SeesTheStridesOfWhatItWrites) {
  for (const bool dense : {true, false}) {
    expect_like_eager([dense] {
      return Scene{[dense](const Tensors& in) {
                     Tensor base = in[0] + 1;
                     Tensor part = dense ? base.t() : base.slice(1, 0, 2);
                     call<void(Tensor&)>("ahead_test::scale_by_stride", part);
                     return Tensors{base * 2};
                   },
                   {input({4, 3})},
                   {},
                   {}};
    });
  }
}

TEST(CustomOp, SeesItsWritesToAnInputGivenTwice) {
  expect_like_eager([] {
    return Scene{[](const Tensors& in) {
                   Tensor x = in[0];
                   call<void(Tensor&, const Tensor&)>("ahead_test::scale_in_place", x, x);
                   return Tensors{x + 1};
                 },
                 {input()},
                 {},
                 {}};
  });
}

TEST(CustomOp, SeesItsWritesThroughAList) {
  expect_like_eager([] {
    return Scene{[](const Tensors& in) {
                   Tensor x = in[0] + 1;
                   call<void(Tensor&, at::TensorList)>("ahead_test::add_all", x,
                                                       Tensors{x, in[0], x.view({2, 3})});
                   return Tensors{x};
                 },
                 {input()},
                 {},
                 {}};
  });
}

TEST(CustomOp, RefusesDifferentViewsOfWhatItWrites) {
  const auto refuse = [](auto&& choose) {
    const auto function = [choose](const Tensors& in) {
      Tensor x = in[0] + 1;
      call<void(Tensor&, at::TensorList)>("ahead_test::add_all", x, choose(x));
      return Tensors{x};
    };
    EXPECT_THROW(trace(function, {input({3, 3})}), Unsupported);
  };
  refuse([](const Tensor& x) { return Tensors{x.t()}; });
  refuse([](const Tensor& x) { return Tensors{x.select(0, 1)}; });
  refuse([](const Tensor& x) { return Tensors{x.unsqueeze(0)}; });
}

TEST(CustomOp, OperatorRegisteredWhereAnotherWas) {
  const auto recorded = [](const char* schema, const char* name, auto kernel, auto call) {
    torch::Library library(torch::Library::DEF, "ahead_reuse", std::nullopt, __FILE__, __LINE__);
    library.def(schema);
    library.impl(name, torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, kernel));
    const auto handle = c10::Dispatcher::singleton().findSchemaOrThrow(
        ("ahead_reuse::" + std::string(name)).c_str(), "");
    return trace([&](const Tensors& in) { return Tensors{call(handle, in[0])}; }, {at::zeros({2})})
        .str();
  };
  const auto one = [](const Tensor& x) { return x.clone(); };
  const auto two = [](const Tensor& x, const Tensor& y) { return at::cat({x, y}); };
  const std::string first =
      recorded("one(Tensor x) -> Tensor", "one", one, [](const auto& handle, const Tensor& x) {
        return handle.template typed<Tensor(const Tensor&)>().call(x);
      });
  const std::string second = recorded(
      "two(Tensor x, Tensor y) -> Tensor", "two", two, [](const auto& handle, const Tensor& x) {
        return handle.template typed<Tensor(const Tensor&, const Tensor&)>().call(x, x);
      });
  EXPECT_NE(first.find("ahead_reuse.one"), std::string::npos) << first;
  EXPECT_NE(second.find("ahead_reuse.two"), std::string::npos) << second;
}

}  // namespace custom_op_test
}  // namespace ahead
