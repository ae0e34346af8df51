#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "ahead/graph.h"

namespace ahead::aot {

/// A function over flat lists of tensors.
using FlatFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

/// A compiled graph. Takes one tensor for each graph input, which it may free or reuse, and returns
/// one for each graph output. Several threads may call it at once.
using Executable = std::function<std::vector<at::Tensor>(std::vector<at::Tensor>&& args)>;

/// Turns a graph into something that runs. It is told what the inputs look like, which the graph's
/// own inputs say as well.
using GraphCompiler =
    std::function<Executable(const Graph& graph, const std::vector<TensorMeta>& inputs)>;

}  // namespace ahead::aot
