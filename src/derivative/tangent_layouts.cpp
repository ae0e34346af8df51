#include "derivative/tangent_layouts.h"

#include "ahead/errors.h"
#include "ahead/interpret.h"
#include "ir/layout_copy.h"
#include "ops/facts/node_facts.h"
#include "trace/retrace.h"

namespace ahead::compiling {
namespace {

/// Rewrites a backward graph so that it can be called with tangents of any layout.
class LayoutFreedom {
 public:
  explicit LayoutFreedom(const Graph& backward)
      : graph_(backward), depends_(graph_.value_capacity()) {
    for (const Graph::Input& input : graph_.inputs()) {
      depends_[input.value->id()] = input.slot.kind == Slot::Kind::Tangent;
    }
  }

  Graph run() {
    for (Node& node : graph_.nodes()) {
      bool depends = false;
      node.for_each_operand([&](Value* value) { depends |= depends_[value->id()]; });
      if (!depends) continue;
      for (const Value* result : node.results()) {
        if (result != nullptr) depends_[result->id()] = true;
      }
      visit(node);
    }
    return std::move(graph_);
  }

 private:
  void visit(Node& node) {
    static const Operator* const view = Operator::find("aten.view");
    static const Operator* const reshape_alias = Operator::find("aten._reshape_alias");
    if (&node.op() == view || &node.op() == reshape_alias) {
      reshape_instead(node);
    } else if (ops::reads_by_layout(node)) {
      keep_layout(node);
    }
  }

  /// Where a view was possible eager may have called reshape, which copies where it is not.
  void reshape_instead(Node& node) {
    static const Operator* const reshape = Operator::find("aten.reshape");
    Node* call = graph_.add_node(*reshape, {node.args()[0], node.args()[1]}, &node);
    Value* result = graph_.add_return(call, node.result()->meta);
    mark(result);
    graph_.replace_uses(node.result(), result);
  }

  void keep_layout(Node& node) {
    Value* gradient = node.args()[0].value();
    graph_.set_argument(&node, 0, add_copy_into(graph_, gradient, gradient->meta, &node));
  }

  void mark(const Value* value) {
    depends_.resize(graph_.value_capacity());
    depends_[value->id()] = true;
  }

  Graph graph_;
  std::vector<bool> depends_;
};

std::vector<TensorMeta> input_metas(const Graph& backward,
                                    const std::vector<TensorMeta>& tangents) {
  std::vector<TensorMeta> metas;
  size_t next = 0;
  for (const Graph::Input& input : backward.inputs()) {
    const bool is_tangent = input.slot.kind == Slot::Kind::Tangent;
    metas.push_back(is_tangent ? tangents[next++] : input.value->meta);
  }
  return metas;
}

/// Lets a graph return what it would write to inputs, after its outputs, and says to which inputs.
std::vector<size_t> return_writes(Graph& backward) {
  std::vector<size_t> inputs;
  for (Node& node : backward.nodes()) {
    if (!ops::is_backward_write(node)) continue;
    for (const Value* written : node.results()) {
      if (written != nullptr && written->is_used())
        throw Unsupported("backward", "a gradient is computed from what the backward writes.");
    }
    inputs.push_back(node.args()[0].value()->index());
    backward.add_output(node.args()[1].value(),
                        {Slot::Kind::Output, static_cast<int32_t>(inputs.size())});
    backward.erase(&node);
  }
  return inputs;
}

}  // namespace

Graph for_any_tangent_layout(const Graph& backward) {
  return LayoutFreedom(backward).run();
}

Graph with_tangent_layouts(const Graph& backward, const std::vector<TensorMeta>& tangents) {
  if (tracing::Tracer::current() != nullptr)
    throw Unsupported("compile", "a backward cannot be traced inside a traced function.");
  Graph without_writes(backward);
  const std::vector<size_t> written = return_writes(without_writes);
  const Interpreter interpreter(for_any_tangent_layout(without_writes));
  const auto replay = [&](const std::vector<at::Tensor>& arguments) {
    std::vector<at::Tensor> results = interpreter.replay(std::vector<at::Tensor>(arguments));
    for (size_t i = written.size(); i-- > 0; results.pop_back())
      arguments[written[i]].copy_(results.back());
    return results;
  };
  return tracing::retrace(backward, replay, input_metas(backward, tangents));
}

}  // namespace ahead::compiling
