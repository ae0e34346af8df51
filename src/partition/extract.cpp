#include "partition/extract.h"

#include <algorithm>
#include <optional>

#include "ahead/errors.h"
#include "ir/copy.h"
#include "ir/layout_copy.h"
#include "ir/names.h"
#include "ir/text/printer.h"
#include "ops/facts/facts.h"
#include "ops/facts/node_facts.h"
#include "partition/cost.h"

namespace ahead::partition {
namespace {

std::vector<const Node*> nodes_of(const Graph& graph) {
  std::vector<const Node*> nodes;
  nodes.reserve(graph.num_nodes());
  for (const Node& node : graph.nodes()) nodes.push_back(&node);
  return nodes;
}

/// The new position of each entry that is kept; -1 for the others.
template <class Entries, class Keep>
std::vector<int32_t> renumber(const Entries& entries, Keep keep) {
  std::vector<int32_t> positions;
  int32_t next = 0;
  for (const auto& entry : entries) positions.push_back(keep(entry) ? next++ : -1);
  return positions;
}

bool is_tangent(const Graph::Input& input) {
  return input.slot.kind == Slot::Kind::Tangent;
}

constexpr const char* because_captured = "captured: alive as long as the function is";
constexpr const char* because_static = "a static input: alive anyway";
constexpr const char* because_input = "an input: there already";
constexpr const char* because_overwritten = "copied: the memory it is in is overwritten";

class Extractor {
 public:
  Extractor(const JointFacts& joint, const std::vector<Verdict>& verdicts,
            const std::vector<bool>& is_static, Explain explain)
      : joint_(joint),
        verdicts_(verdicts),
        is_static_(is_static),
        forward_inputs_(renumber(joint.graph.inputs(), [](auto& i) { return !is_tangent(i); })),
        forward_outputs_(renumber(joint.graph.outputs(), is_forward_output)) {
    if (explain == Explain::Yes) printer_.emplace(joint.graph);
  }

  PartitionedGraphs run() {
    choose_backward_nodes();
    choose_saved();
    choose_forward_nodes();
    build_forward();
    build_backward();
    result_.forward.set_example_sizes(joint_.graph.example_sizes());
    result_.backward.set_example_sizes(joint_.graph.example_sizes());
    return std::move(result_);
  }

 private:
  using Marks = std::vector<bool>;

  Marks marks() const { return Marks(joint_.graph.value_capacity()); }
  bool any_result(const Node& node, const Marks& marks) const {
    return std::any_of(node.results().begin(), node.results().end(), [&](const Value* result) {
      return result != nullptr && marks[result->id()];
    });
  }
  static void mark_operands(const Node& node, Marks& marks) {
    node.for_each_operand([&](const Value* value) { marks[value->id()] = true; });
  }

  void choose_backward_nodes() {
    needed_in_backward_ = marks();
    for (const Graph::Output& output : joint_.graph.outputs()) {
      if (output.value != nullptr && !is_forward_output(output))
        needed_in_backward_[output.value->id()] = true;
    }
    in_backward_.resize(joint_.nodes.size());
    for (size_t i = joint_.nodes.size(); i-- > 0;) {
      const Node& node = *joint_.nodes[i];
      const Role& role = joint_.roles[i];
      in_backward_[i] = role.in_backward
                            ? role.serves_backward
                            : verdicts_[i].compute_in_backward && !role.never_in_backward &&
                                  !role.is_read_later && any_result(node, needed_in_backward_);
      if (in_backward_[i]) mark_operands(node, needed_in_backward_);
    }
  }

  bool is_made_in_backward(const Value* value) const {
    const int32_t producer = joint_.producer[value->id()];
    return producer >= 0 && in_backward_[static_cast<size_t>(producer)];
  }

  void choose_saved() {
    for (const Graph::Input& input : joint_.graph.inputs()) {
      if (!is_tangent(input) && needed_in_backward_[input.value->id()])
        saved_.push_back(input.value);
    }
    for (size_t i = 0; i < joint_.nodes.size(); ++i) {
      const Node& node = *joint_.nodes[i];
      if (in_backward_[i]) {
        if (!joint_.roles[i].in_backward) decide(node, false, verdicts_[i].reason);
        continue;
      }
      for (const Value* result : node.results()) {
        if (result != nullptr && needed_in_backward_[result->id()]) saved_.push_back(result);
      }
      if (any_result(node, needed_in_backward_)) decide(node, true, verdicts_[i].reason);
    }
  }

  void decide(const Node& node, bool saved, const char* reason) {
    if (!printer_) return;
    PartitionDecision decision{"", saved, 0, reason};
    printer_->append_node(decision.node, node);
    for (const Value* result : node.results()) {
      if (result != nullptr && needed_in_backward_[result->id()])
        decision.bytes += storage_bytes(result->meta, joint_.graph.example_sizes());
    }
    result_.decisions.push_back(std::move(decision));
  }

