#include "engine/part/stretch.h"

#include <algorithm>
#include <map>
#include <utility>

#include "engine/part/operators.h"
#include "ir/copy.h"

namespace ahead::engine {
namespace {

class WholeGraph {
 public:
  Graph make(const Stretch& stretch) && {
    for (const Stretch::Item& item : stretch.items) {
      if (item.part != nullptr) add(*item.part);
      if (item.call) add(*item.call);
    }
    for (const auto& [place, value] : waiting_) add_output(value);
    graph_.verify();
    return std::move(graph_);
  }

 private:
  using ArgumentKind = Part::Argument::Kind;
  using DestinationKind = Part::Destination::Kind;

  void add(const Part& part) {
    std::vector<Value*> operands;
    for (size_t i = 0; i < part.arguments.size(); ++i)
      operands.push_back(argument(part.arguments[i], part.graph->inputs()[i].value->meta));
    if (!part.graph->example_sizes().empty()) graph_.set_example_sizes(part.graph->example_sizes());
    const std::vector<Value*> outputs = inline_graph(graph_, *part.graph, operands);
    node_outputs_.clear();
    for (size_t i = 0; i < outputs.size(); ++i)
      deliver(part.destinations[i], part.graph->outputs()[i], outputs[i], operands);
  }

  /// What stands for a tensor that a part takes.
  Value* argument(const Part::Argument& which, const TensorMeta& meta) {
    if (which.kind == ArgumentKind::Gradient) return take(which.index, meta);
    return input(which.kind, which.index, meta);
  }

  /// The gradient that waits at a place; what is there from the beginning on is an input.
  Value* take(size_t place, const TensorMeta& meta) {
    const auto found = waiting_.find(place);
    if (found == waiting_.end()) return input(ArgumentKind::Gradient, place, meta);
    Value* const value = found->second;
    waiting_.erase(found);
    return value;
  }

  Value* input(ArgumentKind kind, size_t index, const TensorMeta& meta) {
    const auto [found, is_new] = inputs_.emplace(std::pair(kind, index), nullptr);
    if (is_new) {
      const bool is_sizes = kind == ArgumentKind::Sizes;
      const Slot slot{is_sizes ? Slot::Kind::Sizes : Slot::Kind::Primal,
                      is_sizes ? 0 : num_primals_++};
      found->second = graph_.add_input(slot, meta);
    }
    return found->second;
  }

  void deliver(const Part::Destination& destination, const Graph::Output& output, Value* value,
               const std::vector<Value*>& operands) {
    switch (destination.kind) {
      case DestinationKind::Place:
        waiting_[destination.index] = value;
        return;
      case DestinationKind::Output:
        node_outputs_.push_back(value);
        return;
      case DestinationKind::Result:
        return add_output(value);
      default:
        const Value* const leaf = operands[static_cast<size_t>(output.slot.index)];
        graph_.add_output(value, {Slot::Kind::AccumulatedGrad, static_cast<int32_t>(leaf->index())},
                          output.requires_grad);
    }
  }

  void add_output(Value* value) { graph_.add_output(value, {Slot::Kind::Output, num_outputs_++}); }

  static Argument or_none(Value* value) {
    return value == nullptr ? Argument(c10::IValue()) : Argument(value);
  }

  void add(const Call& call) {
    Argument::List gradients;
    if (call.takes_outputs) {
      for (Value* output : node_outputs_) gradients.push_back(or_none(output));
    }
    for (size_t i = 0; i < call.places.size(); ++i) {
      const auto& meta = call.gradients[i];
      gradients.push_back(or_none(meta ? take(call.places[i], *meta) : nullptr));
    }
    ahead::Node* const node = graph_.add_node(
        call_hook(), {c10::IValue(call.what), static_cast<int64_t>(call.step), gradients});
    node->phase = Phase::Backward;
    node->sequence = static_cast<int64_t>(call.step);
    node->set(Tag::Effect);
    graph_.add_return_list(node, call.results);
    for (size_t i = 0; i < call.targets.size(); ++i) pass_on(call.targets[i], node->result(i));
    for (size_t i = 0; i < call.hooked.size(); ++i)
      inputs_[{ArgumentKind::Unpacked, call.hooked[i]}] = node->result(i);
  }

  void pass_on(int32_t target, Value* value) {
    if (target == kNowhere || value == nullptr) return;
    Value*& waiting = waiting_[static_cast<size_t>(target)];
    if (waiting == nullptr) {
      waiting = value;
      return;
    }
    static const Operator& add = *Operator::find("aten.add.Tensor");
    ahead::Node* const sum = graph_.add_node(add, {waiting, value, int64_t{1}});
    sum->phase = Phase::Backward;
    waiting = graph_.add_return(sum, value->meta);
  }

  Graph graph_;
  std::map<std::pair<ArgumentKind, size_t>, Value*> inputs_;
  int32_t num_primals_ = 0;
  int32_t num_outputs_ = 0;
  std::map<size_t, Value*> waiting_;  ///< by place
  std::vector<Value*> node_outputs_;  ///< of the last node, if hooks get them first
};

}  // namespace

bool Stretch::has_calls() const {
  return std::any_of(items.begin(), items.end(), [](const Item& item) { return item.call; });
}

bool Stretch::has(const Part& part) const {
  return std::any_of(items.begin(), items.end(),
                     [&](const Item& item) { return item.part.get() == &part; });
}

bool Stretch::operator==(const Stretch& other) const {
  return std::equal(items.begin(), items.end(), other.items.begin(), other.items.end(),
                    [](const Item& a, const Item& b) {
                      return a.part == b.part && a.call.has_value() == b.call.has_value();
                    });
}

Graph Stretch::graph() const {
  return WholeGraph().make(*this);
}

}  // namespace ahead::engine
