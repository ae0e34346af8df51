#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymInt.h>
#include <c10/util/ArrayRef.h>

#include <vector>

#include "ahead/graph.h"

/// Graphs that become part of the trace that is running.
namespace ahead::tracing {

/// A graph whose symbols are these sizes of the trace: plain integers, or expressions over sizes
/// that may change. It takes no Sizes any more.
Graph over_traced_sizes(const Graph& graph, c10::ArrayRef<c10::SymInt> sizes);

/// Whether a traced tensor lies as such a graph says, on which the trace depends from now on.
/// Throws if it has other sizes.
bool lies_as(const at::Tensor& traced, const TensorMeta& expected);

/// Writes the nodes of such a graph down for these traced tensors, one for each of its inputs;
/// those that it does not use may be undefined. What its results look like is what the graph says:
/// no operator is asked for it, and nothing is decided by sizes. Tensors that do not lie as the
/// graph expects them are copied. Throws Unsupported for graphs that draw random numbers or have
/// effects.
std::vector<at::Tensor> inline_traced(const Graph& graph, const std::vector<at::Tensor>& tensors);

}  // namespace ahead::tracing
