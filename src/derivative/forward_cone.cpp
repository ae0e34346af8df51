#include "derivative/forward_cone.h"

#include <algorithm>

#include "ahead/errors.h"
#include "ops/facts/facts.h"
#include "ops/facts/node_facts.h"

namespace ahead::compiling {
namespace {

bool stops_gradients(const Node& node) {
  static const Operator* const detach = Operator::find("aten.detach");
  if (node.phase == Phase::Forward && node.has(Tag::NoGrad)) return true;
  return &node.op() == detach ||
         (node.op().in_dispatcher() && ops::facts(node.op()).op_class == ops::OpClass::Factory);
}

/// Batch normalisation in training mode reads its running statistics only to update them. The
/// arguments that it has besides.
constexpr size_t without_statistics[] = {0, 1, 2, 5, 6, 7};

bool only_updates_statistics(const Node& node) {
  static const Operator* const batch_norm =
      Operator::find("aten._native_batch_norm_legit_functional");
  return &node.op() == batch_norm && node.args()[5].constant().toBool();
}

}  // namespace

size_t joint_output(const JointGraph& joint, int32_t forward_output) {
  int32_t count = -1;
  for (size_t i = 0; i < joint.outputs().size(); ++i) {
    if (joint.outputs()[i].slot.kind != Slot::Kind::GradOf && ++count == forward_output) return i;
  }
  throw InternalError("double backward", "a tangent belongs to no output.");
}

/// No gradient flows through what is copied over.
std::vector<bool> find_dependent(const Graph& joint) {
  static const Operator* const copy = Operator::find("aten.copy");
  std::vector<bool> depends(joint.value_capacity());
  for (const Graph::Output& output : joint.outputs()) {
    if (output.slot.kind == Slot::Kind::GradOf)
      depends[joint.inputs()[static_cast<size_t>(output.slot.index)].value->id()] = true;
  }
  for (const Node& node : joint.nodes()) {
    if (stops_gradients(node)) continue;
    bool is_dependent = false;
    if (&node.op() == copy) {
      is_dependent = node.args()[1].is_value() && depends[node.args()[1].value()->id()];
    } else {
      node.for_each_operand([&](Value* value) { is_dependent |= depends[value->id()]; });
    }
    for (const Value* result : node.results()) {
      if (result == nullptr) continue;
      const at::ScalarType dtype = result->meta.dtype;
      depends[result->id()] =
          is_dependent && (at::isFloatingType(dtype) || at::isComplexType(dtype));
    }
  }
  return depends;
}

bool changes_input(const runtime::Epilogue& epilogue, int32_t input) {
  const auto is_it = [&](const auto& change) { return change.input == input; };
  return std::any_of(epilogue.writes.begin(), epilogue.writes.end(), is_it) ||
         std::any_of(epilogue.resets.begin(), epilogue.resets.end(), is_it);
}

ForwardCone::ForwardCone(const JointGraph& joint, const PartitionedGraphs& graphs)
    : joint_(joint), saved_(joint.value_capacity(), -1), depends_(find_dependent(joint)) {
  for (size_t i = 0; i < graphs.saved.size(); ++i) {
    const int64_t value = graphs.saved[i].joint_value;
    if (value >= 0) saved_[static_cast<size_t>(value)] = static_cast<int32_t>(i);
  }
  int32_t next = 0;
  for (const Graph::Input& input : joint.inputs()) {
    forward_input_.push_back(input.slot.kind == Slot::Kind::Tangent ? -1 : next++);
  }
  collect(graphs);
}

bool ForwardCone::is_given(const Value* value) const {
  return saved_[value->id()] >= 0 && !depends_[value->id()];
}

std::vector<const Node*> ForwardCone::unsaved_random_nodes() const {
  std::vector<const Node*> nodes;
  for (const Node* node : unrepeatable_) {
    const bool depends =
        std::any_of(node->results().begin(), node->results().end(), [&](const Value* result) {
          return result != nullptr && depends_[result->id()];
        });
    if (ops::is_random(*node) && !ops::has_effect(*node) && !depends) nodes.push_back(node);
  }
  return nodes;
}

std::string ForwardCone::why_not(const runtime::Epilogue& epilogue) const {
  if (!unrepeatable_.empty())
    return unrepeatable_.front()->op().name() +
           ": this operator would have to run again, which gives something else";
  if (!undifferentiable_.empty())
    return undifferentiable_ + ": this result has a gradient in place only, as after eq_()";
  for (size_t i = 0; i < needs.size(); ++i) {
    if (needs[i].kind == Need::Kind::Input && changes_input(epilogue, needs[i].index))
      return graph.inputs()[i].value->meta.str() +
             ": the function writes to this tensor, or changes its shape, and would have to run "
             "again on what it was";
  }
  return "";
}

void ForwardCone::collect(const PartitionedGraphs& graphs) {
  std::vector<Value*> outputs;
  for (const Graph::Input& input : graphs.backward.inputs()) {
    if (input.slot.kind != Slot::Kind::Tangent) continue;
    outputs.push_back(joint_.outputs()[joint_output(joint_, input.slot.index)].value);
  }
  std::vector<bool> needed(joint_.value_capacity());
  for (const Value* output : outputs) needed[output->id()] = true;
  mark_needed(needed);
  copy_needed(needed);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!depends_[outputs[i]->id()]) undifferentiable_ = outputs[i]->meta.str();
    graph.add_output(copies_[outputs[i]->id()], {Slot::Kind::Output, static_cast<int32_t>(i)});
  }
}

