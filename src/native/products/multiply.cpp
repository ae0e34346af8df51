#include "native/products/multiply.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/bmm.h>

#include <optional>
#include <string_view>

namespace ahead::native {
namespace {

/// left · rightᵀ, by oneDNN.
at::Tensor times_transpose(const at::Tensor& left, const at::Tensor& right) {
  using Function = at::Tensor(
      const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, std::string_view,
      c10::List<std::optional<at::Scalar>>, std::optional<std::string_view>);
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("mkldnn::_linear_pointwise", "")
                             .typed<Function>();
  return op.call(left, right, std::nullopt, "none", c10::List<std::optional<at::Scalar>>(), "");
}

/// Whether one of the dimensions of the matrices is dense, and which.
bool is_dense(const at::Tensor& matrices, int64_t dim) {
  const int64_t other = 3 - dim;
  return matrices.stride(dim) == 1 && matrices.stride(other) >= matrices.size(dim);
}

}  // namespace

void multiply_batches(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right,
                      Multiplier multiplier) {
  const int64_t multiplications = left.size(1) * left.size(2) * right.size(2);
  const bool lies_by_rows = is_dense(left, 2), lies_by_columns = is_dense(left, 1);
  const bool is_for_one_dnn =
      multiplier == Multiplier::OneDnn && multiplications >= fewest_in_batches &&
      left.scalar_type() == at::kFloat && (lies_by_rows || lies_by_columns) &&
      (is_dense(right, 1) || is_dense(right, 2));
  if (!is_for_one_dnn) {
    at::Tensor target = out;
    at::bmm_out(target, left, right);
    return;
  }
  for (int64_t i = 0; i < left.size(0); ++i) {
    const at::Tensor one = left.select(0, i), other = right.select(0, i).t();
    // oneDNN wants its first operand by rows: the small one is put there.
    out.select(0, i).copy_(lies_by_rows ? times_transpose(one, other)
                                        : times_transpose(other, one).t());
  }
}

}  // namespace ahead::native
