#include "partition/extract.h"

#include <algorithm>
#include <optional>

#include "ahead/errors.h"
#include "ir/copy.h"
#include "ir/layout_copy.h"
#include "ir/names.h"
#include "ir/sizes/size_reads.h"
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
constexpr const char* because_written_late = "the backward writes to it";

constexpr uint16_t saved_in_any_case =
    static_cast<uint16_t>(Tag::MustBeInForward) | static_cast<uint16_t>(Tag::MustSave);

bool is_saved_in_any_case(const Node& node) {
  return (node.tags() & saved_in_any_case) == saved_in_any_case;
}

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
  /// What a write of the backward writes to is not read by it.
  static void mark_operands(const Node& node, Marks& marks) {
    if (ops::is_backward_write(node)) {
      marks[node.args()[1].value()->id()] = true;
      return;
    }
    node.for_each_operand([&](const Value* value) { marks[value->id()] = true; });
  }
  bool is_written_late(const Value* value) const {
    return std::find(joint_.written_late.begin(), joint_.written_late.end(), value) !=
           joint_.written_late.end();
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
      if (is_tangent(input)) continue;
      const bool is_found = joint_.found_in[input.value->id()] != nullptr;
      if (needed_in_backward_[input.value->id()] && !is_found) save(input.value);
      if (is_written_late(input.value)) saved_.push_back({input.value, /*to_write=*/true});
    }
    for (size_t i = 0; i < joint_.nodes.size(); ++i) {
      const Node& node = *joint_.nodes[i];
      if (in_backward_[i]) {
        if (!joint_.roles[i].in_backward) decide(node, false, verdicts_[i].reason);
        continue;
      }
      for (const Value* result : node.results()) {
        const bool is_needed = result != nullptr && (needed_in_backward_[result->id()] ||
                                                     is_saved_in_any_case(node));
        if (is_needed && joint_.found_in[result->id()] == nullptr) save(result);
      }
      if (any_result(node, needed_in_backward_)) decide(node, true, verdicts_[i].reason);
    }
  }

  void save(const Value* value) { saved_.push_back({value, /*to_write=*/false}); }

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
    for (const Choice& choice : saved_) needed[choice.value->id()] = true;
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
    for (const Choice& choice : saved_) {
      Value* in_forward = map[choice.value->id()];
      if (choice.to_write) {
        add_written_late(*choice.value, in_forward);
      } else {
        add_saved(*choice.value, in_forward, num_outputs);
      }
    }
  }

  void add_written_late(const Value& value, Value* in_forward) {
    SavedValue saved;
    saved.joint_value = value.id();
    saved.input = forward_inputs_[value.index()];
    saved.reason = because_written_late;
    const auto index = static_cast<int32_t>(result_.saved.size());
    result_.forward.add_output(in_forward, {Slot::Kind::Saved, index});
    result_.saved.push_back(std::move(saved));
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
      Value* input = backward.add_input({Slot::Kind::Saved, static_cast<int32_t>(i)}, meta);
      if (saved_[i].to_write) {
        to_write_.emplace_back(saved_[i].value, input);
      } else {
        map[saved_[i].value->id()] = input;
      }
    }
    for (const Graph::Input& input : joint_.graph.inputs()) {
      if (is_tangent(input))
        map[input.value->id()] = backward.add_input(in_halves(input.slot), input.value->meta);
    }
    if (const int64_t sizes = joint_.graph.find_input({Slot::Kind::Sizes, 0}); sizes >= 0) {
      const Graph::Input& input = joint_.graph.inputs()[static_cast<size_t>(sizes)];
      map[input.value->id()] = backward.add_input(input.slot, input.value->meta);
    }
    read_where_found(map);
    emitted_.resize(joint_.nodes.size());
    for (size_t i = 0; i < joint_.nodes.size(); ++i) {
      if (in_backward_[i] && joint_.nodes[i]->phase == Phase::Backward) emit(i, map);
    }
    for (const Graph::Output& output : joint_.graph.outputs()) {
      if (!is_forward_output(output)) add_gradient(output, map);
    }
  }

  /// Lets the backward read contents in the input that it will write to.
  void read_where_found(ValueMap& map) {
    const auto read = [&](const Value* value) {
      if (value == nullptr || !needed_in_backward_[value->id()]) return;
      const Value* input = joint_.found_in[value->id()];
      if (input == nullptr) return;
      Value* found = writable(input);
      const bool lies_alike = value->meta.strides == found->meta.strides;
      map[value->id()] = lies_alike ? found : add_layout_copy(result_.backward, found, value->meta);
    };
    for (const Graph::Input& input : joint_.graph.inputs()) read(input.value);
    for (const Node* node : joint_.nodes) {
      for (const Value* result : node->results()) read(result);
    }
  }

  Value* writable(const Value* input) const {
    const auto found = std::find_if(to_write_.begin(), to_write_.end(),
                                    [&](const auto& entry) { return entry.first == input; });
    return found == to_write_.end() ? nullptr : found->second;
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
      if (ops::is_backward_write(*joint_.nodes[i])) {
        emit_write(*joint_.nodes[i], map);
        continue;
      }
      copy_node(result_.backward, *joint_.nodes[i], map);
      move_views(*joint_.nodes[i], map);
    }
  }

  /// A tangent is read and written to in one place; an input may be read elsewhere.
  void emit_write(const Node& write, ValueMap& map) {
    const Value* input = write.args()[0].value();
    Value*& place = map[input->id()];
    Value* const read_at = place;
    if (Value* target = writable(input)) place = target;
    copy_node(result_.backward, write, map);
    map[input->id()] = read_at;
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
  struct Choice {
    const Value* value;
    bool to_write;  ///< an input that the backward writes to: the tensor, whatever is in it
  };
  std::vector<Choice> saved_;
  /// Inputs of the joint graph and what they are in the backward graph, which writes to them.
  std::vector<std::pair<const Value*, Value*>> to_write_;
  PartitionedGraphs result_;
};