void ForwardCone::mark_needed(std::vector<bool>& needed) {
  for (const Node* node = joint_.last(); node != nullptr; node = node->prev()) {
    const bool is_needed =
        std::any_of(node->results().begin(), node->results().end(), [&](const Value* result) {
          return result != nullptr && needed[result->id()] && !is_given(result);
        });
    if (!is_needed) continue;
    if (ops::is_ordered(*node)) unrepeatable_.push_back(node);
    needed_nodes_.push_back(node);
    if (is_without_statistics(*node, needed)) {
      for (size_t i : without_statistics) {
        if (node->args()[i].is_value()) needed[node->args()[i].value()->id()] = true;
      }
      continue;
    }
    node->for_each_operand([&](Value* value) { needed[value->id()] = true; });
  }
}

void ForwardCone::copy_needed(const std::vector<bool>& needed) {
  copies_.resize(joint_.value_capacity(), nullptr);
  for (const Graph::Input& input : joint_.inputs()) {
    if (!needed[input.value->id()]) continue;
    if (is_given(input.value)) {
      add_input(input.value, {Need::Kind::Saved, saved_[input.value->id()]});
    } else {
      add_input(input.value, {Need::Kind::Input, forward_input_[input.value->index()]});
    }
  }
  for (const Node& node : joint_.nodes()) {
    for (Value* result : node.results()) {
      if (result != nullptr && needed[result->id()] && is_given(result)) {
        add_input(result, {Need::Kind::Saved, saved_[result->id()]});
      }
    }
  }
  const ValueMap given = copies_;
  for (auto node = needed_nodes_.rbegin(); node != needed_nodes_.rend(); ++node) {
    is_without_statistics(**node, needed) ? copy_without_statistics(**node)
                                          : static_cast<void>(copy_node(graph, **node, copies_));
    for (const Value* result : (*node)->results()) {
      if (result != nullptr && given[result->id()] != nullptr)
        copies_[result->id()] = given[result->id()];
    }
  }
}

/// Whether nobody wants the new statistics that a node computes.
bool ForwardCone::is_without_statistics(const Node& node, const std::vector<bool>& needed) {
  return only_updates_statistics(node) && !needed[node.result(3)->id()] &&
         !needed[node.result(4)->id()];
}

void ForwardCone::copy_without_statistics(const Node& node) {
  static const Operator* const batch_norm =
      Operator::find("aten._native_batch_norm_legit.no_stats");
  std::vector<Argument> args;
  for (size_t i : without_statistics) args.push_back(map_argument(node.args()[i], copies_));
  Node* copy = graph.add_node(*batch_norm, std::move(args));
  copy->belong_to(node);
  copy->set_tags(node.tags());
  for (size_t i = 0; i < 3; ++i) {
    graph.add_return(copy, node.result(i)->meta);
    copies_[node.result(i)->id()] = copy->result(i);
  }
}

void ForwardCone::add_input(Value* value, Need need) {
  const auto index = static_cast<int32_t>(needs.size());
  copies_[value->id()] = graph.add_input({Slot::Kind::Primal, index}, value->meta);
  needs.push_back(need);
}

}  // namespace ahead::compiling
