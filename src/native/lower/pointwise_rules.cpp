#include <cmath>

#include "native/lower/places.h"

namespace ahead::native {
namespace {

/// One element of the results for the same element of the operands.
std::optional<Work> pointwise(const Node& node) {
  if (node.results().size() != 1) return std::nullopt;
  auto work = work_over(node, node.result(0)->meta);
  if (work) work->results.push_back(place_without(work->space.size(), 0, false));
  return work;
}

Type result_type(const Node& node) {
  return *compute_type(node.result(0)->meta.dtype);
}

bool is_narrow(at::ScalarType dtype) {
  return dtype == at::kBFloat16 || dtype == at::kHalf;
}

bool takes_wide_numbers(const Node& node) {
  for (const Argument& argument : node.args()) {
    if (argument.is_constant() && argument.constant().isComplexDouble()) return true;
  }
  return false;
}

/// Arithmetic for which integers are as good as other numbers.
std::optional<Work> numeric(const Node& node) {
  if (result_type(node) == Type::Bool || takes_wide_numbers(node)) return std::nullopt;
  if (!is_float(result_type(node))) {
    // A number that is not whole takes part in another way than in() has it.
    for (const Argument& argument : node.args()) {
      if (argument.is_constant() && argument.constant().isDouble()) return std::nullopt;
    }
  }
  return pointwise(node);
}

std::optional<Work> floating(const Node& node) {
  if (!is_float(result_type(node)) || takes_wide_numbers(node)) return std::nullopt;
  return pointwise(node);
}

/// All tensors have one dtype, and numbers are exact in it.
std::optional<Work> comparison(const Node& node) {
  std::optional<at::ScalarType> dtype;
  bool fits = !takes_wide_numbers(node) && node.args()[0].is_value();
  node.for_each_operand([&](const Value* value) {
    fits = fits && (!dtype || *dtype == value->meta.dtype);
    dtype = value->meta.dtype;
  });
  if (!fits || *dtype == at::kBool) return std::nullopt;
  const bool is_whole = !is_float(*compute_type(*dtype));
  for (const Argument& argument : node.args()) {
    if (!argument.is_constant()) continue;
    if (is_whole && argument.constant().isDouble()) return std::nullopt;
  }
  return pointwise(node);
}

/// All tensors are of type bool.
std::optional<Work> logic(const Node& node) {
  bool fits = true;
  node.for_each_operand([&](const Value* value) { fits = fits && value->meta.dtype == at::kBool; });
  return fits ? pointwise(node) : std::nullopt;
}

/// A choice between tensors, or numbers, of the result's dtype by a tensor of type bool.
std::optional<Work> choice(const Node& node) {
  size_t masks = 0;
  node.for_each_operand([&](const Value* value) { masks += value->meta.dtype == at::kBool; });
  return masks == 1 ? numeric(node) : std::nullopt;
}

/// The same with two results.
std::optional<Work> floating_pair(const Node& node) {
  if (!is_float(result_type(node)) || is_narrow(node.result(0)->meta.dtype)) return std::nullopt;
  auto work = work_over(node, node.result(0)->meta);
  if (work) work->results.assign(2, place_without(work->space.size(), 0, false));
  return work;
}

/// A copy in another dtype or layout.
std::optional<Work> conversion(const Node& node) {
  if (!node.args()[0].is_value()) return std::nullopt;
  return pointwise(node);
}

/// A copy of the argument 1, which is laid out as the first, of which nothing else is read.
std::optional<Work> copy_like(const Node& node) {
  auto work = pointwise(node);
  if (work) work->arguments[0].assign(node.args()[0].value()->meta.sizes.size(), -1);
  return work;
}

std::optional<Work> constant(const Node& node) {
  Work work;
  for (const int64_t size : at::IntArrayRef(node.result(0)->meta.sizes)) work.space.push_back(size);
  work.arguments.resize(node.args().size());
  work.results.push_back(place_without(work.space.size(), 0, false));
  return work;
}

/// A sum of the first operand and the second times a number. In 16 bits ATen rounds operands of
/// other dtypes first, and the number, and the product.
std::optional<Work> scaled_sum(const Node& node) {
  const at::ScalarType dtype = node.result(0)->meta.dtype;
  const at::Scalar scale = node.args()[2].constant().toScalar();
  bool fits = !is_narrow(dtype) || (!scale.isComplex() && scale.toDouble() == 1);
  node.for_each_operand([&](const Value* value) {
    fits = fits && (!is_narrow(dtype) || value->meta.dtype == dtype);
  });
  return fits ? numeric(node) : std::nullopt;
}

/// ATen rounds each step in half precision, where numbers become infinite soon.
std::optional<Work> wide_floating(const Node& node) {
  return node.result(0)->meta.dtype == at::kHalf ? std::nullopt : floating(node);
}

/// In 16 bits ATen rounds in between.
std::optional<Work> full_floating(const Node& node) {
  return is_narrow(node.result(0)->meta.dtype) ? std::nullopt : floating(node);
}

std::optional<Work> known_power(const Node& node) {
  if (!is_float(result_type(node))) {
    if (!node.args()[1].is_constant() || !node.args()[1].constant().isInt()) return std::nullopt;
    const int64_t exponent = node.args()[1].constant().toInt();
    if (exponent < 1 || exponent > 3) return std::nullopt;
  }
  return pointwise(node);
}

/// An operand of a sum; a number as the result's dtype has it.
Formula summand(Emitter& e, size_t operand) {
  const at::ScalarType dtype = e.node().result(0)->meta.dtype;
  if (e.node().args()[operand].is_value() || !is_narrow(dtype)) return e.in(operand);
  return e.constant(Type::F32, held_by(dtype, e.number(operand)).toDouble());
}

/// One operand and the other times `sign` and the number that scales it.
template <int sign>
void scaled_add(Emitter& e, size_t plain, size_t scaled) {
  const Formula x = summand(e, plain), y = summand(e, scaled);
  if (e.number(2) == 1) return e.out(0, sign > 0 ? x + y : x - y);
  const Formula scale = e.in(2);
  e.out(0, multiply_add(y, sign > 0 ? scale : -scale, x));
}

/// What the user divides is the quotient to the last bit, which may be rounded down or compared.
Formula quotient(Formula dividend, Formula divisor) {
  const Term& by = divisor.builder->term(divisor.id);
  int exponent = 0;
  const bool is_power_of_2 =
      by.op == Op::Number && std::fabs(std::frexp(by.number, &exponent)) == 0.5;
  return is_power_of_2 ? dividend / divisor : dividend.apply(Op::Div, divisor);
}

void power(Emitter& e) {
  const at::ScalarType dtype = e.node().result(0)->meta.dtype;
  const Formula x = e.in(0);
  const double exponent = e.number(1);
  // In half precision ATen has no square roots here; they differ for -0 and -inf.
  const bool has_roots = dtype != at::kHalf;
  if (exponent == 0) return e.out(0, x.number(1));
  if (exponent == 1) return e.out(0, x);
  if (exponent == 2) return e.out(0, x * x);
  if (exponent == 3) return e.out(0, x * x * x);
  if (exponent == 0.5 && has_roots) return e.out(0, sqrt(x));
  if (exponent == -0.5 && has_roots) return e.out(0, rsqrt(x));
  if (exponent == -1) return e.out(0, 1 / x);
  if (exponent == -2) return e.out(0, 1 / (x * x));
  e.out(0, x.apply(Op::Pow, x.number(held_by(dtype, exponent).toDouble())));
}

/// Bounds that are equal to the number, as zeros of both signs are, leave it as it is.
Formula at_least(Formula x, Formula bound) {
  return select(x < bound, bound, x);
}

Formula at_most(Formula x, Formula bound) {
  return select(bound < x, bound, x);
}

/// Bounds are numbers; where one is a NaN, so is the result.
Formula clamp(Emitter& e, Formula x, std::optional<size_t> least, std::optional<size_t> most) {
  for (const std::optional<size_t> bound : {least, most}) {
    if (bound && e.has(*bound) && std::isnan(e.number(*bound))) return e.in(*bound);
  }
  if (least && e.has(*least)) x = at_least(x, e.in(*least));
  if (most && e.has(*most)) x = at_most(x, e.in(*most));
  return x;
}

bool by_tanh(Emitter& e, size_t argument) {
  return e.node().args()[argument].constant().toStringRef() == "tanh";
}

constexpr double kGeluCubic = 0.044715;
const double kGeluScale = M_SQRT2 * M_2_SQRTPI * 0.5;

void gelu(Emitter& e) {
  const Formula x = e.in(0);
  if (by_tanh(e, 1)) {
    e.out(0, 0.5 * x * (1 + tanh(kGeluScale * (x + kGeluCubic * (x * x * x)))));
  } else {
    e.out(0, x * 0.5 * (1 + erf(x * M_SQRT1_2)));
  }
}

void gelu_backward(Emitter& e) {
  const Formula grad = e.in(0), x = e.in(1);
  if (by_tanh(e, 2)) {
    const Formula squared = x * x;
    const Formula inner = tanh(kGeluScale * (x + kGeluCubic * (squared * x)));
    const Formula slope = kGeluScale * (1 + 3 * kGeluCubic * squared);
    e.out(0, grad * (0.5 * (1 + inner) + 0.5 * x * (1 - inner * inner) * slope));
  } else {
    const Formula below = 0.5 * (1 + erf(x * M_SQRT1_2));
    const Formula density = exp(-0.5 * (x * x)) * (M_2_SQRTPI * M_SQRT1_2 * 0.5);
    e.out(0, grad * (below + x * density));
  }
}

void elu(Emitter& e) {
  const Formula x = e.in(0);
  const Formula below = expm1(x * e.in(3)) * (e.number(1) * e.number(2));
  e.out(0, select(x < 0, below, x * e.in(2)));
}

void elu_backward(Emitter& e) {
  const Formula grad = e.in(0), x = e.in(5);
  const double below = e.number(1) * e.number(2), inner = e.number(3);
  const Formula slope = e.flag(4) ? (x + below) * inner : exp(x * inner) * (inner * below);
  e.out(0, select(x > 0, grad * e.in(2), grad * slope));
}

Formula softplus(Formula x) {
  return select(x > 20, x, log1p(exp(x)));
}

void softplus_forward(Emitter& e) {
  const Formula x = e.in(0), scaled = x * e.in(1);
  e.out(0, select(scaled > e.in(2), x, log1p(exp(scaled)) / e.in(1)));
}

void softplus_backward(Emitter& e) {
  const Formula grad = e.in(0), scaled = e.in(1) * e.in(2);
  const Formula grown = exp(scaled);
  e.out(0, select(scaled > e.in(3), grad, grad * grown / (grown + 1)));
}

void mish_backward(Emitter& e) {
  const Formula x = e.in(1), inner = tanh(log1p(exp(x)));
  e.out(0, e.in(0) * (inner + x * sigmoid(x) * (1 - inner * inner)));
}

void lerp(Emitter& e) {
  const Formula from = e.in(0), to = e.in(1), weight = e.in(2), way = to - from;
  e.out(0, select(abs(weight) < 0.5, multiply_add(weight, way, from),
                  multiply_add(weight - 1, way, to)));
}

/// The gradient of a loss for each element of the argument 1, where the argument `reduction` says
/// that the loss is their mean.
double share_of_mean(Emitter& e, size_t reduction) {
  if (e.node().args()[reduction].constant().toInt() != 1) return 1;
  return 1 / static_cast<double>(e.node().args()[1].value()->meta.numel().fixed());
}

void mse_backward(Emitter& e) {
  e.out(0, 2 * share_of_mean(e, 3) * (e.in(1) - e.in(2)) * e.in(0));
}

void smooth_l1_backward(Emitter& e) {
  const Formula grad = e.in(0) * share_of_mean(e, 3), off = e.in(1) - e.in(2);
  const double beta = e.number(4);
  const Formula between = beta == 0 ? grad * off : grad * off / beta;
  e.out(0, select(off <= -beta, -grad, select(off >= beta, grad, between)));
}

void huber_backward(Emitter& e) {
  const Formula grad = e.in(0) * share_of_mean(e, 3), off = e.in(1) - e.in(2);
  const double delta = e.number(4);
  e.out(0, select(off <= -delta, -grad * delta, select(off >= delta, grad * delta, grad * off)));
}

void log_sigmoid(Emitter& e) {
  const Formula x = e.in(0), shrunk = exp(-abs(x));
  e.out(0, minimum(x, 0) - log1p(shrunk));
  e.out(1, shrunk);
}

void log_sigmoid_backward(Emitter& e) {
  const Formula x = e.in(1), shrunk = e.in(2), ratio = shrunk / (1 + shrunk);
  e.out(0, e.in(0) * select(x < 0, 1 - ratio, ratio));
}

void x_log_y(Emitter& e) {
  const Formula x = e.in(0), y = e.in(1);
  e.out(0, select(equal(x, x.number(0)) & equal(y, y), 0, x * log(y)));
}

void bce_backward(Emitter& e) {
  const bool is_mean = e.node().args()[4].constant().toInt() == 1;
  const Formula x = e.in(1);
  Formula slope = (x - e.in(2)) / maximum((1 - x) * x, 1e-12);
  if (e.has(3)) slope = slope * e.in(3);
  Formula grad = e.in(0) * slope;
  if (is_mean) grad = grad / static_cast<double>(e.node().args()[1].value()->meta.numel().fixed());
  e.out(0, grad);
}

void convert(Emitter& e) {
  e.out(0, e.in(0));
}

template <Op op>
void apply(Emitter& e) {
  e.out(0, e.in(0).apply(op));
}

template <Op op>
void apply_two(Emitter& e) {
  e.out(0, e.in(0).apply(op, e.in(1)));
}

template <int value>
void constant_value(Emitter& e) {
  const Type type = *compute_type(e.node().result(0)->meta.dtype);
  e.out(0, e.constant(type, value));
}

template <size_t argument>
void given_value(Emitter& e) {
  e.out(0, e.in(argument));
}

}  // namespace

const Rule pointwise_rules[] = {
    {"aten.add.Tensor", scaled_sum, [](Emitter& e) { scaled_add<1>(e, 0, 1); }},
    {"aten.add.Scalar", scaled_sum, [](Emitter& e) { scaled_add<1>(e, 0, 1); }},
    {"aten.sub.Tensor", scaled_sum, [](Emitter& e) { scaled_add<-1>(e, 0, 1); }},
    {"aten.sub.Scalar", scaled_sum, [](Emitter& e) { scaled_add<-1>(e, 0, 1); }},
    {"aten.rsub.Scalar", scaled_sum, [](Emitter& e) { scaled_add<-1>(e, 1, 0); }},
    {"aten.rsub.Tensor", scaled_sum, [](Emitter& e) { scaled_add<-1>(e, 1, 0); }},
    {"aten.mul.Tensor", numeric, apply_two<Op::Mul>},
    {"aten.mul.Scalar", numeric, apply_two<Op::Mul>},
    {"aten.div.Tensor", floating, [](Emitter& e) { e.out(0, quotient(e.in(0), e.in(1))); }},
    {"aten.div.Scalar", floating, [](Emitter& e) { e.out(0, quotient(e.in(0), e.in(1))); }},
    {"aten.neg", numeric, apply<Op::Neg>},
    {"aten.abs", numeric, apply<Op::Abs>},
    {"aten.sign", floating, apply<Op::Sign>},
    {"aten.sgn", floating, apply<Op::Sign>},
    {"aten.maximum", numeric, apply_two<Op::Maximum>},
    {"aten.minimum", numeric, apply_two<Op::Minimum>},
    {"aten.clamp", numeric, [](Emitter& e) { e.out(0, clamp(e, e.in(0), 1, 2)); }},
    {"aten.clamp_min", numeric, [](Emitter& e) { e.out(0, clamp(e, e.in(0), 1, {})); }},
    {"aten.clamp_max", numeric, [](Emitter& e) { e.out(0, clamp(e, e.in(0), {}, 1)); }},
    {"aten.clamp_min.Tensor", numeric, apply_two<Op::Maximum>},
    {"aten.clamp_max.Tensor", numeric, apply_two<Op::Minimum>},
    {"aten.square", numeric, [](Emitter& e) { e.out(0, e.in(0) * e.in(0)); }},
    {"aten.reciprocal", floating, [](Emitter& e) { e.out(0, 1 / e.in(0)); }},
    {"aten.pow.Tensor_Scalar", known_power, power},
    {"aten.pow.Tensor_Tensor", floating, apply_two<Op::Pow>},
    {"aten.xlogy.Tensor", floating, x_log_y},
    {"aten.addcmul", numeric,
     [](Emitter& e) { e.out(0, multiply_add(e.in(3) * e.in(1), e.in(2), e.in(0))); }},
    {"aten.addcdiv", floating, [](Emitter& e) { e.out(0, e.in(0) + e.in(3) * e.in(1) / e.in(2)); }},
    {"aten.lerp.Scalar", floating, lerp},
    {"aten.lerp.Tensor", floating, lerp},
    {"aten.exp", floating, apply<Op::Exp>},
    {"aten.expm1", floating, apply<Op::Expm1>},
    {"aten.log", floating, apply<Op::Log>},
    {"aten.log2", floating, apply<Op::Log2>},
    {"aten.log10", floating, apply<Op::Log10>},
    {"aten.log1p", floating, apply<Op::Log1p>},
    {"aten.erf", floating, apply<Op::Erf>},
    {"aten.tanh", floating, apply<Op::Tanh>},
    {"aten.sigmoid", floating, apply<Op::Sigmoid>},
    {"aten.sin", floating, apply<Op::Sin>},
    {"aten.cos", floating, apply<Op::Cos>},
    {"aten.sqrt", floating, apply<Op::Sqrt>},
    {"aten.rsqrt", floating, apply<Op::Rsqrt>},
    {"aten.floor", floating, apply<Op::Floor>},
    {"aten.ceil", floating, apply<Op::Ceil>},
    {"aten.trunc", floating, apply<Op::Trunc>},
    {"aten.round", floating, apply<Op::Round>},
    {"aten.relu", numeric, [](Emitter& e) { e.out(0, at_least(e.in(0), e.in(0).number(0))); }},
    {"aten.threshold_backward", numeric,
     [](Emitter& e) { e.out(0, select(e.in(1) <= e.in(2), 0, e.in(0))); }},
    {"aten.leaky_relu", floating,
     [](Emitter& e) { e.out(0, select(e.in(0) > 0, e.in(0), e.in(0) * e.in(1))); }},
    {"aten.leaky_relu_backward", floating,
     [](Emitter& e) { e.out(0, select(e.in(1) > 0, e.in(0), e.in(0) * e.in(2))); }},
    {"aten.hardtanh", floating, [](Emitter& e) { e.out(0, clamp(e, e.in(0), 1, 2)); }},
    {"aten.hardtanh_backward", floating,
     [](Emitter& e) { e.out(0, select((e.in(1) > e.in(2)) & (e.in(1) < e.in(3)), e.in(0), 0)); }},
    {"aten.hardsigmoid", floating,
     [](Emitter& e) { e.out(0, minimum(maximum(e.in(0) + 3, 0), 6) / 6); }},
    {"aten.hardsigmoid_backward", floating,
     [](Emitter& e) {
       // ATen's sixth is a float32 in float64, too.
       e.out(0, select((e.in(1) > -3) & (e.in(1) < 3), e.in(0) * (1.0f / 6), 0));
     }},
    {"aten.hardswish", floating,
     [](Emitter& e) { e.out(0, e.in(0) * minimum(maximum(e.in(0) + 3, 0), 6) / 6); }},
    {"aten.gelu", floating, gelu},
    {"aten.gelu_backward", floating, gelu_backward},
    {"aten.silu", floating, [](Emitter& e) { e.out(0, e.in(0) * sigmoid(e.in(0))); }},
    {"aten.silu_backward", floating,
     [](Emitter& e) {
       const Formula x = e.in(1), s = sigmoid(x);
       e.out(0, e.in(0) * s * (1 + x * (1 - s)));
     }},
    {"aten.mish", floating, [](Emitter& e) { e.out(0, e.in(0) * tanh(softplus(e.in(0)))); }},
    {"aten.mish_backward", floating, mish_backward},
    {"aten.elu", floating, elu},
    {"aten.elu_backward", floating, elu_backward},
    {"aten.softplus", floating, softplus_forward},
    {"aten.softplus_backward", floating, softplus_backward},
    {"aten.tanh_backward", floating,
     [](Emitter& e) { e.out(0, e.in(0) * multiply_add(-e.in(1), e.in(1), e.in(0).number(1))); }},
    {"aten.sigmoid_backward", floating,
     [](Emitter& e) { e.out(0, e.in(0) * (1 - e.in(1)) * e.in(1)); }},
    {"aten.native_dropout_backward", floating,
     [](Emitter& e) { e.out(0, e.in(0) * e.in(1) * e.in(2)); }},
    {"aten.log_sigmoid_forward", floating_pair, log_sigmoid},
    {"aten.log_sigmoid_backward", full_floating, log_sigmoid_backward},
    {"aten.mse_loss_backward", wide_floating, mse_backward},
    {"aten.smooth_l1_loss_backward", full_floating, smooth_l1_backward},
    {"aten.huber_loss_backward", full_floating, huber_backward},
    {"aten.binary_cross_entropy_backward", floating, bce_backward},
    {"aten.where.self", choice, [](Emitter& e) { e.out(0, select(e.raw(0), e.in(1), e.in(2))); }},
    {"aten.masked_fill.Scalar", choice,
     [](Emitter& e) { e.out(0, select(e.raw(1), e.in(2), e.in(0))); }},
    {"aten.masked_fill.Tensor", choice,
     [](Emitter& e) { e.out(0, select(e.raw(1), e.in(2), e.in(0))); }},
    {"aten.lt.Tensor", comparison, [](Emitter& e) { e.out(0, e.raw(0) < e.raw(1)); }},
    {"aten.lt.Scalar", comparison, [](Emitter& e) { e.out(0, e.raw(0) < e.raw(1)); }},
    {"aten.le.Tensor", comparison, [](Emitter& e) { e.out(0, e.raw(0) <= e.raw(1)); }},
    {"aten.le.Scalar", comparison, [](Emitter& e) { e.out(0, e.raw(0) <= e.raw(1)); }},
    {"aten.gt.Tensor", comparison, [](Emitter& e) { e.out(0, e.raw(0) > e.raw(1)); }},
    {"aten.gt.Scalar", comparison, [](Emitter& e) { e.out(0, e.raw(0) > e.raw(1)); }},
    {"aten.ge.Tensor", comparison, [](Emitter& e) { e.out(0, e.raw(0) >= e.raw(1)); }},
    {"aten.ge.Scalar", comparison, [](Emitter& e) { e.out(0, e.raw(0) >= e.raw(1)); }},
    {"aten.eq.Tensor", comparison, [](Emitter& e) { e.out(0, equal(e.raw(0), e.raw(1))); }},
    {"aten.eq.Scalar", comparison, [](Emitter& e) { e.out(0, equal(e.raw(0), e.raw(1))); }},
    {"aten.ne.Tensor", comparison, [](Emitter& e) { e.out(0, !equal(e.raw(0), e.raw(1))); }},
    {"aten.ne.Scalar", comparison, [](Emitter& e) { e.out(0, !equal(e.raw(0), e.raw(1))); }},
    {"aten.isnan", comparison, [](Emitter& e) { e.out(0, !equal(e.raw(0), e.raw(0))); }},
    {"aten.logical_and", logic, [](Emitter& e) { e.out(0, e.raw(0) & e.raw(1)); }},
    {"aten.logical_or", logic, [](Emitter& e) { e.out(0, e.raw(0) | e.raw(1)); }},
    {"aten.logical_not", logic, [](Emitter& e) { e.out(0, !e.raw(0)); }},
    {"aten.bitwise_and.Tensor", logic, [](Emitter& e) { e.out(0, e.raw(0) & e.raw(1)); }},
    {"aten.bitwise_or.Tensor", logic, [](Emitter& e) { e.out(0, e.raw(0) | e.raw(1)); }},
    {"aten.bitwise_not", logic, [](Emitter& e) { e.out(0, !e.raw(0)); }},
    {"aten.clone", conversion, convert},
    {"aten._to_copy", conversion, convert},
    {"aten.copy", copy_like, given_value<1>},
    {"aten.zeros_like", constant, constant_value<0>},
    {"aten.ones_like", constant, constant_value<1>},
    {"aten.full_like", constant, given_value<1>},
    {"aten.zeros", constant, constant_value<0>},
    {"aten.ones", constant, constant_value<1>},
    {"aten.full", constant, given_value<1>},
    {"aten.scalar_tensor", constant, given_value<0>},
    {"aten.new_zeros", constant, constant_value<0>},
    {"aten.new_ones", constant, constant_value<1>},
    {"aten.new_full", constant, given_value<2>},
    {nullptr, nullptr, nullptr},
};

}  // namespace ahead::native