/// Whether a view has elements outside of what it was made of, which that lacks when it is computed
/// again.
bool reaches_beyond_computed(const Node& node) {
  if (!ops::is_view(node) || ops::root_of(node.args()[0].value())->producer() == nullptr)
    return false;
  const auto last = [](const TensorMeta& meta) {
    Dim place = meta.offset;
    for (size_t i = 0; i < meta.sizes.size(); ++i) place += (meta.sizes[i] - 1) * meta.strides[i];
    return place;
  };
  const TensorMeta &whole = node.args()[0].value()->meta, &part = node.result(0)->meta;
  const Dim before = whole.offset - part.offset, behind = last(part) - last(whole);
  return !before.is_fixed() || !behind.is_fixed() || before.fixed() > 0 || behind.fixed() > 0;
}

}  // namespace

JointFacts::JointFacts(const Graph& joint)
    : graph(joint),
      nodes(nodes_of(joint)),
      aliasing(joint),
      visible(find_visible(joint, aliasing)),
      roles(find_roles(joint, aliasing, visible)),
      overwritten(joint.value_capacity()),
      producer(joint.value_capacity(), -1) {
  refuse_size_reads(joint, "partition",
                    "One half cannot hand it to the other. Pass a tensor of that size.");
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
      roles[i].never_in_backward |= reaches_beyond_computed(*nodes[i]);
    }
    if (roles[i].in_backward) mark_written(*nodes[i]);
  }
  find_written_late();
}

void JointFacts::find_written_late() {
  found_in.resize(graph.value_capacity());
  for (const Node* node : nodes) {
    if (!ops::is_backward_write(*node)) continue;
    const Value* input = node->args()[0].value();
    if (graph.inputs()[input->index()].slot.kind == Slot::Kind::Tangent) continue;
    written_late.push_back(input);
    const auto position = static_cast<int32_t>(input->index());
    const int64_t output = graph.find_output({Slot::Kind::MutatedInput, position});
    const Value* contents = output < 0 ? input : graph.outputs()[static_cast<size_t>(output)].value;
    found_in[contents->id()] = input;
  }
  if (!written_late.empty()) keep_out_of_backward();
}

/// By the time of the backward other contents may be where the forward found its own. Eager's
/// custom functions read these, its operators must not.
void JointFacts::keep_out_of_backward() {
  std::vector<bool> is_found(graph.value_capacity());
  const auto mark = [&](const Value* value) {
    if (value != nullptr && found_in[value->id()] != nullptr)
      is_found[aliasing.group(value)] = true;
  };
  for (const Graph::Input& input : graph.inputs()) mark(input.value);
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const Value* result : nodes[i]->results()) {
      mark(result);
      if (result != nullptr && found_in[result->id()] != nullptr) roles[i].is_read_later = true;
    }
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i]->phase == Phase::Backward || ops::is_view(*nodes[i])) continue;
    nodes[i]->for_each_operand([&](const Value* operand) {
      if (is_found[aliasing.group(operand)]) roles[i].never_in_backward = true;
    });
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

void save_in_any_case(Node& node) {
  node.set_tags(node.tags() | saved_in_any_case);
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
