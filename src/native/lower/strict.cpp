#include "native/lower/strict.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "native/loops/kernel.h"
#include "native/loops/library_functions.h"

namespace ahead::native {
namespace {

at::ScalarType result_dtype(const Node& node) {
  return node.result(0)->meta.dtype;
}

bool is_full(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kDouble;
}

template <class Holds>
bool all_operands(const Node& node, const Holds& holds) {
  bool all = true;
  node.for_each_operand([&](const Value* value) { all = all && holds(value->meta); });
  return all;
}

bool always(const Node&) {
  return true;
}

/// What is not of the result's dtype ATen rounds to it first, some of it in 16 bits.
bool alike(const Node& node) {
  const at::ScalarType dtype = result_dtype(node);
  return node.args()[0].is_value() &&
         all_operands(node, [&](const TensorMeta& meta) { return meta.dtype == dtype; });
}

bool converted(const Node& node) {
  const at::ScalarType dtype = result_dtype(node);
  return is_full(dtype) || at::isIntegralType(dtype, /*includeBool=*/true) || alike(node);
}

/// Of zeros of both signs ATen takes the one or the other.
bool whole(const Node& node) {
  return at::isIntegralType(result_dtype(node), /*includeBool=*/false) && alike(node);
}

/// In 16 bits ATen rounds formulas of several steps here and there.
bool full(const Node& node) {
  return is_full(result_dtype(node)) && alike(node);
}

/// Where an operand is repeated, some of ATen's loops round products that others do not.
bool of_one_shape(const Node& node) {
  const TensorMeta& result = node.result(0)->meta;
  return alike(node) && (is_full(result.dtype) || at::isIntegralType(result.dtype, false)) &&
         all_operands(node, [&](const TensorMeta& meta) {
           return meta.sizes == result.sizes &&
                  std::count(meta.strides.begin(), meta.strides.end(), 0) == 0;
         });
}

bool exact_sum(const Node& node) {
  const at::Scalar scale = node.args()[2].constant().toScalar();
  if (!scale.isComplex() && scale.toDouble() == 1) return converted(node);
  return node.args()[1].is_value() && of_one_shape(node);
}

/// A function that ATen lets a library compute.
template <Op op>
bool by_library(const Node& node) {
  return full(node) && is_exact_by_library(op, *compute_type(result_dtype(node)));
}

/// Other powers are those of C's library; in 16 bits ATen rounds here and there.
bool exact_power(const Node& node) {
  const at::Scalar exponent = node.args()[1].constant().toScalar();
  if (exponent.isComplex() || !alike(node)) return false;
  const double number = exponent.toDouble();
  if (number == 1 || number == 2) return true;
  if (!is_full(result_dtype(node))) return number == 3 && exponent.isIntegral(false);
  return number == 0 || number == 3 || number == -0.5 || number == -1 || number == -2 ||
         (number == 0.5 && by_library<Op::Sqrt>(node));
}

/// Weights of half and more lead to zeros of either sign.
bool exact_lerp(const Node& node) {
  return of_one_shape(node) && std::fabs(node.args()[2].constant().toScalar().toDouble()) < 0.5;
}

/// What is no whole number, or beyond their range, becomes whatever the instruction makes of it.
bool makes_whole_numbers_of_others(const Node& node) {
  return at::isIntegralType(result_dtype(node), /*includeBool=*/false) &&
         !all_operands(node,
                       [](const TensorMeta& meta) { return !at::isFloatingType(meta.dtype); });
}

}  // namespace

const ExactRule exact_rules[] = {
    {"aten.add.Tensor", exact_sum},
    {"aten.add.Scalar", exact_sum},
    {"aten.sub.Tensor", exact_sum},
    {"aten.sub.Scalar", exact_sum},
    {"aten.rsub.Tensor", exact_sum},
    {"aten.rsub.Scalar", exact_sum},
    {"aten.mul.Tensor", converted},
    {"aten.mul.Scalar", converted},
    {"aten.div.Tensor", converted},
    {"aten.div.Scalar", converted},
    {"aten.neg", alike},
    {"aten.abs", alike},
    {"aten.sign", alike},
    {"aten.sgn", alike},
    {"aten.square", alike},
    {"aten.reciprocal", alike},
    {"aten.rsqrt", full},
    {"aten.sqrt", by_library<Op::Sqrt>},
    {"aten.exp", by_library<Op::Exp>},
    {"aten.log", by_library<Op::Log>},
    {"aten.log2", by_library<Op::Log2>},
    {"aten.log10", by_library<Op::Log10>},
    {"aten.erf", by_library<Op::Erf>},
    {"aten.tanh", by_library<Op::Tanh>},
    {"aten.sin", by_library<Op::Sin>},
    {"aten.cos", by_library<Op::Cos>},
    {"aten.pow.Tensor_Scalar", exact_power},
    {"aten.floor", alike},
    {"aten.ceil", alike},
    {"aten.trunc", alike},
    {"aten.round", alike},
    {"aten.relu", alike},
    {"aten.clamp", alike},
    {"aten.clamp_min", alike},
    {"aten.clamp_max", alike},
    {"aten.maximum", whole},
    {"aten.minimum", whole},
    {"aten.clamp_min.Tensor", whole},
    {"aten.clamp_max.Tensor", whole},
    {"aten.hardtanh", alike},
    {"aten.leaky_relu", alike},
    {"aten.leaky_relu_backward", alike},
    {"aten.threshold_backward", alike},
    {"aten.hardsigmoid", full},
    {"aten.hardsigmoid_backward", full},
    {"aten.hardswish", full},
    {"aten.tanh_backward", full},
    {"aten.sigmoid_backward", full},
    {"aten.mse_loss_backward", full},
    {"aten.native_dropout_backward", always},
    {"aten.addcmul", of_one_shape},
    {"aten.addcdiv", of_one_shape},
    {"aten.lerp.Scalar", exact_lerp},
    {"aten.where.self", always},
    {"aten.masked_fill.Scalar", always},
    {"aten.masked_fill.Tensor", always},
    {"aten.lt.Tensor", always},
    {"aten.lt.Scalar", always},
    {"aten.le.Tensor", always},
    {"aten.le.Scalar", always},
    {"aten.gt.Tensor", always},
    {"aten.gt.Scalar", always},
    {"aten.ge.Tensor", always},
    {"aten.ge.Scalar", always},
    {"aten.eq.Tensor", always},
    {"aten.eq.Scalar", always},
    {"aten.ne.Tensor", always},
    {"aten.ne.Scalar", always},
    {"aten.isnan", always},
    {"aten.logical_and", always},
    {"aten.logical_or", always},
    {"aten.logical_not", always},
    {"aten.bitwise_and.Tensor", always},
    {"aten.bitwise_or.Tensor", always},
    {"aten.bitwise_not", always},
    {"aten.clone", always},
    {"aten._to_copy", always},
    {"aten.copy", always},
    {"aten.zeros_like", always},
    {"aten.ones_like", always},
    {"aten.full_like", always},
    {"aten.zeros", always},
    {"aten.ones", always},
    {"aten.full", always},
    {"aten.scalar_tensor", always},
    {"aten.new_zeros", always},
    {"aten.new_ones", always},
    {"aten.new_full", always},
    {"aten.embedding", always},
    {"aten.index_select", always},
    {"aten.gather", always},
    {nullptr, nullptr},
};

bool has_exact_rule(const Node& node) {
  static const auto* rules = [] {
    auto* table = new std::unordered_map<const Operator*, const ExactRule*>;
    for (const ExactRule* rule = exact_rules; rule->name != nullptr; ++rule) {
      const Operator* known = Operator::find(rule->name);
      if (known != nullptr) table->emplace(known, rule);
    }
    return table;
  }();
  const auto found = rules->find(&node.op());
  if (found == rules->end() || node.results().empty() || node.result(0) == nullptr) return false;
  return !makes_whole_numbers_of_others(node) && found->second->holds(node);
}

}  // namespace ahead::native
