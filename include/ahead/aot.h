#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace ahead::aot {

/// A function over flat lists of tensors.
using FlatFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

}  // namespace ahead::aot
