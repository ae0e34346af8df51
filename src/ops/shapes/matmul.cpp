#include <ATen/ExpandUtils.h>
#include <ATen/ops/_addmm_activation.h>
#include <ATen/ops/addmm.h>

#include <algorithm>

#include "ops/shapes/families.h"
#include "ops/shapes/layouts.h"
#include "ops/shapes/make.h"

namespace ahead::ops::shapes {
namespace {

using at::Scalar;
using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using OptionalType = std::optional<at::ScalarType>;

void check_product(const Tensor& left, const Tensor& right, int64_t dims) {
  TORCH_CHECK(left.dim() == dims && right.dim() == dims, "expected ", dims, "D tensors, but got ",
              left.dim(), "D and ", right.dim(), "D tensors");
  TORCH_CHECK(left.size(-1) == right.size(-2), "mat1 and mat2 shapes cannot be multiplied (",
              left.size(-2), "x", left.size(-1), " and ", right.size(-2), "x", right.size(-1), ")");
}

Tensor product(const Tensor& left, const Tensor& right, at::ScalarType dtype) {
  check_product(left, right, 2);
  return make({left.size(0), right.size(1)}, dtype);
}

Tensor batched_product(const Tensor& left, const Tensor& right, at::ScalarType dtype) {
  check_product(left, right, 3);
  TORCH_CHECK(left.size(0) == right.size(0),
              "batch1 and batch2 must have same number of batches, got ", left.size(0), " and ",
              right.size(0));
  return make({left.size(0), left.size(1), right.size(2)}, dtype);
}

/// LibTorch's Meta kernels do not ask whether what is added to a product fits it.
Tensor with_addend(const Tensor& self, Tensor sum) {
  if (!at::is_expandable_to(self.sizes(), sum.sizes())) self.expand(sum.sizes());
  return sum;
}

Tensor addbmm(const Tensor& self, const Tensor& left, const Tensor& right, const Scalar&,
              const Scalar&) {
  Tensor batches = batched_product(left, right, self.scalar_type());
  return with_addend(self, make({batches.size(1), batches.size(2)}, self.scalar_type()));
}

Tensor addmm(const Tensor& self, const Tensor& left, const Tensor& right, const Scalar& beta,
             const Scalar& alpha) {
  return with_addend(self, at::addmm(self, left, right, beta, alpha));
}

Tensor addmm_activation(const Tensor& self, const Tensor& left, const Tensor& right,
                        const Scalar& beta, const Scalar& alpha, bool use_gelu) {
  return with_addend(self, at::_addmm_activation(self, left, right, beta, alpha, use_gelu));
}

Tensor int_mm(const Tensor& self, const Tensor& other) {
  return product(self, other, at::kInt);
}

Tensor addmm_to_dtype(const Tensor& self, const Tensor& left, const Tensor& right,
                      at::ScalarType dtype, const Scalar&, const Scalar&) {
  return with_addend(self, product(left, right, dtype));
}

Tensor baddbmm(const Tensor& self, const Tensor& left, const Tensor& right, at::ScalarType dtype,
               const Scalar&, const Scalar&) {
  return with_addend(self, batched_product(left, right, dtype));
}

Tensor linear_combination(const Tensor& input, const Tensor& coefficients) {
  TORCH_CHECK(input.dim() >= 1 && coefficients.dim() == 2 && coefficients.size(1) == input.size(0),
              "_compute_linear_combination: incompatible shapes");
  at::DimVector sizes(input.sizes());
  sizes[0] = coefficients.size(0);
  return make(sizes, input.scalar_type());
}

Tensor scaled_mm(const Tensor& self, const Tensor& other, const Tensor&, const Tensor&,
                 const OptionalTensor&, const OptionalTensor&, OptionalType dtype, bool) {
  return product(self, other, dtype.value_or(self.scalar_type()));
}

// One product for each group; on the side without a batch dimension the offsets cut out the groups.
Tensor grouped_mm(const Tensor& self, const Tensor& other, const OptionalTensor& offsets,
                  const OptionalTensor&, OptionalType asked) {
  const at::ScalarType dtype = asked.value_or(self.scalar_type());
  TORCH_CHECK(self.dim() >= 2 && self.dim() <= 3 && other.dim() >= 2 && other.dim() <= 3,
              "_grouped_mm expects 2D or 3D tensors");
  TORCH_CHECK(self.size(-1) == other.size(-2),
              "contraction dimension of mat_a and mat_b must match");
  at::DimVector sizes;
  if (self.dim() == 2 && other.dim() == 2) {
    TORCH_CHECK(offsets && offsets->defined(), "Have to provide offsets for 2d-2d inputs");
    sizes.push_back(offsets->size(0));
  }
  if (self.dim() == 3 && other.dim() == 3) sizes.push_back(self.size(0));
  sizes.append({self.size(-2), other.size(-1)});
  if (rule_device().is_cpu()) return make(sizes, dtype);
  // Rows start at multiples of 16 bytes.
  const int64_t unit = 16 / static_cast<int64_t>(c10::elementSize(dtype));
  const int64_t row = (sizes.back() + unit - 1) / unit * unit;
  at::DimVector strides(sizes.size(), 1);
  strides.end()[-2] = row;
  if (sizes.size() == 3) strides[0] = sizes[1] * row;
  return make_strided(sizes, strides, dtype);
}

Tensor int8_weight_mm(const Tensor& self, const Tensor& weight, const Tensor&) {
  return make({self.size(0), weight.size(0)}, self.scalar_type());
}

Tensor int4_weight_mm(const Tensor& self, const Tensor& weight, int64_t, const Tensor&) {
  return make({self.size(0), weight.size(0)}, self.scalar_type());
}

Tensor pack_int4_weight(const Tensor& self, int64_t) {
  TORCH_CHECK(self.dim() == 2, "_convert_weight_to_int4pack: expect weight to be 2D tensor.");
  return make({self.size(0), self.size(1) / 2}, at::kByte);
}

/// A product of matrices of which the first is this argument, and the other the next; in front of
/// their last two dimensions the first has others.
template <size_t Left>
Layouts product_layout(const LayoutCall& call) {
  Dims sizes = call.sizes(Left);
  sizes.back() = call.sizes(Left + 1).back();
  return {Layout::contiguous(std::move(sizes))};
}

/// A vector as long as this argument has rows.
template <size_t Matrix>
Layouts rows_layout(const LayoutCall& call) {
  return {Layout::contiguous({call.sizes(Matrix)[0]})};
}

Layouts addr_layout(const LayoutCall& call) {
  return {Layout::contiguous({call.sizes(1)[0], call.sizes(2)[0]})};
}

/// The sum of a product of three tensors, each of which first gets dimensions of length one.
Layouts trilinear_layout(const LayoutCall& call) {
  Dims sizes;
  for (size_t i = 0; i < 3; ++i) {
    Dims own = call.sizes(i);
    std::vector<int64_t> added = call.numbers(3 + i);
    std::sort(added.begin(), added.end());
    for (int64_t dim : added) own.insert(own.begin() + dim, 1);
    sizes = broadcast(call, sizes, own);
  }
  std::vector<int64_t> summed = call.numbers(6);
  std::sort(summed.rbegin(), summed.rend());
  for (int64_t dim : summed) sizes.erase(sizes.begin() + dim);
  return {in_order(call, std::move(sizes))};
}

}  // namespace

void add_matmul_rules(ShapeRules& rules) {
  rules.add("addbmm", TORCH_FN(addbmm));
  rules.add("addmm", TORCH_FN(addmm));
  rules.add("addmm.dtype", TORCH_FN(addmm_to_dtype));
  rules.add("baddbmm.dtype", TORCH_FN(baddbmm));
  rules.add("bmm.dtype", TORCH_FN(batched_product));
  rules.add("mm.dtype", TORCH_FN(product));
  rules.add("_addmm_activation", TORCH_FN(addmm_activation));
  rules.add("_compute_linear_combination", TORCH_FN(linear_combination));
  rules.add("_convert_weight_to_int4pack_for_cpu", TORCH_FN(pack_int4_weight));
  rules.add("_grouped_mm", TORCH_FN(grouped_mm));
  rules.add("_int_mm", TORCH_FN(int_mm));
  rules.add("_scaled_mm", TORCH_FN(scaled_mm));
  rules.add("_weight_int4pack_mm_for_cpu", TORCH_FN(int4_weight_mm));
  rules.add("_weight_int8pack_mm", TORCH_FN(int8_weight_mm));
  rules.add_layout("mm", product_layout<0>);
  rules.add_layout("bmm", product_layout<0>);
  rules.add_layout("addmm", product_layout<1>);
  rules.add_layout("baddbmm", product_layout<1>);
  rules.add_layout("mv", rows_layout<0>);
  rules.add_layout("addmv", rows_layout<1>);
  rules.add_layout("addr", addr_layout);
  rules.add_layout("_trilinear", trilinear_layout);
}

}  // namespace ahead::ops::shapes
