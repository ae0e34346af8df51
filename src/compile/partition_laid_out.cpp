#include "compile/partition_laid_out.h"

#include "passes/choose_layouts.h"

namespace ahead::compiling {
namespace {

/// For each value of a copy of a graph, by Value::id(), the one that it is a copy of.
std::vector<const Value*> originals_of(const Graph& copy, const Graph& graph) {
  std::vector<const Value*> originals(copy.value_capacity(), nullptr);
  for (size_t i = 0; i < graph.inputs().size(); ++i)
    originals[copy.inputs()[i].value->id()] = graph.inputs()[i].value;
  const Node* copied = copy.first();
  for (const Node& node : graph.nodes()) {
    for (size_t i = 0; i < node.results().size(); ++i) {
      if (node.result(i) != nullptr) originals[copied->result(i)->id()] = node.result(i);
    }
    copied = copied->next();
  }
  return originals;
}

std::vector<const Value*> values_of(const Graph& graph) {
  std::vector<const Value*> values(graph.value_capacity(), nullptr);
  for (const Graph::Input& input : graph.inputs()) values[input.value->id()] = input.value;
  for (const Node& node : graph.nodes()) {
    for (const Value* result : node.results()) {
      if (result != nullptr) values[result->id()] = result;
    }
  }
  return values;
}

/// Derivatives run the operators of the original, which need its layouts: views cannot be had of
/// others, and gradients would not lie as in eager.
void name_originals(std::vector<SavedValue>& saved, const Graph& laid_out,
                    std::vector<const Value*> originals) {
  const std::vector<const Value*> values = values_of(laid_out);
  originals.resize(values.size(), nullptr);
  for (SavedValue& one : saved) {
    if (one.joint_value < 0) continue;
    const auto id = static_cast<size_t>(one.joint_value);
    const bool lies_alike =
        originals[id] != nullptr && originals[id]->meta.strides == values[id]->meta.strides;
    one.joint_value = lies_alike ? static_cast<int64_t>(originals[id]->id()) : -1;
  }
}

}  // namespace

PartitionedGraphs partition_laid_out(const JointGraph& joint, const LayoutPreferences& layouts,
                                     passes::Stages& stages, const PartitionFunction& cut) {
  if (layouts.channels_last.empty()) return cut(joint);
  JointGraph laid_out(joint);
  std::vector<const Value*> originals = originals_of(laid_out, joint);
  size_t changes = 0;
  stages.rewrite("choose_layouts", ".joint", laid_out,
                 [&](Graph& graph) { return changes = passes::choose_layouts(graph, layouts); });
  if (changes == 0) return cut(joint);
  PartitionedGraphs halves = cut(laid_out);
  name_originals(halves.saved, laid_out, std::move(originals));
  return halves;
}

}  // namespace ahead::compiling
