#include "export/find_number.h"

#include "ahead/errors.h"
#include "ahead/interpret.h"
#include "ir/copy.h"
#include "ir/sizes/size_reads.h"
#include "ops/facts/node_facts.h"
#include "tensors/below_tracing.h"

namespace ahead::exporting {
namespace {

/// The nodes of a graph, in reverse order, that a value is made of. Sizes that were read before it
/// may be among that.
std::vector<const Node*> find_needed(const Graph& graph, const Value& number) {
  std::vector<bool> is_needed(graph.value_capacity());
  is_needed[number.id()] = true;
  std::vector<const Node*> nodes;
  for (const Node* node = graph.last(); node != nullptr; node = node->prev()) {
    bool is_part = reads_size(*node);
    for (const Value* result : node->results())
      is_part |= result != nullptr && is_needed[result->id()];
    if (!is_part) continue;
    if (!reads_size(*node) && ops::is_ordered(*node)) {
      throw DataDependent("export",
                          "aten._local_scalar_dense: the number is made by " + node->op().name() +
                              ", which is random or has an effect, so that it cannot be known "
                              "while the module is exported. Read a size that follows from the "
                              "arguments, parameters and buffers.");
    }
    nodes.push_back(node);
    node->for_each_operand([&](const Value* value) { is_needed[value->id()] = true; });
  }
  return nodes;
}

}  // namespace

int64_t find_number(const tracing::OpenTrace& trace, const Value& number) {
  const Graph& graph = trace.graph();
  Graph needed;
  ValueMap map(graph.value_capacity(), nullptr);
  std::vector<at::Tensor> arguments;
  for (const Graph::Input& input : graph.inputs()) {
    map[input.value->id()] = needed.add_input(input.slot, input.value->meta);
    arguments.push_back(trace.outside().find_real(*input.value));
  }
  const std::vector<const Node*> nodes = find_needed(graph, number);
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) copy_node(needed, **node, map);
  needed.add_output(map[number.id()], {Slot::Kind::Output, 0});
  const tracing::BelowTracing below;
  return interpret(needed, std::move(arguments)).at(0).item<int64_t>();
}

}  // namespace ahead::exporting
