#include "plan/backward_plan.h"

#include <algorithm>

#include "ahead/errors.h"
#include "ir/layout_copy.h"
#include "ir/tensor_meta.h"
#include "ops/facts/node_facts.h"

namespace ahead::compiling {
namespace {

using ops::root_of;
using runtime::BackwardPlan;
using runtime::Epilogue;
using tracing::JointTrace;

int32_t position_of(size_t index) {
  return static_cast<int32_t>(index);
}

bool is_seen_by_caller(Slot slot) {
  return slot.kind == Slot::Kind::Output || slot.kind == Slot::Kind::IntermediateBase;
}

/// The first output whose memory a saved value may share; -1: none.
int32_t output_sharing(const Graph& forward, Value* saved) {
  for (size_t i = 0; i < forward.outputs().size(); ++i) {
    const Graph::Output& output = forward.outputs()[i];
    if (output.value == nullptr || !is_seen_by_caller(output.slot)) continue;
    if (root_of(output.value) == root_of(saved)) return position_of(i);
  }
  return -1;
}

bool is_written(const Graph::Input& input) {
  const auto& users = input.value->users();
  return std::any_of(users.begin(), users.end(), [&](const Node* user) {
    return ops::is_backward_write(*user) && user->args()[0].value() == input.value;
  });
}

/// How the node gets what the backward graph needs. Saved values that the caller has anyway are
/// removed from the forward graph's outputs.
std::vector<BackwardPlan::Saved> plan_saved(PartitionedGraphs& halves) {
  using Kind = BackwardPlan::Saved::Kind;
  Graph& forward = halves.forward;
  const size_t first_saved = forward.outputs().size() - halves.saved.size();
  for (size_t i = halves.saved.size(); i-- > 0;) {
    if (halves.saved[i].input >= 0 || halves.saved[i].output >= 0)
      forward.erase_output(first_saved + i);
  }
  std::vector<BackwardPlan::Saved> planned;
  size_t next = first_saved;
  for (const SavedValue& saved : halves.saved) {
    if (saved.input >= 0 && is_written(halves.backward.inputs()[planned.size()])) {
      planned.push_back({Kind::Writable, static_cast<int32_t>(saved.input)});
    } else if (saved.input >= 0) {
      planned.push_back({Kind::Input, static_cast<int32_t>(saved.input)});
    } else if (saved.output >= 0) {
      planned.push_back({Kind::Output, static_cast<int32_t>(saved.output)});
    } else {
      Value* value = forward.outputs()[next].value;
      planned.push_back({Kind::Intermediate, position_of(next), output_sharing(forward, value)});
      ++next;
    }
  }
  int32_t variables = 0, intermediates = 0, writable = 0;
  for (BackwardPlan::Saved& saved : planned) {
    int32_t& count = saved.kind == Kind::Intermediate ? intermediates
                     : saved.kind == Kind::Writable   ? writable
                                                      : variables;
    saved.place = count++;
  }
  return planned;
}

/// What the backward writes to, and what is known of it.
void plan_writes(BackwardPlan& plan, const JointTrace& trace) {
  std::vector<const tracing::InputFacts*> facts;  // by the input of the forward graph
  std::vector<bool> requires_grad;
  for (size_t i = 0; i < trace.graph.inputs().size(); ++i) {
    if (trace.graph.inputs()[i].slot.kind == Slot::Kind::Tangent) continue;
    facts.push_back(&trace.inputs[i]);
    requires_grad.push_back(trace.graph.inputs()[i].value->meta.requires_grad);
  }
  for (size_t i = 0; i < plan.saved.size(); ++i) {
    if (plan.saved[i].kind != BackwardPlan::Saved::Kind::Writable) continue;
    const auto input = static_cast<size_t>(plan.saved[i].index);
    const tracing::InputFacts::BackwardWrite write = facts[input]->backward_write.value();
    plan.writes.push_back(
        {position_of(i), write.version_bumps, write.is_checked, requires_grad[input]});
  }
  for (const JointTrace::TangentWrite& write : trace.tangent_writes)
    plan.tangent_writes.push_back({write.tangent, write.version_bumps});
}

/// Whether eager's backward has an edge to what gets no gradient, behind a node that writes or has
/// an effect: asked for that tensor, it runs the node.
bool is_behind_effect(const JointTrace& trace, size_t gradient) {
  return std::any_of(trace.gradients_behind.begin(), trace.gradients_behind.end(),
                     [&](const auto& node) { return node.second.at(gradient); });
}

/// Notes with which others an input belongs together, if not all outputs lead to it.
void add_if_partly_reached(BackwardPlan& plan, int32_t input, const std::vector<bool>& outputs) {
  const auto place = std::find(plan.grad_inputs.begin(), plan.grad_inputs.end(), input);
  const auto index = static_cast<size_t>(place - plan.grad_inputs.begin());
  if (place == plan.grad_inputs.end() || !plan.is_reached[index] ||
      std::find(outputs.begin(), outputs.end(), false) == outputs.end())
    return;
  const auto is_alike = [&](const BackwardPlan::PartlyReached& other) {
    return other.outputs == outputs;
  };
  auto alike = std::find_if(plan.partly_reached.begin(), plan.partly_reached.end(), is_alike);
  if (alike == plan.partly_reached.end()) alike = plan.partly_reached.insert(alike, {outputs, {}});
  alike->places.push_back(position_of(index));
}

void find_partly_reached(BackwardPlan& plan, const JointTrace& trace) {
  if (trace.tangents_leading_to.empty()) return;
  std::vector<int32_t> forward_input;
  int32_t next = 0;
  for (const Graph::Input& input : trace.graph.inputs())
    forward_input.push_back(input.slot.kind == Slot::Kind::Tangent ? -1 : next++);
  size_t gradient = 0;
  for (const Graph::Output& output : trace.graph.outputs()) {
    if (output.slot.kind != Slot::Kind::GradOf) continue;
    const int32_t input = forward_input[static_cast<size_t>(output.slot.index)];
    add_if_partly_reached(plan, input, trace.tangents_leading_to.at(gradient++));
  }
}

}  // namespace

void copy_raised_inputs(PartitionedGraphs& halves, const std::vector<Epilogue::Write>& writes) {
  Graph& forward = halves.forward;
  const size_t first_saved = forward.outputs().size() - halves.saved.size();
  for (size_t i = 0; i < halves.saved.size(); ++i) {
    SavedValue& saved = halves.saved[i];
    const auto is_raised = [&](const Epilogue::Write& write) { return write.input == saved.input; };
    if (saved.input < 0 || is_written(halves.backward.inputs()[i]) ||
        std::none_of(writes.begin(), writes.end(), is_raised))
      continue;
    Value* input = forward.inputs()[static_cast<size_t>(saved.input)].value;
    if (fill_of(input->meta) == Fill::Overlaps) {
      throw Unsupported(
          "compile", input->meta.str() +
                         ": the function changes the shape of this tensor in place, several "
                         "elements of which are the same memory. Use a view of the other shape.");
    }
    forward.set_output(first_saved + i, add_layout_copy(forward, input));
    saved.input = saved.output = -1;
    saved.copied = saved.owned = true;
    saved.reason = "copied: its shape is changed in place";
  }
}

void check_grown_unsaved(const PartitionedGraphs& halves,
                         const std::vector<Epilogue::Reset>& resets) {
  for (const SavedValue& saved : halves.saved) {
    const auto is_it = [&](const Epilogue::Reset& reset) {
      return reset.grows && reset.input == saved.input;
    };
    if (saved.input < 0 || std::none_of(resets.begin(), resets.end(), is_it)) continue;
    const Value* input = halves.forward.inputs()[static_cast<size_t>(saved.input)].value;
    throw Unsupported("compile", input->meta.str() +
                                     ": the function makes this tensor larger (resize_), and its "
                                     "backward reads it as it was. Clone it before.");
  }
}

BackwardPlan plan_backward(PartitionedGraphs& halves, const JointTrace& trace) {
  BackwardPlan plan;
  plan.saved = plan_saved(halves);
  if (trace.has_backward_writes()) plan_writes(plan, trace);
  for (const Graph::Input& input : halves.backward.inputs()) {
    if (input.slot.kind == Slot::Kind::Tangent) plan.differentiable.push_back(input.slot.index);
  }
  for (const Graph::Output& output : halves.backward.outputs()) {
    plan.grad_inputs.push_back(output.slot.index);
    plan.is_reached.push_back(output.value != nullptr ||
                              is_behind_effect(trace, plan.is_reached.size()));
  }
  plan.released_with = trace.tangents_sharing;
  plan.passed_by = trace.tangents_passing_through;
  find_partly_reached(plan, trace);
  for (const auto& [sequence, behind] : trace.gradients_behind)
    plan.led_to_by_acts.push_back(behind);
  return plan;
}

}  // namespace ahead::compiling
