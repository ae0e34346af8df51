#include "ops/shapes/make.h"

#include <ATen/ExpandUtils.h>

namespace ahead::ops::shapes {

at::Tensor make_like(const at::Tensor& self, at::ScalarType dtype) {
  if (self.is_non_overlapping_and_dense()) return make_strided(self.sizes(), self.strides(), dtype);
  return make_strided(self.sizes(), at::infer_dense_strides(self.sizes(), self.strides()), dtype);
}

at::ScalarType accumulate_type(at::ScalarType dtype) {
  return dtype == at::kHalf || dtype == at::kBFloat16 ? at::kFloat : dtype;
}

}  // namespace ahead::ops::shapes
