#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "ahead/aot.h"
#include "ahead/errors.h"
#include "export/export_trace.h"
#include "trace/analysis/result_sorter.h"

namespace ahead::aot {
namespace {

using tracing::ResultFacts;

bool needs_gradient(const std::vector<at::Tensor>& inputs) {
  return at::GradMode::is_enabled() &&
         std::any_of(inputs.begin(), inputs.end(), [](const at::Tensor& input) {
           return input.defined() && input.requires_grad();
         });
}

void check_no_aliases(tracing::OpenTrace& open) {
  const tracing::ResultSorter sorter(open.outside(), open.results());
  for (size_t i = 0; i < open.results().size(); ++i) {
    using Kind = ResultFacts::Kind;
    const Kind kind = sorter.facts()[i].kind;
    if (kind == Kind::Undefined || kind == Kind::Fresh) continue;
    const bool is_input =
        kind == Kind::Input || kind == Kind::ViewOfInput || kind == Kind::CustomView;
    throw Unsupported(
        "export", "result " + std::to_string(i) + ": aot_export_joint_simple does not support " +
                      (is_input ? "outputs that alias inputs. " : "outputs that alias others. ") +
                      "Return a clone, or use export_module.");
  }
}

[[noreturn]] void throw_written(const Graph::Input& input) {
  throw Unsupported("export", input.slot.str() +
                                  ": aot_export_joint_simple does not support input mutations. "
                                  "Work on a clone, or use export_module.");
}

void check_no_writes(const Graph& graph) {
  for (const Graph::Output& output : graph.outputs()) {
    if (output.slot.kind != Slot::Kind::MutatedInput) continue;
    throw_written(graph.inputs()[static_cast<size_t>(output.slot.index)]);
  }
  // Custom functions may write in the backward.
  static const Operator* const copy = Operator::find("aten.copy_");
  for (const Node& node : graph.nodes()) {
    if (&node.op() != copy || node.args()[0].value()->producer() != nullptr) continue;
    throw_written(graph.inputs()[node.args()[0].value()->index()]);
  }
}

/// A gradient that nobody asked for would change how the graph is called.
void check_captured(const Graph& graph) {
  for (const Graph::Input& input : graph.inputs()) {
    if (input.slot.kind != Slot::Kind::Captured || !input.value->meta.requires_grad) continue;
    throw Unsupported("export", input.value->meta.str() +
                                    ": the function captured a tensor that requires grad. Pass it "
                                    "as an argument, detach it, or use export_module.");
  }
}

}  // namespace

JointGraph export_joint(const FlatFunction& function, const std::vector<at::Tensor>& inputs,
                        const Config& config) {
  if (config.options.functionalize_rng) {
    throw UserError("export",
                    "Options::functionalize_rng: Functionalized RNG is not currently supported in "
                    "the aot_export workflow. Leave it off: random operators draw as in eager.");
  }
  exporting::ExportTrace how{.joint = needs_gradient(inputs), .no_tangents = config.no_tangents};
  how.check_results = check_no_aliases;
  how.check_outputs = [](const Graph& graph, const tracing::FunctionMeta&) {
    check_no_writes(graph);
  };
  Graph graph = exporting::trace_exported(function, inputs, how);
  check_no_writes(graph);
  check_captured(graph);
  if (!config.decompositions.empty()) passes::decompose(graph, config.decompositions);
  return JointGraph(std::move(graph));
}

}  // namespace ahead::aot
