#include <ATen/WrapDimUtils.h>
#include <ATen/WrapDimUtilsMulti.h>

#include "ops/shapes/families.h"
#include "ops/shapes/layouts.h"
#include "ops/shapes/make.h"

namespace ahead::ops::shapes {
namespace {

using at::IntArrayRef;
using at::OptionalIntArrayRef;
using at::Scalar;
using at::Tensor;
using TwoTensors = std::tuple<Tensor, Tensor>;

// The sizes after reducing over `dims`; no dims at all means all of them.
Dims reduced_sizes(const Dims& sizes, OptionalIntArrayRef dims, bool keepdim) {
  const bool all = !dims.has_value() || dims->empty();
  const auto reduced = all ? std::bitset<at::dim_bitset_size>().set()
                           : at::dim_list_to_bitset(*dims, static_cast<int64_t>(sizes.size()));
  Dims kept;
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (!reduced[dim]) kept.push_back(sizes[dim]);
    if (reduced[dim] && keepdim) kept.push_back(1);
  }
  return kept;
}

/// Along the dimensions that an argument lists, which keep the length one if the next one says so.
template <size_t Argument>
Layouts reduction_layout(const LayoutCall& call) {
  std::vector<int64_t> dims;
  if (!call.is_none(Argument)) dims = call.numbers(Argument);
  Dims sizes = reduced_sizes(call.sizes(0), IntArrayRef(dims), call.flag(Argument + 1));
  return Layouts(call.results.size(), Layout::contiguous(std::move(sizes)));
}

Tensor make_scalar(at::ScalarType dtype) {
  return make(IntArrayRef{}, dtype);
}

at::ScalarType sum_type(at::ScalarType own, std::optional<at::ScalarType> asked) {
  if (asked) return *asked;
  return at::isIntegralType(own, /*includeBool=*/true) ? at::kLong : own;
}

Tensor variance(const Tensor& self, OptionalIntArrayRef dim, const std::optional<Scalar>&,
                bool keepdim) {
  TORCH_CHECK(at::isFloatingType(self.scalar_type()) || at::isComplexType(self.scalar_type()),
              "std and var only support floating point and complex dtypes");
  return make(reduced_sizes(self.sizes(), dim, keepdim), c10::toRealValueType(self.scalar_type()));
}

TwoTensors variance_and_mean(const Tensor& self, OptionalIntArrayRef dim,
                             const std::optional<Scalar>& correction, bool keepdim) {
  Tensor first = variance(self, dim, correction, keepdim);
  return {first, make(first.sizes(), self.scalar_type())};
}

Tensor extremum(const Tensor& self) {
  TORCH_CHECK(self.numel() > 0, "Expected reduction dim to be specified for input.numel() == 0. ",
              "Specify the reduction dim with the 'dim' argument.");
  return make_scalar(self.scalar_type());
}

std::vector<Tensor> foreach_max(at::TensorList tensors) {
  std::vector<Tensor> results;
  for (const Tensor& tensor : tensors) results.push_back(extremum(tensor));
  return results;
}

TwoTensors extrema(const Tensor& self) {
  return {extremum(self), extremum(self)};
}

TwoTensors extrema_along(const Tensor& self, int64_t dim, bool keepdim) {
  const Dims sizes = reduced_sizes(self.sizes(), dim, keepdim);
  return {make(sizes, self.scalar_type()), make(sizes, self.scalar_type())};
}

Tensor prod(const Tensor& self, std::optional<at::ScalarType> dtype) {
  return make_scalar(sum_type(self.scalar_type(), dtype));
}

Tensor nansum(const Tensor& self, OptionalIntArrayRef dim, bool keepdim,
              std::optional<at::ScalarType> dtype) {
  return make(reduced_sizes(self.sizes(), dim, keepdim), sum_type(self.scalar_type(), dtype));
}

Tensor count_nonzero(const Tensor& self, IntArrayRef dim) {
  return make(reduced_sizes(self.sizes(), dim, /*keepdim=*/false), at::kLong);
}

Tensor count_nonzero_along(const Tensor& self, std::optional<int64_t> dim) {
  return shapes::count_nonzero(self, dim ? IntArrayRef(*dim) : IntArrayRef());
}

Tensor logsumexp(const Tensor& self, IntArrayRef dim, bool keepdim) {
  const bool integral = at::isIntegralType(self.scalar_type(), /*includeBool=*/true);
  return make(reduced_sizes(self.sizes(), dim, keepdim),
              integral ? c10::get_default_dtype_as_scalartype() : self.scalar_type());
}

Tensor powsum(const Tensor& self, const Scalar&, OptionalIntArrayRef dim, bool keepdim,
              std::optional<at::ScalarType> dtype) {
  const at::ScalarType own = dtype.value_or(self.scalar_type());
  return make(reduced_sizes(self.sizes(), dim, keepdim), c10::toRealValueType(own));
}

std::vector<Tensor> foreach_powsum(at::TensorList tensors, const Scalar& exponent,
                                   std::optional<at::ScalarType> dtype) {
  std::vector<Tensor> results;
  for (const Tensor& tensor : tensors) {
    results.push_back(powsum(tensor, exponent, std::nullopt, /*keepdim=*/false, dtype));
  }
  return results;
}

Tensor trace(const Tensor& self) {
  TORCH_CHECK(self.dim() == 2, "trace: expected a matrix, but got tensor with dim ", self.dim());
  return make_scalar(sum_type(self.scalar_type(), std::nullopt));
}

Tensor dot(const Tensor& self, const Tensor& other) {
  TORCH_CHECK(self.dim() == 1 && other.dim() == 1, "1D tensors expected, but got ", self.dim(),
              "D and ", other.dim(), "D tensors");
  TORCH_CHECK(self.scalar_type() == other.scalar_type(),
              "dot : expected both vectors to have same dtype, but found ", self.scalar_type(),
              " and ", other.scalar_type());
  TORCH_CHECK(self.numel() == other.numel(), "inconsistent tensor size, expected tensor [",
              self.numel(), "] and src [", other.numel(), "] to have the same number of elements");
  return make_scalar(self.scalar_type());
}

Tensor median(const Tensor& self) {
  return make_scalar(self.scalar_type());
}

// The values found along one dimension and where they were found.
TwoTensors found_along(const Tensor& self, int64_t dim, bool keepdim) {
  TORCH_CHECK(self.dim() == 0 || self.size(at::maybe_wrap_dim(dim, self.dim())) > 0,
              "Expected reduction dim ", dim, " to have non-zero size.");
  const Dims sizes = reduced_sizes(self.sizes(), dim, keepdim);
  return {make(sizes, self.scalar_type()), make(sizes, at::kLong)};
}

TwoTensors kthvalue(const Tensor& self, int64_t k, int64_t dim, bool keepdim) {
  const int64_t length = self.dim() > 0 ? self.size(at::maybe_wrap_dim(dim, self.dim())) : 1;
  TORCH_CHECK(k >= 1 && k <= length, "kthvalue(): selected number k out of range for dimension ",
              dim);
  return found_along(self, dim, keepdim);
}

Tensor scan(const Tensor& self, int64_t dim) {
  at::maybe_wrap_dim(dim, self.dim());
  return make(self.sizes(), self.scalar_type());
}

TwoTensors scan_with_indices(const Tensor& self, int64_t dim) {
  return {scan(self, dim), make(self.sizes(), at::kLong)};
}

}  // namespace

