#include <ATen/core/function_schema.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "ahead/passes.h"
#include "ir/signature.h"
#include "ops/facts/aliasing.h"
#include "ops/facts/facts.h"
#include "ops/facts/node_facts.h"
#include "passes/merging.h"

namespace ahead::passes {
namespace {

bool any_result_used(const Node& node) {
  return std::any_of(node.results().begin(), node.results().end(),
                     [](const Value* result) { return result != nullptr && result->is_used(); });
}

/// Lets a node that writes in place be known as the one that it takes the place of.
void take_over(Node& written, const Node& node) {
  written.belong_to(node);
  written.set_tags(node.tags());
  written.set(Tag::Effect);
}

/// Which values share memory, found when it is first asked for and then kept up to date.
class Memories {
 public:
  explicit Memories(const Graph& graph) : graph_(graph) {}

  /// The same number for two values whenever they may share memory.
  uint32_t of(const Value* value) {
    if (!aliasing_) aliasing_.emplace(graph_);
    return aliasing_->group(value);
  }
  /// Takes in a node that is complete.
  void add(const Node& node) {
    if (aliasing_) aliasing_->add(node);
  }
  /// Notes that one value is used instead of another one.
  void replace(const Value* old, const Value* fresh) {
    if (aliasing_) aliasing_->join(old, fresh);
  }

