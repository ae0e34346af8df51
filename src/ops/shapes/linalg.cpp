#include <ATen/ExpandUtils.h>

#include "ahead/errors.h"
#include "ops/shapes/families.h"
#include "ops/shapes/layouts.h"
#include "ops/shapes/make.h"

namespace ahead::ops::shapes {
namespace {

using at::IntArrayRef;
using at::Tensor;
using Sizes = at::DimVector;
using TwoTensors = std::tuple<Tensor, Tensor>;

// A batch of matrices as LAPACK wants them: each in column-major order.
Tensor make_column_major(IntArrayRef sizes, at::ScalarType dtype) {
  Sizes transposed(sizes);
  std::swap(transposed.end()[-1], transposed.end()[-2]);
  Tensor matrices = make(transposed, dtype);
  Sizes strides(matrices.strides());
  std::swap(strides.end()[-1], strides.end()[-2]);
  return make_strided(sizes, strides, dtype);
}

Tensor column_major_like(const Tensor& self) {
  return make_column_major(self.sizes(), self.scalar_type());
}

IntArrayRef batch_sizes(const Tensor& matrices) {
  return matrices.sizes().slice(0, matrices.dim() - 2);
}

Sizes with(IntArrayRef batch, std::initializer_list<int64_t> last) {
  Sizes sizes(batch);
  sizes.append(last.begin(), last.end());
  return sizes;
}

void check_matrix(const Tensor& self, const char* name) {
  TORCH_CHECK(self.dim() >= 2, name, ": The input tensor must have at least 2 dimensions.");
}

void check_square(const Tensor& self, const char* name) {
  check_matrix(self, name);
  TORCH_CHECK(self.size(-1) == self.size(-2), name,
              ": A must be batches of square matrices, but they are ", self.size(-2), " by ",
              self.size(-1), " matrices");
}

TwoTensors eig(const Tensor& self) {
  check_square(self, "linalg.eig");
  const at::ScalarType dtype = c10::toComplexType(self.scalar_type());
  return {make(self.sizes().slice(0, self.dim() - 1), dtype),
          make_column_major(self.sizes(), dtype)};
}

Tensor eigvals(const Tensor& self) {
  return std::get<0>(eig(self));
}

Tensor cholesky(const Tensor& self, bool) {
  check_square(self, "cholesky");
  if (self.numel() == 0) return make(self.sizes(), self.scalar_type());
  return column_major_like(self);
}

Tensor cholesky_inverse(const Tensor& self, bool) {
  check_square(self, "cholesky_inverse");
  return column_major_like(self);
}

Tensor cholesky_solve_helper(const Tensor& self, const Tensor&, bool) {
  return column_major_like(self);
}

Tensor cholesky_solve(const Tensor& self, const Tensor& factor, bool) {
  check_matrix(self, "cholesky_solve");
  check_square(factor, "cholesky_solve");
  const Sizes batch = at::infer_size_dimvector(batch_sizes(self), batch_sizes(factor));
  return make_column_major(with(batch, {self.size(-2), self.size(-1)}), self.scalar_type());
}

TwoTensors geqrf(const Tensor& self) {
  check_matrix(self, "torch.geqrf");
  const int64_t smaller = std::min(self.size(-1), self.size(-2));
  return {column_major_like(self), make(with(batch_sizes(self), {smaller}), self.scalar_type())};
}

Tensor ormqr(const Tensor& self, const Tensor&, const Tensor& other, bool left, bool) {
  check_matrix(self, "torch.ormqr");
  TORCH_CHECK(other.dim() >= 2, "torch.ormqr: other must have at least 2 dimensions.");
  TORCH_CHECK(other.size(left ? -2 : -1) == self.size(-2), "torch.ormqr: other.shape[",
              left ? -2 : -1, "] must be equal to input.shape[-2]");
  return column_major_like(other);
}

Tensor householder_product(const Tensor& self, const Tensor&) {
  check_matrix(self, "torch.linalg.householder_product");
  TORCH_CHECK(self.size(-2) >= self.size(-1),
              "torch.linalg.householder_product: input.shape[-2] must be greater than or equal to "
              "input.shape[-1]");
  return column_major_like(self);
}

Tensor matrix_exp(const Tensor& self) {
  check_square(self, "linalg.matrix_exp");
  return make(self.sizes(), self.scalar_type());
}

Tensor solve_triangular(const Tensor& self, const Tensor& other, bool, bool left, bool) {
  check_square(self, "linalg.solve_triangular");
  check_matrix(other, "linalg.solve_triangular");
  TORCH_CHECK(self.size(-1) == other.size(left ? -2 : -1),
              "linalg.solve_triangular: Incompatible shapes of A and B for the equation");
  const Sizes batch = at::infer_size_dimvector(batch_sizes(other), batch_sizes(self));
  const Sizes sizes = with(batch, {other.size(-2), other.size(-1)});
  // A conjugated matrix in column-major order is used as it is, and so is the order of the result.
  if (self.is_conj() && self.transpose(-2, -1).is_contiguous()) {
    return make(sizes, other.scalar_type());
  }
  return make_column_major(sizes, other.scalar_type());
}

Tensor pinv(const Tensor& self, const std::optional<Tensor>&, const std::optional<Tensor>&, bool) {
  check_matrix(self, "linalg.pinv");
  return make(with(batch_sizes(self), {self.size(-1), self.size(-2)}), self.scalar_type());
}

std::tuple<Tensor, Tensor, Tensor, Tensor> lstsq(const Tensor& self, const Tensor& other,
                                                 std::optional<double>,
                                                 std::optional<std::string_view> driver) {
  check_matrix(self, "linalg.lstsq");
  TORCH_CHECK(other.dim() >= 1, "linalg.lstsq: other must have at least 1 dimension.");
  const int64_t rows = self.size(-2), columns = self.size(-1);
  const bool vector = other.dim() == 1 || (self.dim() - 1 == other.dim() &&
                                           other.sizes() == self.sizes().slice(0, self.dim() - 1));
  const IntArrayRef other_batch = other.sizes().slice(0, other.dim() - (vector ? 1 : 2));
  const int64_t right_sides = vector ? 1 : other.size(-1);
  const Sizes batch = at::infer_size_dimvector(batch_sizes(self), other_batch);
  const std::string_view name = driver.value_or(rule_device().is_cpu() ? "gelsy" : "gels");
  if (rows > columns && name != "gelsy" && name != "gels") {
    throw DataDependent("trace",
                        "aten.linalg_lstsq: the rank, which is data, decides the size of the "
                        "residuals. Use the driver gels or gelsy.");
  }
  const at::ScalarType dtype = self.scalar_type();
  const at::ScalarType real = c10::toRealValueType(dtype);
  // The solution lies in the upper part of a matrix that had room for the right-hand sides.
  Tensor work = make_column_major(with(batch, {std::max(rows, columns), right_sides}), dtype);
  Sizes sizes = with(batch, {columns, right_sides}), strides(work.strides());
  if (vector) sizes.pop_back(), strides.pop_back();
  Tensor solution = make_strided(sizes, strides, dtype);
  const bool residuals = rows > columns && name == "gels";
  const bool singular_values = name == "gelsd" || name == "gelss";
  return {solution, residuals ? make(with(batch, {right_sides}), real) : make({0}, real),
          name == "gels" ? make({0}, at::kLong) : make(batch_sizes(self), at::kLong),
          singular_values ? make(with(batch_sizes(self), {std::min(rows, columns)}), real)
                          : make({0}, real)};
}

}  // namespace

void add_linalg_rules(ShapeRules& rules) {
  rules.add("linalg_eig", TORCH_FN(eig));
  rules.add("_linalg_eigvals", TORCH_FN(eigvals));
  rules.add("cholesky", TORCH_FN(cholesky));
  rules.add("cholesky_inverse", TORCH_FN(cholesky_inverse));
  rules.add("cholesky_solve", TORCH_FN(cholesky_solve));
  rules.add("_cholesky_solve_helper", TORCH_FN(cholesky_solve_helper));
  rules.add("geqrf", TORCH_FN(geqrf));
  rules.add("ormqr", TORCH_FN(ormqr));
  rules.add("linalg_householder_product", TORCH_FN(householder_product));
  rules.add("linalg_lstsq", TORCH_FN(lstsq));
  rules.add("linalg_matrix_exp", TORCH_FN(matrix_exp));
  rules.add("linalg_solve_triangular", TORCH_FN(solve_triangular));
  rules.add("linalg_pinv.atol_rtol_tensor", TORCH_FN(pinv));
  rules.add_layout("linalg_solve_triangular", like_layout<1>);
  rules.add_layout("linalg_lu_solve", like_layout<2>);
  rules.add_layout("cholesky_solve", like_layout<0>);
}

}  // namespace ahead::ops::shapes
