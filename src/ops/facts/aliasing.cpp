#include "ops/facts/aliasing.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "ir/sizes/sized_constants.h"
#include "ops/facts/facts.h"

namespace ahead::ops {

bool is_view(const Node& node) {
  const OpFacts& known = facts(node.op());
  if (known.op_class != OpClass::View || known.effectful || !node.args().at(0).is_value())
    return false;
  return known.view != ViewKind::None;
}

bool is_layout_view(const Node& node) {
  static const auto* operators = [] {
    auto* set = new std::unordered_set<const Operator*>;
    for (const char* name :
         {"aten.t", "aten.transpose.int", "aten.permute", "aten.view", "aten._unsafe_view",
          "aten.expand", "aten.squeeze", "aten.squeeze.dim", "aten.squeeze.dims", "aten.unsqueeze",
          "aten.select.int", "aten.slice.Tensor", "aten.diagonal", "aten.unfold", "aten.detach",
          "aten.alias", "aten._reshape_alias"}) {
      set->insert(Operator::find(name));
    }
    return set;
  }();
  if (operators->count(&node.op()) == 0 || !node.args()[0].is_value() ||
      node.results()[0] == nullptr)
    return false;
  // A description without symbols tells nothing of what follows from sizes.
  const bool tells_all = !node.result()->meta.is_fixed();
  return std::none_of(node.args().begin() + 1, node.args().end(), [&](const Argument& arg) {
    return !arg.is_constant() || (!tells_all && has_sizes(arg.constant()));
  });
}

namespace {

/// A sub-graph may return what it was given, views of that, and one thing twice.
void join_through_sub_graph(Aliasing& aliasing, const Node& node) {
  const Graph& called = *node.args()[0].graph();
  const Aliasing inside(called);
  std::unordered_map<uint32_t, const Value*> outside;  // by group inside
  const auto meet = [&](const Value* inner, const Value* outer) {
    if (inner == nullptr || outer == nullptr) return;
    const auto [known, is_new] = outside.emplace(inside.group(inner), outer);
    if (!is_new) aliasing.join(known->second, outer);
  };
  for (size_t i = 0; i < called.inputs().size(); ++i)
    meet(called.inputs()[i].value, node.args()[i + 1].value());
  for (size_t i = 0; i < called.outputs().size(); ++i)
    meet(called.outputs()[i].value, node.result(i));
}

}  // namespace

Aliasing::Aliasing(const Graph& graph)
    : base_(graph.value_capacity(), nullptr), parent_(graph.value_capacity()) {
  std::iota(parent_.begin(), parent_.end(), 0u);
  for (const Graph::Input& input : graph.inputs()) base_[input.value->id()] = input.value;
  for (const Node& node : graph.nodes()) add(node);
}

void Aliasing::add(const Node& node) {
  const bool view = ops::is_view(node);
  const bool calls = !node.args().empty() && node.args()[0].is_graph();
  const bool may_alias =
      !calls && (!node.op().in_dispatcher() || facts(node.op()).view != ViewKind::None);
  for (const Value* result : node.results()) {
    if (result == nullptr) continue;
    make_room(result->id());
    base_[result->id()] = view ? base(node.args()[0].value()) : result;
    if (may_alias) node.for_each_operand([&](const Value* operand) { join(result, operand); });
  }
  if (calls) join_through_sub_graph(*this, node);
  if (node.op().in_dispatcher() && !facts(node.op()).writes.empty()) add_written(node);
}

void Aliasing::make_room(uint32_t id) {
  if (id < parent_.size()) return;
  const size_t known = parent_.size();
  base_.resize(id + 1, nullptr);
  parent_.resize(id + 1);
  std::iota(parent_.begin() + static_cast<int64_t>(known), parent_.end(),
            static_cast<uint32_t>(known));
}

/// A node that writes to arguments has one more result for each of them, after its returns.
void Aliasing::add_written(const Node& node) {
  const auto& writes = facts(node.op()).writes;
  const size_t returns = node.return_lengths().size() - writes.size();
  size_t next = 0;
  for (size_t i = 0; i < node.return_lengths().size(); ++i) {
    const size_t count = node.return_lengths()[i] < 0 ? 1 : size_t(node.return_lengths()[i]);
    // Of a list each element is written to for itself.
    size_t k = next;
    if (i >= returns) {
      node.args()[writes[i - returns]].for_each_value([&](const Value* operand) {
        if (k < next + count && node.result(k) != nullptr) join(node.result(k), operand);
        ++k;
      });
    }
    next += count;
  }
}

uint32_t Aliasing::group(const Value* value) const {
  uint32_t root = value->id();
  while (parent_[root] != root) root = parent_[root] = parent_[parent_[root]];
  return root;
}

void Aliasing::join(const Value* a, const Value* b) {
  parent_[group(a)] = group(b);
}

}  // namespace ahead::ops
