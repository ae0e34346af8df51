#include "ahead/passes.h"
#include "ir/copy.h"
#include "passes/merging.h"

namespace ahead::passes {
namespace {

/// The tags that the nodes of a sub-graph take over from the node that calls it. Each node is
/// random or has effects for itself.
constexpr uint16_t inherited_tags =
    ~(static_cast<uint16_t>(Tag::Random) | static_cast<uint16_t>(Tag::Effect)) & 0xffff;

/// Whether a call can be inlined. Its values may have other storage offsets than those of the
/// sub-graph, whose views would then be wrong, and the sub-graph may be for other sizes.
bool fits(const Graph& graph, const Node& node) {
  const Graph& callee = *node.args()[0].graph();
  for (size_t i = 0; i < callee.inputs().size(); ++i) {
    const Value* operand = node.args()[i + 1].value();
    const Graph::Input& input = callee.inputs()[i];
    if (!same_layout(operand->meta, input.value->meta)) return false;
    if (input.slot.kind != Slot::Kind::Sizes) continue;
    const int64_t sizes = graph.find_input(input.slot);
    if (sizes < 0 || graph.inputs()[static_cast<size_t>(sizes)].value != operand) return false;
  }
  for (size_t i = 0; i < callee.outputs().size(); ++i) {
    const Value *outer = node.result(i), *inner = callee.outputs()[i].value;
    if (outer != nullptr && !same_layout(outer->meta, inner->meta)) return false;
  }
  return true;
}

/// Puts the nodes of the sub-graph in place of the node; returns the first of them, or the next
/// node if there are none.
Node* inline_call(Graph& graph, Node& node) {
  std::vector<Value*> operands;
  for (size_t i = 1; i < node.args().size(); ++i) operands.push_back(node.args()[i].value());
  Node* const before = node.prev();
  const std::vector<Value*> results = inline_graph(graph, *node.args()[0].graph(), operands, &node);
  Node* const first = before == nullptr ? graph.first() : before->next();
  for (Node* copy = first; copy != &node; copy = copy->next()) {
    if (node.phase == Phase::Backward) copy->phase = Phase::Backward;
    copy->set_tags(copy->tags() | (node.tags() & inherited_tags));
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (node.result(i) != nullptr) graph.replace_uses(node.result(i), results[i]);
  }
  Node* const next = first == &node ? node.next() : first;
  graph.erase(&node);
  return next;
}

}  // namespace

size_t inline_calls(Graph& graph) {
  size_t inlined = 0;
  for (Node* node = graph.first(); node != nullptr;) {
    if (node->op().in_dispatcher() || !fits(graph, *node)) {
      node = node->next();
    } else {
      // The sub-graph may hold calls itself.
      node = inline_call(graph, *node);
      ++inlined;
    }
  }
  return inlined;
}

}  // namespace ahead::passes
