#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include "support/trace_check.h"

namespace ahead {
namespace capture_test {

using at::Tensor;
using Tensors = std::vector<at::Tensor>;
using Kind = Slot::Kind;

Tensor random(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
  torch::manual_seed(7);
  return torch::randn(sizes).to(dtype);
}

TEST(Capture, LiftsEachTensorOnce) {
  auto graph = expect_like_eager([] {
    Tensor w = random({3}).requires_grad_(), b = random({3});
    return Scene{[w, b](const Tensors& in) {
                   Tensor y = in[0] * w;
                   return Tensors{y + b * w};
                 },
                 {random({2, 3})},
                 {w, b},
                 {}};
  });
  ASSERT_EQ(graph.inputs().size(), 4u);  // the argument, two captured tensors, a tangent
  EXPECT_EQ(graph.find_input({Kind::Captured, 1}), 2);
  EXPECT_TRUE(graph.inputs()[1].captured.requires_grad());
}

TEST(Capture, ReturnedWithoutAnyOperator) {
  expect_like_eager([] {
    Tensor w = random({3}).requires_grad_();
    return Scene{[w](const Tensors&) { return Tensors{w}; }, {}, {w}, {}};
  });
}

TEST(Capture, ReplacedTensorsAreSeenAtEachTrace) {
  Tensor w = random({3});
  auto function = [&w](const Tensors& in) { return Tensors{in[0] * w}; };
  auto first = trace(function, {w});
  w = random({3}) + 1;
  auto second = trace(function, {torch::ones({3})});
  EXPECT_TRUE(interpret(second, {torch::ones({3})})[0].equal(w));
  EXPECT_EQ(first.inputs().size(), 1u);  // w was the argument itself
}

TEST(Capture, ViewsOfParametersWithHistoryOutside) {
  expect_like_eager([] {
    Tensor w = random({2, 3}).requires_grad_();
    Tensor row = w[0];
    return Scene{[row](const Tensors& in) { return Tensors{(in[0] * row).sum()}; },
                 {random({3})},
                 {row},
                 {}};
  });
}

TEST(Capture, OffsetsAndStridesOfInputs) {
  auto graph = expect_like_eager([] {
    Tensor x = random({4, 6}).t().narrow(0, 1, 3);
    return Scene{
        [](const Tensors& in) {
          return Tensors{in[0].as_strided({2, 2}, {1, 6}, 2), in[0].reshape({-1}), in[0] * 2};
        },
        {x},
        {},
        {}};
  });
  EXPECT_EQ(graph.inputs()[0].value->meta.offset, 1);
}

TEST(Constants, NumbersAreConstantsNotInputs) {
  auto graph = expect_like_eager([] {
    return Scene{
        [](const Tensors& in) {
          return Tensors{in[0] * 2 + 1.5, 3 - in[0], 1 / in[0], at::pow(2, in[0]), in[0] > 0};
        },
        {random({3})},
        {},
        {}};
  });
  EXPECT_EQ(graph.inputs().size(), 1u);
}

TEST(Constants, TypePromotionWithNumbers) {
  for (auto dtype : {at::kHalf, at::kBFloat16, at::kInt, at::kBool, at::kComplexFloat}) {
    expect_like_eager([dtype] {
      return Scene{[](const Tensors& in) {
                     return Tensors{in[0] * 2, in[0] * 2.5, at::mul(in[0], at::Scalar(true))};
                   },
                   {random({3}, dtype)},
                   {},
                   {}};
    });
  }
}

TEST(Constants, FactoriesAreTraced) {
  auto graph = expect_like_eager([] {
    return Scene{[](const Tensors& in) {
                   Tensor mask = torch::arange(3) > 1;
                   Tensor table = torch::tensor({1.0f, 2.0f, 3.0f});
                   Tensor eye = torch::eye(3, in[0].options());
                   return Tensors{torch::where(mask, in[0], table), eye.mv(in[0]),
                                  torch::zeros_like(in[0]) + 1};
                 },
                 {random({3})},
                 {},
                 {}};
  });
  EXPECT_EQ(graph.inputs().size(), 1u);
  EXPECT_EQ(count(graph, "aten.arange.start") + count(graph, "aten.arange"), 1u);
}

TEST(Constants, MemoryOfTheUsersIsCaptured) {
  static float values[3] = {1, 2, 3};
  expect_like_eager([] {
    return Scene{[](const Tensors& in) { return Tensors{in[0] + torch::from_blob(values, {3})}; },
                 {random({3})},
                 {},
                 {}};
  });
}

TEST(Random, SameNumbersAsEager) {
  auto graph = expect_like_eager([] {
    return Scene{[](const Tensors& in) {
                   Tensor y = torch::dropout(in[0], 0.5, /*train=*/true);
                   return Tensors{y, torch::rand_like(y) + torch::randn({4}),
                                  torch::bernoulli(torch::full({4}, 0.3))};
                 },
                 {random({4}).requires_grad_()},
                 {},
                 {}};
  });
  for (const Node& node : graph.nodes()) {
    const bool random = node.op().name().find("rand") != std::string::npos;
    EXPECT_TRUE(!random || node.has(Tag::Random)) << node.op().name();
  }
}

TEST(Random, DropoutOfAnyLayoutDrawsInTheOrderOfMemory) {
  expect_like_eager([] {
    Tensor x = random({2, 3, 4}).permute({2, 0, 1}).requires_grad_();
    return Scene{[](const Tensors& in) {
                   Tensor y = torch::dropout(in[0], 0.4, /*train=*/true);
                   Tensor mask = torch::empty_like(in[0]).detach().bernoulli_(0.5);
                   return Tensors{y * mask, at::bernoulli(in[0].detach(), 0.5)};
                 },
                 {x},
                 {},
                 {}};
  });
}

TEST(Random, GeneratorOfTheUser) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(5);
  auto function = [generator](const Tensors& in) {
    return Tensors{in[0] + torch::randn({3}, generator)};
  };
  auto graph = trace(function, {torch::zeros({3})});
  generator.set_current_seed(5);
  Tensor expected = function({torch::zeros({3})})[0];
  generator.set_current_seed(5);
  EXPECT_TRUE(interpret(graph, {torch::zeros({3})})[0].equal(expected));
}

class Dtypes : public testing::TestWithParam<at::ScalarType> {};

TEST_P(Dtypes, ForwardAndBackward) {
  const at::ScalarType dtype = GetParam();
  expect_like_eager([dtype] {
    Tensor x = random({3, 3}, dtype);
    if (at::isFloatingType(dtype) || at::isComplexType(dtype)) x.requires_grad_();
    return Scene{[](const Tensors& in) {
                   return Tensors{in[0] * in[0] + in[0].t(), in[0].sum(0)};
                 },
                 {x},
                 {},
                 {}};
  });
}

INSTANTIATE_TEST_SUITE_P(All, Dtypes,
                         testing::Values(at::kFloat, at::kDouble, at::kHalf, at::kBFloat16,
                                         at::kComplexFloat, at::kComplexDouble, at::kByte,
                                         at::kChar, at::kShort, at::kInt, at::kLong, at::kBool),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

TEST(Complex, LazyConjugationAndNegation) {
  expect_like_eager([] {
    Tensor x = random({3}, at::kComplexFloat).requires_grad_();
    return Scene{
        [](const Tensors& in) {
          Tensor y = in[0].conj();
          return Tensors{y * in[0], at::imag(y).clone(), y.resolve_conj(), at::real(in[0]) * 2};
        },
        {x},
        {},
        {}};
  });
  expect_like_eager([] {
    Tensor x = random({3}, at::kComplexFloat).conj();
    return Scene{[](const Tensors& in) { return Tensors{in[0] * 2, in[0].abs()}; }, {x}, {}, {}};
  });
}

TEST(MetaDevice, InputsAreTraced) {
  Tensor x = torch::empty({2, 3}, at::kMeta);
  auto graph =
      trace([](const Tensors& in) { return Tensors{torch::sin(in[0].t()).matmul(in[0])}; }, {x});
  ASSERT_EQ(graph.outputs().size(), 1u);
  EXPECT_EQ(graph.outputs()[0].value->meta.str(), "f32[3, 3] @meta");
  EXPECT_EQ(interpret(graph, {x})[0].sizes(), at::IntArrayRef({3, 3}));
}

TEST(CudaDevice, IsTracedWithoutACudaMachine) {
  Graph graph = trace(
      [](const Tensors&) {
        Tensor y = torch::ones({2}, at::TensorOptions(at::Device("cuda:0")));
        return Tensors{y * 2 + torch::zeros({}, at::kFloat)};
      },
      {torch::rand({2})});
  EXPECT_EQ(graph.outputs()[0].value->meta.device, at::Device("cuda:0"));
}

TEST(Autocast, IsHonouredAndRecorded) {
  auto graph = expect_like_eager([] {
    Tensor w = random({3, 3}).requires_grad_();
    return Scene{[w](const Tensors& in) {
                   const bool before = at::autocast::is_autocast_enabled(at::kCPU);
                   at::autocast::set_autocast_enabled(at::kCPU, true);
                   at::autocast::increment_nesting();
                   Tensor y = in[0].matmul(w).matmul(w);
                   if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
                   at::autocast::set_autocast_enabled(at::kCPU, before);
                   return Tensors{y, y.to(at::kFloat).sum()};
                 },
                 {random({2, 3})},
                 {w},
                 {}};
  });
  bool recorded = false;
  for (const Node& node : graph.nodes()) recorded |= node.has(Tag::Autocast);
  EXPECT_TRUE(recorded);
  EXPECT_EQ(graph.find_output({Kind::Output, 0}), 0);
  EXPECT_EQ(graph.outputs()[0].value->meta.dtype, at::kBFloat16);
}

TEST(Autocast, LeavesOperatorsThatWriteAlone) {
  // Functionalisation calls their twins, which are cast.
  const auto graph = expect_like_eager([] {
    return Scene{[](const Tensors& in) {
                   at::autocast::set_autocast_enabled(at::kCPU, true);
                   const Tensor matrix = in[0].clone(), batch = in[1].clone();
                   matrix.addmm_(in[0], in[0]);
                   batch.baddbmm_(in[1], in[1]);
                   at::mm_out(const_cast<Tensor&>(in[2]), in[0], in[0]);
                   at::autocast::set_autocast_enabled(at::kCPU, false);
                   return Tensors{matrix, batch};
                 },
                 {random({3, 3}), random({2, 3, 3}), random({3, 3})},
                 {},
                 {}};
  });
  for (const Node& node : graph.nodes()) EXPECT_NE(node.op().name(), "aten._to_copy");
  EXPECT_EQ(graph.outputs()[0].value->meta.dtype, at::kFloat);
}

TEST(Autocast, OutsideOfTheInterpreterChangesNothing) {
  Tensor w = random({3, 3});
  auto graph = trace([w](const Tensors& in) { return Tensors{in[0].matmul(w)}; }, {random({2, 3})});
  at::autocast::set_autocast_enabled(at::kCPU, true);
  auto results = interpret(graph, {random({2, 3})});
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_EQ(results[0].scalar_type(), at::kFloat);
}

}  // namespace capture_test
}  // namespace ahead
