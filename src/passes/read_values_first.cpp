#include "passes/read_values_first.h"

#include <vector>

#include "ahead/errors.h"
#include "ir/copy.h"
#include "ops/facts/node_facts.h"

namespace ahead::passes {
namespace {

bool expects_value(const Node& node) {
  static const Operator* const value = Operator::find("ahead.expect");
  static const Operator* const equal = Operator::find("ahead.expect_equal");
  static const Operator* const sizes = Operator::find("ahead.expect_sizes");
  return &node.op() == value || &node.op() == equal || &node.op() == sizes;
}

class ValuesFirst {
 public:
  explicit ValuesFirst(const Graph& graph) : graph_(graph) {
    for (const Node& node : graph.nodes()) nodes_.push_back(&node);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (expects_value(*nodes_[i])) end_ = i + 1;
    }
  }

  /// Finds what the expected values are made of. Random numbers are drawn in order.
  void find_first() {
    std::vector<bool> is_needed(graph_.value_capacity());
    bool draws_later = false;
    is_first_.resize(nodes_.size());
    for (size_t i = end_; i-- > 0;) {
      const Node& node = *nodes_[i];
      bool is_first = expects_value(node) || (draws_later && ops::is_random(node));
      for (const Value* result : node.results())
        is_first |= result != nullptr && is_needed[result->id()];
      if (!is_first) continue;
      if (ops::has_effect(node) && !expects_value(node)) refuse(node);
      is_first_[i] = true;
      draws_later |= ops::is_random(node);
      node.for_each_operand([&](const Value* value) { is_needed[value->id()] = true; });
    }
  }

  size_t count_moved() const {
    size_t moved = 0;
    for (size_t i = 0; i < end_; ++i) moved += !is_first_[i] && ops::has_effect(*nodes_[i]) ? 1 : 0;
    return moved;
  }

  Graph in_order() const {
    Graph ordered;
    ValueMap map(graph_.value_capacity(), nullptr);
    for (const Graph::Input& input : graph_.inputs())
      map[input.value->id()] = ordered.add_input(input.slot, input.value->meta, input.captured);
    for (const bool is_first : {true, false}) {
      for (size_t i = 0; i < nodes_.size(); ++i) {
        if (is_first_[i] == is_first) copy_node(ordered, *nodes_[i], map);
      }
    }
    for (const Graph::Output& output : graph_.outputs()) {
      Value* value = output.value == nullptr ? nullptr : map[output.value->id()];
      ordered.add_output(value, output.slot, output.requires_grad);
    }
    ordered.set_example_sizes(graph_.example_sizes());
    return ordered;
  }

 private:
  [[noreturn]] static void refuse(const Node& node) {
    throw Unsupported("compile",
                      node.op().name() +
                          ": the function reads a value that comes from an operator with an "
                          "effect, which must not happen before it is known that the program is "
                          "right for the value. Return the tensor instead.");
  }

  const Graph& graph_;
  std::vector<const Node*> nodes_;
  size_t end_ = 0;  ///< behind the last expected value
  std::vector<bool> is_first_;
};

}  // namespace

size_t read_values_first(Graph& graph) {
  ValuesFirst values(graph);
  values.find_first();
  const size_t moved = values.count_moved();
  if (moved != 0) graph = values.in_order();
  return moved;
}

}  // namespace ahead::passes
