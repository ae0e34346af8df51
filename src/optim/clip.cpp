#include "ahead/clip.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/max.h>
#include <ATen/ops/norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <limits>

namespace ahead {
namespace {

/// The data of all gradients that there are. Who saved a gradient does not notice that it is
/// clipped, as with LibTorch's functions.
std::vector<at::Tensor> gradients_of(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> gradients;
  gradients.reserve(parameters.size());
  for (const at::Tensor& parameter : parameters) {
    if (const at::Tensor& gradient = parameter.grad(); gradient.defined())
      gradients.push_back(gradient.data());
  }
  return gradients;
}

at::Tensor norm_of(const std::vector<at::Tensor>& gradients, double norm_type) {
  const bool is_maximum = norm_type == std::numeric_limits<double>::infinity();
  if (norm_type == 0) return at::full({}, static_cast<double>(gradients.size()));
  std::vector<at::Tensor> norms;
  norms.reserve(gradients.size());
  for (const at::Tensor& gradient : gradients)
    norms.push_back(is_maximum ? gradient.abs().max() : gradient.norm(norm_type));
  if (norms.size() == 1) return norms[0];
  return is_maximum ? at::max(at::stack(norms)) : at::stack(norms).norm(norm_type);
}

}  // namespace

at::Tensor clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm,
                           double norm_type) {
  const std::vector<at::Tensor> gradients = gradients_of(parameters);
  if (gradients.empty()) return at::zeros({});
  at::Tensor norm = norm_of(gradients, norm_type);
  const at::Tensor factor = at::clamp(max_norm / (norm + 1e-6), std::nullopt, 1.0);
  for (const at::Tensor& gradient : gradients) gradient.mul_(factor);
  return norm;
}

at::Tensor clip_grad_norm_(const at::Tensor& parameter, double max_norm, double norm_type) {
  return clip_grad_norm_(std::vector<at::Tensor>{parameter}, max_norm, norm_type);
}

void clip_grad_value_(const std::vector<at::Tensor>& parameters, double clip_value) {
  for (const at::Tensor& gradient : gradients_of(parameters))
    gradient.clamp_(-clip_value, clip_value);
}

void clip_grad_value_(const at::Tensor& parameter, double clip_value) {
  clip_grad_value_(std::vector<at::Tensor>{parameter}, clip_value);
}

}  // namespace ahead
