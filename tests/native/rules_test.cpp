#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <limits>
#include <set>

#include "ahead/interpret.h"
#include "ahead/trace.h"
#include "native/build/kernel_library.h"
#include "native/build/target.h"
#include "native/launch/kernel_call.h"
#include "native/lower/lower.h"
#include "native/lower/rule.h"
#include "native/print/print_kernel.h"

namespace ahead::native {
namespace {

using Tensors = std::vector<at::Tensor>;

/// A call of one operator, on tensors that it is given.
struct Case {
  const char* name;  ///< of the rule
  std::function<Tensors(const Tensors&)> call;
  std::vector<std::vector<int64_t>> shapes;
  /// What the values of arguments are like.
  enum class Values : uint8_t { Any, Finite, Unit, Positive } values = Values::Any;
  /// Numbers of arguments that are of type bool.
  std::set<size_t> masks = {};
};

constexpr auto Finite = Case::Values::Finite;
constexpr auto Unit = Case::Values::Unit;
constexpr auto Positive = Case::Values::Positive;

const std::vector<int64_t> matrix = {7, 33}, row = {33}, column = {7, 1}, one = {};

template <class F>
std::function<Tensors(const Tensors&)> unary(F f) {
  return [f](const Tensors& in) { return Tensors{f(in[0])}; };
}
template <class F>
std::function<Tensors(const Tensors&)> binary(F f) {
  return [f](const Tensors& in) { return Tensors{f(in[0], in[1])}; };
}
template <class F>
std::function<Tensors(const Tensors&)> ternary(F f) {
  return [f](const Tensors& in) { return Tensors{f(in[0], in[1], in[2])}; };
}
template <class... T>
Tensors listed(std::tuple<T...> tuple) {
  return std::apply([](auto&&... tensors) { return Tensors{tensors...}; }, tuple);
}

#define UNARY(NAME) {"aten." #NAME, unary([](const at::Tensor& x) { return at::NAME(x); }), {matrix}}

std::vector<Case> pointwise_cases() {
  using T = const at::Tensor&;
  return {
      {"aten.add.Tensor", binary([](T a, T b) { return at::add(a, b, 2.5); }), {matrix, row}},
      {"aten.add.Tensor", unary([](T a) { return a + 3; }), {matrix}},
      {"aten.sub.Tensor", binary([](T a, T b) { return at::sub(a, b); }), {column, row}},
      {"aten.rsub.Scalar", unary([](T a) { return at::rsub(a, 1.5, 2); }), {matrix}},
      {"aten.mul.Tensor", binary([](T a, T b) { return a * b; }), {matrix, one}},
      {"aten.div.Tensor", binary([](T a, T b) { return a / b; }), {matrix, column}},
      {"aten.div.Tensor", unary([](T a) { return a / 7; }), {matrix}},
      {"aten.div.Tensor", unary([](T a) { return a / 0; }), {matrix}},
      UNARY(neg), UNARY(abs), UNARY(sign), UNARY(sgn), UNARY(reciprocal), UNARY(exp),
      UNARY(expm1), UNARY(log), UNARY(log2), UNARY(log10), UNARY(log1p), UNARY(erf), UNARY(tanh),
      UNARY(sigmoid), UNARY(sqrt), UNARY(rsqrt), UNARY(floor), UNARY(ceil), UNARY(trunc),
      UNARY(round), UNARY(relu), UNARY(silu), UNARY(mish), UNARY(hardsigmoid), UNARY(hardswish),
      UNARY(hardtanh), UNARY(leaky_relu), UNARY(elu), UNARY(softplus), UNARY(gelu),
      {"aten.sin", unary([](T x) { return at::sin(x); }), {matrix}, Finite},
      {"aten.cos", unary([](T x) { return at::cos(x); }), {matrix}, Finite},
      {"aten.maximum", binary([](T a, T b) { return at::maximum(a, b); }), {matrix, row}},
      {"aten.minimum", binary([](T a, T b) { return at::minimum(a, b); }), {matrix, row}},
      {"aten.clamp", unary([](T a) { return at::clamp(a, -1, 0.5); }), {matrix}},
      {"aten.clamp", unary([](T a) { return at::clamp(a, std::nullopt, 0.5); }), {matrix}},
      {"aten.clamp_min", unary([](T a) { return at::clamp_min(a, 0.25); }), {matrix}},
      {"aten.clamp_max", unary([](T a) { return at::clamp_max(a, 0.25); }), {matrix}},
      {"aten.pow.Tensor_Scalar", unary([](T a) { return at::pow(a, 2); }), {matrix}},
      {"aten.pow.Tensor_Scalar", unary([](T a) { return at::pow(a, 3); }), {matrix}},
      {"aten.pow.Tensor_Scalar", unary([](T a) { return at::pow(a, 0.5); }), {matrix}, Positive},
      {"aten.pow.Tensor_Scalar", unary([](T a) { return at::pow(a, -0.5); }), {matrix}, Positive},
      {"aten.pow.Tensor_Scalar", unary([](T a) { return at::pow(a, -1); }), {matrix}},
      {"aten.pow.Tensor_Scalar", unary([](T a) { return at::pow(a, -2); }), {matrix}, Finite},
      {"aten.pow.Tensor_Scalar", unary([](T a) { return at::pow(a, 1.7); }), {matrix}, Positive},
      {"aten.pow.Tensor_Scalar", unary([](T a) { return at::pow(a, 0); }), {matrix}},
      {"aten.pow.Tensor_Tensor", binary([](T a, T b) { return at::pow(a, b); }), {matrix, row}, Unit},
      {"aten.addcmul", ternary([](T a, T b, T c) { return at::addcmul(a, b, c, 0.3); }),
       {matrix, row, column}, Finite},
      {"aten.addcdiv", ternary([](T a, T b, T c) { return at::addcdiv(a, b, c, 0.3); }),
       {matrix, row, column}, Positive},
      {"aten.lerp.Scalar", binary([](T a, T b) { return at::lerp(a, b, 0.7); }), {matrix, matrix}, Unit},
      {"aten.lerp.Tensor", ternary([](T a, T b, T c) { return at::lerp(a, b, c); }),
       {matrix, matrix, matrix}, Unit},
      {"aten.gelu", unary([](T a) { return at::gelu(a, "tanh"); }), {matrix}},
      {"aten.gelu_backward", binary([](T a, T b) { return at::gelu_backward(a, b); }),
       {matrix, matrix}, Finite},
      {"aten.gelu_backward", binary([](T a, T b) { return at::gelu_backward(a, b, "tanh"); }),
       {matrix, matrix}, Finite},
      {"aten.threshold_backward", binary([](T a, T b) { return at::threshold_backward(a, b, 0); }),
       {matrix, matrix}},
      {"aten.leaky_relu_backward",
       binary([](T a, T b) { return at::leaky_relu_backward(a, b, 0.1, false); }), {matrix, matrix}},
      {"aten.hardtanh_backward",
       binary([](T a, T b) { return at::hardtanh_backward(a, b, -1, 1); }), {matrix, matrix}, Finite},
      {"aten.hardsigmoid_backward",
       binary([](T a, T b) { return at::hardsigmoid_backward(a, b); }), {matrix, matrix}, Finite},
      {"aten.silu_backward", binary([](T a, T b) { return at::silu_backward(a, b); }),
       {matrix, matrix}, Finite},
      {"aten.mish_backward", binary([](T a, T b) { return at::mish_backward(a, b); }),
       {matrix, matrix}, Unit},
      {"aten.elu_backward",
       binary([](T a, T b) { return at::elu_backward(a, 1.5, 1.1, 0.9, false, b); }),
       {matrix, matrix}, Finite},
      {"aten.elu_backward",
       binary([](T a, T b) { return at::elu_backward(a, 1.5, 1.1, 0.9, true, b); }),
       {matrix, matrix}, Unit},
      {"aten.softplus_backward",
       binary([](T a, T b) { return at::softplus_backward(a, b, 1.5, 20); }), {matrix, matrix}, Unit},
      {"aten.tanh_backward", binary([](T a, T b) { return at::tanh_backward(a, b); }),
       {matrix, matrix}, Unit},
      {"aten.sigmoid_backward", binary([](T a, T b) { return at::sigmoid_backward(a, b); }),
       {matrix, matrix}, Unit},
      {"aten.native_dropout_backward",
       binary([](T a, T b) { return at::native_dropout_backward(a, b, 1.25); }), {matrix, matrix},
       Case::Values::Any, {1}},
      {"aten.mse_loss_backward",
       ternary([](T a, T b, T c) { return at::mse_loss_backward(a, b, c, 1); }),
       {one, matrix, matrix}, Unit},
      {"aten.binary_cross_entropy_backward",
       ternary([](T a, T b, T c) { return at::binary_cross_entropy_backward(a, b, c); }),
       {one, matrix, matrix}, Positive},
      {"aten.where.self", ternary([](T a, T b, T c) { return at::where(a, b, c); }),
       {matrix, row, column}, Case::Values::Any, {0}},
      {"aten.masked_fill.Scalar",
       binary([](T a, T b) { return at::masked_fill(a, b, -std::numeric_limits<double>::infinity()); }),
       {matrix, row}, Case::Values::Any, {1}},
      {"aten.masked_fill.Tensor",
       ternary([](T a, T b, T c) { return at::masked_fill(a, b, c); }), {matrix, row, one},
       Case::Values::Any, {1}},
      {"aten.lt.Tensor", binary([](T a, T b) { return a < b; }), {matrix, row}},
      {"aten.lt.Scalar", unary([](T a) { return a < 0.5; }), {matrix}},
      {"aten.le.Tensor", binary([](T a, T b) { return a <= b; }), {matrix, row}},
      {"aten.le.Scalar", unary([](T a) { return a <= 0; }), {matrix}},
      {"aten.gt.Tensor", binary([](T a, T b) { return a > b; }), {matrix, row}},
      {"aten.gt.Scalar", unary([](T a) { return a > 0; }), {matrix}},
      {"aten.ge.Tensor", binary([](T a, T b) { return a >= b; }), {matrix, row}},
      {"aten.ge.Scalar", unary([](T a) { return a >= 1; }), {matrix}},
      {"aten.eq.Tensor", binary([](T a, T b) { return a == b; }), {matrix, row}},
      {"aten.eq.Scalar", unary([](T a) { return a == 0; }), {matrix}},
      {"aten.ne.Tensor", binary([](T a, T b) { return a != b; }), {matrix, row}},
      {"aten.ne.Scalar", unary([](T a) { return a != 0; }), {matrix}},
      {"aten.logical_and", binary([](T a, T b) { return at::logical_and(a, b); }), {matrix, row},
       Case::Values::Any, {0, 1}},
      {"aten.logical_or", binary([](T a, T b) { return at::logical_or(a, b); }), {matrix, row},
       Case::Values::Any, {0, 1}},
      {"aten.logical_not", unary([](T a) { return at::logical_not(a); }), {matrix},
       Case::Values::Any, {0}},
      {"aten.bitwise_and.Tensor", binary([](T a, T b) { return at::bitwise_and(a, b); }),
       {matrix, row}, Case::Values::Any, {0, 1}},
      {"aten.bitwise_or.Tensor", binary([](T a, T b) { return at::bitwise_or(a, b); }),
       {matrix, row}, Case::Values::Any, {0, 1}},
      {"aten.bitwise_not", unary([](T a) { return at::bitwise_not(a); }), {matrix},
       Case::Values::Any, {0}},
      {"aten._to_copy", unary([](T a) { return a.to(at::kDouble).to(at::kFloat); }), {matrix}},
      {"aten._to_copy", unary([](T a) { return a.to(at::kLong); }), {matrix}, Unit},
      {"aten.clone", unary([](T a) { return a.clone() * 2; }), {matrix}},
      {"aten.mul.Tensor", binary([](T a, T b) { return a * b; }), {matrix, matrix},
       Case::Values::Any, {1}},
  };
}

std::vector<Case> row_cases() {
  using T = const at::Tensor&;
  const std::vector<int64_t> batch = {3, 5, 17}, image = {3, 4, 5, 6}, channels = {4};
  return {
      {"aten._softmax", unary([](T x) { return at::_softmax(x, -1, false); }), {batch}, Unit},
      {"aten._log_softmax", unary([](T x) { return at::_log_softmax(x, -1, false); }), {batch}, Unit},
      {"aten._softmax_backward_data",
       binary([](T a, T b) { return at::_softmax_backward_data(a, b, -1, a.scalar_type()); }),
       {batch, batch}, Unit},
      {"aten._log_softmax_backward_data",
       binary([](T a, T b) { return at::_log_softmax_backward_data(a, b, -1, a.scalar_type()); }),
       {batch, batch}, Unit},
      {"aten.logsumexp", unary([](T x) { return at::logsumexp(x, {-1}); }), {batch}, Unit},
      {"aten.native_layer_norm",
       [](const Tensors& in) {
         return listed(at::native_layer_norm(in[0], {17}, in[1], in[2], 1e-5));
       },
       {batch, {17}, {17}}, Unit},
      {"aten.native_layer_norm",
       [](const Tensors& in) {
         return listed(at::native_layer_norm(in[0], {5, 17}, {}, {}, 1e-5));
       },
       {batch}, Unit},
      {"aten.native_layer_norm_backward",
       [](const Tensors& in) {
         return listed(at::native_layer_norm_backward(in[0], in[1], {17}, in[2], in[3], in[4], in[5],
                                                      {true, true, true}));
       },
       {batch, batch, {3, 5, 1}, {3, 5, 1}, {17}, {17}}, Unit},
      {"aten._native_batch_norm_legit_functional",
       [](const Tensors& in) {
         return listed(at::_native_batch_norm_legit_functional(in[0], in[1], in[2], in[3], in[4],
                                                               true, 0.1, 1e-5));
       },
       {image, channels, channels, channels, channels}, Positive},
      {"aten.native_batch_norm_backward",
       [](const Tensors& in) {
         return listed(at::native_batch_norm_backward(in[0], in[1], in[2], {}, {}, in[3], in[4], true,
                                                      1e-5, {true, true, true}));
       },
       {image, image, channels, channels, channels}, Unit},
      {"aten.var.correction", unary([](T x) { return at::var(x, {-1}, 1, true); }), {batch}, Unit},
      {"aten.var_mean.correction",
       [](const Tensors& in) { return listed(at::var_mean(in[0], {1, 2}, 0)); }, {batch}, Unit},
      {"aten.sum", unary([](T x) { return at::sum(x); }), {batch}, Unit},
      {"aten.sum.dim_IntList", unary([](T x) { return at::sum(x, {-1}); }), {batch}, Unit},
      {"aten.sum.dim_IntList", unary([](T x) { return at::sum(x, {0, 1}); }), {batch}, Unit},
      {"aten.sum.dim_IntList", unary([](T x) { return at::sum(x, {0}, true); }), {batch}, Unit},
      {"aten.sum.dim_IntList", unary([](T x) { return at::sum(x, {0, 2, 3}); }), {image}, Unit},
      {"aten.mean", unary([](T x) { return at::mean(x); }), {batch}, Unit},
      {"aten.mean.dim", unary([](T x) { return at::mean(x, {1, 2}, true); }), {batch}, Unit},
      {"aten.mean.dim", unary([](T x) { return at::mean(x, {0}); }), {batch}, Unit},
      {"aten.amax", unary([](T x) { return at::amax(x, {-1}, true); }), {batch}},
      {"aten.amin", unary([](T x) { return at::amin(x, {-1}); }), {batch}},
      {"aten.mse_loss", binary([](T a, T b) { return at::mse_loss(a, b); }), {batch, batch}, Unit},
      {"aten.mse_loss", binary([](T a, T b) { return at::mse_loss(a, b, 0); }), {batch, batch}, Unit},
      {"aten.binary_cross_entropy",
       binary([](T a, T b) { return at::binary_cross_entropy(a, b); }), {batch, batch}, Positive},
  };
}

/// Ordinary values, and where they are wanted all kinds of others.
at::Tensor make_values(const std::vector<int64_t>& shape, Case::Values values, bool is_mask) {
  at::Tensor made = at::randn(shape, at::kDouble);
  if (is_mask) return made > 0;
  if (values == Positive) return at::rand(shape, at::kDouble) * 0.9 + 0.05;
  if (values == Unit) return made;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  std::vector<double> special = {0.0, -0.0, 1, -1, 3, -3, 6, 0.5, 2.5, -2.5, 20, -20, 88, -90, 1e-3};
  if (values == Case::Values::Any)
    for (const double more : {infinity, -infinity, std::nan(""), 1e-40, 3e38, -3e38})
      special.push_back(more);
  made = made * 3;
  at::Tensor flat = made.view(-1);
  for (size_t i = 0; i < special.size() && static_cast<int64_t>(2 * i) < flat.numel(); ++i)
    flat[static_cast<int64_t>(2 * i)] = special[i];
  return made;
}

struct Prepared {
  const Case* of;
  at::ScalarType dtype;
  Tensors arguments, wide;  ///< `wide`: the same numbers in float64
  Graph graph;
  Kernel kernel;
  PrintedKernel printed;
};

/// How far from float64 results may be, beside what eager's are: in units of the last place.
double tolerance(at::ScalarType dtype) {
  return dtype == at::kDouble ? 4e-13 : dtype == at::kFloat ? 2e-6 : dtype == at::kHalf ? 2e-3 : 1.6e-2;
}

class Rules : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  void add(const Case& of) {
    Prepared made{&of, GetParam(), {}, {}, {}, {}, {}};
    for (size_t i = 0; i < of.shapes.size(); ++i) {
      const bool is_mask = of.masks.count(i) != 0;
      at::Tensor values = make_values(of.shapes[i], of.values, is_mask);
      at::Tensor argument = is_mask ? values : values.to(GetParam());
      made.arguments.push_back(argument);
      made.wide.push_back(is_mask ? values : argument.to(at::kDouble));
    }
    made.graph = trace(of.call, made.arguments);
    for (const Node& node : made.graph.nodes()) seen_.insert(node.op().name());
    try {
      made.kernel = lower(made.graph);
    } catch (const c10::Error& error) {
      ADD_FAILURE() << of.name << ": " << error.what_without_backtrace();
      return;
    }
    made.printed = print_kernel(made.kernel, host_target().vector_bytes);
    prepared_.push_back(std::move(made));
  }

