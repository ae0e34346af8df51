#include <ATen/core/function_schema.h>

#include <algorithm>

#include "ahead/passes.h"
#include "ops/facts/aliasing.h"
#include "ops/facts/facts.h"
#include "ops/facts/node_facts.h"
#include "passes/merging.h"

namespace ahead::passes {
namespace {

/// Replaces each aten.copy_ to an input, with the chain of operators that computed the copied value
/// from the input, by operators that write to the input in place.
class Reinplacer {
 public:
  explicit Reinplacer(Graph& graph) : graph_(graph) {}

  size_t run() {
    size_t changes = 0;
    while (const size_t more = sweep()) changes += more;
    return changes;
  }

 private:
  size_t sweep() {
    static const Operator* const copy = Operator::find("aten.copy_");
    size_t changes = 0;
    for (Node *node = graph_.first(), *next = nullptr; node != nullptr; node = next) {
      next = node->next();
      if (&node->op() != copy || !is_input(node->args()[0])) continue;
      if (rewrite(*node)) ++changes;
    }
    return changes;
  }

  static bool is_input(const Argument& argument) {
    return argument.is_value() && argument.value()->producer() == nullptr;
  }

  bool rewrite(Node& copy) {
    Value* input = copy.args()[0].value();
    if (!copy.args()[1].is_value() || any_result_used(copy)) return false;
    const std::vector<Node*> chain = find_chain(copy, input);
    if (chain.empty() || !is_last_to_read(copy, input, *chain.front())) return false;
    Value* target = input;
    for (Node* node : chain) target = write_in_place(*node, target);
    graph_.erase(&copy);
    for (auto node = chain.rbegin(); node != chain.rend(); ++node) graph_.erase(*node);
    return true;
  }

  static bool any_result_used(const Node& node) {
    return std::any_of(node.results().begin(), node.results().end(),
                       [](const Value* result) { return result != nullptr && result->is_used(); });
  }

  /// The nodes that lead from an input, through their first argument, to the value copied to it;
  /// empty if they cannot work in place.
  std::vector<Node*> find_chain(const Node& copy, const Value* input) {
    std::vector<Node*> chain;
    const Value* value = copy.args()[1].value();
    while (value != input) {
      Node* node = value->producer();
      if (node == nullptr || !can_work_in_place(*node, input)) return {};
      chain.insert(chain.begin(), node);
      value = node->args()[0].value();
    }
    return chain;
  }

  static bool works_element_by_element(const Node& node) {
    static const Operator* const copy = Operator::find("aten.copy");
    return &node.op() == copy || ops::facts(node.op()).op_class == ops::OpClass::Pointwise;
  }

  bool can_work_in_place(const Node& node, const Value* input) {
    if (!node.op().in_dispatcher() || node.results().size() != 1 || node.result() == nullptr)
      return false;
    const ops::OpFacts& facts = ops::facts(node.op());
    const Value* result = node.result();
    return facts.in_place != nullptr && works_element_by_element(node) && facts.pure() &&
           !ops::is_ordered(node) && node.args()[0].is_value() && result->users().size() == 1 &&
           result->output_uses() == 0 &&
           !at::isComplexType(result->meta.dtype) &&  // eager rounds complex div_ differently
           same_layout(result->meta, input->meta) &&
           facts.in_place->schema().arguments().size() == node.args().size();
  }

  /// Whether only the chain reads the input's memory once the first node of the chain has run.
  bool is_last_to_read(const Node& copy, const Value* input, const Node& first) {
    const ops::Aliasing aliasing(graph_);
    const uint32_t memory = aliasing.group(input);
    for (const Graph::Output& output : graph_.outputs()) {
      if (output.value != nullptr && aliasing.group(output.value) == memory) return false;
    }
    for (const Node* node = &first; node != nullptr; node = node->next()) {
      if (node == &copy) continue;
      bool reads = false;
      for (size_t i = 0; i < node->args().size(); ++i) {
        const bool is_own = node == &first && i == 0;
        node->args()[i].for_each_value([&](const Value* value) {
          // The same element of the same tensor may be read and written at once.
          const bool is_same = node == &first && value == input;
          reads |= !is_own && !is_same && aliasing.group(value) == memory;
        });
      }
      if (reads) return false;
    }
    return true;
  }

  /// Adds the node's in-place form, which writes to `target`; returns the target's new value.
  Value* write_in_place(Node& node, Value* target) {
    std::vector<Argument> arguments = node.args();
    arguments[0] = target;
    Node* written = graph_.add_node(*ops::facts(node.op()).in_place, std::move(arguments), &node);
    written->phase = node.phase;
    written->sequence = node.sequence;
    written->provenance = node.provenance;
    written->set_tags(node.tags());
    written->set(Tag::Effect);
    graph_.add_return(written, std::nullopt);
    return graph_.add_return(written, target->meta);
  }

  Graph& graph_;
};

}  // namespace

size_t reinplace_mutations(Graph& graph) {
  return Reinplacer(graph).run();
}

}  // namespace ahead::passes
