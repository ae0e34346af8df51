#include "ops/families.h"

namespace ahead::samples::binary_samples {
namespace {

constexpr Dtypes not_half = full_floating | integral | boolean;
constexpr Dtypes not_complex = real | boolean;
constexpr Dtypes whole = integral | boolean;

struct Row {
  const char* name;
  at::Tensor (*call)(const at::Tensor&, const at::Tensor&);
  at::Tensor& (at::Tensor::*in_place)(const at::Tensor&) const;  // null: there is no such form
  Dtypes dtypes;
  Domain domain = Domain::Any;
  bool has_derivative = true;
  Mixing mixing = Mixing::Types;
};

const Row rows[] = {
    {"mul", at::mul, &at::Tensor::mul_, everything},
    {"multiply", at::multiply, &at::Tensor::multiply_, everything},
    {"div", at::div, &at::Tensor::div_, everything},
    {"divide", at::divide, &at::Tensor::divide_, everything},
    {"true_divide", at::true_divide, &at::Tensor::true_divide_, everything},
    {"floor_divide", at::floor_divide, &at::Tensor::floor_divide_, real, Domain::Positive, false},
    {"remainder", at::remainder, &at::Tensor::remainder_, real, Domain::Positive},
    {"fmod", at::fmod, &at::Tensor::fmod_, real, Domain::Positive},
    {"pow", at::pow, &at::Tensor::pow_, numeric, Domain::Positive},
    {"float_power", at::float_power, nullptr, everything, Domain::Positive},
    {"atan2", at::atan2, &at::Tensor::atan2_, real},
    {"arctan2", at::arctan2, &at::Tensor::arctan2_, real},
    {"copysign", at::copysign, &at::Tensor::copysign_, not_complex},
    {"heaviside", at::heaviside, &at::Tensor::heaviside_, not_complex, Domain::Any, false,
     Mixing::None},
    {"maximum", at::maximum, nullptr, not_complex},
    {"minimum", at::minimum, nullptr, not_complex},
    {"fmax", at::fmax, nullptr, not_complex},
    {"fmin", at::fmin, nullptr, not_complex},
    {"logaddexp", at::logaddexp, nullptr, floating | complex, Domain::Any, true, Mixing::None},
    {"logaddexp2", at::logaddexp2, nullptr, floating},
    {"xlogy", at::xlogy, &at::Tensor::xlogy_, not_complex, Domain::Positive},
    {"bitwise_and", at::bitwise_and, &at::Tensor::bitwise_and_, whole},
    {"bitwise_or", at::bitwise_or, &at::Tensor::bitwise_or_, whole},
    {"bitwise_xor", at::bitwise_xor, &at::Tensor::bitwise_xor_, whole},
    {"bitwise_left_shift", at::bitwise_left_shift, &at::Tensor::bitwise_left_shift_, integral,
     Domain::Positive},
    {"bitwise_right_shift", at::bitwise_right_shift, &at::Tensor::bitwise_right_shift_, integral,
     Domain::Positive},
    {"__and__", at::__and__, &at::Tensor::__iand__, whole},
    {"__or__", at::__or__, &at::Tensor::__ior__, whole},
    {"__xor__", at::__xor__, &at::Tensor::__ixor__, whole},
    {"__lshift__", at::__lshift__, &at::Tensor::__ilshift__, integral, Domain::Positive},
    {"__rshift__", at::__rshift__, &at::Tensor::__irshift__, integral, Domain::Positive},
    {"eq", at::eq, &at::Tensor::eq_, everything},
    {"ne", at::ne, &at::Tensor::ne_, everything},
    {"lt", at::lt, &at::Tensor::lt_, not_complex},
    {"le", at::le, &at::Tensor::le_, not_complex},
    {"gt", at::gt, &at::Tensor::gt_, not_complex},
    {"ge", at::ge, &at::Tensor::ge_, not_complex},
    {"greater", at::greater, &at::Tensor::greater_, not_complex},
    {"greater_equal", at::greater_equal, &at::Tensor::greater_equal_, not_complex},
    {"less", at::less, &at::Tensor::less_, not_complex},
    {"less_equal", at::less_equal, &at::Tensor::less_equal_, not_complex},
    {"not_equal", at::not_equal, &at::Tensor::not_equal_, everything},
    {"logical_and", at::logical_and, &at::Tensor::logical_and_, everything},
    {"logical_or", at::logical_or, &at::Tensor::logical_or_, everything},
    {"logical_xor", at::logical_xor, &at::Tensor::logical_xor_, everything},
    {"gcd", at::gcd, &at::Tensor::gcd_, integral},
    {"lcm", at::lcm, &at::Tensor::lcm_, integral, Domain::Positive},
    {"ldexp", at::ldexp, &at::Tensor::ldexp_, real},
    {"special_xlogy", at::special_xlogy, nullptr, not_complex, Domain::Positive},
    {"special_xlog1py", at::special_xlog1py, nullptr, not_complex, Domain::Positive},
    {"special_chebyshev_polynomial_t", at::special_chebyshev_polynomial_t, nullptr, not_half},
    {"special_chebyshev_polynomial_u", at::special_chebyshev_polynomial_u, nullptr, not_half},
    {"special_chebyshev_polynomial_v", at::special_chebyshev_polynomial_v, nullptr, not_half},
    {"special_chebyshev_polynomial_w", at::special_chebyshev_polynomial_w, nullptr, not_half},
    {"special_hermite_polynomial_h", at::special_hermite_polynomial_h, nullptr, not_half},
    {"special_hermite_polynomial_he", at::special_hermite_polynomial_he, nullptr, not_half},
    {"special_laguerre_polynomial_l", at::special_laguerre_polynomial_l, nullptr, not_half},
    {"special_legendre_polynomial_p", at::special_legendre_polynomial_p, nullptr, not_half},
    {"special_shifted_chebyshev_polynomial_t", at::special_shifted_chebyshev_polynomial_t, nullptr,
     not_half},
    {"special_shifted_chebyshev_polynomial_u", at::special_shifted_chebyshev_polynomial_u, nullptr,
     not_half},
    {"special_shifted_chebyshev_polynomial_v", at::special_shifted_chebyshev_polynomial_v, nullptr,
     not_half},
    {"special_shifted_chebyshev_polynomial_w", at::special_shifted_chebyshev_polynomial_w, nullptr,
     not_half},
};

struct ScalarRow {
  const char* name;
  at::Tensor (*call)(const at::Tensor&, const at::Scalar&);
  at::Tensor& (at::Tensor::*in_place)(const at::Scalar&) const;
  Dtypes dtypes;
  at::Scalar number;
  bool has_derivative = true;
};

// The overloads that take a plain number.
const ScalarRow scalar_rows[] = {
    {"mul", at::mul, &at::Tensor::mul_, everything, 3},
    {"div", at::div, &at::Tensor::div_, everything, 3},
    {"floor_divide", at::floor_divide, &at::Tensor::floor_divide_, real, 3, false},
    {"remainder", at::remainder, &at::Tensor::remainder_, real, 3},
    {"fmod", at::fmod, &at::Tensor::fmod_, real, 3},
    {"pow", at::pow, &at::Tensor::pow_, numeric, 2},
    {"float_power", at::float_power, nullptr, everything, 2},
    {"copysign", at::copysign, &at::Tensor::copysign_, not_complex, -1.5},
    {"xlogy", at::xlogy, &at::Tensor::xlogy_, not_complex, 2.5},
    {"bitwise_and", at::bitwise_and, &at::Tensor::bitwise_and_, integral, 5},
    {"bitwise_or", at::bitwise_or, &at::Tensor::bitwise_or_, integral, 5},
    {"bitwise_xor", at::bitwise_xor, &at::Tensor::bitwise_xor_, integral, 5},
    {"bitwise_left_shift", at::bitwise_left_shift, &at::Tensor::bitwise_left_shift_, integral, 2},
    {"bitwise_right_shift", at::bitwise_right_shift, &at::Tensor::bitwise_right_shift_, integral,
     2},
    {"__and__", at::__and__, &at::Tensor::__iand__, integral, 5},
    {"__or__", at::__or__, &at::Tensor::__ior__, integral, 5},
    {"__xor__", at::__xor__, &at::Tensor::__ixor__, integral, 5},
    {"__lshift__", at::__lshift__, &at::Tensor::__ilshift__, integral, 2},
    {"__rshift__", at::__rshift__, &at::Tensor::__irshift__, integral, 2},
    {"eq", at::eq, &at::Tensor::eq_, everything, 1},
    {"ne", at::ne, &at::Tensor::ne_, everything, 1},
    {"lt", at::lt, &at::Tensor::lt_, not_complex, 0.5},
    {"le", at::le, &at::Tensor::le_, not_complex, 0.5},
    {"gt", at::gt, &at::Tensor::gt_, not_complex, 0.5},
    {"ge", at::ge, &at::Tensor::ge_, not_complex, 0.5},
};

template <class R>
void add_in_place(SampleTable& table, const R& row, const std::vector<Inputs>& sets,
                  const Fn& write, const std::string& label) {
  const std::string name = row.name;
  const bool is_dunder = name.substr(0, 2) == "__";
  auto builder = table.op(is_dunder ? "aten.__i" + name.substr(2) : "aten." + name + "_");
  if (!row.has_derivative) builder.not_differentiable();
  builder.in_place_over(sets, write, label);
}

/// Types whose in-place result is surely of the same type.
Dtypes writable(Dtypes dtypes) {
  return dtypes.contains(at::kFloat) ? dtypes - integral - boolean : dtypes;
}

}  // namespace

void add(SampleTable& table) {
  for (const Row& row : rows) {
    auto builder = table.op(std::string("aten.") + row.name);
    if (!row.has_derivative) builder.not_differentiable();
    builder.over(binary_inputs(row.dtypes, row.domain, row.mixing), row.call);
    if (row.in_place == nullptr) continue;
    // Complex quotients in place are refused in single precision.
    const Dtypes dtypes = std::string(row.name) == "div" ? row.dtypes - complex : row.dtypes;
    add_in_place(
        table, row, writable_binary_inputs(writable(dtypes), row.domain, row.mixing),
        [f = row.in_place](const Tensors& in) { return Tensors{(in[0].*f)(in[1])}; }, "");
  }
  table.op("aten.div_").in_place("complex", {c128(2, 3), c128(2, 3)}, [](auto& x, auto& y) {
    return x.div_(y);
  });
  for (const ScalarRow& row : scalar_rows) {
    auto builder = table.op(std::string("aten.") + row.name);
    if (!row.has_derivative) builder.not_differentiable();
    builder.over(
        unary_inputs(row.dtypes),
        [f = row.call, number = row.number](const at::Tensor& x) { return f(x, number); },
        "scalar");
    if (row.in_place == nullptr) continue;
    add_in_place(
        table, row, writable_inputs(writable(row.dtypes)),
        [f = row.in_place, number = row.number](const Tensors& in) {
          return Tensors{(in[0].*f)(number)};
        },
        "scalar");
  }
}

}  // namespace ahead::samples::binary_samples
