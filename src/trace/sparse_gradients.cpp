#include "trace/sparse_gradients.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "ahead/errors.h"
#include "ops/facts/sparse_values.h"

namespace ahead::tracing {
namespace {

/// Whether a gradient along this edge is that of a tensor from outside, and no hook sees it.
bool leads_outside(const Tracer& tracer, const torch::autograd::Edge& edge) {
  const auto& lifted = tracer.outside().lifted();
  const bool is_known = std::any_of(lifted.begin(), lifted.end(), [&](const Lifted& one) {
    return one.link != GradLink::None && one.node == edge.function;
  });
  return is_known && edge.function->tensor_pre_hooks().empty() &&
         edge.function->pre_hooks().empty();
}

bool is_embedding(const torch::autograd::Node& node) {
  const std::string name = node.name();
  return name == "EmbeddingBackward0" || name == "EmbeddingBagBackward0";
}

bool makes_gradient(const Tracer& tracer) {
  if (CheckedGraph::is_active()) return true;
  if (tracer.writer().phase() != Phase::Backward || at::GradMode::is_enabled()) return false;
  const NodePtr from = tracer.writer().issuer();
  return from != nullptr && is_embedding(*from) && leads_outside(tracer, from->next_edge(0));
}

bool is_sum(const Node& node) {
  static const Operator* const add = Operator::find("aten.add.Tensor");
  if (&node.op() != add || !node.args()[0].is_value() || !node.args()[1].is_value()) return false;
  const Argument& factor = node.args()[2];
  return factor.is_constant() && factor.constant().isScalar() &&
         factor.constant().toScalar().equal(1);
}

}  // namespace

thread_local bool CheckedGraph::is_active_ = false;

void check_makes_gradient(const Tracer& tracer, const Operator& op) {
  if (makes_gradient(tracer)) return;
  throw Unsupported("trace", op.name() +
                                 ": it makes a sparse tensor, and values of graphs are dense. Only "
                                 "the gradient that an embedding gives a tensor from outside "
                                 "itself may be sparse; elsewhere use sparse = false.");
}

void check_sparse_gradients(const Graph& graph) {
  const ops::SparseValues sparse(graph);
  if (!sparse.is_any()) return;
  for (const Node& node : graph.nodes()) {
    bool reads_sparse = false;
    node.for_each_operand([&](const Value* value) { reads_sparse |= sparse.contains(value); });
    if (reads_sparse && !is_sum(node)) {
      throw Unsupported("trace", node.op().name() +
                                     ": it reads a sparse gradient, and values of graphs are "
                                     "dense. Such a gradient may only be added to others.");
    }
    for (const Value* result : node.results()) {
      if (result == nullptr || !sparse.contains(result)) continue;
      if (result->users().size() + result->output_uses() <= 1) continue;
      throw Unsupported("trace", node.op().name() +
                                     ": it makes a sparse gradient of several tensors.");
    }
  }
  for (const Graph::Output& output : graph.outputs()) {
    const bool is_gradient = output.slot.kind == Slot::Kind::GradOf;
    if (is_gradient || output.value == nullptr || !sparse.contains(output.value)) continue;
    throw Unsupported("trace", output.slot.str() + ": it is sparse, and is no gradient.");
  }
}

}  // namespace ahead::tracing