  void choose_forward_nodes() {
    Marks needed = marks();
    for (const Value* value : saved_) needed[value->id()] = true;
    in_forward_.resize(joint_.nodes.size());
    for (size_t i = joint_.nodes.size(); i-- > 0;) {
      const Node& node = *joint_.nodes[i];
      in_forward_[i] = joint_.roles[i].in_forward || any_result(node, needed);
      if (!in_forward_[i]) continue;
      if (joint_.roles[i].in_backward) {
        throw InternalError("partition",
                            node.op().name() + ": a node of the backward half was to be saved.");
      }
      mark_operands(node, needed);
    }
  }

  /// The slot of the joint graph, with the positions it names as they are in the forward graph.
  Slot in_halves(Slot slot) const {
    const auto at = static_cast<size_t>(slot.index);
    switch (facts(slot.kind).index_names) {
      case SlotFacts::Names::nothing:
        return slot;
      case SlotFacts::Names::input_position:
        return {slot.kind, forward_inputs_.at(at)};
      case SlotFacts::Names::output_position:
        return {slot.kind, forward_outputs_.at(at)};
    }
    return slot;
  }

  void build_forward() {
    Graph& forward = result_.forward;
    ValueMap map(joint_.graph.value_capacity(), nullptr);
    for (const Graph::Input& input : joint_.graph.inputs()) {
      if (is_tangent(input)) continue;
      map[input.value->id()] = forward.add_input(input.slot, input.value->meta, input.captured);
    }
    for (size_t i = 0; i < joint_.nodes.size(); ++i) {
      if (in_forward_[i]) copy_node(forward, *joint_.nodes[i], map)->phase = Phase::Forward;
    }
    for (const Graph::Output& output : joint_.graph.outputs()) {
      if (!is_forward_output(output)) continue;
      Value* value = output.value == nullptr ? nullptr : map[output.value->id()];
      forward.add_output(value, in_halves(output.slot), output.requires_grad);
    }
    const size_t num_outputs = forward.outputs().size();
    for (const Value* value : saved_) add_saved(*value, map[value->id()], num_outputs);
  }

  void add_saved(const Value& value, Value* in_forward, size_t num_outputs) {
    SavedValue saved;
    saved.joint_value = value.id();
    saved.copied = joint_.overwritten[value.id()];
    saved.owned = saved.copied || !joint_.visible[joint_.aliasing.group(&value)];
    saved.bytes = storage_bytes(value.meta, joint_.graph.example_sizes());
    if (saved.copied) {
      in_forward = add_layout_copy(result_.forward, in_forward);
      saved.reason = because_overwritten;
    } else if (value.producer() == nullptr) {
      saved.input = forward_inputs_[value.index()];
      saved.reason = reason_for_input(value);
      if (is_static_[value.index()]) saved.bytes = 0;
    } else {
      saved.reason = verdicts_[static_cast<size_t>(joint_.producer[value.id()])].reason;
    }
    if (in_forward->output_uses() != 0) saved.output = find_output(in_forward, num_outputs);
    const auto index = static_cast<int32_t>(result_.saved.size());
    result_.forward.add_output(in_forward, {Slot::Kind::Saved, index});
    result_.saved.push_back(std::move(saved));
  }

  int64_t find_output(const Value* value, size_t num_outputs) const {
    const auto& outputs = result_.forward.outputs();
    for (size_t i = 0; i < num_outputs; ++i) {
      if (outputs[i].value == value) return static_cast<int64_t>(i);
    }
    return -1;
  }

  const char* reason_for_input(const Value& value) const {
    if (!is_static_[value.index()]) return because_input;
    const Slot::Kind kind = joint_.graph.inputs()[value.index()].slot.kind;
    return kind == Slot::Kind::Captured ? because_captured : because_static;
  }

  void build_backward() {
    Graph& backward = result_.backward;
    ValueMap map(joint_.graph.value_capacity(), nullptr);
    for (size_t i = 0; i < saved_.size(); ++i) {
      const TensorMeta& meta =
          result_.forward.outputs()[result_.forward.outputs().size() - saved_.size() + i]
              .value->meta;
      map[saved_[i]->id()] = backward.add_input({Slot::Kind::Saved, static_cast<int32_t>(i)}, meta);
    }
    for (const Graph::Input& input : joint_.graph.inputs()) {
      if (is_tangent(input))
        map[input.value->id()] = backward.add_input(in_halves(input.slot), input.value->meta);
    }
    if (const int64_t sizes = joint_.graph.find_input({Slot::Kind::Sizes, 0}); sizes >= 0) {
      const Graph::Input& input = joint_.graph.inputs()[static_cast<size_t>(sizes)];
      map[input.value->id()] = backward.add_input(input.slot, input.value->meta);
    }
    emitted_.resize(joint_.nodes.size());
    for (size_t i = 0; i < joint_.nodes.size(); ++i) {
      if (in_backward_[i] && joint_.nodes[i]->phase == Phase::Backward) emit(i, map);
    }
    for (const Graph::Output& output : joint_.graph.outputs()) {
      if (!is_forward_output(output)) add_gradient(output, map);
    }
  }

