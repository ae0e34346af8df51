#include "native/fuse/fuse.h"

#include <algorithm>
#include <limits>

#include "ahead/errors.h"
#include "ahead/passes.h"
#include "ir/copy.h"
#include "native/fuse/join_results.h"
#include "native/fuse/order.h"
#include "native/lower/nest.h"
#include "native/lower/strict.h"
#include "ops/facts/aliasing.h"

namespace ahead::native {
namespace {

/// More operators in one kernel take long to compile.
constexpr size_t most_members = 512;

class Fusion {
 public:
  /// `late`: as LateGraph has it.
  Fusion(const Graph& graph, const Switches& switches, bool strict, const NodeSet& late = {})
      : graph_(graph),
        switches_(switches),
        strict_(strict),
        late_(late),
        nests_(graph, [this](const Node& node) { return !is_left(node); }),
        order_(graph),
        second_half_(find_second_half()) {
    for (size_t i = 0; i < order_.num_nodes(); ++i)
      members_.push_back(nests_.member(&order_.node(i)));
  }

  FusedGraph run() {
    for (const Member* member : members_) {
      if (member != nullptr) place(*member);
    }
    find_products();
    explain_what_is_left();
    build();
    for (size_t i = 0; i < order_.num_nodes(); ++i) {
      const Node& node = order_.node(i);
      if (late_.count(&node) != 0)
        fused_.decisions.push_back("computed " + node.op().name() + " where it is read");
    }
    return std::move(fused_);
  }

  /// The nodes of each kernel, once it ran.
  std::vector<std::vector<const Node*>> groups() const {
    std::vector<std::vector<const Node*>> groups;
    for (size_t i = 0; i < order_.num_nodes(); ++i) {
      const auto group = static_cast<int32_t>(i);
      if (order_.nodes_in(group).size() < 2) continue;
      groups.emplace_back();
      for (const int32_t index : order_.nodes_in(group))
        groups.back().push_back(&order_.node(static_cast<size_t>(index)));
    }
    return groups;
  }

  /// Whether all late nodes share kernels with others, once it ran.
  bool placed_late_nodes() const {
    return std::all_of(late_.begin(), late_.end(), [&](const Node* node) {
      const std::vector<int32_t>& group = order_.nodes_in(group_of(node));
      return std::any_of(group.begin(), group.end(), [&](int32_t index) {
        return late_.count(&order_.node(static_cast<size_t>(index))) == 0;
      });
    });
  }

 private:
  /// The members of two groups in the order in which a kernel has them.
  std::vector<const Member*> members_of(int32_t one, int32_t other) const {
    const std::vector<int32_t>&first = order_.nodes_in(one), &second = order_.nodes_in(other);
    std::vector<int32_t> both(first.size() + second.size());
    std::merge(first.begin(), first.end(), second.begin(), second.end(), both.begin());
    std::vector<const Member*> members;
    for (const int32_t index : both) members.push_back(members_[static_cast<size_t>(index)]);
    return members;
  }

  /// Puts an operator to those that make its operands.
  void place(const Member& member) {
    std::vector<int32_t> makers;
    member.node->for_each_operand([&](const Value* value) {
      const Member* made = nests_.maker(value);
      if (made == nullptr) return;
      const bool stays_apart = late_.count(member.node) != 0 && late_.count(made->node) == 0;
      if (!stays_apart) makers.push_back(order_.index(made->node));
    });
    std::sort(makers.rbegin(), makers.rend());
    for (const int32_t maker : makers) {
      const int32_t own = order_.group(order_.index(member.node)), other = order_.group(maker);
      if (own != other) try_merge(own, other, *member.node);
    }
  }

  void try_merge(int32_t own, int32_t other, const Node& node) {
    std::string reason;
    const int32_t last = order_.nodes_in(other).back();
    const std::string text =
        node.op().name() + " with " + order_.node(static_cast<size_t>(last)).op().name();
    const std::vector<const Member*> members = members_of(own, other);
    if (members.size() > most_members) {
      reason = "the kernel is large enough";
    } else if (is_second_half(own) != is_second_half(other)) {
      reason = "what the backward computes again would be kept from the forward";
    } else if (!order_.may_merge(own, other)) {
      reason = "something else has to run between them";
    } else if (nests_.join(members, &reason)) {
      order_.merge(own, other);
      return fused_.decisions.push_back("fused " + text);
    }
    fused_.decisions.push_back("did not fuse " + text + ": " + reason);
  }

