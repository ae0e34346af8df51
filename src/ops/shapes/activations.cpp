#include "ops/shapes/families.h"
#include "ops/shapes/layouts.h"
#include "ops/shapes/make.h"
#include "ops/shapes/pointwise.h"

namespace ahead::ops::shapes {
namespace {

using at::Scalar;
using at::Tensor;
using TensorPair = std::tuple<Tensor, Tensor>;

Tensor unary(const Tensor& self) {
  return make_pointwise({self});
}

Tensor relu(const Tensor& self) {
  TORCH_CHECK(self.scalar_type() != at::kBool, "Boolean inputs not supported for relu");
  return make_pointwise({self});
}

Tensor hardtanh(const Tensor& self, const Scalar&, const Scalar&) {
  TORCH_CHECK(self.scalar_type() != at::kBool, "Bool inputs not supported for hardtanh");
  return make_like(self);
}

Tensor hardtanh_backward(const Tensor& grad, const Tensor& self, const Scalar&, const Scalar&) {
  return make_pointwise({grad, self});
}

TensorPair log_sigmoid_forward(const Tensor& self) {
  if (!rule_device().is_cpu()) return {make_pointwise({self}), make({0}, self.scalar_type())};
  return {make(self.sizes(), self.scalar_type()), make(self.sizes(), self.scalar_type())};
}

Tensor log_sigmoid_backward(const Tensor& grad, const Tensor&, const Tensor&) {
  return make_like(grad);
}

Tensor prelu(const Tensor& self, const Tensor&) {
  return make_like(self);
}

TensorPair prelu_backward(const Tensor& grad, const Tensor& self, const Tensor& weight) {
  auto grad_self = make_pointwise({self, weight, grad});
  return {grad_self, make_like(grad_self)};
}

void check_halves(const Tensor& self, int64_t dim) {
  TORCH_CHECK(self.dim() > 0, "glu does not support 0-dimensional tensors");
  int64_t size = self.size(dim);
  TORCH_CHECK(size % 2 == 0, "Halving dimension must be even, but dimension ", dim, " is size ",
              size);
}

Tensor glu_backward(const Tensor& grad, const Tensor& self, int64_t dim) {
  check_halves(self, dim);
  TORCH_CHECK(2 * grad.numel() == self.numel(), "grad_output has the wrong shape for glu_backward");
  return make(self.sizes(), self.scalar_type());
}

Tensor glu_jvp(const Tensor& glu, const Tensor& x, const Tensor&, int64_t dim) {
  check_halves(x, dim);
  return make_like(glu);
}

// CPU gives an empty tensor a mask of its own dtype; CUDA fills the mask of a dropout that does
// nothing without regard to layout.
TensorPair native_dropout(const Tensor& self, double, std::optional<bool> train) {
  bool idle = self.numel() == 0 || !train.value_or(true);
  if (rule_device().is_cpu()) {
    auto mask = make_like(self, self.numel() == 0 ? self.scalar_type() : at::kBool);
    return {idle ? make_like(self) : make_pointwise({self, mask}), mask};
  }
  return {make_like(self), idle ? make(self.sizes(), at::kBool) : make_like(self, at::kBool)};
}

Tensor native_dropout_backward(const Tensor& grad, const Tensor& mask, double) {
  if (!rule_device().is_cpu()) {
    return make(grad.sizes(), grad.scalar_type(), grad.suggest_memory_format());
  }
  return make_pointwise({grad, mask});
}

}  // namespace

void add_activation_rules(ShapeRules& rules) {
  rules.add("relu", TORCH_FN(relu));
  rules.add("hardtanh", TORCH_FN(hardtanh));
  rules.add("hardtanh_backward", TORCH_FN(hardtanh_backward));
  rules.add("hardswish", TORCH_FN(unary));
  rules.add("hardswish_backward", TORCH_FN(binary));
  rules.add("log_sigmoid_forward", TORCH_FN(log_sigmoid_forward));
  rules.add("log_sigmoid_backward", TORCH_FN(log_sigmoid_backward));
  rules.add("_prelu_kernel", TORCH_FN(prelu));
  rules.add("_prelu_kernel_backward", TORCH_FN(prelu_backward));
  rules.add("glu_backward", TORCH_FN(glu_backward));
  rules.add("glu_jvp", TORCH_FN(glu_jvp));
  rules.add("native_dropout", TORCH_FN(native_dropout));
  rules.add("native_dropout_backward", TORCH_FN(native_dropout_backward));
  rules.add_layout("_softmax", like_layout<0>);
  rules.add_layout("_log_softmax", like_layout<0>);
  rules.add_layout("_softmax_backward_data", like_layout<0>);
  rules.add_layout("_log_softmax_backward_data", like_layout<0>);
  rules.add_layout("native_dropout_backward", like_layout<0>);
  rules.add_layout("glu_backward", like_layout<1>);
  rules.add_layout("mish_backward", pointwise_layout);
  rules.add_layout("_prelu_kernel_backward", like_layout<1, 1>);
}

}  // namespace ahead::ops::shapes