  void add_gradient(const Graph::Output& output, ValueMap& map) {
    Value* value = nullptr;
    if (output.value != nullptr) {
      if (is_made_in_backward(output.value))
        emit(static_cast<size_t>(joint_.producer[output.value->id()]), map);
      value = map[output.value->id()];
    }
    result_.backward.add_output(value, in_halves(output.slot), output.requires_grad);
  }

  /// Adds a node to the backward graph, after the makers of its operands that are not there yet, so
  /// that recomputed nodes stand just before their first use.
  void emit(size_t node, ValueMap& map) {
    std::vector<size_t> missing;
    std::vector<size_t> pending{node};
    while (!pending.empty()) {
      const size_t current = pending.back();
      pending.pop_back();
      if (emitted_[current]) continue;
      emitted_[current] = true;
      missing.push_back(current);
      joint_.nodes[current]->for_each_operand([&](const Value* value) {
        if (is_made_in_backward(value))
          pending.push_back(static_cast<size_t>(joint_.producer[value->id()]));
      });
    }
    std::sort(missing.begin(), missing.end());
    for (size_t i : missing) {
      copy_node(result_.backward, *joint_.nodes[i], map);
      move_views(*joint_.nodes[i], map);
    }
  }

  /// A saved copy has an offset of its own, from which the offsets of its views follow.
  static void move_views(const Node& node, ValueMap& map) {
    if (!ops::is_view(node)) return;
    const Value* source = node.args()[0].value();
    const Dim distance = map[source->id()]->meta.offset - source->meta.offset;
    for (const Value* result : node.results()) {
      if (result != nullptr) map[result->id()]->meta.offset += distance;
    }
  }

  const JointFacts& joint_;
  const std::vector<Verdict>& verdicts_;
  const std::vector<bool>& is_static_;
  /// From positions in the joint graph to positions in the forward graph.
  const std::vector<int32_t> forward_inputs_, forward_outputs_;
  std::optional<Printer> printer_;  ///< where decisions are wanted
  Marks needed_in_backward_;        ///< by Value::id()
  std::vector<bool> in_backward_, in_forward_, emitted_;
  std::vector<const Value*> saved_;
  PartitionedGraphs result_;
};

}  // namespace

JointFacts::JointFacts(const Graph& joint)
    : graph(joint),
      nodes(nodes_of(joint)),
      aliasing(joint),
      visible(find_visible(joint, aliasing)),
      roles(find_roles(joint, aliasing, visible)),
      overwritten(joint.value_capacity()),
      producer(joint.value_capacity(), -1) {
  std::vector<bool> overwritten_group(joint.value_capacity());
  for (const Graph::Output& output : joint.outputs()) {
    if (output.slot.kind != Slot::Kind::MutatedInput) continue;
    const Value* input = joint.inputs().at(static_cast<size_t>(output.slot.index)).value;
    overwritten_group[aliasing.group(input)] = true;
  }
  for (const Graph::Input& input : joint.inputs())
    overwritten[input.value->id()] = overwritten_group[aliasing.group(input.value)];
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const Value* result : nodes[i]->results()) {
      if (result == nullptr) continue;
      producer[result->id()] = static_cast<int32_t>(i);
      overwritten[result->id()] = overwritten_group[aliasing.group(result)];
    }
    if (ops::reads_storage(*nodes[i])) {
      nodes[i]->for_each_operand([&](const Value* operand) {
        if (overwritten[operand->id()]) roles[i].never_in_backward = true;
      });
    }
    if (roles[i].in_backward) mark_written(*nodes[i]);
  }
}

void JointFacts::mark_written(const Node& node) {
  for (uint8_t index : ops::facts(node.op()).writes) {
    node.args()[index].for_each_value([&](const Value* value) {
      const int32_t made_by = producer[value->id()];
      if (made_by >= 0) roles[static_cast<size_t>(made_by)].written_in_backward = true;
    });
  }
}

PartitionedGraphs extract(const JointFacts& joint, const std::vector<Verdict>& verdicts,
                          const std::vector<bool>& is_static, Explain explain) {
  return Extractor(joint, verdicts, is_static, explain).run();
}

std::vector<bool> find_static_inputs(const Graph& joint, const std::vector<int64_t>& positions) {
  std::vector<bool> is_static(joint.inputs().size());
  for (size_t i = 0; i < is_static.size(); ++i)
    is_static[i] = joint.inputs()[i].slot.kind == Slot::Kind::Captured;
  for (int64_t position : positions) {
    if (position < 0 || static_cast<size_t>(position) >= is_static.size()) {
      throw UserError("partition", "static input " + std::to_string(position) + ": the graph has " +
                                       std::to_string(is_static.size()) + " inputs.");
    }
    is_static[static_cast<size_t>(position)] = true;
  }
  return is_static;
}

}  // namespace ahead::partition
