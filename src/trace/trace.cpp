#include "ahead/trace.h"

#include "trace/analysis/function_meta.h"
#include "trace/backward_trace.h"
#include "trace/joint_trace.h"
#include "trace/open_trace.h"

namespace ahead {
namespace {

/// The graph of a function, every result of which is an output.
Graph trace_plain(const aot::FlatFunction& function, const std::vector<at::Tensor>& inputs,
                  const tracing::ForwardOptions& options) {
  std::unique_ptr<tracing::OpenTrace> open = tracing::trace_forward(function, inputs, options);
  tracing::FunctionMeta meta = tracing::list_results(*open);
  return tracing::trace_backward(std::move(open), std::move(meta)).graph;
}

}  // namespace

Graph detail::trace_flat(const aot::FlatFunction& function, const std::vector<at::Tensor>& inputs,
                         TraceOptions options, bool joint) {
  return trace_plain(function, inputs, {.trace = options, .joint = joint});
}

Graph tracing::trace_symbolic(const aot::FlatFunction& function,
                              const std::vector<at::Tensor>& inputs,
                              const std::vector<std::optional<Layout>>& layouts,
                              const std::shared_ptr<SizeGuards>& guards) {
  return trace_plain(function, inputs, {.joint = false, .layouts = layouts, .size_guards = guards});
}

}  // namespace ahead
