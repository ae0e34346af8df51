#include "trace/inlined_graph.h"

#include <algorithm>
#include <unordered_map>

#include "ahead/errors.h"
#include "ir/copy.h"
#include "ir/layout_copy.h"
#include "ir/sizes/expression_node.h"
#include "ir/sizes/graph_numbers.h"
#include "ir/sizes/layout.h"
#include "ops/facts/node_facts.h"
#include "trace/tensor/functional.h"
#include "trace/tracer.h"

namespace ahead::tracing {
namespace {

/// Not by way of a Dim: the bits of a floating-point number may stand among the sizes.
SizeExpression expression_of(const c10::SymInt& size) {
  if (const auto known = size.maybe_as_int()) return *known;
  const SizeNode* node = SizeNode::in(size);
  TORCH_CHECK(node != nullptr, "a symbolic size of somebody else");
  return node->expression();
}

bool is_equal(Dim a, Dim b) {
  if (a == b || (a.is_fixed() && b.is_fixed())) return a == b;
  SizeGuards& guards = *Tracer::current()->outside().guards();
  return guards.decide(SizeGuards::Relation::Equal, a.expression(), b.expression());
}

void check_plain(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    if (!node.has(Tag::Random) && !node.has(Tag::Effect) && !ops::is_backward_write(node)) continue;
    throw Unsupported("trace", node.op().name() +
                                   ": it draws random numbers or has an effect, and stands in a "
                                   "graph that is written into another one for changing sizes.");
  }
}

/// The tensors as the graph expects them.
std::vector<Value*> find_operands(const Graph& graph, const std::vector<at::Tensor>& tensors,
                                  Graph& to) {
  std::vector<Value*> operands;
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const Value& input = *graph.inputs()[i].value;
    Value* operand = input.is_used() ? value_of(tensors[i]) : nullptr;
    if (operand != nullptr && !lies_as(tensors[i], input.meta))
      operand = add_copy_into(to, operand, input.meta);
    operands.push_back(operand);
  }
  return operands;
}

}  // namespace

Graph over_traced_sizes(const Graph& graph, c10::ArrayRef<c10::SymInt> sizes) {
  std::vector<SizeExpression> expressions;
  for (const c10::SymInt& size : sizes) expressions.push_back(expression_of(size));
  return over_sizes(graph, expressions);
}

bool lies_as(const at::Tensor& traced, const TensorMeta& expected) {
  at::functionalization::impl::sync(traced);
  const Layout now = Layout::of(functional_wrapper(traced).value());
  const bool has_same_sizes =
      std::equal(now.sizes.begin(), now.sizes.end(), expected.sizes.begin(), expected.sizes.end(),
                 [](Dim a, Dim b) { return is_equal(a, b); });
  TORCH_CHECK(has_same_sizes, TensorMeta::of(traced).str(), ": ", expected.str(), " is expected");
  for (size_t i = 0; i < now.strides.size(); ++i) {
    if (expected.sizes[i] != 1 && !is_equal(now.strides[i], expected.strides[i])) return false;
  }
  return true;
}

std::vector<at::Tensor> inline_traced(const Graph& graph, const std::vector<at::Tensor>& tensors) {
  check_plain(graph);
  GraphWriter& writer = Tracer::current()->writer();
  Graph& to = writer.graph();
  Node* const before = to.last();
  const std::vector<Value*> operands = find_operands(graph, tensors, to);
  const std::vector<Value*> outputs = inline_graph(to, graph, operands);
  for (Node* node = before == nullptr ? to.first() : before->next(); node != nullptr;
       node = node->next())
    node->phase = writer.phase();
  std::unordered_map<const Value*, at::Tensor> known{{nullptr, at::Tensor()}};
  for (size_t i = 0; i < operands.size(); ++i) known.emplace(operands[i], tensors[i]);
  std::vector<at::Tensor> results;
  for (Value* output : outputs) {
    at::Tensor& result = known[output];
    if (output != nullptr && !result.defined()) result = writer.stand_for(output);
    results.push_back(result);
  }
  return results;
}

}  // namespace ahead::tracing
