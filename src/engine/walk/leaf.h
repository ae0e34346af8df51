#pragma once

#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include "engine/walk/step.h"

namespace ahead::engine {

/// The tensor to whose `.grad` this step, which is an AccumulateGrad, adds.
inline const at::Tensor& leaf_of(const Step& step) {
  return static_cast<const torch::autograd::AccumulateGrad&>(*step.node).variable;
}

/// Its `.grad`, which may be undefined.
inline const at::Tensor& grad_of(const Step& step) {
  return leaf_of(step).unsafeGetTensorImpl()->grad();
}

/// Whether graphs of the backward that runs can take this gradient.
bool is_plain_gradient(const at::Tensor& gradient);

/// Whether eager would add to the `.grad` of this leaf, rather than pass it by or complain.
bool takes_gradient(const at::Tensor& leaf);

/// Gives a leaf that had none its `.grad`. If another thread gave it one meanwhile, adds to that.
void set_grad(const Step& step, at::Tensor grad);

}  // namespace ahead::engine
