#include "ops/families.h"

namespace ahead::samples::unary_samples {
namespace {

constexpr Dtypes not_half = full_floating | integral | boolean;
constexpr Dtypes not_complex = real | boolean;

using Call = at::Tensor (*)(const at::Tensor&);

struct Row {
  const char* name;
  Call call;
  at::Tensor& (at::Tensor::*in_place)() const;  // null: the operator has no such form
  Dtypes dtypes;
  Domain domain = Domain::Any;
  bool in_place_has_derivative = true;
};

const Row rows[] = {
    {"abs", at::abs, &at::Tensor::abs_, numeric},
    {"absolute", at::absolute, &at::Tensor::absolute_, numeric},
    {"acos", at::acos, &at::Tensor::acos_, everything, Domain::Unit},
    {"acosh", at::acosh, &at::Tensor::acosh_, everything, Domain::AboveOne, false},
    {"angle", at::angle, nullptr, everything},
    {"arccos", at::arccos, &at::Tensor::arccos_, everything, Domain::Unit},
    {"arccosh", at::arccosh, &at::Tensor::arccosh_, everything, Domain::AboveOne, false},
    {"arcsin", at::arcsin, &at::Tensor::arcsin_, everything, Domain::Unit},
    {"arcsinh", at::arcsinh, &at::Tensor::arcsinh_, everything, Domain::Any, false},
    {"arctan", at::arctan, &at::Tensor::arctan_, everything},
    {"arctanh", at::arctanh, &at::Tensor::arctanh_, everything, Domain::Unit, false},
    {"asin", at::asin, &at::Tensor::asin_, everything, Domain::Unit},
    {"asinh", at::asinh, &at::Tensor::asinh_, everything, Domain::Any, false},
    {"atan", at::atan, &at::Tensor::atan_, everything},
    {"atanh", at::atanh, &at::Tensor::atanh_, everything, Domain::Unit, false},
    {"bitwise_not", at::bitwise_not, &at::Tensor::bitwise_not_, integral | boolean},
    {"ceil", at::ceil, &at::Tensor::ceil_, real},
    {"conj_physical", at::conj_physical, &at::Tensor::conj_physical_, everything},
    {"cos", at::cos, &at::Tensor::cos_, everything},
    {"cosh", at::cosh, &at::Tensor::cosh_, everything},
    {"deg2rad", at::deg2rad, &at::Tensor::deg2rad_, not_complex},
    {"digamma", at::digamma, &at::Tensor::digamma_, not_complex},
    {"erf", at::erf, &at::Tensor::erf_, not_complex},
    {"erfc", at::erfc, &at::Tensor::erfc_, not_complex},
    {"erfinv", at::erfinv, &at::Tensor::erfinv_, not_complex, Domain::Unit},
    {"exp", at::exp, &at::Tensor::exp_, everything},
    {"exp2", at::exp2, &at::Tensor::exp2_, everything},
    {"expm1", at::expm1, &at::Tensor::expm1_, everything},
    {"fix", at::fix, &at::Tensor::fix_, real},
    {"floor", at::floor, &at::Tensor::floor_, real},
    {"frac", at::frac, &at::Tensor::frac_, floating},
    {"i0", at::i0, &at::Tensor::i0_, not_complex},
    {"isfinite", at::isfinite, nullptr, everything},
    {"isinf", at::isinf, nullptr, everything},
    {"isnan", at::isnan, nullptr, everything},
    {"isneginf", at::isneginf, nullptr, not_complex},
    {"isposinf", at::isposinf, nullptr, not_complex},
    {"isreal", at::isreal, nullptr, everything},
    {"lgamma", at::lgamma, &at::Tensor::lgamma_, not_complex},
    {"log", at::log, &at::Tensor::log_, everything},
    {"log10", at::log10, &at::Tensor::log10_, everything},
    {"log1p", at::log1p, &at::Tensor::log1p_, everything},
    {"log2", at::log2, &at::Tensor::log2_, everything},
    {"logical_not", at::logical_not, &at::Tensor::logical_not_, everything},
    {"neg", at::neg, &at::Tensor::neg_, numeric},
    {"negative", at::negative, &at::Tensor::negative_, numeric},
    {"positive", at::positive, nullptr, numeric},
    {"rad2deg", at::rad2deg, &at::Tensor::rad2deg_, not_complex},
    {"reciprocal", at::reciprocal, &at::Tensor::reciprocal_, everything},
    {"relu", at::relu, &at::Tensor::relu_, real},
    {"round", at::round, &at::Tensor::round_, real},
    {"rsqrt", at::rsqrt, &at::Tensor::rsqrt_, everything},
    {"sgn", at::sgn, &at::Tensor::sgn_, everything},
    {"sigmoid", at::sigmoid, &at::Tensor::sigmoid_, everything},
    {"sign", at::sign, &at::Tensor::sign_, not_complex},
    {"signbit", at::signbit, nullptr, not_complex},
    {"sin", at::sin, &at::Tensor::sin_, everything},
    {"sinc", at::sinc, &at::Tensor::sinc_, everything},
    {"sinh", at::sinh, &at::Tensor::sinh_, everything},
    {"sqrt", at::sqrt, &at::Tensor::sqrt_, everything},
    {"square", at::square, &at::Tensor::square_, everything},
    {"tan", at::tan, &at::Tensor::tan_, everything},
    {"tanh", at::tanh, &at::Tensor::tanh_, everything},
    {"trunc", at::trunc, &at::Tensor::trunc_, real},
    {"special_airy_ai", at::special_airy_ai, nullptr, not_half},
    {"special_bessel_j0", at::special_bessel_j0, nullptr, not_half},
    {"special_bessel_j1", at::special_bessel_j1, nullptr, not_half},
    {"special_bessel_y0", at::special_bessel_y0, nullptr, not_half},
    {"special_bessel_y1", at::special_bessel_y1, nullptr, not_half},
    {"special_digamma", at::special_digamma, nullptr, not_complex},
    {"special_entr", at::special_entr, nullptr, not_complex},
    {"special_erf", at::special_erf, nullptr, not_complex},
    {"special_erfc", at::special_erfc, nullptr, not_complex},
    {"special_erfcx", at::special_erfcx, nullptr, not_half},
    {"special_erfinv", at::special_erfinv, nullptr, not_complex, Domain::Unit},
    {"special_exp2", at::special_exp2, nullptr, everything},
    {"special_expit", at::special_expit, nullptr, everything},
    {"special_expm1", at::special_expm1, nullptr, everything},
    {"special_gammaln", at::special_gammaln, nullptr, not_complex},
    {"special_i0", at::special_i0, nullptr, not_complex},
    {"special_i0e", at::special_i0e, nullptr, not_complex},
    {"special_i1", at::special_i1, nullptr, not_half},
    {"special_i1e", at::special_i1e, nullptr, not_half},
    {"special_log1p", at::special_log1p, nullptr, everything},
    {"special_log_ndtr", at::special_log_ndtr, nullptr, not_half},
    {"special_modified_bessel_i0", at::special_modified_bessel_i0, nullptr, not_half},
    {"special_modified_bessel_i1", at::special_modified_bessel_i1, nullptr, not_half},
    {"special_modified_bessel_k0", at::special_modified_bessel_k0, nullptr, not_half},
    {"special_modified_bessel_k1", at::special_modified_bessel_k1, nullptr, not_half},
    {"special_ndtr", at::special_ndtr, nullptr, not_complex},
    {"special_ndtri", at::special_ndtri, nullptr, not_half, Domain::Unit},
    {"special_psi", at::special_psi, nullptr, not_complex},
    {"special_scaled_modified_bessel_k0", at::special_scaled_modified_bessel_k0, nullptr, not_half},
    {"special_scaled_modified_bessel_k1", at::special_scaled_modified_bessel_k1, nullptr, not_half},
    {"special_sinc", at::special_sinc, nullptr, everything},
    {"special_spherical_bessel_j0", at::special_spherical_bessel_j0, nullptr, not_half},
};

}  // namespace

void add(SampleTable& table) {
  for (const Row& row : rows) {
    const std::string name = std::string("aten.") + row.name;
    table.op(name).over(unary_inputs(row.dtypes, row.domain), row.call);
    if (row.in_place == nullptr) continue;
    // Results of integers are often floating and those of complex numbers real: no in-place form.
    Dtypes writable =
        row.dtypes.contains(at::kFloat) ? row.dtypes - integral - boolean : row.dtypes;
    if (row.call == static_cast<Call>(at::abs) || row.call == static_cast<Call>(at::absolute)) {
      writable = writable - complex;
    }
    auto builder = table.op(name + "_");
    if (!row.in_place_has_derivative) builder.not_differentiable();
    builder.in_place_over(writable_inputs(writable, row.domain),
                          [f = row.in_place](const at::Tensor& x) { return (x.*f)(); });
  }
  table.op("aten.special_i1")
      .not_differentiable()
      .sample("half", {f16(3)}, at::special_i1)
      .sample("bfloat16", {bf16(3)}, at::special_i1);
  table.op("aten.special_i1e")
      .not_differentiable()
      .sample("half", {f16(3)}, at::special_i1e)
      .sample("bfloat16", {bf16(3)}, at::special_i1e);
}

}  // namespace ahead::samples::unary_samples
