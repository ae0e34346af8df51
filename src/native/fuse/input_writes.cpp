#include "native/fuse/input_writes.h"

#include <algorithm>
#include <unordered_map>

#include "ops/facts/aliasing.h"
#include "ops/facts/facts.h"
#include "ops/facts/may_write.h"

namespace ahead::native {
namespace {

const Operator& copy_operator() {
  static const Operator* const copy = Operator::find("aten.copy_");
  return *copy;
}

/// The operator that returns what this one writes to its first argument; null: there is none, or it
/// would return something of another sort.
const Operator* functional_form(const Node& node) {
  if (!node.op().in_dispatcher() || &node.op() == &copy_operator()) return nullptr;
  const Operator* twin = ops::facts(node.op()).functional;
  const bool returns_contents =
      node.results().size() == 2 && node.result(0) == nullptr && node.result(1) != nullptr;
  if (twin == nullptr || !returns_contents || !node.args()[0].is_value()) return nullptr;
  const ops::OpFacts& facts = ops::facts(*twin);
  const TensorMeta& written = node.args()[0].value()->meta;
  bool is_of_one_type = at::isFloatingType(written.dtype) && written.device.is_cpu();
  node.for_each_operand([&](const Value* operand) {
    is_of_one_type &= operand->meta.dtype == written.dtype || operand->meta.sizes.size() == 0;
  });
  const bool fits = facts.op_class == ops::OpClass::Pointwise && facts.pure() && is_of_one_type &&
                    twin->schema().returns().size() == 1 &&
                    twin->schema().arguments().size() == node.args().size();
  return fits ? twin : nullptr;
}

size_t count_uses(const Node& node, const Value* value) {
  size_t count = 0;
  node.for_each_operand([&](const Value* operand) { count += operand == value ? 1 : 0; });
  return count;
}

class ByCopies {
 public:
  explicit ByCopies(Graph& graph) : graph_(graph) {}

  void run() {
    for (Node *node = graph_.first(), *next = nullptr; node != nullptr; node = next) {
      next = node->next();
      const Operator* twin = functional_form(*node);
      if (twin != nullptr && is_followed(*node)) rewrite(*node, *twin);
    }
  }

 private:
  /// Whether the operator writes to an input, and what reads the new contents neither writes to
  /// them nor shows them to others.
  bool is_followed(const Node& node) const {
    const Value* target = node.args()[0].value();
    if (target->producer() != nullptr && copies_.count(target) == 0) return false;
    const Value* contents = node.result(1);
    return contents->output_uses() == 0 &&
           std::all_of(contents->users().begin(), contents->users().end(), [&](const Node* user) {
             const bool reads = !ops::may_write(*user) && !ops::is_view(*user);
             const bool goes_on = functional_form(*user) != nullptr &&
                                  user->args()[0].value() == contents &&
                                  count_uses(*user, contents) == 1;
             return reads || goes_on;
           });
  }

  void rewrite(Node& node, const Operator& twin) {
    Value* target = node.args()[0].value();
    Value* input = target;
    if (const auto written = copies_.find(target); written != copies_.end()) {
      input = written->second->args()[0].value();
      graph_.erase(written->second);
      copies_.erase(written);
    }
    Node* made = graph_.add_node(twin, node.args(), &node);
    made->belong_to(node);
    made->set_tags(node.tags() & ~static_cast<uint16_t>(Tag::Effect));
    Value* contents = graph_.add_return(made, node.result(1)->meta);
    Node* copy = graph_.add_node(copy_operator(), {input, contents, false}, &node);
    copy->belong_to(node);
    copy->set_tags(node.tags());
    graph_.add_return(copy, std::nullopt);
    graph_.add_return(copy, node.result(1)->meta);
    copies_.emplace(contents, copy);
    graph_.replace_uses(node.result(1), contents);
    graph_.erase(&node);
  }

