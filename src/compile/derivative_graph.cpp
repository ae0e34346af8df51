#include "compile/derivative_graph.h"

#include <algorithm>

#include "ahead/errors.h"
#include "ops/node_facts.h"

namespace ahead::compiling {
namespace {

using tracing::KeptTrace;

class Cutter {
 public:
  Cutter(const KeptTrace& trace, const KeptTrace::Derivative& derivative, const GivenValues& given)
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

  const KeptTrace& trace_;
  const KeptTrace::Derivative& derivative_;
  const GivenValues& given_;
  std::vector<bool> needed_;
  std::vector<const Node*> nodes_;
  ValueMap copies_;
  DerivativeGraph result_;
};

}  // namespace

DerivativeGraph cut_derivative(const KeptTrace& trace, const KeptTrace::Derivative& derivative,
                               const GivenValues& given) {
  return Cutter(trace, derivative, given).run();
}

}  // namespace ahead::compiling
