#include "passes/unread_operands.h"

namespace ahead::passes {
namespace {

constexpr size_t kRunningMean = 3, kRunningVar = 4, kTrain = 7;

bool reads_no_statistics(const Node& node) {
  static const Operator* const backward = Operator::find("aten.native_batch_norm_backward");
  return &node.op() == backward && !node.args()[kTrain].is_value() &&
         node.args()[kTrain].constant().isBool() && node.args()[kTrain].constant().toBool();
}

}  // namespace

size_t forget_unread_operands(Graph& graph) {
  size_t changes = 0;
  for (Node& node : graph.nodes()) {
    if (!reads_no_statistics(node)) continue;
    const bool has_any =
        node.args()[kRunningMean].is_value() || node.args()[kRunningVar].is_value();
    if (!has_any) continue;
    graph.set_argument(&node, kRunningMean, c10::IValue());
    graph.set_argument(&node, kRunningVar, c10::IValue());
    ++changes;
  }
  return changes;
}

}  // namespace ahead::passes
