#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace ahead::runtime {

/// Prints the metadata of each tensor, after a few words on what the tensors are.
void log_tensors(const std::string& what, const std::vector<at::Tensor>& tensors);

}  // namespace ahead::runtime
