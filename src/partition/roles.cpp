#include "partition/roles.h"

#include "ahead/errors.h"
#include "ops/facts/node_facts.h"

namespace ahead::partition {
namespace {

class RoleFinder {
 public:
  RoleFinder(const Graph& joint, const ops::Aliasing& aliasing, const std::vector<bool>& is_visible)
      : joint_(joint), aliasing_(aliasing), is_visible_(is_visible) {
    for (Node& node : joint.nodes()) nodes_.push_back(&node);
    roles_.resize(nodes_.size());
    for (const Node* node : nodes_) ordered_.push_back(ops::is_ordered(*node));
  }

  std::vector<Role> run() {
    find_forward();
    find_backward();
    find_what_serves_backward();
    keep_what_is_read_later();
    return std::move(roles_);
  }

 private:
  using Marks = std::vector<bool>;  // by Value::id()

  static bool any_result(const Node& node, const Marks& marks) {
    for (const Value* result : node.results()) {
      if (result != nullptr && marks[result->id()]) return true;
    }
    return false;
  }

  Marks marks_of_outputs(bool forward) const {
    Marks marks(joint_.value_capacity());
    for (const Graph::Output& output : joint_.outputs()) {
      if (output.value != nullptr && is_forward_output(output) == forward)
        marks[output.value->id()] = true;
    }
    return marks;
  }

  void find_forward() {
    Marks needed = marks_of_outputs(/*forward=*/true);
    bool later_one_is_in_forward = false;
    for (size_t i = nodes_.size(); i-- > 0;) {
      const Node& node = *nodes_[i];
      Role& role = roles_[i];
      role.in_forward = any_result(node, needed) || node.has(Tag::MustBeInForward);
      if (ordered_[i]) {
        role.in_forward |= later_one_is_in_forward ||
                           (node.phase == Phase::Forward && !node.has(Tag::MustBeInBackward));
        later_one_is_in_forward |= role.in_forward;
      }
      if (!role.in_forward) continue;
      node.for_each_operand([&](const Value* value) { needed[value->id()] = true; });
    }
  }

  /// Whether the node is of the backward phase and reads memory that the caller may write to
  /// between forward and backward.
  bool reads_later(const Node& node) const {
    bool reads = false;
    node.for_each_operand(
        [&](const Value* value) { reads |= is_visible_[aliasing_.group(value)]; });
    return reads && node.phase == Phase::Backward;
  }

  void find_backward() {
    Marks late(joint_.value_capacity());
    for (const Graph::Input& input : joint_.inputs()) {
      if (input.slot.kind == Slot::Kind::Tangent) late[input.value->id()] = true;
    }
    refuse_late_forward_outputs(late);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const Node& node = *nodes_[i];
      Role& role = roles_[i];
      bool takes_late = false;
      node.for_each_operand([&](const Value* value) { takes_late |= late[value->id()]; });
      role.in_backward = takes_late || node.has(Tag::MustBeInBackward) ||
                         (!role.in_forward && (ordered_[i] || reads_later(node)));
      if (!role.in_backward) continue;
      if (role.in_forward) refuse(node);
      for (const Value* result : node.results()) {
        if (result != nullptr) late[result->id()] = true;
      }
    }
  }

  void refuse_late_forward_outputs(const Marks& late) const {
    for (const Graph::Output& output : joint_.outputs()) {
      if (output.value == nullptr || !is_forward_output(output) || !late[output.value->id()])
        continue;
      throw Unsupported("partition", output.slot.str() +
                                         ": this output is a tangent, so the forward cannot "
                                         "return it. Return a clone of it from the backward.");
    }
  }

  [[noreturn]] static void refuse(const Node& node) {
    throw Unsupported(
        "partition",
        node.op().name() +
            ": the forward needs this node, but it depends on a tangent or is tagged "
            "must_be_in_backward. A result, a mutated input or a `.grad` cannot come from the "
            "backward.");
  }

  void find_what_serves_backward() {
    Marks needed = marks_of_outputs(/*forward=*/false);
    for (size_t i = nodes_.size(); i-- > 0;) {
      const Node& node = *nodes_[i];
      Role& role = roles_[i];
      role.serves_backward = any_result(node, needed) ||
                             (role.in_backward && (ordered_[i] || node.has(Tag::MustBeInBackward)));
      if (!role.serves_backward) continue;
      node.for_each_operand([&](const Value* value) { needed[value->id()] = true; });
    }
  }

  /// Marks nodes whose results the caller gets and the backward reads: it must read the caller's
  /// tensors, with the values that they hold by then.
  void keep_what_is_read_later() {
    std::vector<bool> is_kept(joint_.value_capacity());
    for (const Node* node : nodes_) {
      if (!reads_later(*node)) continue;
      node->for_each_operand(
          [&](const Value* value) { is_kept[value->id()] = is_visible_[aliasing_.group(value)]; });
    }
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i]->phase == Phase::Forward && !ops::is_view(*nodes_[i]))
        roles_[i].is_read_later = any_result(*nodes_[i], is_kept);
    }
  }

  const Graph& joint_;
  const ops::Aliasing& aliasing_;
  const std::vector<bool>& is_visible_;
  std::vector<const Node*> nodes_;
  std::vector<bool> ordered_;
  std::vector<Role> roles_;
};

}  // namespace

std::vector<bool> find_visible(const Graph& joint, const ops::Aliasing& aliasing) {
  std::vector<bool> is_visible(joint.value_capacity());
  for (const Graph::Input& input : joint.inputs()) is_visible[aliasing.group(input.value)] = true;
  for (const Graph::Output& output : joint.outputs()) {
    if (output.value != nullptr && is_forward_output(output))
      is_visible[aliasing.group(output.value)] = true;
  }
  return is_visible;
}

std::vector<Role> find_roles(const Graph& joint, const ops::Aliasing& aliasing,
                             const std::vector<bool>& is_visible) {
  return RoleFinder(joint, aliasing, is_visible).run();
}

}  // namespace ahead::partition