 private:
  const Graph& graph_;
  std::optional<ops::Aliasing> aliasing_;
};

/// Replaces each aten.copy_ to an input, with the chain of operators that computed the copied value
/// from the input, by operators that write to the input in place.
class Reinplacer {
 public:
  Reinplacer(Graph& graph, Memories& memories) : graph_(graph), memories_(memories) {}

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
    const uint32_t memory = memories_.of(input);
    for (const Graph::Output& output : graph_.outputs()) {
      if (output.value != nullptr && memories_.of(output.value) == memory) return false;
    }
    for (const Node* node = &first; node != nullptr; node = node->next()) {
      if (node == &copy) continue;
      bool reads = false;
      for (size_t i = 0; i < node->args().size(); ++i) {
        const bool is_own = node == &first && i == 0;
        node->args()[i].for_each_value([&](const Value* value) {
          // The same element of the same tensor may be read and written at once.
          const bool is_same = node == &first && value == input;
          reads |= !is_own && !is_same && memories_.of(value) == memory;
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
    take_over(*written, node);
    graph_.add_return(written, std::nullopt);
    Value* contents = graph_.add_return(written, target->meta);
    memories_.add(*written);
    return contents;
  }

  Graph& graph_;
  Memories& memories_;
};

/// Turns one operator that returns new contents for lists of tensors (a step of an optimizer) into
/// the one that writes to them, where nobody can tell: what it writes to is not read again, and is
/// either made in the graph or an input that is overwritten in the end.
class ListReinplacer {
 public:
  ListReinplacer(Graph& graph, Memories& memories, Node& node)
      : graph_(graph), memories_(memories), node_(node) {}

  bool run() {
    if (!can_work_in_place()) return false;
    look_around();
    size_t next = 0;
    for (size_t argument : written_) {
      if (!node_.args()[argument].is_list()) return false;
      for (const Argument& element : node_.args()[argument].list()) {
        if (!element.is_value() || next == node_.results().size() ||
            !may_write(element.value(), node_.result(next++), argument))
          return false;
      }
    }
    if (next != node_.results().size()) return false;
    write_in_place();
    return true;
  }

 private:
  static bool is_copy(const Node& node) {
    static const Operator* const copy = Operator::find("aten.copy_");
    return &node.op() == copy && node.args()[0].is_value() && node.args()[1].is_value();
  }

  bool can_work_in_place() {
    if (!node_.op().in_dispatcher()) return false;
    const ops::OpFacts& facts = ops::facts(node_.op());
    if (facts.in_place == nullptr || !facts.pure() || ops::is_ordered(node_) ||
        !works_element_by_element(node_))
      return false;
    const c10::FunctionSchema& schema = facts.in_place->schema();
    written_ = written_arguments(*facts.in_place);
    return schema.returns().empty() && schema.arguments().size() == node_.args().size() &&
           node_.return_lengths().size() == written_.size();
  }

  static bool works_element_by_element(const Node& node) {
    return ops::facts(node.op()).op_class == ops::OpClass::Pointwise ||
           node.op().name().starts_with("aten._foreach_");
  }

  /// What memory is used by the node, after it, and by the caller.
  void look_around() {
    for (const Graph::Input& input : graph_.inputs())
      memory_[memories_.of(input.value)].inputs.push_back(input.value);
    for (const Graph::Output& output : graph_.outputs()) {
      if (output.value != nullptr) memory_[memories_.of(output.value)].is_returned = true;
    }
    node_.for_each_operand(
        [&](const Value* operand) { ++memory_[memories_.of(operand)].uses_of_node; });
    size_t position = 0;
    for (Node* node = node_.next(); node != nullptr; node = node->next()) {
      position_[node] = position++;
      const bool is_end = is_copy(*node) && !any_result_used(*node);
      for (size_t i = 0; i < node->args().size(); ++i) {
        node->args()[i].for_each_value([&](const Value* operand) {
          Memory& memory = memory_[memories_.of(operand)];
          if (i == 0 && is_end && memory.copy == nullptr) {
            memory.copy = node;
          } else {
            memory.is_read_later = true;
          }
        });
      }
    }
  }

  bool is_unwritten(size_t argument) const {
    const std::optional<size_t> condition = ops::written_only_with(node_.op(), argument);
    if (!condition) return false;
    const Argument& given = node_.args()[*condition];
    return given.is_constant() && given.constant().isNone();
  }

  bool may_write(const Value* target, const Value* made, size_t argument) {
    if (made == nullptr) return false;
    if (is_unwritten(argument)) return !made->is_used();
    const Memory& memory = memory_[memories_.of(target)];
    if (memory.uses_of_node != 1 || memory.is_read_later || memory.is_returned ||
        !same_layout(target->meta, made->meta))
      return false;
    // What has a history may have to be run again under autograd, which writing would spoil.
    if (memory.inputs.empty())
      return node_.has(Tag::NoGrad) && memory.copy == nullptr && target->producer() != nullptr;
    if (memory.copy != nullptr && memory.copy->args()[1].value() == made)
      obsolete_.push_back(memory.copy);
    return memory.inputs.size() == 1 && memory.copy != nullptr &&
           memory.copy->args()[0].value() == memory.inputs[0] &&
           same_layout(target->meta, memory.inputs[0]->meta) && made->output_uses() == 0 &&
           is_used_before(*made, *memory.copy);
  }

  bool is_used_before(const Value& made, const Node& copy) const {
    return std::all_of(made.users().begin(), made.users().end(),
                       [&](const Node* user) { return position_.at(user) <= position_.at(&copy); });
  }

  void write_in_place() {
    Node* written = graph_.add_node(*ops::facts(node_.op()).in_place, node_.args(), &node_);
    take_over(*written, node_);
    size_t next = 0;
    for (const int32_t length : node_.return_lengths()) {
      std::vector<std::optional<TensorMeta>> metas;
      for (int32_t i = 0; i < length; ++i) metas.emplace_back(node_.result(next++)->meta);
      graph_.add_return_list(written, std::move(metas));
    }
    memories_.add(*written);
    for (size_t i = 0; i < node_.results().size(); ++i) {
      graph_.replace_uses(node_.result(i), written->result(i));
      memories_.replace(node_.result(i), written->result(i));
    }
    for (Node* copy : obsolete_) graph_.erase(copy);
    graph_.erase(&node_);
  }

  /// Values that may share memory.
  struct Memory {
    std::vector<const Value*> inputs = {};
    size_t uses_of_node = 0;
    bool is_read_later = false, is_returned = false;
    Node* copy = nullptr;  ///< that overwrites it in the end
  };

  Graph& graph_;
  Memories& memories_;
  Node& node_;
  c10::SmallVector<size_t, 2> written_;
  std::unordered_map<uint32_t, Memory> memory_;
  std::unordered_map<const Node*, size_t> position_;
  std::vector<Node*> obsolete_;
};

size_t reinplace_lists(Graph& graph, Memories& memories) {
  std::vector<Node*> nodes;
  for (Node& node : graph.nodes()) {
    if (!node.return_lengths().empty() && node.return_lengths()[0] >= 0) nodes.push_back(&node);
  }
  return static_cast<size_t>(std::count_if(nodes.begin(), nodes.end(), [&](Node* node) {
    return ListReinplacer(graph, memories, *node).run();
  }));
}

}  // namespace

size_t reinplace_mutations(Graph& graph) {
  Memories memories(graph);
  return Reinplacer(graph, memories).run() + reinplace_lists(graph, memories);
}

}  // namespace ahead::passes
