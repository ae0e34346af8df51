#include <cmath>
#include <set>

#include "native/lower/rule.h"
#include "native/rule_cases.h"
#include "support/fuzzing.h"

namespace ahead::native::rules_test {

using at::Tensor;
using test::Against;
using test::RuleCase;
using Args = std::vector<c10::IValue>;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

constexpr at::ScalarType floats[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf};
constexpr at::ScalarType integers[] = {at::kLong, at::kInt};

/// How many units in the last place of a result kernels may be off: by the precision of their
/// functions and one rounding more or less; in 16 bits by the neighbour, where the float32 before
/// it was off. Sums are relative to the sum of magnitudes, norms to the largest number.
struct Ulps {
  double pointwise, sum, norm;
};
bool is_narrow(at::ScalarType dtype) {
  return dtype == at::kBFloat16 || dtype == at::kHalf;
}
Ulps ulps_for(at::ScalarType dtype) {
  return is_narrow(dtype) ? Ulps{1, 1, 2} : Ulps{4, 16, 64};
}

RuleCase pointwise(std::string op, Args args, at::ScalarType dtype,
                   Against against = Against::Result) {
  return {std::move(op), std::move(args), against, ulps_for(dtype).pointwise};
}

RuleCase exact(std::string op, Args args) {
  return {std::move(op), std::move(args), Against::Exact, 0};
}

RuleCase declined(std::string op, Args args) {
  return {std::move(op), std::move(args), Against::Exact, 0, false};
}

/// Numbers at which functions change their course, with those that are none.
Tensor grid(at::ScalarType dtype) {
  std::vector<double> numbers{0.0, -0.0, nan, infinity, -infinity, 1e-40, -1e-40, 1e-310, 1e4, 6e4};
  for (const double size :
       {1e-7, 0.01, 0.1,  0.25, 0.5,  0.75, 1.0,  1.5,   2.0,  2.5,   3.0,    3.5,  6.0,
        7.0,  10.0, 19.5, 20.0, 21.0, 50.0, 85.0, 110.0, 49.0, 255.0, 1000.0, 1e20, 1e30}) {
    numbers.push_back(size);
    numbers.push_back(-size);
  }
  return at::tensor(numbers, at::kDouble).to(dtype);
}

Tensor random(at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::randn(sizes, at::kDouble).to(dtype);
}

/// Whole numbers, with the largest and smallest.
Tensor whole(at::ScalarType dtype) {
  const int64_t most =
      dtype == at::kInt ? std::numeric_limits<int32_t>::max() : std::numeric_limits<int64_t>::max();
  return at::tensor({int64_t{0}, int64_t{1}, int64_t{-1}, int64_t{2}, int64_t{-7}, int64_t{100},
                     int64_t{46341}, int64_t{1000003}, most, -most - 1, most - 5})
      .to(dtype);
}

Tensor booleans() {
  return at::arange(5) % 3 == 0;
}

/// All pairs: the first along rows, the second along columns.
Tensor down(const Tensor& numbers) {
  return numbers.unsqueeze(1);
}

/// The numbers of a mask, often enough for a tensor.
Tensor mask_for(const Tensor& tensor) {
  return (at::arange(tensor.numel()) % 3 == 0).view(tensor.sizes());
}

// Of one number.

void add_unary(std::vector<RuleCase>& cases, at::ScalarType dtype) {
  const Tensor x = grid(dtype);
  for (const char* op :
       {"aten.exp", "aten.expm1", "aten.log", "aten.log2", "aten.log10", "aten.log1p", "aten.tanh",
        "aten.sigmoid", "aten.sin", "aten.cos", "aten.sqrt", "aten.rsqrt", "aten.silu",
        "aten.hardsigmoid", "aten.hardswish", "aten.mish"})
    cases.push_back(pointwise(op, {x}, dtype));
  for (const char* op :
       {"aten.reciprocal", "aten.square", "aten.neg", "aten.abs", "aten.sign", "aten.sgn",
        "aten.floor", "aten.ceil", "aten.trunc", "aten.round", "aten.relu", "aten.isnan",
        "aten.clone", "aten.zeros_like", "aten.ones_like"})
    cases.push_back(exact(op, {x}));
  // ATen's error function of tiny numbers is 0 in 16 bits.
  cases.push_back(pointwise("aten.erf", {x.where(~(x.abs() < 1e-3), 0.5)}, dtype));
  // 1 + erf(x) and 1 + tanh(x) of negative numbers lose what eager loses in another way.
  for (const char* approximation : {"none", "tanh"}) {
    const Tensor moderate = at::linspace(-8, 8, 97, at::kDouble).to(dtype);
    cases.push_back(pointwise("aten.gelu", {moderate, approximation}, dtype, Against::Operands));
    cases.push_back({"aten.gelu_backward",
                     {random(moderate.sizes(), dtype), moderate, approximation},
                     Against::Operands,
                     ulps_for(dtype).norm});
  }
  for (const double exponent :
       {0.0, 1.0, 2.0, 3.0, 0.5, -0.5, -1.0, -2.0, 9.0, 10.25, 0.375, infinity, nan})
    cases.push_back(pointwise("aten.pow.Tensor_Scalar", {x, exponent}, dtype));
  cases.push_back(pointwise("aten.pow.Tensor_Scalar", {x, 2}, dtype));
  cases.push_back(exact("aten.leaky_relu", {x, 0.25}));
  cases.push_back(pointwise("aten.elu", {x, 1.0, 1.0, 1.0}, dtype));
  cases.push_back(pointwise("aten.elu", {x, 1.5, 0.5, 0.25}, dtype));
  cases.push_back(pointwise("aten.softplus", {x, 1.0, 20.0}, dtype));
  cases.push_back(pointwise("aten.softplus", {x, 2.0, 6.0}, dtype));
  const auto clamp = [&](const char* op, Args bounds) {
    bounds.insert(bounds.begin(), x);
    cases.push_back(exact(op, std::move(bounds)));
  };
  for (const double bound : {0.1, -3.0, 0.0, infinity, nan}) {
    clamp("aten.clamp", {bound, c10::IValue()});
    clamp("aten.clamp", {c10::IValue(), bound});
    clamp("aten.clamp", {-1, bound});
    clamp("aten.clamp_min", {bound});
    clamp("aten.clamp_max", {bound});
  }
  clamp("aten.hardtanh", {-1.0, 1.0});
  clamp("aten.hardtanh", {-0.1, 3.0});
}

// Of two numbers and more.

void add_binary(std::vector<RuleCase>& cases, at::ScalarType dtype) {
  const Tensor x = grid(dtype), y = down(x);
  const auto add = [&](const char* op, Args args, Against against = Against::Result) {
    cases.push_back(pointwise(op, std::move(args), dtype, against));
  };
  for (const double alpha : {1.0, 0.1, -2.0}) {
    if (is_narrow(dtype) && alpha != 1) {
      cases.push_back(declined("aten.add.Tensor", {x, y, alpha}));
      continue;
    }
    add("aten.add.Tensor", {x, y, alpha}, Against::Operands);
    add("aten.sub.Tensor", {x, y, alpha}, Against::Operands);
    add("aten.rsub.Tensor", {x, y, alpha}, Against::Operands);
    add("aten.add.Scalar", {x, 0.3, alpha}, Against::Operands);
    add("aten.sub.Scalar", {x, 0.3, alpha}, Against::Operands);
    add("aten.rsub.Scalar", {x, 0.3, alpha}, Against::Operands);
    add("aten.add.Tensor", {x, 3, alpha}, Against::Operands);
  }
  for (const double number : {0.3, -0.0, infinity, nan, 3.0, 49.0, 1e-3}) {
    for (const char* op :
         {"aten.mul.Scalar", "aten.mul.Tensor", "aten.div.Scalar", "aten.div.Tensor"})
      cases.push_back(exact(op, {x, number}));
  }
  cases.push_back(exact("aten.mul.Tensor", {x, y}));
  cases.push_back(exact("aten.div.Tensor", {x, y}));
  cases.push_back(exact("aten.div.Tensor", {1.0, x}));
  add("aten.pow.Tensor_Tensor", {x, y});
  add("aten.xlogy.Tensor", {x, y});
  for (const char* op :
       {"aten.maximum", "aten.minimum", "aten.clamp_min.Tensor", "aten.clamp_max.Tensor"})
    cases.push_back(exact(op, {x, y}));
  for (const at::ScalarType to : {at::kFloat, at::kHalf, at::kLong}) {
    const Tensor like = at::empty({2, x.size(0)}, to);
    cases.push_back(exact("aten.copy", {like, random({x.size(0)}, dtype)}));
  }
  for (const char* op : {"aten.lt", "aten.le", "aten.gt", "aten.ge", "aten.eq", "aten.ne"}) {
    const std::string name = op;
    cases.push_back(exact(name + ".Tensor", {x, y}));
    cases.push_back(exact(name + ".Tensor", {x, 0.1}));
    for (const double number : {0.1, 3.0, -0.0, nan, infinity, 1e300})
      cases.push_back(exact(name + ".Scalar", {x, number}));
    cases.push_back(exact(name + ".Scalar", {x, 3}));
  }
  // A tensor of one number does not widen the result.
  const Tensor wide = at::scalar_tensor(0.30078, at::kDouble);
  const Tensor many = random({65}, dtype);
  for (const char* op : {"aten.mul.Tensor", "aten.div.Tensor", "aten.maximum", "aten.minimum"})
    cases.push_back(exact(op, {many, wide}));
  for (const char* op : {"aten.add.Tensor", "aten.sub.Tensor", "aten.rsub.Tensor"}) {
    cases.push_back(is_narrow(dtype) ? declined(op, {many, wide}) : exact(op, {many, wide}));
    cases.push_back(exact(op, {many, 0.30078}));
    cases.push_back(exact(op, {many, random({65}, dtype)}));
  }
  for (const char* op : {"aten.add.Scalar", "aten.sub.Scalar", "aten.rsub.Scalar"}) {
    cases.push_back(exact(op, {many, 0.30078}));
  }
  const Tensor mask = mask_for(at::empty({x.numel(), x.numel()}));
  cases.push_back(exact("aten.where.self", {mask, x, y}));
  cases.push_back(exact("aten.where.self", {mask, x, 0.1}));
  for (const double number : {-infinity, 0.1, nan})
    cases.push_back(exact("aten.masked_fill.Scalar", {y.expand_as(mask), mask, number}));
  cases.push_back(exact("aten.masked_fill.Tensor", {x, mask_for(x), at::scalar_tensor(0.1)}));
  const Tensor weights = at::tensor({0.0, 0.25, 0.49, 0.5, 0.75, 1.0, 1.5, -1.0}).to(dtype);
  const Tensor moderate = random({17}, dtype);
  for (const double weight : {0.0, 0.3, 0.5, 1.0, -2.0})
    add("aten.lerp.Scalar", {x, y, weight}, Against::Operands);
  add("aten.lerp.Tensor", {moderate, down(random({8}, dtype)), down(weights)}, Against::Operands);
  for (const double value : {1.0, 0.1, -3.0}) {
    add("aten.addcmul", {x, moderate[3], y, value}, Against::Largest);
    add("aten.addcdiv", {moderate, random({5, 1}, dtype), random({5, 17}, dtype).abs() + 1, value},
        Against::Operands);
  }
}

void add_backwards(std::vector<RuleCase>& cases, at::ScalarType dtype) {
  const Tensor x = grid(dtype);
  const Tensor grad =
      down(at::tensor({1.0, -0.5, 0.1, 3.0}).to(dtype)).expand({4, x.numel()}).clone();
  const Tensor rows = x.expand_as(grad).clone();
  const auto add = [&](const char* op, Args args, Against against = Against::Result) {
    cases.push_back(pointwise(op, std::move(args), dtype, against));
  };
  for (const double threshold : {0.0, 0.1, -3.0})
    cases.push_back(exact("aten.threshold_backward", {grad, rows, threshold}));
  cases.push_back(exact("aten.leaky_relu_backward", {grad, rows, 0.25, false}));
  cases.push_back(exact("aten.hardtanh_backward", {grad, rows, -1.0, 1.0}));
  cases.push_back(exact("aten.hardtanh_backward", {grad, rows, -0.1, 0.1}));
  add("aten.hardsigmoid_backward", {grad, rows});
  add("aten.silu_backward", {grad, rows}, Against::Operands);
  add("aten.mish_backward", {grad, rows}, Against::Operands);
  for (const bool is_result : {false, true}) {
    add("aten.elu_backward", {grad, 1.0, 1.0, 1.0, is_result, rows}, Against::Operands);
    add("aten.elu_backward", {grad, 1.5, 0.5, 0.25, is_result, rows}, Against::Operands);
  }
  add("aten.softplus_backward", {grad, rows, 1.0, 20.0});
  add("aten.softplus_backward", {grad, rows, 2.0, 6.0});
  add("aten.tanh_backward", {grad, rows.tanh()}, Against::Operands);
  add("aten.sigmoid_backward", {grad, rows.sigmoid()}, Against::Operands);
  add("aten.native_dropout_backward", {rows, mask_for(rows), 1.25});
  const Tensor target = random(rows.sizes(), dtype), probability = at::sigmoid(target);
  for (const int64_t reduction : {0, 1, 2}) {
    const Tensor above = reduction == 0 ? random(rows.sizes(), dtype) : random({}, dtype);
    if (dtype == at::kHalf) {
      cases.push_back(declined("aten.mse_loss_backward", {above, rows, target, reduction}));
    } else {
      add("aten.mse_loss_backward", {above, rows, target, reduction}, Against::Operands);
    }
    for (const bool has_weight : {false, true}) {
      const c10::IValue weight = has_weight ? c10::IValue(target.abs()) : c10::IValue();
      add("aten.binary_cross_entropy_backward",
          {above, probability, mask_for(probability).to(dtype), weight, reduction},
          Against::Operands);
    }
  }
}

/// Losses and their gradients, which are for float32 and float64.
void add_losses(std::vector<RuleCase>& cases, at::ScalarType dtype) {
  const Tensor x = grid(dtype), columns = down(grid(dtype));
  const bool is_taken = !is_narrow(dtype);
  const auto add = [&](const char* op, Args args, Against against = Against::Operands) {
    cases.push_back({op, std::move(args), against, ulps_for(dtype).norm, is_taken});
  };
  add("aten.log_sigmoid_forward", {x}, Against::Result);
  const Tensor moderate = random({3, 33}, dtype), off = random({3, 33}, dtype) * 2;
  add("aten.log_sigmoid_backward", {random(x.sizes(), dtype), x, at::exp(-at::abs(x))});
  const Tensor mask = mask_for(moderate).to(dtype);
  for (const int64_t reduction : {0, 1, 2}) {
    const Tensor above = reduction == 0 ? random(moderate.sizes(), dtype) : random({}, dtype);
    for (const double bound : {0.5, 1.0, 2.25}) {
      add("aten.smooth_l1_loss", {moderate, off, reduction, bound}, Against::Largest);
      add("aten.huber_loss", {moderate, off, reduction, bound}, Against::Largest);
      add("aten.smooth_l1_loss_backward", {above, moderate, off, reduction, bound});
      add("aten.huber_loss_backward", {above, moderate, off, reduction, bound});
    }
    add("aten.smooth_l1_loss", {moderate, off, reduction, 0.0}, Against::Largest);
    add("aten.smooth_l1_loss_backward", {above, moderate, off, reduction, 0.0});
    for (const bool has_weights : {false, true}) {
      const c10::IValue weight = has_weights ? c10::IValue(off.abs()) : c10::IValue();
      const c10::IValue positive =
          has_weights ? c10::IValue(random({33}, dtype).abs()) : c10::IValue();
      const Tensor probability = at::sigmoid(off * 20);
      add("aten.binary_cross_entropy", {probability, mask, weight, reduction}, Against::Largest);
      add("aten.binary_cross_entropy_with_logits", {moderate, mask, weight, positive, reduction},
          Against::Largest);
    }
  }
  const Tensor pairs = columns.expand({x.size(0), x.size(0)});
  add("aten.smooth_l1_loss", {pairs, x, 0, 1.0});
  add("aten.huber_loss", {pairs, x, 0, 1.0});
  add("aten.linalg_vector_norm", {moderate, 2, std::vector<int64_t>{1}, true}, Against::Largest);
  add("aten.linalg_vector_norm", {moderate}, Against::Largest);
  cases.push_back(declined("aten.linalg_vector_norm", {moderate, 3}));
}

// Of whole numbers and truth.

void add_integers(std::vector<RuleCase>& cases, at::ScalarType dtype) {
  const Tensor x = whole(dtype), y = down(x);
  for (const char* op : {"aten.neg", "aten.abs", "aten.square", "aten.relu", "aten.clone",
                         "aten.zeros_like", "aten.ones_like", "aten.isnan"})
    cases.push_back(exact(op, {x}));
  for (const char* op :
       {"aten.mul.Tensor", "aten.maximum", "aten.minimum", "aten.lt.Tensor", "aten.le.Tensor",
        "aten.gt.Tensor", "aten.ge.Tensor", "aten.eq.Tensor", "aten.ne.Tensor"})
    cases.push_back(exact(op, {x, y}));
  for (const char* op : {"aten.add.Tensor", "aten.sub.Tensor", "aten.rsub.Tensor"}) {
    cases.push_back(exact(op, {x, y, 3}));
  }
  cases.push_back(exact("aten.add.Tensor", {x, down(booleans()), 1}));
  for (const char* op : {"aten.add.Scalar", "aten.sub.Scalar", "aten.rsub.Scalar"})
    cases.push_back(exact(op, {x, 5, -2}));
  for (const int64_t exponent : {1, 2, 3})
    cases.push_back(exact("aten.pow.Tensor_Scalar", {x, exponent}));
  cases.push_back(declined("aten.pow.Tensor_Scalar", {x, 4}));
  cases.push_back(exact("aten.mul.Scalar", {x, -3}));
  cases.push_back(exact("aten.lt.Scalar", {x, 100}));
  cases.push_back(exact("aten.eq.Scalar", {x, true}));
  cases.push_back(declined("aten.lt.Scalar", {x, 0.5}));
  cases.push_back(exact("aten.clamp", {x, -3, 50}));
  cases.push_back(exact("aten.clamp_min", {x, 2}));
  cases.push_back(exact("aten.addcmul", {x, y, y, 2}));
  cases.push_back(exact("aten.where.self", {mask_for(x), x, 7}));
  cases.push_back(exact("aten.masked_fill.Scalar", {x, mask_for(x), 7}));
  cases.push_back(exact("aten.threshold_backward", {x, x, 1}));
  // These become float32 first.
  for (const char* op : {"aten.div.Tensor", "aten.pow.Tensor_Tensor"}) {
    const Tensor small = at::arange(-5, 6).to(dtype);
    const Tensor divisor =
        op == std::string("aten.div.Tensor") ? down(small) : down(small).to(at::kFloat);
    cases.push_back(pointwise(op, {small, divisor}, at::kFloat));
  }
  cases.push_back(pointwise("aten.add.Tensor", {x, 0.5}, at::kFloat, Against::Operands));
  cases.push_back(pointwise("aten.exp", {at::arange(-5, 6).to(dtype)}, at::kFloat));
  cases.push_back(pointwise("aten.clamp", {x, 0.5, c10::IValue()}, at::kFloat));
  cases.push_back(pointwise("aten.sigmoid", {at::arange(-5, 6).to(dtype)}, at::kFloat));
}

void add_booleans(std::vector<RuleCase>& cases) {
  const Tensor x = booleans(), y = down(x);
  for (const char* op :
       {"aten.logical_and", "aten.logical_or", "aten.bitwise_and.Tensor", "aten.bitwise_or.Tensor"})
    cases.push_back(exact(op, {x, y}));
  for (const char* op :
       {"aten.logical_not", "aten.bitwise_not", "aten.clone", "aten.zeros_like", "aten.ones_like"})
    cases.push_back(exact(op, {x}));
  cases.push_back(exact("aten.mul.Tensor", {x, down(grid(at::kFloat))}));
  cases.push_back(exact("aten.add.Tensor", {x, 3}));
  cases.push_back(declined("aten.add.Tensor", {x, y}));
  cases.push_back(declined("aten.mul.Tensor", {x, y}));
  cases.push_back(declined("aten.lt.Tensor", {x, y}));
  cases.push_back(declined("aten.logical_and", {whole(at::kLong), down(whole(at::kLong))}));
}

void add_conversions(std::vector<RuleCase>& cases) {
  constexpr at::ScalarType all[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf,
                                    at::kLong,  at::kInt,    at::kBool};
  for (const at::ScalarType from : all) {
    // What is beyond a whole number's range becomes whatever the processor makes of it.
    const bool is_float = at::isFloatingType(from);
    const Tensor moderate = at::tensor({0.0, -0.0, 1.0, -1.5, 0.1, 2.5, -250.0, 1e4}).to(from);
    for (const at::ScalarType to : all) {
      const bool is_safe = !is_float || at::isFloatingType(to) || to == at::kBool;
      const Tensor x = is_float && is_safe             ? grid(from)
                       : is_float || from == at::kBool ? moderate
                                                       : whole(from);
      cases.push_back(exact("aten._to_copy", {x, to}));
    }
  }
}

void add_constants(std::vector<RuleCase>& cases) {
  const std::vector<int64_t> sizes{3, 17};
  const Tensor like = at::empty({17, 3}).t();
  for (const at::ScalarType dtype :
       {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong, at::kInt, at::kBool}) {
    for (const char* op : {"aten.zeros", "aten.ones"}) cases.push_back(exact(op, {sizes, dtype}));
    for (const char* op : {"aten.new_zeros", "aten.new_ones"})
      cases.push_back(exact(op, {like, sizes, dtype}));
    for (const char* op : {"aten.zeros_like", "aten.ones_like"})
      cases.push_back(exact(op, {like, dtype}));
    const bool is_float = at::isFloatingType(dtype);
    std::vector<c10::IValue> values{0, -1, 3};
    if (is_float) values.insert(values.end(), {0.1, -0.0, infinity, nan, 1.0 / 3});
    if (dtype == at::kBool) values.insert(values.end(), {true, 0.5});
    if (dtype == at::kLong) values.emplace_back(std::numeric_limits<int64_t>::min());
    for (const c10::IValue& value : values) {
      cases.push_back(exact("aten.full", {sizes, value, dtype}));
    }
    cases.push_back(exact("aten.full_like", {like, values.back(), dtype}));
    cases.push_back(exact("aten.new_full", {like, sizes, values.back(), dtype}));
    cases.push_back(exact("aten.scalar_tensor", {values.back(), dtype}));
  }
}

// Along rows.

/// A matrix whose rows have everything that a row may have.
Tensor special_rows(at::ScalarType dtype) {
  Tensor rows = random({8, 17}, at::kFloat);
  rows[1].fill_(-infinity);
  rows[2][5] = -infinity;
  rows[3][16] = infinity;
  rows[4][0] = nan;
  rows[5].mul_(100);
  rows[6].fill_(0);
  rows[7].fill_(-infinity)[3] = 2;
  return rows.to(dtype);
}

void add_rows(std::vector<RuleCase>& cases, at::ScalarType dtype) {
  const Ulps ulps = ulps_for(dtype);
  const auto add = [&](const char* op, Args args, Against against = Against::Largest) {
    cases.push_back(
        {op, std::move(args), against, against == Against::Magnitudes ? ulps.sum : ulps.norm});
  };
  const Tensor special = special_rows(dtype);
  for (const char* op : {"aten._softmax", "aten._log_softmax"}) {
    add(op, {special, -1, false});
    add(op, {special, 0, false});
    for (const int64_t length : {3, 7, 64, 65, 1000})
      add(op, {random({5, length}, dtype), 1, false});
    add(op, {random({5, 4, 6}, dtype), 1, false});
    add(op, {random({70}, dtype), 0, false});
  }
  for (const int64_t dim : {0, 1, 2}) {
    const Tensor x = random({5, 4, 6}, dtype), grad = random({5, 4, 6}, dtype);
    add("aten._softmax_backward_data", {grad, at::softmax(x, dim), dim, dtype});
    add("aten._log_softmax_backward_data", {grad, at::log_softmax(x, dim), dim, dtype});
  }
  const std::vector<std::vector<int64_t>> dim_lists{{0},    {1},    {2}, {-1},     {0, 1},
                                                    {0, 2}, {1, 2}, {},  {0, 1, 2}};
  for (const std::vector<int64_t>& dims : dim_lists) {
    for (const bool keep : {false, true}) {
      const Tensor x = random({4, 7, 33}, dtype);
      for (const char* op : {"aten.sum.dim_IntList", "aten.mean.dim"})
        add(op, {x, dims, keep}, Against::Magnitudes);
      for (const char* op : {"aten.amax", "aten.amin"}) cases.push_back(exact(op, {x, dims, keep}));
      if (!dims.empty()) add("aten.logsumexp", {x, dims, keep});
      const c10::IValue correction = keep ? c10::IValue() : c10::IValue(1.5);
      add("aten.var.correction", {x, dims, correction, keep});
      add("aten.var_mean.correction", {x, dims, correction, keep});
    }
  }
  for (const char* op : {"aten.sum.dim_IntList", "aten.mean.dim", "aten.logsumexp"}) {
    add(op, {special, std::vector<int64_t>{1}}, Against::Magnitudes);
    add(op, {special.slice(0, 2, 4), std::vector<int64_t>{0}}, Against::Magnitudes);
  }
  for (const char* op : {"aten.amax", "aten.amin"}) {
    cases.push_back(exact(op, {special, std::vector<int64_t>{1}}));
    cases.push_back(exact(op, {special, std::vector<int64_t>{0}}));
    cases.push_back(declined(op, {special.slice(1, 0, 1), std::vector<int64_t>{1}}));
  }
  add("aten.var.correction", {special, std::vector<int64_t>{1}, 1});
  add("aten.var.correction", {special, std::vector<int64_t>{1}, 17});
  add("aten.var.correction", {special, std::vector<int64_t>{1}, 40});
  for (const int64_t length : {2, 65, 1000, 70'000}) {
    add("aten.sum", {random({length}, dtype)}, Against::Magnitudes);
    add("aten.mean", {random({3, length}, dtype)}, Against::Magnitudes);
  }
  if (dtype == at::kFloat) {
    add("aten.sum", {random({50}, dtype), at::kDouble}, Against::Magnitudes);
    add("aten.sum.dim_IntList",
        {random({5, 50}, at::kBFloat16), std::vector<int64_t>{1}, false, at::kFloat},
        Against::Magnitudes);
    add("aten.mean.dim", {random({5, 50}, at::kHalf), std::vector<int64_t>{0}, true, at::kFloat},
        Against::Magnitudes);
  }
  for (const int64_t reduction : {0, 1, 2}) {
    add("aten.mse_loss", {random({5, 17}, dtype), random({5, 17}, dtype), reduction});
    add("aten.mse_loss", {random({5, 17}, dtype), random({17}, dtype), reduction});
  }
  cases.push_back(declined("aten.sum", {random({1}, dtype)}));
  cases.push_back(declined("aten.sum", {random({0}, dtype)}));
  cases.push_back(declined("aten._softmax", {random({4, 1}, dtype), 1, false}));
  cases.push_back(declined("aten.exp", {random({0, 3}, dtype)}));
}

c10::IValue maybe(bool is_there, const Tensor& tensor) {
  return is_there ? c10::IValue(tensor) : c10::IValue();
}

/// What stands at places that whole numbers name.
void add_indices(std::vector<RuleCase>& cases, at::ScalarType dtype) {
  const auto places = [](at::IntArrayRef sizes, int64_t below) {
    return at::randint(below, sizes, at::kLong);
  };
  const Tensor table = random({11, 35}, dtype), cube = random({3, 5, 35}, dtype);
  for (const Tensor& from :
       {table, random({11, 70}, dtype).slice(1, 0, 70, 2), table.slice(1, 3)}) {
    for (const at::ScalarType type : {at::kLong, at::kInt}) {
      cases.push_back(exact("aten.embedding", {from, places({4, 7}, 11).to(type)}));
      cases.push_back(exact("aten.embedding", {from, places({70}, 11).to(type), 2}));
      cases.push_back(exact("aten.index_select", {from, 0, places({40}, 11).to(type)}));
    }
  }
  cases.push_back(exact("aten.embedding", {table, places({}, 11)}));
  cases.push_back(exact("aten.embedding", {table.slice(1, 0, 1), places({70}, 11)}));
  for (const int64_t dim : {0, 1, -1}) {
    cases.push_back(exact("aten.index_select", {cube, dim, places({9}, 3)}));
    cases.push_back(exact("aten.gather", {cube, dim, places({2, 4, 17}, 3)}));
    cases.push_back(exact("aten.gather", {cube, dim, places({3, 5, 40}, 3).slice(2, 0, 35)}));
  }
  cases.push_back(exact("aten.index_select", {table, 1, places({}, 35)}));
  cases.push_back(declined("aten.index_select", {table, 1, places({0}, 35)}));
  if (is_narrow(dtype)) {
    cases.push_back(
        declined("aten.nll_loss_forward", {table, places({11}, 35), c10::IValue(), 1, -100}));
    return;
  }
  for (const int64_t reduction : {0, 1, 2}) {
    for (const int64_t ignored : {int64_t{-100}, int64_t{3}, int64_t{5'000'000'000}}) {
      for (const bool has_weight : {false, true}) {
        Tensor target = places({11}, 35);
        if (ignored == 3) target[4] = 3;
        if (ignored < 0) target.slice(0, 2, 4).fill_(ignored);
        const c10::IValue weight =
            has_weight ? c10::IValue(random({35}, dtype).abs()) : c10::IValue();
        const double sum = random({}, dtype).abs().item<double>() + 1;
        const Tensor above = reduction == 0 ? random({11}, dtype) : random({}, dtype);
        // The sum of weights, which these do not give, is a result.
        const bool is_taken = ignored < 1000;
        if (reduction != 0)
          cases.push_back({"aten.nll_loss_forward",
                           {table, target, weight, reduction, ignored},
                           Against::Magnitudes,
                           ulps_for(dtype).sum,
                           is_taken});
        cases.push_back(
            {"aten.nll_loss_backward",
             {above, table, target, weight, reduction, ignored, at::scalar_tensor(sum, dtype)},
             Against::Result,
             ulps_for(dtype).pointwise,
             is_taken});
      }
    }
  }
  cases.push_back({"aten.nll_loss_forward",
                   {table, at::full({11}, 7, at::kLong), c10::IValue(), 1, 7},
                   Against::Exact});
  cases.push_back(
      declined("aten.nll_loss_forward", {table, places({11}, 35), c10::IValue(), 0, -100}));
}

void add_norms(std::vector<RuleCase>& cases, at::ScalarType dtype) {
  const auto add = [&](const char* op, Args args) {
    cases.push_back({op, std::move(args), Against::Largest, ulps_for(dtype).norm});
  };
  const auto masks = [](int64_t bits) {
    return c10::IValue(c10::List<bool>{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0});
  };
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{33}, std::vector<int64_t>{4, 33}, std::vector<int64_t>{5, 4, 33}}) {
    const Tensor x = random({5, 4, 33}, dtype), grad = random({5, 4, 33}, dtype);
    for (const bool has_weight : {false, true}) {
      for (const bool has_bias : {false, true}) {
        const c10::IValue weight = maybe(has_weight, random(shape, dtype));
        const c10::IValue bias = maybe(has_bias, random(shape, dtype));
        add("aten.native_layer_norm", {x, shape, weight, bias, 1e-5});
        const auto [y, mean, scale] =
            at::native_layer_norm(x, shape, has_weight ? weight.toTensor() : Tensor(),
                                  has_bias ? bias.toTensor() : Tensor(), 1e-5);
        const int64_t wanted = 1 | (has_weight ? 2 : 0) | (has_bias ? 4 : 0);
        add("aten.native_layer_norm_backward",
            {grad, x, shape, mean, scale, weight, bias, masks(wanted)});
        add("aten.native_layer_norm_backward",
            {grad, x, shape, mean, scale, weight, bias, masks(1)});
      }
      const c10::IValue weight = maybe(has_weight, random(shape, dtype));
      for (const c10::IValue& epsilon : {c10::IValue(), c10::IValue(1e-5)}) {
        add("aten._fused_rms_norm", {x, shape, weight, epsilon});
        add("aten._fused_rms_norm", {x * 1e-3, shape, weight, epsilon});
      }
    }
  }
  // The mean of infinities, which nobody can do anything with, is another one in ATen.
  add("aten.native_layer_norm", {special_rows(dtype).slice(0, 4, 7), std::vector<int64_t>{17},
                                 c10::IValue(), c10::IValue(), 1e-5});
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{3, 6, 4, 9}, {1, 6, 35}, {4, 6}, {2, 6, 3, 2, 20}}) {
    const Tensor x = random(sizes, dtype), grad = random(sizes, dtype);
    for (const int64_t groups : {1, 2, 6}) {
      if (groups == 6 && sizes.size() == 2) continue;
      for (const bool is_affine : {false, true}) {
        const c10::IValue weight = maybe(is_affine, random({6}, dtype));
        const c10::IValue bias = maybe(is_affine, random({6}, dtype));
        const int64_t length = x[0][0].numel();
        add("aten.native_group_norm", {x, weight, bias, sizes[0], 6, length, groups, 1e-5});
        const Tensor mean = random({sizes[0], groups}, dtype);
        const Tensor scale = random({sizes[0], groups}, dtype).abs();
        add("aten.native_group_norm_backward",
            {grad, x, mean, scale, weight, sizes[0], 6, length, groups, masks(is_affine ? 7 : 1)});
      }
    }
  }
  const Tensor image = random({3, 5, 4, 7}, dtype);
  for (const Tensor& x :
       {image, image.contiguous(at::MemoryFormat::ChannelsLast), random({9, 5}, dtype)}) {
    const auto of_channels = [&] { return random({5}, dtype); };
    for (const bool is_affine : {false, true}) {
      const c10::IValue weight = maybe(is_affine, of_channels()),
                        bias = maybe(is_affine, of_channels());
      add("aten._native_batch_norm_legit_functional",
          {x, weight, bias, of_channels(), of_channels().abs(), true, 0.1, 1e-5});
      const Tensor mean = of_channels(), scale = of_channels().abs();
      add("aten.native_batch_norm_backward",
          {at::randn_like(x), x, weight, of_channels(), of_channels().abs(), mean, scale, true,
           1e-5, masks(is_affine ? 7 : 1)});
    }
  }
  // Empty results, which somebody wants.
  for (const char* op : {"aten._native_batch_norm_legit_functional", "aten.native_batch_norm"})
    cases.push_back(declined(op, {image, c10::IValue(), c10::IValue(), random({5}, dtype),
                                  random({5}, dtype).abs(), false, 0.1, 1e-5}));
  cases.push_back(
      declined("aten.native_batch_norm", {image, c10::IValue(), c10::IValue(), random({5}, dtype),
                                          random({5}, dtype).abs(), true, 0.1, 1e-5}));
  for (const Tensor& x : {image, random({9, 5}, dtype)}) {
    add("aten.native_batch_norm",
        {x, random({5}, dtype), random({5}, dtype), c10::IValue(), c10::IValue(), true, 0.1, 1e-5});
    add("aten.native_batch_norm",
        {x, c10::IValue(), c10::IValue(), c10::IValue(), c10::IValue(), true, 0.1, 1e-5});
  }
}

