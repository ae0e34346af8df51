#include <algorithm>

#include "ahead/passes.h"
#include "ops/facts/facts.h"
#include "ops/facts/node_facts.h"

namespace ahead::passes {
namespace {

/// Whether somebody outside of the graph sees what the node does.
bool writes_to_input(const Node& node) {
  if (!node.op().in_dispatcher()) return false;
  const auto& writes = ops::facts(node.op()).writes;
  return std::any_of(writes.begin(), writes.end(), [&](uint8_t index) {
    bool is_input = false;
    node.args()[index].for_each_value(
        [&](Value* value) { is_input |= ops::root_of(value)->producer() == nullptr; });
    return is_input;
  });
}

bool is_dead(const Node& node) {
  const auto unused = [](const Value* result) { return result == nullptr || !result->is_used(); };
  return std::all_of(node.results().begin(), node.results().end(), unused) &&
         !ops::is_ordered(node) && !writes_to_input(node);
}

}  // namespace

size_t eliminate_dead_code(Graph& graph) {
  size_t removed = 0;
  for (Node *node = graph.last(), *before = nullptr; node != nullptr; node = before) {
    before = node->prev();
    if (!is_dead(*node)) continue;
    graph.erase(node);
    ++removed;
  }
  return removed;
}

}  // namespace ahead::passes
