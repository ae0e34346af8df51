#include "native/fuse/join_results.h"

#include <algorithm>
#include <unordered_set>

#include "native/lower/rule.h"

namespace ahead::native {
namespace {

const Value* output_of(const Node& call, const Value& result) {
  return call.args()[0].graph()->outputs()[result.index()].value;
}

/// Whether a kernel writes a result element by element, rather than as sums.
bool is_written_in_loops(const Value& value) {
  if (value.producer() == nullptr) return false;
  const auto work = work_of(*value.producer());
  return work && work->reduced(value.index()) == 0;
}

/// The call that makes all operands of a node, which nobody else reads; null if there is none.
Node* only_maker(const Node& node) {
  Node* maker = nullptr;
  bool fits = true;
  node.for_each_operand([&](const Value* value) {
    Node* const producer = value->producer();
    fits = fits && producer != nullptr && !producer->op().in_dispatcher() &&
           (maker == nullptr || maker == producer) && value->users().size() == 1 &&
           value->output_uses() == 0;
    maker = producer;
  });
  return fits ? maker : nullptr;
}

/// The same call with `join` inside, which takes some of its results and returns its own.
Node* with_joined(Graph& graph, Node& call, Node& join) {
  auto sub = std::make_shared<Graph>(*call.args()[0].graph());
  std::unordered_set<const Value*> taken;
  Argument::List list;
  for (const Argument& element : join.args()[0].list()) {
    taken.insert(element.value());
    list.emplace_back(sub->outputs()[element.value()->index()].value);
  }
  Node* const inside = sub->add_node(join.op(), {Argument(std::move(list)), join.args()[1]});
  inside->belong_to(join);
  Value* const joined = sub->add_return(inside, join.result()->meta);
  std::vector<Value*> outputs, results;
  for (Value* result : call.results()) {
    if (taken.count(result) != 0) continue;
    outputs.push_back(sub->outputs()[result->index()].value);
    results.push_back(result);
  }
  outputs.push_back(joined);
  results.push_back(join.result());
  while (!sub->outputs().empty()) sub->erase_output(sub->outputs().size() - 1);
  for (size_t i = 0; i < outputs.size(); ++i)
    sub->add_output(outputs[i], {Slot::Kind::Output, static_cast<int32_t>(i)});
  std::vector<Argument> args = call.args();
  args[0] = Argument(std::shared_ptr<const Graph>(std::move(sub)));
  Node* const other = graph.add_node(call.op(), std::move(args), &call);
  other->belong_to(call);
  other->set_tags(call.tags());
  for (Value* result : results)
    graph.replace_uses(result, graph.add_return(other, result->meta));
  graph.erase(&join);
  graph.erase(&call);
  return other;
}

}  // namespace

std::vector<JoinedPart> joined_parts(const Node& node) {
  static const Operator *const cat = Operator::find("aten.cat"),
                               *const stack = Operator::find("aten.stack");
  const bool is_stack = &node.op() == stack;
  if (!is_stack && &node.op() != cat) return {};
  const TensorMeta& whole = node.result()->meta;
  const std::vector<Argument>& args = node.args();
  const bool is_known = args[0].is_list() && args[1].is_constant() && args[1].constant().isInt();
  if (!is_known || !whole.is_fixed() || !whole.is_contiguous()) return {};
  int64_t dim = args[1].constant().toInt();
  if (dim < 0) dim += static_cast<int64_t>(whole.sizes.size());
  const auto at = static_cast<size_t>(dim);
  const Dim stride = whole.strides[at];
  std::vector<JoinedPart> parts;
  Dim begin = 0;
  for (const Argument& element : args[0].list()) {
    if (!element.is_value()) return {};
    JoinedPart part{parts.size(), element.value()->meta};
    const size_t rank = part.meta.sizes.size() + (is_stack ? 1 : 0);
    const bool fits = part.meta.dtype == whole.dtype && part.meta.device == whole.device &&
                      part.meta.is_fixed() && part.meta.is_contiguous() &&
                      rank == whole.sizes.size();
    if (!fits) return {};
    const Dims own = part.meta.strides;
    part.meta.strides = whole.strides;
    if (is_stack) part.meta.strides.erase(part.meta.strides.begin() + dim);
    for (size_t i = 0; i < own.size(); ++i) {
      const bool are_beside = own[i] == Dim(1), stay_beside = part.meta.strides[i] == Dim(1);
      if (part.meta.sizes[i] != Dim(1) && are_beside != stay_beside) return {};
    }
    part.meta.offset = begin * stride;
    begin = begin + (is_stack ? Dim(1) : part.meta.sizes[at]);
    parts.push_back(std::move(part));
  }
  return parts;
}

size_t join_results(Graph& graph, std::vector<Node*> calls) {
  std::unordered_set<const Node*> known(calls.begin(), calls.end());
  size_t joined = 0;
  for (Node* node = graph.first(); node != nullptr;) {
    Node* const next = node->next();
    const bool is_join = !joined_parts(*node).empty();
    Node* const call = is_join ? only_maker(*node) : nullptr;
    if (call != nullptr && known.count(call) != 0) {
      bool fits = true;
      std::unordered_set<const Value*> inner;
      node->for_each_operand([&](const Value* value) {
        const Value* const inside = output_of(*call, *value);
        fits = fits && is_written_in_loops(*inside) && inner.insert(inside).second;
      });
      if (fits) {
        known.insert(with_joined(graph, *call, *node));
        ++joined;
      }
    }
    node = next;
  }
  return joined;
}

}  // namespace ahead::native
