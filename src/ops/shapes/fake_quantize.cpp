#include "ops/shapes/families.h"
#include "ops/shapes/make.h"

namespace ahead::ops::shapes {
namespace {

using at::Tensor;
using TwoTensors = std::tuple<Tensor, Tensor>;
using ThreeTensors = std::tuple<Tensor, Tensor, Tensor>;

TwoTensors with_mask(const Tensor& self) {
  return {make_like(self), make_like(self, at::kBool)};
}

TwoTensors per_tensor(const Tensor& self, double, int64_t, int64_t, int64_t) {
  return with_mask(self);
}

TwoTensors per_tensor_of_tensors(const Tensor& self, const Tensor&, const Tensor&, const Tensor&,
                                 int64_t, int64_t) {
  return with_mask(self);
}

TwoTensors per_channel(const Tensor& self, const Tensor&, const Tensor&, int64_t, int64_t,
                       int64_t) {
  return with_mask(self);
}

Tensor learnable_per_tensor(const Tensor& self, const Tensor&, const Tensor&, int64_t, int64_t,
                            double) {
  return make_like(self);
}

Tensor learnable_per_channel(const Tensor& self, const Tensor&, const Tensor&, int64_t, int64_t,
                             int64_t, double) {
  return make_like(self);
}

ThreeTensors learnable_per_tensor_backward(const Tensor&, const Tensor& self, const Tensor& scale,
                                           const Tensor& zero_point, int64_t, int64_t, double) {
  return {make_like(self), make_like(scale), make_like(zero_point)};
}

ThreeTensors learnable_per_channel_backward(const Tensor&, const Tensor& self, const Tensor& scale,
                                            const Tensor& zero_point, int64_t, int64_t, int64_t,
                                            double) {
  return {make_like(self), make_like(scale), make_like(zero_point)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> moving_average(
    const Tensor& self, const Tensor&, const Tensor&, const Tensor& running_min,
    const Tensor& running_max, const Tensor& scale, const Tensor& zero_point, double, int64_t,
    int64_t, int64_t, bool, bool) {
  return {make_like(self),        make_like(self, at::kBool), make_like(running_min),
          make_like(running_max), make_like(scale),           make_like(zero_point)};
}

}  // namespace

void add_fake_quantize_rules(ShapeRules& rules) {
  rules.add("fake_quantize_per_tensor_affine_cachemask", TORCH_FN(per_tensor));
  rules.add("_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
            TORCH_FN(per_tensor_of_tensors));
  rules.add("fake_quantize_per_channel_affine_cachemask", TORCH_FN(per_channel));
  rules.add("_fake_quantize_learnable_per_tensor_affine", TORCH_FN(learnable_per_tensor));
  rules.add("_fake_quantize_learnable_per_channel_affine", TORCH_FN(learnable_per_channel));
  rules.add("_fake_quantize_learnable_per_tensor_affine_backward",
            TORCH_FN(learnable_per_tensor_backward));
  rules.add("_fake_quantize_learnable_per_channel_affine_backward",
            TORCH_FN(learnable_per_channel_backward));
  rules.add("_fused_moving_avg_obs_fq_helper_functional", TORCH_FN(moving_average));
}

}  // namespace ahead::ops::shapes
