#include "derivative/derivative_graph.h"

#include <algorithm>

#include "ahead/errors.h"
#include "derivative/forward_cone.h"
#include "ops/facts/aliasing.h"
#include "ops/facts/node_facts.h"

namespace ahead::compiling {
namespace {

using tracing::DifferentiableTrace;

class Cutter {
 public:
  Cutter(const DifferentiableTrace& trace, const DifferentiableTrace::Derivative& derivative,
         const GivenValues& given)
      : trace_(trace), derivative_(derivative), given_(given) {
    needed_.resize(trace.graph().value_capacity());
    copies_.resize(trace.graph().value_capacity(), nullptr);
  }

  DerivativeGraph run() {
    for (const Value* gradient : derivative_.gradients) {
      if (gradient != nullptr) needed_[gradient->id()] = true;
    }
    mark_needed();
    add_inputs();
    copy_nodes();
    for (size_t i = 0; i < derivative_.gradients.size(); ++i) {
      const Value* gradient = derivative_.gradients[i];
      if (gradient == nullptr) continue;
      const auto position = static_cast<int32_t>(result_.gradients.size());
      result_.graph.add_output(copies_[gradient->id()], {Slot::Kind::Output, position});
      result_.gradients.push_back(i);
    }
    return std::move(result_);
  }

 private:
  bool is_needed(const Value* value) const { return value != nullptr && needed_[value->id()]; }

  bool is_computed(const Node& node) const {
    return std::any_of(node.results().begin(), node.results().end(), [&](const Value* result) {
      return is_needed(result) && given_.count(result) == 0;
    });
  }

  void mark_needed() {
    bool is_new = true;
    for (const Node* node = trace_.graph().last(); node != nullptr; node = node->prev()) {
      is_new &= node != derivative_.before;
      const bool is_ordered = ops::is_ordered(*node);
      if (!is_computed(*node) && !(is_new && is_ordered)) continue;
      if (is_ordered && !is_new) {
        throw Unsupported("double backward",
                          node->op().name() +
                              ": the derivative would have to run this operator again, which gives "
                              "something else. Use Partitioner::Default, or take the gradient "
                              "inside the compiled function.");
      }
      nodes_.push_back(node);
      node->for_each_operand([&](const Value* value) { needed_[value->id()] = true; });
    }
  }

  void add_inputs() {
    for (const Graph::Input& input : trace_.graph().inputs()) {
      if (is_needed(input.value)) add_input(input.value);
    }
    for (const Node& node : trace_.graph().nodes()) {
      for (const Value* result : node.results()) {
        if (is_needed(result) && given_.count(result) != 0) add_input(result);
      }
    }
  }

  void add_input(const Value* value) {
    const auto known = given_.find(value);
    DerivativeGraph::Source source{0, {}};
    if (known != given_.end()) {
      source.given = known->second;
    } else {
      source.outside = trace_.find_outside(*value);
      if (!source.outside.defined()) {
        throw Unsupported("double backward",
                          value->meta.str() +
                              ": the derivative needs this input, which was not kept. Take the "
                              "gradient inside the compiled function.");
      }
    }
    TensorMeta meta = value->meta;
    meta.requires_grad = false;
    const auto position = static_cast<int32_t>(result_.sources.size());
    copies_[value->id()] = result_.graph.add_input({Slot::Kind::Primal, position}, std::move(meta));
    result_.sources.push_back(std::move(source));
  }

  void copy_nodes() {
    const ValueMap inputs = copies_;
    for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
      copy_node(result_.graph, **node, copies_)->phase = Phase::Forward;
      for (const Value* result : (*node)->results()) {
        if (result != nullptr && inputs[result->id()] != nullptr)
          copies_[result->id()] = inputs[result->id()];
      }
    }
  }

  const DifferentiableTrace& trace_;
  const DifferentiableTrace::Derivative& derivative_;
  const GivenValues& given_;
  std::vector<bool> needed_;
  std::vector<const Node*> nodes_;
  ValueMap copies_;
  DerivativeGraph result_;
};

/// What a derivative would have to compute again, seen from the gradients.
class Losses {
 public:
  Losses(const JointGraph& joint, const std::vector<SavedValue>& saved)
      : joint_(joint),
        is_saved_(joint.value_capacity()),
        needed_(joint.value_capacity()),
        computed_from_(joint.value_capacity()) {
    for (const SavedValue& one : saved) {
      if (one.joint_value >= 0) is_saved_[static_cast<size_t>(one.joint_value)] = true;
    }
  }

  std::string find(const runtime::Epilogue& epilogue, bool differentiates) {
    for (const Graph::Output& output : joint_.outputs()) {
      const bool is_gradient = output.slot.kind == Slot::Kind::GradOf && output.value != nullptr;
      if (is_gradient) needed_[output.value->id()] = true;
    }
    for (const Node* node = joint_.last(); node != nullptr; node = node->prev()) {
      if (!is_needed(*node)) continue;
      if (node->phase == Phase::Forward && ops::is_ordered(*node)) return node->op().name();
      mark_operands(*node);
    }
    return find_changed_input(epilogue, differentiates);
  }

 private:
  /// What was saved of the backward's own does not tell what it was computed from.
  bool is_needed(const Node& node) const {
    return std::any_of(node.results().begin(), node.results().end(), [&](const Value* result) {
      return result != nullptr && needed_[result->id()] &&
             !(node.phase == Phase::Forward && is_saved_[result->id()]);
    });
  }

  void mark_operands(const Node& node) {
    bool computes = node.phase == Phase::Forward && !ops::is_view(node);
    for (const Value* result : node.results()) {
      const bool is_again = node.phase == Phase::Forward && result != nullptr;
      computes |= is_again && computed_from_[result->id()];
    }
    node.for_each_operand([&](const Value* value) {
      needed_[value->id()] = true;
      if (computes) computed_from_[value->id()] = true;
    });
  }

  /// Eager complains about what a training step inside the function has overwritten without
  /// autograd's knowledge; of what was overwritten with it eager has saved a copy.
  static bool is_changed(const runtime::Epilogue& epilogue, bool differentiates, int32_t input) {
    if (!differentiates) return changes_input(epilogue, input);
    return std::any_of(epilogue.writes.begin(), epilogue.writes.end(),
                       [&](const runtime::Epilogue::Write& write) {
                         return write.input == input && write.seen_by_autograd;
                       });
  }

  /// An input that the backward itself takes is one that eager has saved, and complains about.
  std::string find_changed_input(const runtime::Epilogue& epilogue, bool differentiates) const {
    int32_t position = 0;
    for (const Graph::Input& input : joint_.inputs()) {
      if (input.slot.kind == Slot::Kind::Tangent) continue;
      const uint32_t id = input.value->id();
      if (computed_from_[id] && !is_saved_[id] && is_changed(epilogue, differentiates, position))
        return input.value->meta.str();
      ++position;
    }
    return "";
  }

  const JointGraph& joint_;
  std::vector<bool> is_saved_, needed_;
  std::vector<bool> computed_from_;  ///< by an operator of the forward that is no view
};

}  // namespace

std::string find_lost(const JointGraph& joint, const std::vector<SavedValue>& saved,
                      const runtime::Epilogue& epilogue, bool differentiates) {
  return Losses(joint, saved).find(epilogue, differentiates);
}

DerivativeGraph cut_derivative(const DifferentiableTrace& trace,
                               const DifferentiableTrace::Derivative& derivative,
                               const GivenValues& given) {
  return Cutter(trace, derivative, given).run();
}

}  // namespace ahead::compiling
