#include "export/write_inputs.h"

#include "ops/facts/aliasing.h"

namespace ahead::exporting {
namespace {

/// A copy that the write does not reach.
Value* add_clone(Graph& graph, Value* value) {
  static const Operator* const clone = Operator::find("aten.clone");
  Node* node = graph.add_node(*clone, {value, c10::IValue()});
  return graph.add_return(node, value->meta);
}

/// Outputs that share memory with what is written keep what they held before.
void protect_outputs(Graph& graph, const std::vector<const Value*>& written,
                     const ops::Aliasing& aliasing, size_t num_outputs) {
  for (size_t i = 0; i < num_outputs; ++i) {
    Value* value = graph.outputs()[i].value;
    if (value == nullptr) continue;
    for (const Value* input : written) {
      if (aliasing.group(value) != aliasing.group(input)) continue;
      graph.set_output(i, add_clone(graph, value));
      break;
    }
  }
}

}  // namespace

void write_inputs(aot::ExportedModule& exported) {
  static const Operator* const copy = Operator::find("aten.copy_");
  Graph& graph = exported.graph;
  const ops::Aliasing aliasing(graph);
  std::vector<const Value*> written;
  for (const Graph::Output& output : graph.outputs()) {
    if (output.slot.kind == Slot::Kind::MutatedInput)
      written.push_back(graph.inputs()[static_cast<size_t>(output.slot.index)].value);
  }
  protect_outputs(graph, written, aliasing, graph.outputs().size());
  size_t num_mutations = 0;
  for (const Graph::Output& output : graph.outputs()) {
    if (output.slot.kind != Slot::Kind::MutatedInput) break;
    Value* input = graph.inputs()[static_cast<size_t>(output.slot.index)].value;
    Node* node = graph.add_node(*copy, {input, output.value, false});
    graph.add_return(node, std::nullopt);
    graph.add_return(node, input->meta);
    node->set(Tag::Effect);
    node->set(Tag::NoGrad);
    ++num_mutations;
  }
  for (; num_mutations > 0; --num_mutations) {
    graph.erase_output(0);
    exported.signature.outputs.erase(exported.signature.outputs.begin());
    if (exported.signature.loss_output >= 0) --exported.signature.loss_output;
  }
}

}  // namespace ahead::exporting
