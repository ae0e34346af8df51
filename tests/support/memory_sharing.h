#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

#include "ahead/ahead.h"

/// Says which two of the inputs and outputs share memory with one graph, but not with the other, or
/// are the same tensor with the actual graph only; empty if there are none.
std::string sharing_difference(const ahead::Graph& expected, const ahead::Graph& actual,
                               const std::vector<at::Tensor>& args);
