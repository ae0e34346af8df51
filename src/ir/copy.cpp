#include "ir/copy.h"

#include "ahead/errors.h"

namespace ahead {
namespace {

std::optional<TensorMeta> meta_of(const Value* value) {
  return value == nullptr ? std::nullopt : std::make_optional(value->meta);
}

void copy_results(Graph& to, Node* copy, const Node& node) {
  size_t next = 0;
  for (int32_t length : node.return_lengths()) {
    if (length < 0) {
      to.add_return(copy, meta_of(node.result(next++)));
      continue;
    }
    std::vector<std::optional<TensorMeta>> metas;
    for (int32_t i = 0; i < length; ++i) metas.push_back(meta_of(node.result(next++)));
    to.add_return_list(copy, std::move(metas));
  }
}

}  // namespace

Argument map_argument(const Argument& argument, const ValueMap& map) {
  if (argument.is_value()) return Argument(map[argument.value()->id()]);
  if (!argument.is_list()) return argument;
  Argument::List list;
  list.reserve(argument.list().size());
  for (const Argument& element : argument.list()) list.push_back(map_argument(element, map));
  return Argument(std::move(list));
}

Node* copy_node(Graph& to, const Node& node, ValueMap& map, Node* before) {
  std::vector<Argument> args;
  args.reserve(node.args().size());
  for (const Argument& arg : node.args()) args.push_back(map_argument(arg, map));
  Node* copy = to.add_node(node.op(), std::move(args), before);
  copy->belong_to(node);
  copy->set_tags(node.tags());
  copy_results(to, copy, node);
  for (size_t i = 0; i < node.results().size(); ++i) {
    if (node.result(i) != nullptr) map[node.result(i)->id()] = copy->result(i);
  }
  return copy;
}

std::vector<Value*> inline_graph(Graph& to, const Graph& graph, const std::vector<Value*>& operands,
                                 Node* before) {
  if (operands.size() != graph.inputs().size()) {
    throw InternalError("ir", std::to_string(operands.size()) +
                                  " operands: the graph to inline takes " +
                                  std::to_string(graph.inputs().size()) + ".");
  }
  ValueMap map(graph.value_capacity(), nullptr);
  for (size_t i = 0; i < operands.size(); ++i) map[graph.inputs()[i].value->id()] = operands[i];
  for (const Node& node : graph.nodes()) copy_node(to, node, map, before);
  std::vector<Value*> results;
  results.reserve(graph.outputs().size());
  for (const Graph::Output& output : graph.outputs()) {
    results.push_back(output.value == nullptr ? nullptr : map[output.value->id()]);
  }
  return results;
}

}  // namespace ahead
