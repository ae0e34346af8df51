#include "passes/merging.h"

#include "ops/facts/facts.h"

namespace ahead::passes {

bool same_layout(const TensorMeta& a, const TensorMeta& b) {
  return a.dtype == b.dtype && a.device == b.device && a.sizes == b.sizes &&
         a.strides == b.strides && a.offset == b.offset;
}

Merger::Merger(Graph& graph) : graph_(graph), aliasing_(graph), memory_(graph.value_capacity()) {
  for (const Graph::Input& input : graph.inputs()) memory(input.value).is_given = true;
  for (const Graph::Output& output : graph.outputs()) {
    if (output.value != nullptr) memory(output.value).is_returned = true;
    if (output.slot.kind == Slot::Kind::MutatedInput &&
        graph.inputs().size() > size_t(output.slot.index))
      memory(graph.inputs()[size_t(output.slot.index)].value).is_overwritten = true;
  }
  for (const Node& node : graph.nodes()) {
    for (uint8_t index : ops::facts(node.op()).writes) {
      node.args()[index].for_each_value(
          [&](const Value* value) { memory(value).is_overwritten = true; });
    }
  }
}

bool Merger::may_merge(const Value* from, const Value* to) const {
  if (!same_layout(from->meta, to->meta)) return false;
  const bool to_backward = to->producer() != nullptr && to->producer()->phase == Phase::Backward;
  if (to_backward && from->producer()->phase == Phase::Forward) return false;
  if (aliasing_.group(from) == aliasing_.group(to)) {
    // They share memory already; but each output is a tensor of its own.
    return from->output_uses() == 0 || (to->output_uses() == 0 && to->producer() != nullptr);
  }
  const Memory &a = memory(from), &b = memory(to);
  if (a.is_overwritten || b.is_overwritten) return false;
  return !a.is_returned || !(b.is_returned || b.is_given);
}

void Merger::merge(Value* from, Value* to) {
  const Memory a = memory(from), b = memory(to);
  aliasing_.join(from, to);
  memory(to) = {a.is_returned || b.is_returned, a.is_given || b.is_given,
                a.is_overwritten || b.is_overwritten};
  graph_.replace_uses(from, to);
}

}  // namespace ahead::passes
