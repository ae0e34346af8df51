#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace ahead::runtime {

/// Prints what each of the tensors looks like, after a few words on what they are.
void log_tensors(const std::string& what, const std::vector<at::Tensor>& tensors);

}  // namespace ahead::runtime
