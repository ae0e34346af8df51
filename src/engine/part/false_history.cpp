#include "engine/part/false_history.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "ops/facts/facts.h"

namespace ahead::engine {
namespace {

bool is_differentiable(const Value& value) {
  return at::isFloatingType(value.meta.dtype) || at::isComplexType(value.meta.dtype);
}

/// Whether the results have a history where the operands do.
bool passes_history_on(const ahead::Node& node) {
  static const Operator* const detach = Operator::find("aten.detach");
  if (node.has(Tag::NoGrad) || &node.op() == detach) return false;
  return !node.op().in_dispatcher() || ops::facts(node.op()).op_class != ops::OpClass::Factory;
}

/// Writes to views become these, here of something with a history. LibTorch's derivative of
/// as_strided_scatter by its first argument has the places that were written, and not the others,
/// and that by the second lies otherwise than after a write. The others refuse complex numbers.
bool is_false(const ahead::Node& node) {
  static const Operator* const as_strided = Operator::find("aten.as_strided_scatter");
  static const Operator* const others[] = {Operator::find("aten.slice_scatter"),
                                           Operator::find("aten.select_scatter"),
                                           Operator::find("aten.diagonal_scatter")};
  if (&node.op() == as_strided) return true;
  const bool is_other =
      std::find(std::begin(others), std::end(others), &node.op()) != std::end(others);
  return is_other && at::isComplexType(node.result()->meta.dtype);
}

}  // namespace

const ahead::Node* find_false_history(const Graph& graph) {
  std::vector<bool> has_history(graph.value_capacity());
  for (const Graph::Input& input : graph.inputs())
    has_history[input.value->id()] = input.value->meta.requires_grad;
  for (const ahead::Node& node : graph.nodes()) {
    bool has_any = false;
    node.for_each_operand([&](const Value* value) { has_any |= has_history[value->id()]; });
    if (!has_any || !passes_history_on(node)) continue;
    if (is_false(node)) return &node;
    for (const Value* result : node.results()) {
      if (result != nullptr) has_history[result->id()] = is_differentiable(*result);
    }
  }
  return nullptr;
}

}  // namespace ahead::engine