  void run_all() {
    std::vector<KernelSource> sources;
    for (const Prepared& one : prepared_) sources.push_back({one.printed.name, one.printed.text});
    const std::vector<KernelAddress> addresses = build_kernels(sources);
    for (size_t i = 0; i < prepared_.size(); ++i) {
      ASSERT_NE(addresses[i], nullptr) << prepared_[i].printed.text;
      check(prepared_[i], addresses[i]);
    }
  }

  static void check(const Prepared& one, KernelAddress address) {
    const KernelCall call(one.graph, one.kernel, one.printed, address);
    const Tensors eager = interpret(one.graph, one.arguments);
    const Tensors exact = one.of->call(one.wide);
    const Tensors native = call(Tensors(one.arguments));
    ASSERT_EQ(native.size(), eager.size());
    for (size_t i = 0; i < native.size(); ++i) {
      EXPECT_EQ(native[i].scalar_type(), eager[i].scalar_type());
      EXPECT_EQ(native[i].sizes(), eager[i].sizes());
      EXPECT_EQ(native[i].strides(), eager[i].strides());
      const at::Tensor a = native[i].to(at::kDouble), b = eager[i].to(at::kDouble);
      const at::Tensor truth = exact[i].to(at::kDouble);
      // Where eager is not a number, so is this, unless there is a number that it should be.
      const at::Tensor same =
          at::eq(a, b) | (at::isnan(a) & at::isnan(b)) | (at::isnan(b) & at::eq(a, truth));
      const at::Tensor allowed =
          4 * (b - truth).abs() + tolerance(one.dtype) * (truth.abs() + 0.5);
      const at::Tensor good = same | ((a - truth).abs() <= allowed);
      if (good.all().item<bool>()) continue;
      const at::Tensor bad = at::nonzero(~good.reshape(-1)).reshape(-1)[0];
      const auto at = [&](const at::Tensor& tensor) {
        return tensor.reshape(-1).index({bad}).item<double>();
      };
      ADD_FAILURE() << one.of->name << " " << c10::toString(one.dtype) << " result " << i << ": "
                    << at(a) << ", eager " << at(b) << ", exactly " << at(truth) << "\n"
                    << one.kernel.str();
    }
  }