  /// Where the second half of a graph begins whose backward computes things again.
  int32_t find_second_half() const {
    int32_t begin = std::numeric_limits<int32_t>::max();
    bool runs_again = false;
    for (size_t i = order_.num_nodes(); i-- > 0;) {
      const Node& node = order_.node(i);
      if (node.has(Tag::MustBeInBackward)) begin = static_cast<int32_t>(i);
      runs_again |= node.has(Tag::MustRecompute);
    }
    return runs_again ? begin : std::numeric_limits<int32_t>::max();
  }
  bool is_second_half(int32_t group) const {
    return order_.nodes_in(group).front() >= second_half_;
  }

  /// Whether a node is left to ATen, whatever its rule is.
  bool is_left(const Node& node) const {
    return switches_.skips(node.op()) || (strict_ && !has_exact_rule(node));
  }

  /// Whether a kernel is to compute the group: alone, operators are ATen's but for small products.
  bool is_fused(int32_t group) const {
    const std::vector<int32_t>& nodes = order_.nodes_in(group);
    return nodes.size() > 1 ||
           products_.count(&order_.node(static_cast<size_t>(nodes.front()))) != 0;
  }
  int32_t group_of(const Node* node) const { return order_.group(order_.index(node)); }

  /// Whether a value of a group is used outside, by itself or as a view.
  bool is_needed_outside(const Value* value, int32_t group) const {
    if (value->output_uses() != 0) return true;
    for (const Node* user : value->users()) {
      if (group_of(user) == group) continue;
      const bool is_view = ops::is_layout_view(*user) && nests_.member(user) == nullptr;
      if (!is_view || is_needed_outside(user->result(), group)) return true;
    }
    return false;
  }

  void find_products();
  void explain_what_is_left();
  void build();
  void add_call(int32_t group);
  void add_to_sub_graph(Graph& sub, const Node& node, ValueMap& inside,
                        std::vector<const Value*>& operands, int32_t group);

