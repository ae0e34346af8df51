#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ahead/export.h"

namespace ahead {

/// Makes the gradients of parameters shorter where all of them together are longer than `max_norm`,
/// with the numbers of `torch::nn::utils::clip_grad_norm_`. Returns the length that they had, as a
/// tensor: no value is read, so that it may be compiled and does not wait for a GPU. Not a number,
/// or infinite, it makes the gradients so as well; look at it later to find out.
AHEAD_API at::Tensor clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm,
                                     double norm_type = 2.0);
AHEAD_API at::Tensor clip_grad_norm_(const at::Tensor& parameter, double max_norm,
                                     double norm_type = 2.0);

/// Limits each element of the gradients of parameters to -clip_value … clip_value.
AHEAD_API void clip_grad_value_(const std::vector<at::Tensor>& parameters, double clip_value);
AHEAD_API void clip_grad_value_(const at::Tensor& parameter, double clip_value);

}  // namespace ahead