void add_reduction_rules(ShapeRules& rules) {
  rules.add("std.correction", TORCH_FN(variance));
  rules.add("var.correction", TORCH_FN(variance));
  rules.add("std_mean.correction", TORCH_FN(variance_and_mean));
  rules.add("var_mean.correction", TORCH_FN(variance_and_mean));
  rules.add("max", TORCH_FN(extremum));
  rules.add("min", TORCH_FN(extremum));
  rules.add("_foreach_max", TORCH_FN(foreach_max));
  rules.add("_aminmax", TORCH_FN(extrema));
  rules.add("_aminmax.dim", TORCH_FN(extrema_along));
  rules.add("prod", TORCH_FN(prod));
  rules.add("nansum", TORCH_FN(nansum));
  rules.add("count_nonzero", TORCH_FN(count_nonzero_along));
  rules.add("count_nonzero.dim_IntList", TORCH_FN(count_nonzero));
  rules.add("logsumexp", TORCH_FN(logsumexp));
  rules.add("linalg__powsum", TORCH_FN(powsum));
  rules.add("_foreach_powsum.Scalar", TORCH_FN(foreach_powsum));
  rules.add("trace", TORCH_FN(trace));
  rules.add("dot", TORCH_FN(dot));
  rules.add("vdot", TORCH_FN(dot));
  rules.add("median", TORCH_FN(median));
  rules.add("nanmedian", TORCH_FN(median));
  rules.add("median.dim", TORCH_FN(found_along));
  rules.add("nanmedian.dim", TORCH_FN(found_along));
  rules.add("mode", TORCH_FN(found_along));
  rules.add("kthvalue", TORCH_FN(kthvalue));
  rules.add("cummax", TORCH_FN(scan_with_indices));
  rules.add("cummin", TORCH_FN(scan_with_indices));
  rules.add("logcumsumexp", TORCH_FN(scan));
  rules.add("_logcumsumexp", TORCH_FN(scan));
  rules.add_layout("sum", number_layout);
  rules.add_layout("mean", number_layout);
  rules.add_layout("dot", number_layout);
  rules.add_layout("sum.dim_IntList", reduction_layout<1>);
  rules.add_layout("mean.dim", reduction_layout<1>);
  rules.add_layout("amax", reduction_layout<1>);
  rules.add_layout("amin", reduction_layout<1>);
  rules.add_layout("logsumexp", reduction_layout<1>);
  rules.add_layout("any.dim", reduction_layout<1>);
  rules.add_layout("all.dim", reduction_layout<1>);
  rules.add_layout("prod.dim_int", reduction_layout<1>);
  rules.add_layout("nansum", reduction_layout<1>);
  rules.add_layout("max.dim", reduction_layout<1>);
  rules.add_layout("min.dim", reduction_layout<1>);
  rules.add_layout("argmax", reduction_layout<1>);
  rules.add_layout("argmin", reduction_layout<1>);
  rules.add_layout("linalg_vector_norm", reduction_layout<2>);
  rules.add_layout("cumsum", like_layout<0>);
  rules.add_layout("cumprod", like_layout<0>);
  rules.add_layout("logcumsumexp", like_layout<0>);
}

}  // namespace ahead::ops::shapes
