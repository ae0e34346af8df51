#include "partition/whole_step.h"

#include <numeric>

#include "ir/copy.h"
#include "ops/facts/aliasing.h"
#include "ops/facts/may_write.h"

namespace ahead::partition {
namespace {

/// The first node behind the forward of the last backward; null: there is none. Backwards run
/// without grad mode, unless they are differentiated again and so belong to a forward themselves.
Node* find_boundary(const Graph& graph) {
  std::vector<bool> is_read_behind(graph.value_capacity());
  for (Node* node = graph.last(); node != nullptr; node = node->prev()) {
    if (!node->has(Tag::NoGrad)) {
      for (const Value* result : node->results())
        if (result != nullptr && is_read_behind[result->id()]) return node->next();
      continue;
    }
    node->for_each_operand([&](const Value* value) { is_read_behind[value->id()] = true; });
  }
  return nullptr;
}

/// Whether a node may write to memory that inputs lie in: what reads it must not move behind that.
bool writes_to_inputs(const Graph& graph) {
  const ops::Aliasing aliasing(graph);
  std::vector<bool> is_input(graph.value_capacity());
  for (const Graph::Input& input : graph.inputs()) is_input[aliasing.group(input.value)] = true;
  for (const Node& node : graph.nodes()) {
    if (!ops::may_write(node)) continue;
    bool meets = false;
    node.for_each_operand([&](const Value* value) { meets |= is_input[aliasing.group(value)]; });
    if (meets) return true;
  }
  return false;
}

/// A graph as the joint graph of its two parts: what the second one computes counts as gradients.
struct Halved {
  JointGraph joint;
  std::vector<bool> is_late;  ///< by output
};

void remove_outputs(Graph& graph) {
  for (size_t i = graph.outputs().size(); i-- > 0;) graph.erase_output(i);
}

Halved halve(const Graph& graph) {
  Halved halved{JointGraph(graph), {}};
  Graph& joint = halved.joint;
  for (Node* node = find_boundary(joint); node != nullptr; node = node->next()) {
    node->phase = Phase::Backward;
    node->set(Tag::MustBeInBackward);
  }
  const std::vector<Graph::Output> outputs = joint.outputs();
  remove_outputs(joint);
  int32_t early = 0;
  for (const Graph::Output& output : outputs) {
    const Node* maker = output.value == nullptr ? nullptr : output.value->producer();
    halved.is_late.push_back(maker != nullptr && maker->phase == Phase::Backward);
    joint.add_output(output.value, halved.is_late.back() ? Slot{Slot::Kind::GradOf, 0}
                                                         : Slot{Slot::Kind::Output, early++});
  }
  return halved;
}

/// The two halves as one graph again, with the outputs of the graph that they come from.
Graph put_together(PartitionedGraphs halves, const std::vector<bool>& is_late,
                   const Graph& original) {
  Graph whole = std::move(halves.forward);
  const size_t first_saved = whole.outputs().size() - halves.saved.size();
  std::vector<Value*> operands;
  for (const Graph::Input& input : halves.backward.inputs()) {
    const bool is_saved = input.slot.kind == Slot::Kind::Saved;
    operands.push_back(
        is_saved ? whole.outputs()[first_saved + static_cast<size_t>(input.slot.index)].value
                 : whole.inputs()[static_cast<size_t>(whole.find_input(input.slot))].value);
  }
  for (Node& node : halves.backward.nodes()) {
    if (node.phase == Phase::Forward) node.set(Tag::MustRecompute);
    node.set(Tag::MustBeInBackward);
    node.phase = Phase::Forward;
  }
  const std::vector<Value*> late = inline_graph(whole, halves.backward, operands);
  std::vector<Value*> early;
  for (size_t i = 0; i < first_saved; ++i) early.push_back(whole.outputs()[i].value);
  remove_outputs(whole);
  size_t next_early = 0, next_late = 0;
  for (size_t i = 0; i < is_late.size(); ++i) {
    const Graph::Output& output = original.outputs()[i];
    whole.add_output(is_late[i] ? late[next_late++] : early[next_early++], output.slot,
                     output.requires_grad);
  }
  return whole;
}

size_t num_run_again(const Graph& graph) {
  size_t count = 0;
  for (const Node& node : graph.nodes()) count += node.has(Tag::MustRecompute) ? 1 : 0;
  return count;
}

}  // namespace

size_t recompute_inside(Graph& graph, PartitionOptions options, int64_t least_gain) {
  if (graph.inputs().empty() || find_boundary(graph) == nullptr || num_run_again(graph) != 0 ||
      writes_to_inputs(graph))
    return 0;
  const Halved halved = halve(graph);
  options.static_inputs.resize(graph.inputs().size());
  std::iota(options.static_inputs.begin(), options.static_inputs.end(), 0);
  PartitionedGraphs halves = partition_min_cut(halved.joint, options);
  if (partition_default(halved.joint).saved_bytes() - halves.saved_bytes() < least_gain) return 0;
  graph = put_together(std::move(halves), halved.is_late, graph);
  return num_run_again(graph);
}

}  // namespace ahead::partition
