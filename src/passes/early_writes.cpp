#include <algorithm>
#include <unordered_map>

#include "ahead/passes.h"
#include "ops/facts/aliasing.h"

namespace ahead::passes {
namespace {

/// Whether the node does nothing but write new contents to an input.
bool writes_input(const Node& node) {
  static const Operator* const copy = Operator::find("aten.copy_");
  const auto is_used = [](const Value* result) { return result != nullptr && result->is_used(); };
  return &node.op() == copy && node.args()[0].is_value() && node.args()[1].is_value() &&
         node.args()[0].value()->producer() == nullptr &&
         std::none_of(node.results().begin(), node.results().end(), is_used);
}

class EarlyWrites {
 public:
  explicit EarlyWrites(Graph& graph) : graph_(graph), aliasing_(graph) {}

  size_t run() {
    size_t changes = 0;
    for (Node *node = graph_.first(), *next = nullptr; node != nullptr; node = next) {
      next = node->next();
      if (writes_input(*node) && move_up(*node)) {
        ++changes;
      } else {
        visit(*node);
      }
    }
    return changes;
  }

 private:
  void visit(Node& node) {
    order_[&node] = ++visited_;
    const auto touch = [&](const Value* value) {
      if (value != nullptr) last_[aliasing_.group(value)] = &node;
    };
    node.for_each_operand(touch);
    for (const Value* result : node.results()) touch(result);
    if (node.has(Tag::Effect) && !writes_input(node)) last_effect_ = &node;
  }

  /// The last of the nodes before a write that must run before it.
  Node* last_before(const Node& write) const {
    Node* last = last_effect_;
    const auto consider = [&](const Value* value) {
      const auto found = last_.find(aliasing_.group(value));
      if (found == last_.end()) return;
      if (last == nullptr || order_.at(found->second) > order_.at(last)) last = found->second;
    };
    consider(write.args()[0].value());
    consider(write.args()[1].value());
    return last;
  }

  bool move_up(Node& write) {
    Node* const last = last_before(write);
    Node* place = last == nullptr ? graph_.first() : last->next();
    while (place != &write && writes_input(*place)) place = place->next();
    if (place == &write) return false;
    Node* moved = graph_.add_node(write.op(), write.args(), place);
    for (size_t i = 0; i < write.results().size(); ++i) {
      const Value* result = write.results()[i];
      graph_.add_return(moved, result == nullptr ? std::nullopt : std::optional(result->meta));
    }
    moved->belong_to(write);
    moved->set_tags(write.tags());
    graph_.erase(&write);
    return true;
  }

  Graph& graph_;
  const ops::Aliasing aliasing_;
  std::unordered_map<const Node*, size_t> order_;  ///< of the nodes visited so far
  size_t visited_ = 0;
  std::unordered_map<uint32_t, Node*> last_;  ///< by group of values: the last that touched them
  Node* last_effect_ = nullptr;
};

}  // namespace

size_t write_inputs_early(Graph& graph) {
  return EarlyWrites(graph).run();
}

}  // namespace ahead::passes