// How tensors lie in memory.

void add_layouts(std::vector<RuleCase>& cases) {
  const at::ScalarType dtype = at::kFloat;
  for (const int64_t size : {1, 3, 7, 17, 65, 1000}) {
    const Tensor x = random({size, 6}, dtype), y = random({6, size}, dtype).t();
    cases.push_back(exact("aten.mul.Tensor", {x, random({6}, dtype)}));
    cases.push_back(exact("aten.mul.Tensor", {y, y}));
    cases.push_back(exact("aten.mul.Tensor", {x, random({size, 1}, dtype)}));
    cases.push_back(exact("aten.mul.Tensor", {x, random({}, dtype)}));
    cases.push_back(exact("aten.mul.Tensor", {x, random({1, 1}, dtype)}));
    cases.push_back(exact("aten.mul.Tensor", {random({size}, dtype), random({4, 1, 1}, dtype)}));
  }
  const Tensor image = random({2, 5, 4, 7}, dtype);
  const Tensor channels_last = image.contiguous(at::MemoryFormat::ChannelsLast);
  cases.push_back(exact("aten.mul.Tensor", {channels_last, channels_last}));
  cases.push_back(exact("aten.mul.Tensor", {channels_last, random({5, 1, 1}, dtype)}));
  cases.push_back(exact("aten.mul.Tensor", {image, random({2, 5, 1, 1}, dtype)}));
  cases.push_back(exact("aten.mul.Tensor", {image.slice(3, 1, 6), image.slice(3, 0, 5)}));
  cases.push_back(
      exact("aten.mul.Tensor", {image.permute({2, 0, 3, 1}), image.permute({2, 0, 3, 1})}));
  cases.push_back(
      exact("aten.mul.Tensor", {random({7}, dtype).expand({3, 7}), image[0][0].slice(0, 1)}));
  cases.push_back(exact("aten.clone", {image.permute({2, 0, 3, 1})}));
  cases.push_back(exact("aten.mul.Tensor", {random({}, dtype), random({}, dtype)}));
  for (const std::vector<int64_t>& dims :
       {std::vector<int64_t>{1}, {0, 2, 3}, {2, 3}, {0}, {0, 1, 2, 3}}) {
    cases.push_back(
        {"aten.sum.dim_IntList", {channels_last, dims}, Against::Magnitudes, ulps_for(dtype).sum});
    cases.push_back(
        {"aten.var.correction", {channels_last, dims, 1}, Against::Largest, ulps_for(dtype).norm});
    cases.push_back({"aten.sum.dim_IntList",
                     {image.permute({3, 1, 0, 2}), dims},
                     Against::Magnitudes,
                     ulps_for(dtype).sum});
  }
  cases.push_back(
      {"aten._softmax", {channels_last, 1, false}, Against::Largest, ulps_for(dtype).norm});
  cases.push_back(
      {"aten._softmax", {channels_last, 3, false}, Against::Largest, ulps_for(dtype).norm});
  cases.push_back({"aten.sum", {random({1000, 1000}, dtype)}, Against::Magnitudes, 1});
  cases.push_back({"aten.sum.dim_IntList",
                   {random({100'000, 3}, dtype), std::vector<int64_t>{0}},
                   Against::Magnitudes,
                   1});
}

std::vector<RuleCase> all_cases() {
  torch::manual_seed(19);
  std::vector<RuleCase> cases;
  for (const at::ScalarType dtype : floats) {
    add_unary(cases, dtype);
    add_binary(cases, dtype);
    add_backwards(cases, dtype);
    // Rows of half precision differ from those of bfloat16 in their loads and stores alone.
    if (dtype == at::kHalf) continue;
    add_rows(cases, dtype);
    add_norms(cases, dtype);
    add_losses(cases, dtype);
    add_indices(cases, dtype);
  }
  for (const at::ScalarType dtype : integers) add_integers(cases, dtype);
  add_booleans(cases);
  add_conversions(cases);
  add_constants(cases);
  add_layouts(cases);
  return cases;
}

TEST(Rules, GiveWhatATenGives) {
  const ahead::test::QuietWarnings quiet;
  const std::vector<RuleCase> cases = all_cases();
  EXPECT_GT(test::check_rules(cases), cases.size() * 8 / 10);
}

TEST(Rules, AreAllTested) {
  std::set<std::string> tested;
  for (const RuleCase& one : all_cases()) {
    if (one.taken) tested.insert(one.op);
  }
  for (const Rule* family : {pointwise_rules, row_rules, index_rules}) {
    for (const Rule* rule = family; rule->name != nullptr; ++rule) {
      EXPECT_NE(Operator::find(rule->name), nullptr) << rule->name;
      EXPECT_EQ(tested.count(rule->name), 1u) << rule->name << " has no case";
    }
  }
}

}  // namespace ahead::native::rules_test
