#include <ATen/ExpandUtils.h>
#include <c10/util/accumulate.h>

#include "ops/shapes/families.h"
#include "ops/shapes/layouts.h"
#include "ops/shapes/make.h"

namespace ahead::ops::shapes {
namespace {

using at::Tensor;
using Sizes = at::DimVector;

Sizes common_batch(const Tensor& left, const Tensor& right) {
  TORCH_CHECK(left.dim() >= 2 && right.dim() >= 2, "cdist only supports at least 2D tensors, got ",
              left.dim(), "D and ", right.dim(), "D");
  TORCH_CHECK(left.size(-1) == right.size(-1),
              "X1 and X2 must have the same number of columns. X1: ", left.size(-1),
              " X2: ", right.size(-1));
  return at::infer_size_dimvector(left.sizes().slice(0, left.dim() - 2),
                                  right.sizes().slice(0, right.dim() - 2));
}

Tensor cdist(const Tensor& left, const Tensor& right, double p, std::optional<int64_t>) {
  TORCH_CHECK(p >= 0, "cdist only supports non-negative p values");
  Sizes sizes = common_batch(left, right);
  sizes.append({left.size(-2), right.size(-2)});
  return make(sizes, left.scalar_type());
}

Tensor cdist_backward(const Tensor&, const Tensor& left, const Tensor& right, double,
                      const Tensor&) {
  Sizes sizes = common_batch(left, right);
  sizes.append({left.size(-2), left.size(-1)});
  const bool empty = c10::multiply_integers(sizes) == 0 || right.size(-2) == 0;
  return empty ? make_like(left) : make(sizes, left.scalar_type());
}

Tensor pdist(const Tensor& self, double) {
  TORCH_CHECK(self.dim() == 2, "pdist only supports 2D tensors, got: ", self.dim(), "D");
  const int64_t points = self.size(0);
  return make({points * (points - 1) / 2}, self.scalar_type());
}

Tensor pdist_backward(const Tensor&, const Tensor& self, double, const Tensor&) {
  return make(self.sizes(), self.scalar_type());
}

}  // namespace

void add_distance_rules(ShapeRules& rules) {
  rules.add("_cdist_forward", TORCH_FN(cdist));
  rules.add("_cdist_backward", TORCH_FN(cdist_backward));
  rules.add("_pdist_forward", TORCH_FN(pdist));
  rules.add("_pdist_backward", TORCH_FN(pdist_backward));
  rules.add_layout("_cdist_backward", like_layout<1>);
}

}  // namespace ahead::ops::shapes