  std::set<std::string> seen_;
  std::vector<Prepared> prepared_;
};

TEST_P(Rules, AreWithinTheirTolerance) {
  torch::manual_seed(7);
  const std::vector<Case> pointwise = pointwise_cases(), rows = row_cases();
  for (const Case& one : pointwise) add(one);
  for (const Case& one : rows) add(one);
  run_all();
}

TEST_P(Rules, AreAllTested) {
  const std::vector<Case> pointwise = pointwise_cases(), rows = row_cases();
  for (const Case& one : pointwise) add(one);
  for (const Case& one : rows) add(one);
  // Shapes and numbers alone, and overloads that tracing turns into the ones for tensors.
  const std::set<std::string> others = {
      "aten.add.Scalar", "aten.sub.Scalar", "aten.mul.Scalar",  "aten.div.Scalar", "aten.rsub.Tensor",
      "aten.square",     "aten.isnan",      "aten.zeros_like",  "aten.ones_like",  "aten.full_like",
      "aten.zeros",      "aten.ones",       "aten.full",        "aten.scalar_tensor",
      "aten.new_zeros",  "aten.new_ones",   "aten.new_full"};
  for (const Rule* family : {pointwise_rules, row_rules}) {
    for (const Rule* rule = family; rule->name != nullptr; ++rule) {
      EXPECT_TRUE(seen_.count(rule->name) != 0 || others.count(rule->name) != 0) << rule->name;
      EXPECT_NE(Operator::find(rule->name), nullptr) << rule->name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, Rules,
                         ::testing::Values(at::kFloat, at::kDouble, at::kBFloat16, at::kHalf),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

}  // namespace
}  // namespace ahead::native
