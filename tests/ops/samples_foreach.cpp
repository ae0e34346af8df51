#include "ops/families.h"

// Operators on lists of tensors: _foreach_* and the fused optimizer steps.
namespace ahead::samples::foreach_samples {
namespace {

/// Two lists of two tensors each: of one type and layout, then of mixed ones.
std::vector<Inputs> two_lists() {
  return {{f32(2, 3), f32(4), f32(2, 3), f32(4)},
          {f64(2, 3), f64(4), f64(2, 3), f64(4)},
          {f32(2, 3).transposed(), f32(4).strided(), f32(2, 3), f32(4)},
          {bf16(2, 3), bf16(4), bf16(2, 3), bf16(4)},
          {f32(2, 3), f64(4), f32(2, 3), f64(4)},
          {f32(0), f32(), f32(0), f32()}};
}

/// Without the empty one, which the backward of _foreach_addcdiv cannot do.
std::vector<Inputs> filled_lists() {
  std::vector<Inputs> lists = two_lists();
  lists.pop_back();
  return lists;
}

using List = at::TensorList;
using UnaryList = Tensors (*)(List);
using UnaryListInPlace = void (*)(List);
using BinaryList = Tensors (*)(List, List);
using BinaryListInPlace = void (*)(List, List);
using NumberList = Tensors (*)(List, const at::Scalar&);
using NumberListInPlace = void (*)(List, const at::Scalar&);
using NumbersList = Tensors (*)(List, at::ArrayRef<at::Scalar>);
using NumbersListInPlace = void (*)(List, at::ArrayRef<at::Scalar>);

List first(const Tensors& in) {
  return List(in).slice(0, 2);
}
List second(const Tensors& in) {
  return List(in).slice(2, 2);
}

/// In-place forms write to intermediates and to arguments.
template <class F>
void add_in_place(SampleTable::Builder builder, const std::string& label, F write) {
  builder
      .over(
          two_lists(),
          [write](const Tensors& in) {
            Tensors copies;
            for (const at::Tensor& x : first(in)) copies.push_back(x.clone());
            write(List(copies), second(in));
            return copies;
          },
          label + "intermediates")
      .over(
          {two_lists().front(), two_lists()[2]},
          [write](const Tensors& in) { write(first(in), second(in)); }, label + "arguments");
}

struct UnaryRow {
  const char* name;
  UnaryList call;
  UnaryListInPlace in_place;
};
const UnaryRow unary_rows[] = {
    {"abs", at::_foreach_abs, at::_foreach_abs_},
    {"acos", at::_foreach_acos, at::_foreach_acos_},
    {"asin", at::_foreach_asin, at::_foreach_asin_},
    {"atan", at::_foreach_atan, at::_foreach_atan_},
    {"ceil", at::_foreach_ceil, at::_foreach_ceil_},
    {"cos", at::_foreach_cos, at::_foreach_cos_},
    {"cosh", at::_foreach_cosh, at::_foreach_cosh_},
    {"erf", at::_foreach_erf, at::_foreach_erf_},
    {"erfc", at::_foreach_erfc, at::_foreach_erfc_},
    {"exp", at::_foreach_exp, at::_foreach_exp_},
    {"expm1", at::_foreach_expm1, at::_foreach_expm1_},
    {"floor", at::_foreach_floor, at::_foreach_floor_},
    {"frac", at::_foreach_frac, at::_foreach_frac_},
    {"lgamma", at::_foreach_lgamma, at::_foreach_lgamma_},
    {"log", at::_foreach_log, at::_foreach_log_},
    {"log10", at::_foreach_log10, at::_foreach_log10_},
    {"log1p", at::_foreach_log1p, at::_foreach_log1p_},
    {"log2", at::_foreach_log2, at::_foreach_log2_},
    {"neg", at::_foreach_neg, at::_foreach_neg_},
    {"reciprocal", at::_foreach_reciprocal, at::_foreach_reciprocal_},
    {"round", at::_foreach_round, at::_foreach_round_},
    {"rsqrt", at::_foreach_rsqrt, at::_foreach_rsqrt_},
    {"sigmoid", at::_foreach_sigmoid, at::_foreach_sigmoid_},
    {"sign", at::_foreach_sign, at::_foreach_sign_},
    {"sin", at::_foreach_sin, at::_foreach_sin_},
    {"sinh", at::_foreach_sinh, at::_foreach_sinh_},
    {"sqrt", at::_foreach_sqrt, at::_foreach_sqrt_},
    {"tan", at::_foreach_tan, at::_foreach_tan_},
    {"tanh", at::_foreach_tanh, at::_foreach_tanh_},
    {"trunc", at::_foreach_trunc, at::_foreach_trunc_},
};

struct BinaryRow {
  const char* name;
  BinaryList lists;
  BinaryListInPlace lists_in_place;
  NumberList number;
  NumberListInPlace number_in_place;
  NumbersList numbers;
  NumbersListInPlace numbers_in_place;
  bool number_in_place_has_derivative = true;
};
const BinaryRow binary_rows[] = {
    {"mul", at::_foreach_mul, at::_foreach_mul_, at::_foreach_mul, at::_foreach_mul_,
     at::_foreach_mul, at::_foreach_mul_},
    {"div", at::_foreach_div, at::_foreach_div_, at::_foreach_div, at::_foreach_div_,
     at::_foreach_div, at::_foreach_div_},
    {"pow", at::_foreach_pow, at::_foreach_pow_, at::_foreach_pow, at::_foreach_pow_,
     at::_foreach_pow, at::_foreach_pow_},
    {"maximum", at::_foreach_maximum, at::_foreach_maximum_, at::_foreach_maximum,
     at::_foreach_maximum_, at::_foreach_maximum, at::_foreach_maximum_, false},
    {"minimum", at::_foreach_minimum, at::_foreach_minimum_, at::_foreach_minimum,
     at::_foreach_minimum_, at::_foreach_minimum, at::_foreach_minimum_, false},
    {"clamp_min", at::_foreach_clamp_min, at::_foreach_clamp_min_, at::_foreach_clamp_min,
     at::_foreach_clamp_min_, at::_foreach_clamp_min, at::_foreach_clamp_min_},
    {"clamp_max", at::_foreach_clamp_max, at::_foreach_clamp_max_, at::_foreach_clamp_max,
     at::_foreach_clamp_max_, at::_foreach_clamp_max, at::_foreach_clamp_max_},
};

void add_rows(SampleTable& table) {
  const std::vector<at::Scalar> numbers = {2.5, 3};
  for (const UnaryRow& row : unary_rows) {
    const std::string name = std::string("aten._foreach_") + row.name;
    table.op(name).over(two_lists(), [f = row.call](const Tensors& in) { return f(first(in)); });
    add_in_place(table.op(name + "_"), "", [f = row.in_place](List x, List) { f(x); });
  }
  for (const BinaryRow& row : binary_rows) {
    const std::string name = std::string("aten._foreach_") + row.name;
    table.op(name).over(
        two_lists(), [f = row.lists](const Tensors& in) { return f(first(in), second(in)); },
        "lists");
    table.op(name).over(
        two_lists(), [f = row.number](const Tensors& in) { return f(first(in), 2.5); }, "number");
    table.op(name).over(
        two_lists(),
        [f = row.numbers, numbers](const Tensors& in) { return f(first(in), numbers); }, "numbers");
    add_in_place(table.op(name + "_"), "lists, ",
                 [f = row.lists_in_place](List x, List y) { f(x, y); });
    auto builder = table.op(name + "_");
    if (!row.number_in_place_has_derivative) builder.not_differentiable();
    add_in_place(builder, "number, ", [f = row.number_in_place](List x, List) { f(x, 2.5); });
    add_in_place(builder, "numbers, ",
                 [f = row.numbers_in_place, numbers](List x, List) { f(x, numbers); });
  }
}

void add_others(SampleTable& table) {
  const std::vector<at::Scalar> numbers = {2.5, 3};
  table.op("aten._foreach_add")
      .over(
          two_lists(), [](const Tensors& in) { return at::_foreach_add(first(in), second(in)); },
          "lists")
      .over(
          two_lists(),
          [](const Tensors& in) { return at::_foreach_add(first(in), second(in), 0.5); }, "alpha")
      .over(
          two_lists(), [](const Tensors& in) { return at::_foreach_add(first(in), 2.5); },
          "number");
  add_in_place(table.op("aten._foreach_add_"), "lists, ",
               [](List x, List y) { at::_foreach_add_(x, y); });
  table.op("aten._foreach_sub")
      .over(
          two_lists(), [](const Tensors& in) { return at::_foreach_sub(first(in), second(in), 2); },
          "lists")
      .over(
          two_lists(), [](const Tensors& in) { return at::_foreach_sub(first(in), 2.5); },
          "number");
  add_in_place(table.op("aten._foreach_sub_"), "lists, ",
               [](List x, List y) { at::_foreach_sub_(x, y); });
  table.op("aten._foreach_addcmul")
      .over(
          two_lists(),
          [](const Tensors& in) {
            return at::_foreach_addcmul(first(in), second(in), second(in), 2);
          },
          "number")
      .over(
          two_lists(),
          [numbers](const Tensors& in) {
            return at::_foreach_addcmul(first(in), second(in), second(in), numbers);
          },
          "numbers");
  add_in_place(table.op("aten._foreach_addcmul_"), "",
               [](List x, List y) { at::_foreach_addcmul_(x, y, y, 2); });
  table.op("aten._foreach_addcdiv")
      .over(
          filled_lists(),
          [](const Tensors& in) {
            return at::_foreach_addcdiv(first(in), first(in), second(in), 2);
          },
          "number")
      .over(
          filled_lists(),
          [numbers](const Tensors& in) {
            return at::_foreach_addcdiv(first(in), first(in), second(in), numbers);
          },
          "numbers");
  add_in_place(table.op("aten._foreach_addcdiv_"), "",
               [](List x, List y) { at::_foreach_addcdiv_(x, y, y, 2); });
  table.op("aten._foreach_lerp")
      .over(
          two_lists(),
          [](const Tensors& in) { return at::_foreach_lerp(first(in), second(in), 0.3); }, "number")
      .over(
          two_lists(),
          [](const Tensors& in) { return at::_foreach_lerp(first(in), second(in), second(in)); },
          "lists");
  add_in_place(table.op("aten._foreach_lerp_"), "",
               [](List x, List y) { at::_foreach_lerp_(x, y, 0.3); });
  table.op("aten._foreach_norm")
      .over(
          two_lists(), [](const Tensors& in) { return at::_foreach_norm(first(in)); }, "2")
      .over(
          two_lists(), [](const Tensors& in) { return at::_foreach_norm(first(in), 1); }, "1");
  table.op("aten._foreach_max")
      .gradient_rounds("the gradient of a traced tensor keeps its layout")
      .over({{f32(2, 3), f32(4)}, {f64(2, 3), f64()}, {f32(2, 3).transposed(), f32(4)}},
            [](const Tensors& in) { return at::_foreach_max(in); });
  const std::vector<Inputs> with_factors = {
      {f32(2, 3), f32(4), f32(2, 3), f32(4), f32(2).captured()},
      {f64(2, 3), f64(4), f64(2, 3), f64(4), f64(2).captured()}};
  table.op("aten._foreach_addcdiv")
      .not_differentiable()
      .over(
          with_factors,
          [](const Tensors& in) {
            return at::_foreach_addcdiv(first(in), first(in), second(in), in[4]);
          },
          "factors");
  table.op("aten._foreach_addcmul")
      .not_differentiable()
      .over(
          with_factors,
          [](const Tensors& in) {
            return at::_foreach_addcmul(first(in), first(in), second(in), in[4]);
          },
          "factors");
  add_in_place(table.op("aten._foreach_zero_"), "", [](List x, List) { at::_foreach_zero_(x); });
  add_in_place(table.op("aten._foreach_copy_").not_differentiable(), "",
               [](List x, List y) { at::_foreach_copy_(x, y); });
}

}  // namespace

void add(SampleTable& table) {
  add_rows(table);
  add_others(table);
}

}  // namespace ahead::samples::foreach_samples
