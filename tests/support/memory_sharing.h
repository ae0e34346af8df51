#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

#include "ahead/ahead.h"

namespace ahead {

/// Says which two of the inputs and outputs share memory with one graph, but not with the other, or
/// are the same tensor with the actual graph only; empty if there are none.
std::string sharing_difference(const Graph& expected, const Graph& actual,
                               const std::vector<at::Tensor>& args);

}  // namespace ahead
