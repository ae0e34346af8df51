#include <algorithm>

#include "ahead/passes.h"
#include "ops/facts/node_facts.h"

namespace ahead::passes {
namespace {

bool is_dead(const Node& node) {
  const auto unused = [](const Value* result) { return result == nullptr || !result->is_used(); };
  return std::all_of(node.results().begin(), node.results().end(), unused) &&
         !ops::is_ordered(node);
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