  Graph& graph_;
  std::unordered_map<const Value*, Node*> copies_;  ///< to inputs, by what is copied
};

/// A copy to an input of what a node computes for nobody else.
struct Write {
  const Node* copy;
  const Node* maker;
  const Value* input;
};

/// The copies of a fused graph that might as well be made by those who compute what is copied.
class EarlyWrites {
 public:
  explicit EarlyWrites(const Graph& graph) : aliasing_(graph) {
    for (const Node& node : graph.nodes()) {
      if (node.op().name().starts_with("ahead.expect")) last_expectation_ = position_.size();
      position_.emplace(&node, position_.size());
    }
    for (const Node& node : graph.nodes()) consider(node);
  }

  const std::vector<Write>& writes() const { return writes_; }

 private:
  void consider(const Node& node) {
    if (&node.op() != &copy_operator() || !node.args()[0].is_value() || !node.args()[1].is_value())
      return;
    const Value *input = node.args()[0].value(), *made = node.args()[1].value();
    const bool is_for_nobody_else = made->users().size() == 1 && made->output_uses() == 0;
    const bool is_read = std::any_of(
        node.results().begin(), node.results().end(),
        [](const Value* result) { return result != nullptr && result->is_used(); });
    if (input->producer() != nullptr || made->producer() == nullptr || !is_for_nobody_else ||
        is_read || &node == made->producer())
      return;
    const Write write{&node, made->producer(), input};
    if (may_write_early(write)) writes_.push_back(write);
  }

  /// Whether nobody else uses the memory between the node and the copy, and nothing ends the run
  /// after the node.
  bool may_write_early(const Write& write) const {
    if (last_expectation_ > position_.at(write.maker)) return false;
    size_t uses = 0;
    write.maker->for_each_operand(
        [&](const Value* value) { uses += shares(write, value) ? 1 : 0; });
    if (uses != 1) return false;
    for (const Node* node = write.maker->next(); node != write.copy; node = node->next()) {
      bool meets = false;
      node->for_each_operand([&](const Value* value) { meets |= shares(write, value); });
      if (meets) return false;
    }
    return true;
  }

  bool shares(const Write& write, const Value* value) const {
    return aliasing_.group(value) == aliasing_.group(write.input);
  }

  const ops::Aliasing aliasing_;
  std::unordered_map<const Node*, size_t> position_;
  size_t last_expectation_ = 0;
  std::vector<Write> writes_;
};

}  // namespace

void write_by_copies(Graph& graph) {
  ByCopies(graph).run();
}

void write_in_place(Graph& fused) {
  const EarlyWrites early(fused);
  for (const Write& write : early.writes()) {
    if (!write.maker->op().in_dispatcher()) continue;
    const ops::OpFacts& facts = ops::facts(write.maker->op());
    const Argument& first = write.maker->args()[0];
    if (facts.in_place == nullptr || facts.op_class != ops::OpClass::Pointwise || !facts.pure() ||
        !first.is_value() || first.value() != write.input ||
        facts.in_place->schema().arguments().size() != write.maker->args().size())
      continue;
    Node *copy = const_cast<Node*>(write.copy), *maker = const_cast<Node*>(write.maker);
    Node* written = fused.add_node(*facts.in_place, maker->args(), maker);
    written->belong_to(*maker);
    written->set_tags(copy->tags());
    fused.add_return(written, std::nullopt);
    fused.add_return(written, maker->result()->meta);
    fused.erase(copy);
    fused.erase(maker);
  }
}

void find_targets(const Graph& fused, std::vector<Group>& groups) {
  std::unordered_map<const Graph*, Group*> by_graph;
  for (Group& group : groups) by_graph.emplace(group.graph.get(), &group);
  const EarlyWrites early(fused);
  for (const Write& write : early.writes()) {
    const std::vector<Argument>& args = write.maker->args();
    if (args.empty() || !args[0].is_graph()) continue;
    const auto found = by_graph.find(args[0].graph().get());
    if (found == by_graph.end()) continue;
    for (size_t i = 1; i < args.size(); ++i) {
      if (!args[i].is_value() || args[i].value() != write.input) continue;
      std::vector<int32_t>& targets = found->second->targets;
      targets.resize(write.maker->results().size(), -1);
      targets[write.copy->args()[1].value()->index()] = static_cast<int32_t>(i) - 1;
    }
  }
}

}  // namespace ahead::native
