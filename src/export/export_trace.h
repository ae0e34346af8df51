#pragma once

#include <functional>
#include <vector>

#include "ahead/executable.h"
#include "ahead/graph.h"
#include "trace/analysis/function_meta.h"
#include "trace/open_trace.h"

namespace ahead::exporting {

/// How a function is traced to be exported.
struct ExportTrace {
  bool joint = false;
  bool no_tangents = false;
  /// Integers that the function reads from tensors may become sizes.
  bool reads_sizes = false;
  /// Looks at what the function returned, before that is listed as graph outputs. Throws if it
  /// cannot be exported.
  std::function<void(tracing::OpenTrace&)> check_results = {};
  /// Looks at the graph of the function and at which of its outputs a gradient flows through.
  std::function<void(const Graph&, const tracing::FunctionMeta&)> check_outputs = {};
};

/// Traces a function, every result of which becomes a graph output, with its gradient if wanted.
/// Throws Unsupported, in upstream's words, for writes that an exported graph cannot tell of.
Graph trace_exported(const aot::FlatFunction& function, const std::vector<at::Tensor>& inputs,
                     const ExportTrace& how);

/// Throws Unsupported if one of these is a wrapper tensor: an exported graph has plain ones.
void check_no_wrappers(const std::vector<at::Tensor>& tensors);

/// Throws UserError unless the gradient of one scalar is asked for.
void check_one_scalar(const Graph& graph, const tracing::FunctionMeta& meta);

/// Throws Unsupported for an input that requires grad and is written to: the gradient would flow
/// through the new contents.
void check_no_differentiable_writes(const Graph& graph, const tracing::FunctionMeta& meta);

}  // namespace ahead::exporting