  const Graph& graph_;
  const Switches& switches_;
  const bool strict_;
  const NodeSet late_;
  Nests nests_;
  Order order_;
  const int32_t second_half_;           ///< the position of its first node
  std::vector<const Member*> members_;  ///< by position; null for nodes that are left to ATen
  FusedGraph fused_;
  std::unordered_set<const Node*> products_;  ///< that share loops with nobody, and have some
  ValueMap map_;                              ///< where values of the graph are in the fused one
  std::vector<Node*> calls_;                  ///< of kernels, in the fused graph
};

void Fusion::find_products() {
  static const Operator *const mm = Operator::find("aten.mm"),
                             *const addmm = Operator::find("aten.addmm");
  for (size_t i = 0; i < order_.num_nodes(); ++i) {
    const Node& node = order_.node(i);
    const Member* member = nests_.member(&node);
    if (member == nullptr || (&node.op() != mm && &node.op() != addmm)) continue;
    std::string reason;
    const bool is_alone = order_.nodes_in(order_.group(static_cast<int32_t>(i))).size() == 1;
    if (is_alone && nests_.join({member}, &reason)) products_.insert(&node);
  }
}

void Fusion::explain_what_is_left() {
  for (size_t i = 0; i < order_.num_nodes(); ++i) {
    const Node& node = order_.node(i);
    if (is_fused(order_.group(static_cast<int32_t>(i))) || ops::is_layout_view(node)) continue;
    if (node.result() != nullptr && constant_of(*node.result())) continue;
    std::string reason = why_left(node);
    if (strict_ && work_of(node) && !has_exact_rule(node)) reason = "it would not be exact";
    if (nests_.member(&node) != nullptr) reason = "no other operator shares its loops";
    if (switches_.skips(node.op())) reason = "AHEAD_NATIVE_SKIP names it";
    fused_.decisions.push_back("left " + node.op().name() + " to ATen: " + reason);
  }
}

void Fusion::build() {
  Graph& graph = fused_.graph;
  map_.resize(graph_.value_capacity());
  for (const auto& [value, slot, captured] : graph_.inputs())
    map_[value->id()] = graph.add_input(slot, value->meta, captured);
  graph.set_example_sizes(graph_.example_sizes());
  for (const int32_t group : order_.sorted()) {
    if (is_fused(group)) {
      add_call(group);
      continue;
    }
    const Node& node = order_.node(static_cast<size_t>(order_.nodes_in(group).front()));
    bool is_known = true;
    node.for_each_operand([&](const Value* value) { is_known &= map_[value->id()] != nullptr; });
    // A view inside a group is nobody's outside.
    if (is_known) {
      copy_node(graph, node, map_);
    } else if (!ops::is_layout_view(node)) {
      throw InternalError("native", node.op().name() + ": its operand stays inside a kernel.");
    }
  }
  for (const Graph::Output& output : graph_.outputs()) {
    graph.add_output(output.value == nullptr ? nullptr : map_[output.value->id()], output.slot,
                     output.requires_grad);
  }
  join_results(graph, calls_);
  // A kernel may compute parts of both phases.
  bool has_backward = false;
  for (const Node& node : graph.nodes()) has_backward |= node.phase == Phase::Backward;
  for (Node& node : graph.nodes()) {
    if (has_backward) node.phase = Phase::Backward;
  }
  passes::eliminate_dead_code(graph);
}

/// Adds a node to the sub-graph of a group, with views that lead to it from inside; what comes from
/// outside becomes an input.
void Fusion::add_to_sub_graph(Graph& sub, const Node& node, ValueMap& inside,
                              std::vector<const Value*>& operands, int32_t group) {
  node.for_each_operand([&](const Value* value) {
    if (inside[value->id()] != nullptr) return;
    const Member* made = nests_.maker(value);
    const bool is_inside = made != nullptr && group_of(made->node) == group;
    if (is_inside || constant_of(*value)) {
      add_to_sub_graph(sub, *value->producer(), inside, operands, group);
    } else {
      inside[value->id()] =
          sub.add_input({Slot::Kind::Primal, static_cast<int32_t>(operands.size())}, value->meta);
      operands.push_back(value);
    }
  });
  copy_node(sub, node, inside);
}

void Fusion::add_call(int32_t group) {
  auto sub = std::make_shared<Graph>();
  ValueMap inside(graph_.value_capacity());
  std::vector<const Value*> operands, results;
  for (const int32_t index : order_.nodes_in(group)) {
    const Node& node = order_.node(static_cast<size_t>(index));
    add_to_sub_graph(*sub, node, inside, operands, group);
    for (const Value* result : node.results()) {
      if (result == nullptr || !is_needed_outside(result, group)) continue;
      sub->add_output(inside[result->id()],
                      {Slot::Kind::Output, static_cast<int32_t>(results.size())});
      results.push_back(result);
    }
  }
  if (results.empty()) return;
  std::vector<Argument> args = {Argument(std::shared_ptr<const Graph>(sub))};
  for (const Value* operand : operands) args.emplace_back(map_[operand->id()]);
  Node* call = fused_.graph.add_node(Operator::call_graph(), std::move(args));
  call->phase = order_.node(static_cast<size_t>(order_.nodes_in(group).back())).phase;
  for (const Value* result : results)
    map_[result->id()] = fused_.graph.add_return(call, result->meta);
  calls_.push_back(call);
}

}  // namespace

FusedGraph fuse(const Graph& graph, const Switches& switches, bool strict, const NodeSet& late) {
  Fusion fusion(graph, switches, strict, late);
  FusedGraph fused = fusion.run();
  if (strict) return fused;
  if (!fusion.placed_late_nodes()) return fuse(graph, switches, strict);
  const std::optional<LateGraph> later = compute_late(graph, fusion.groups(), late);
  if (!later) return fused;
  Fusion again(later->graph, switches, strict, later->late);
  FusedGraph fused_again = again.run();
  return again.placed_late_nodes() ? std::move(fused_again) : std::move(fused);
}

}  // namespace ahead::native
