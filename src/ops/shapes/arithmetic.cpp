#include <ATen/native/TypeProperties.h>

#include "ops/shapes/families.h"
#include "ops/shapes/make.h"
#include "ops/shapes/pointwise.h"

namespace ahead::ops::shapes {
namespace {

using at::Scalar;
using at::Tensor;

// Integers become the default floating point type.
at::ScalarType as_float(at::ScalarType dtype) {
  return at::isIntegralType(dtype, /*includeBool=*/true) ? c10::get_default_dtype_as_scalartype()
                                                         : dtype;
}

at::ScalarType promoted_with(const Tensor& self, const Scalar& scalar) {
  at::native::ResultTypeState state;
  state = at::native::update_result_type_state(self, state);
  return at::native::result_type(at::native::update_result_type_state(scalar, state));
}

Tensor abs(const Tensor& self) {
  const at::ScalarType dtype = self.scalar_type();
  if (at::isComplexType(dtype)) return make_like(self, c10::toRealValueType(dtype));
  return make_pointwise({self}, dtype);
}

std::vector<Tensor> foreach_abs(at::TensorList tensors) {
  std::vector<Tensor> results;
  for (const Tensor& tensor : tensors) results.push_back(shapes::abs(tensor));
  return results;
}

// The scalars are a tensor on the host, which LibTorch's Meta kernel asks for.
std::vector<Tensor> foreach_ternary(at::TensorList self, at::TensorList first,
                                    at::TensorList second, const Tensor&) {
  TORCH_CHECK(self.size() == first.size() && self.size() == second.size(),
              "Tensor lists must have the same number of tensors");
  std::vector<Tensor> results;
  for (size_t i = 0; i < self.size(); ++i) {
    results.push_back(make_pointwise({self[i], first[i], second[i]}));
  }
  return results;
}

// Complex angles are computed aside and copied.
Tensor angle(const Tensor& self) {
  const at::ScalarType dtype = self.scalar_type();
  if (at::isComplexType(dtype)) return make(self.sizes(), c10::toRealValueType(dtype));
  return make_pointwise({self}, as_float(dtype));
}

Tensor unary_bool(const Tensor& self) {
  return make_pointwise({self}, at::kBool);
}

Tensor binary_bool(const Tensor& self, const Tensor& other) {
  return make_pointwise({self, other}, at::kBool);
}

Tensor like(const Tensor& self) {
  return make_like(self);
}

Tensor nan_to_num(const Tensor& self, std::optional<double>, std::optional<double>,
                  std::optional<double>) {
  return make_like(self);
}

Tensor where(const Tensor& condition, const Tensor& self, const Tensor& other) {
  TORCH_CHECK(condition.scalar_type() == at::kBool || condition.scalar_type() == at::kByte,
              "where expected condition to be a boolean tensor, but got a tensor with dtype ",
              condition.scalar_type());
  const at::ScalarType dtype = promoted({self, other});
  const Tensor first = converted(self, dtype), second = converted(other, dtype);
  return lay_out({condition, first, second}, dtype);
}

Tensor rsub(const Tensor& self, const Tensor& other, const Scalar&) {
  return make_pointwise({other, self});
}

// A number is an operand without dimensions. That there are two operands shows in the layout.
Tensor with_scalar(const Tensor& self, const Scalar& other) {
  const at::ScalarType dtype = promoted_with(self, other);
  const Tensor operand = converted(self, dtype), number = make(at::IntArrayRef{}, dtype);
  return lay_out({operand, number}, dtype);
}

Tensor scalar_with(const Scalar& self, const Tensor& other) {
  return with_scalar(other, self);
}

Tensor add_relu(const Tensor& self, const Tensor& other, const Scalar&) {
  return make_pointwise({self, other});
}

Tensor add_relu_scalar(const Tensor& self, const Scalar& other, const Scalar&) {
  return with_scalar(self, other);
}

Tensor complex(const Tensor& real, const Tensor& imag) {
  TORCH_CHECK(real.scalar_type() == imag.scalar_type(), "Expected object of scalar type ",
              real.scalar_type(), " but got scalar type ", imag.scalar_type());
  return make_pointwise({real, imag}, c10::toComplexType(real.scalar_type()));
}

std::tuple<Tensor, Tensor> frexp(const Tensor& self) {
  TORCH_CHECK(at::isFloatingType(self.scalar_type()),
              "torch.frexp() only supports floating-point dtypes");
  return {make_like(self), make_like(self, at::kInt)};
}

Tensor logit(const Tensor& self, std::optional<double>) {
  return make_pointwise({self}, as_float(self.scalar_type()));
}

// Compares absolute values with infinity, for complex numbers those of the real part.
Tensor isinf(const Tensor& self) {
  const at::ScalarType dtype = self.scalar_type();
  if (at::isIntegralType(dtype, /*includeBool=*/true)) return make_like(self, at::kBool);
  Tensor real = self;
  if (at::isComplexType(dtype)) {
    at::DimVector strides(self.strides());
    for (int64_t& stride : strides) stride *= 2;
    real = make_strided(self.sizes(), strides, c10::toRealValueType(dtype));
  }
  return make_like(with_scalar(shapes::abs(real), 0.0), at::kBool);
}

// A number to the power of a tensor is contiguous, a tensor to the power of a tensor is pointwise;
// which of them ldexp uses depends on the precision of `self`.
Tensor power_of_two(const Tensor& self, const Tensor& exponent) {
  const at::ScalarType dtype = self.scalar_type();
  if (dtype == at::kFloat || at::isIntegralType(dtype, /*includeBool=*/true)) {
    return make(exponent.sizes(), promoted_with(exponent, 2.0));
  }
  const Tensor two = make(at::IntArrayRef{}, dtype);
  return make_pointwise({two, exponent});
}

Tensor ldexp(const Tensor& self, const Tensor& other) {
  if (at::isFloatingType(self.scalar_type()) && at::isIntegralType(other.scalar_type(), true)) {
    Tensor result = lay_out({self, other}, self.scalar_type());
    return result.sizes() == self.sizes() ? make_like(self) : result;
  }
  const Tensor power = power_of_two(self, other);
  return make_pointwise({self, power});
}

// A real tensor is its own conjugate.
Tensor conj_physical(const Tensor& self) {
  return self.is_complex() ? make_like(self) : self;
}

}  // namespace

void add_arithmetic_rules(ShapeRules& rules) {
  rules.add("abs", TORCH_FN(abs));
  rules.add("_foreach_abs", TORCH_FN(foreach_abs));
  rules.add("_foreach_addcdiv.Tensor", TORCH_FN(foreach_ternary));
  rules.add("_foreach_addcmul.Tensor", TORCH_FN(foreach_ternary));
  rules.add("angle", TORCH_FN(angle));
  rules.add("complex", TORCH_FN(complex));
  rules.add("polar", TORCH_FN(complex));
  rules.add("conj_physical", TORCH_FN(conj_physical));
  rules.add("_conj_physical", TORCH_FN(like));
  rules.add("floor_divide", TORCH_FN(binary));
  rules.add("floor_divide.Scalar", TORCH_FN(with_scalar));
  rules.add("frexp.Tensor", TORCH_FN(frexp));
  rules.add("isinf", TORCH_FN(isinf));
  rules.add("isnan", TORCH_FN(unary_bool));
  rules.add("ldexp.Tensor", TORCH_FN(ldexp));
  rules.add("logical_and", TORCH_FN(binary_bool));
  rules.add("logical_not", TORCH_FN(unary_bool));
  rules.add("logical_or", TORCH_FN(binary_bool));
  rules.add("logical_xor", TORCH_FN(binary_bool));
  rules.add("logit", TORCH_FN(logit));
  rules.add("nan_to_num", TORCH_FN(nan_to_num));
  rules.add("remainder.Scalar_Tensor", TORCH_FN(scalar_with));
  rules.add("rsub.Tensor", TORCH_FN(rsub));
  rules.add("where.self", TORCH_FN(where));
  rules.add("_add_relu.Scalar", TORCH_FN(add_relu_scalar));
  rules.add("_add_relu.Tensor", TORCH_FN(add_relu));
  rules.add("__lshift__.Scalar", TORCH_FN(with_scalar));
  rules.add("__lshift__.Tensor", TORCH_FN(binary));
  rules.add("__rshift__.Scalar", TORCH_FN(with_scalar));
  rules.add("__rshift__.Tensor", TORCH_FN(binary));
}

}  // namespace ahead::ops::shapes
