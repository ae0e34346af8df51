#pragma once

#include "conformance/aot_support.h"

/// A module that the tests of exporting share.
namespace ahead::conformance {

struct ConvBnImpl : torch::nn::Module {
  ConvBnImpl() {
    conv = register_module("conv", torch::nn::Conv2d(1, 1, 1));
    bn = register_module("bn", torch::nn::BatchNorm2d(1));
  }
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x) {
    const at::Tensor y = bn->forward(conv->forward(x)).relu();
    return {y.sum(), y.detach()};
  }
  torch::nn::Conv2d conv{nullptr};
  torch::nn::BatchNorm2d bn{nullptr};
};
TORCH_MODULE(ConvBn);

}  // namespace ahead::conformance
