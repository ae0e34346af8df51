#include <ATen/core/Reduction.h>
#include <torch/version.h>

#include "ops/shapes/families.h"
#include "ops/shapes/layouts.h"
#include "ops/shapes/make.h"
#include "ops/shapes/pointwise.h"

namespace ahead::ops::shapes {
namespace {

using at::IntArrayRef;
using at::Scalar;
using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using TensorPair = std::tuple<Tensor, Tensor>;

Tensor scalar(const Tensor& self) {
  return make({}, self.scalar_type());
}

// A loss that is computed per element, or reduced.
Tensor reduced(const Tensor& elements, int64_t reduction) {
  return reduction == at::Reduction::None ? elements : scalar(elements);
}

// A gradient that is allocated contiguous for self and grows if its operands broadcast further.
Tensor contiguous_gradient(const Tensor& grad, const Tensor& self, const Tensor& target) {
  auto broadcast = make_pointwise({self, target, grad}, self.scalar_type());
  return broadcast.sizes() == self.sizes() ? make(self.sizes(), self.scalar_type()) : broadcast;
}

Tensor mse_loss_backward(const Tensor& grad, const Tensor& self, const Tensor& target, int64_t) {
  TORCH_CHECK(TORCH_VERSION_MINOR >= 13 || self.scalar_type() == target.scalar_type(),
              "Found dtype ", target.scalar_type(), " but expected ", self.scalar_type());
  return contiguous_gradient(grad, self, target);
}

Tensor gradient_with_threshold(const Tensor& grad, const Tensor& self, const Tensor& target,
                               int64_t, double) {
  return contiguous_gradient(grad, self, target);
}

Tensor huber_loss(const Tensor& self, const Tensor& target, int64_t reduction, double delta) {
  TORCH_CHECK(delta > 0, "huber_loss does not support non-positive values for delta.");
  auto broadcast = make_pointwise({self, target}, self.scalar_type());
  return reduced(broadcast.sizes() == self.sizes() ? make_like(self) : broadcast, reduction);
}

Tensor binary_cross_entropy(const Tensor& self, const Tensor& target, const OptionalTensor&,
                            int64_t reduction) {
  TORCH_CHECK(self.numel() == target.numel(), "Using a target size (", target.sizes(),
              ") that is different to the input size (", self.sizes(), ") is not supported");
  return reduced(make_like(self), reduction);
}

Tensor binary_cross_entropy_backward(const Tensor&, const Tensor& self, const Tensor&,
                                     const OptionalTensor&, int64_t) {
  return make_like(self);
}

Tensor binary_cross_entropy_with_logits(const Tensor& self, const Tensor& target,
                                        const OptionalTensor&, const OptionalTensor&,
                                        int64_t reduction) {
  auto elements = make_like(target);
  TORCH_CHECK(make_pointwise({target, self}).sizes() == target.sizes(), "output with shape ",
              target.sizes(), " doesn't match the broadcast shape of the input ", self.sizes());
  return reduced(elements, reduction);
}

Tensor multi_margin_loss(const Tensor& self, const Tensor& target, const Scalar& p, const Scalar&,
                         const OptionalTensor&, int64_t reduction) {
  TORCH_CHECK(p.equal(1) || p.equal(2), "only p == 1 and p == 2 supported");
  TORCH_CHECK(self.dim() <= 2 && target.dim() <= 1,
              "multi_margin_loss: expected an input of at most two dimensions and a target of at "
              "most one");
  if (reduction != at::Reduction::None || target.dim() == 0) return scalar(self);
  return make({self.dim() == 2 ? self.size(0) : 1}, self.scalar_type());
}

Tensor multi_margin_loss_backward(const Tensor&, const Tensor& self, const Tensor&, const Scalar&,
                                  const Scalar&, const OptionalTensor&, int64_t) {
  return make(self.sizes(), self.scalar_type());
}

TensorPair multilabel_margin_loss(const Tensor& self, const Tensor& target, int64_t reduction) {
  TORCH_CHECK(self.dim() <= 2, "multilabel_margin_loss: expected at most two dimensions");
  bool per_row = reduction == at::Reduction::None && target.dim() > 1;
  return {per_row ? make({self.size(0)}, self.scalar_type()) : scalar(self),
          make(target.sizes(), self.scalar_type())};
}

Tensor multilabel_margin_loss_backward(const Tensor&, const Tensor& self, const Tensor&, int64_t,
                                       const Tensor&) {
  return make(self.sizes(), self.scalar_type());
}

void check_nll_loss2d(const Tensor& self, const Tensor& target) {
  TORCH_CHECK(target.dim() == 3,
              "only batches of spatial targets supported (3D tensors) but got targets of "
              "dimension: ",
              target.dim());
  TORCH_CHECK(self.dim() == 4,
              "only batches of spatial inputs supported (4D tensors), but got input of dimension: ",
              self.dim());
  TORCH_CHECK(self.size(0) == target.size(0) && self.sizes().slice(2) == target.sizes().slice(1),
              "size mismatch (got input: ", self.sizes(), " , target: ", target.sizes());
}

TensorPair nll_loss2d(const Tensor& self, const Tensor& target, const OptionalTensor&,
                      int64_t reduction, int64_t) {
  check_nll_loss2d(self, target);
  return {reduced(make(target.sizes(), self.scalar_type()), reduction), scalar(self)};
}

Tensor nll_loss2d_backward(const Tensor&, const Tensor& self, const Tensor& target,
                           const OptionalTensor&, int64_t, int64_t, const Tensor&) {
  check_nll_loss2d(self, target);
  auto grad_input = make_like(self);
  TORCH_CHECK(grad_input.is_contiguous(), "grad_input must be contiguous");
  return grad_input;
}

Tensor ctc_loss_backward(const Tensor&, const Tensor& log_probs, const Tensor&, IntArrayRef,
                         IntArrayRef, const Tensor&, const Tensor&, int64_t, bool) {
  return make(log_probs.sizes(), log_probs.scalar_type());
}

Tensor ctc_loss_backward_tensor(const Tensor&, const Tensor& log_probs, const Tensor&,
                                const Tensor&, const Tensor&, const Tensor&, const Tensor&, int64_t,
                                bool) {
  return make(log_probs.sizes(), log_probs.scalar_type());
}

TensorPair cudnn_ctc_loss(const Tensor& log_probs, const Tensor&, IntArrayRef, IntArrayRef, int64_t,
                          bool, bool) {
  return {make({log_probs.size(1)}, log_probs.scalar_type()),
          make(log_probs.sizes(), log_probs.scalar_type())};
}

TensorPair cudnn_ctc_loss_tensor(const Tensor& log_probs, const Tensor&, const Tensor&,
                                 const Tensor&, int64_t, bool, bool) {
  return {make({log_probs.size(1)}, log_probs.scalar_type()),
          make(log_probs.sizes(), log_probs.scalar_type())};
}

}  // namespace

void add_loss_rules(ShapeRules& rules) {
  rules.add("mse_loss_backward", TORCH_FN(mse_loss_backward));
  rules.add("huber_loss", TORCH_FN(huber_loss));
  rules.add("huber_loss_backward", TORCH_FN(gradient_with_threshold));
  rules.add("smooth_l1_loss_backward", TORCH_FN(gradient_with_threshold));
  rules.add("binary_cross_entropy", TORCH_FN(binary_cross_entropy));
  rules.add("binary_cross_entropy_backward", TORCH_FN(binary_cross_entropy_backward));
  rules.add("binary_cross_entropy_with_logits", TORCH_FN(binary_cross_entropy_with_logits));
  rules.add("multi_margin_loss", TORCH_FN(multi_margin_loss));
  rules.add("multi_margin_loss_backward", TORCH_FN(multi_margin_loss_backward));
  rules.add("multilabel_margin_loss_forward", TORCH_FN(multilabel_margin_loss));
  rules.add("multilabel_margin_loss_backward", TORCH_FN(multilabel_margin_loss_backward));
  rules.add("nll_loss2d_forward", TORCH_FN(nll_loss2d));
  rules.add("nll_loss2d_backward", TORCH_FN(nll_loss2d_backward));
  rules.add("_ctc_loss_backward", TORCH_FN(ctc_loss_backward));
  rules.add("_ctc_loss_backward.Tensor", TORCH_FN(ctc_loss_backward_tensor));
  rules.add("_cudnn_ctc_loss", TORCH_FN(cudnn_ctc_loss));
  rules.add("_cudnn_ctc_loss.Tensor", TORCH_FN(cudnn_ctc_loss_tensor));
  rules.add_layout("nll_loss_backward", like_layout<1>);
  rules.add_layout("nll_loss2d_backward", like_layout<1>);
  rules.add_layout("multi_margin_loss_backward", like_layout<1>);
  rules.add_layout("multilabel_margin_loss_backward", like_layout<1>);
  rules.add_layout("_ctc_loss_backward", like_layout<1>);
}

}  // namespace ahead::ops::shapes
