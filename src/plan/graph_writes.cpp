#include "plan/graph_writes.h"

#include <algorithm>

#include "ops/facts/aliasing.h"

namespace ahead::compiling {
namespace {

using runtime::BackwardPlan;
using runtime::Epilogue;

/// Whether a value may share memory with an input. Copied into another input, it might be
/// overwritten before.
bool shares_memory_with_input(const Graph& graph, const ops::Aliasing& aliasing,
                              const Value* value) {
  for (const Graph::Input& input : graph.inputs()) {
    if (aliasing.group(input.value) == aliasing.group(value)) return true;
  }
  return false;
}

bool is_saved(const BackwardPlan& backward, int32_t output) {
  return std::any_of(
      backward.saved.begin(), backward.saved.end(), [&](const BackwardPlan::Saved& saved) {
        return saved.kind == BackwardPlan::Saved::Kind::Output && saved.index == output;
      });
}

}  // namespace

size_t write_in_graph(Graph& forward, std::vector<Epilogue::Write>& writes,
                      const BackwardPlan& backward, const std::vector<at::Tensor>& inputs) {
  static const Operator* const copy = Operator::find("aten.copy_");
  const ops::Aliasing aliasing(forward);
  size_t writes_in_graph = 0;
  for (Epilogue::Write& write : writes) {
    // Below autograd nobody would complain about a write to an inference tensor.
    const at::Tensor& tensor = inputs[static_cast<size_t>(write.input)];
    if (write.output < 0 || write.geometry || write.seen_by_autograd || tensor.is_inference()) {
      continue;
    }
    if (is_saved(backward, write.output)) continue;
    const auto output = static_cast<size_t>(write.output);
    Value* contents = forward.outputs()[output].value;
    if (shares_memory_with_input(forward, aliasing, contents)) continue;
    Value* input = forward.inputs()[static_cast<size_t>(write.input)].value;
    Node* node = forward.add_node(*copy, {input, contents, false});
    forward.add_return(node, std::nullopt);
    forward.add_return(node, input->meta);
    node->set(Tag::Effect);
    node->set(Tag::NoGrad);
    if (const Node* maker = contents->producer()) node->belong_to(*maker);
    forward.set_output(output, nullptr);
    write.output = -1;
    write.in_graph = true;
    ++writes_in_graph;
  }
  return writes_in_graph;
}

}  // namespace ahead::compiling
