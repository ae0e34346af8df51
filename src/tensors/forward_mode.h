#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/variable.h>

namespace ahead {

/// Whether a tensor carries a tangent of LibTorch's forward mode, which no graph knows of.
inline bool has_forward_tangent(const at::Tensor& tensor) {
  const auto* meta = torch::autograd::impl::get_autograd_meta(tensor);
  return meta != nullptr && meta->fw_grad_ != nullptr && !meta->fw_grad_->empty();
}

}  // namespace ahead
