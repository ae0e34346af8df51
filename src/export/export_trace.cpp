#include "export/export_trace.h"

#include <algorithm>
#include <unordered_set>

#include "ahead/errors.h"
#include "ahead/passes.h"
#include "ahead/subclass.h"
#include "export/find_number.h"
#include "trace/backward_trace.h"

namespace ahead::exporting {
namespace {

using tracing::FunctionMeta;

Graph trace_checked(const aot::FlatFunction& function, const std::vector<at::Tensor>& inputs,
                    const ExportTrace& how) {
  tracing::ForwardOptions options{.joint = how.joint};
  if (how.reads_sizes) options.read_size = find_number;
  std::unique_ptr<tracing::OpenTrace> open = tracing::trace_forward(function, inputs, options);
  if (how.check_results) how.check_results(*open);
  FunctionMeta meta = tracing::list_results(*open);
  if (how.joint) check_no_differentiable_writes(open->graph(), meta);
  if (how.check_outputs) how.check_outputs(open->graph(), meta);
  if (how.joint && how.no_tangents) check_one_scalar(open->graph(), meta);
  meta.has_implicit_tangents = how.no_tangents;
  return tracing::trace_backward(std::move(open), std::move(meta)).graph;
}

void check_no_new_grads(const Graph& graph) {
  for (const Graph::Output& output : graph.outputs()) {
    if (output.slot.kind != Slot::Kind::AccumulatedGrad) continue;
    throw Unsupported("export",
                      "backward(): the function leaves gradients in .grad, which an exported graph "
                      "does not return. Use torch::autograd::grad, and return what it gives.");
  }
}

/// The inputs, where one that is passed again is another tensor on the same memory: in an exported
/// graph each stands for itself.
std::vector<at::Tensor> told_apart(const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> apart = inputs;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (at::Tensor& input : apart) {
    if (!input.defined() || seen.insert(input.unsafeGetTensorImpl()).second) continue;
    input = input.detach().set_requires_grad(input.requires_grad());
  }
  return apart;
}

bool are_same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const at::Tensor& x, const at::Tensor& y) { return x.is_same(y); });
}

}  // namespace

Graph trace_exported(const aot::FlatFunction& function, const std::vector<at::Tensor>& inputs,
                     const ExportTrace& how) {
  check_no_wrappers(inputs);
  const std::vector<at::Tensor> apart = told_apart(inputs);
  try {
    Graph graph = trace_checked(function, apart, how);
    check_no_new_grads(graph);
    passes::eliminate_dead_code(graph);
    return graph;
  } catch (const tracing::AliasedWrite& error) {
    const std::string what = are_same(inputs, apart)
                                 ? "Encountered aliased inputs that are mutated: "
                                 : "Encountered duplicated inputs that are mutated in the graph: ";
    throw Unsupported("export", what + error.msg());
  } catch (const tracing::ReshapedInput& error) {
    throw Unsupported("export",
                      "Found an input that received a metadata mutation, through a call such as "
                      "resize_() or transpose_(): " +
                          error.msg());
  }
}

void check_no_wrappers(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    const auto inside = tensor.defined() ? inside_of(tensor) : nullptr;
    if (inside == nullptr) continue;
    throw Unsupported("export", inside->wrapper_class().name +
                                    ": aot_export_module does not support tensor subclass inputs "
                                    "for now. Pass the tensors inside, and wrap them in the "
                                    "function.");
  }
}

void check_one_scalar(const Graph& graph, const FunctionMeta& meta) {
  if (meta.differentiable.size() == 1) {
    const auto position = static_cast<size_t>(meta.differentiable.front().position);
    const TensorMeta& result = graph.outputs()[position].value->meta;
    if (result.numel() == 1) return;
    throw UserError("export", result.str() +
                                  ": without tangents the gradient is that of a scalar, and this "
                                  "result is none. Sum it up, or pass tangents.");
  }
  throw UserError("export", std::to_string(meta.differentiable.size()) +
                                " results require grad: without tangents it has to be one. Detach "
                                "the others, or pass tangents.");
}

void check_no_differentiable_writes(const Graph& graph, const FunctionMeta& meta) {
  for (const FunctionMeta::Differentiable& differentiable : meta.differentiable) {
    const Slot slot = graph.outputs()[static_cast<size_t>(differentiable.position)].slot;
    if (slot.kind != Slot::Kind::MutatedInput) continue;
    const TensorMeta& input = graph.inputs()[static_cast<size_t>(slot.index)].value->meta;
    if (input.requires_grad) {
      throw Unsupported("export", input.str() +
                                      ": Found a graph input that requires gradients, and received "
                                      "a mutation. Write to a clone of it, or detach it.");
    }
    throw Unsupported("export", input.str() +
                                    ": the new contents of a buffer or an argument require grad, "
                                    "and the gradient would flow on into the next call. Detach "
                                    "what is written.");
  }
}

}  // namespace ahead::exporting
