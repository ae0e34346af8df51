#include "native/fuse/compute_late.h"

#include <algorithm>
#include <limits>
#include <map>
#include <unordered_map>

#include "ahead/passes.h"
#include "native/lower/lower.h"
#include "native/lower/rule.h"
#include "native/views.h"
#include "native/writes.h"
#include "ops/facts/aliasing.h"
#include "ops/facts/facts.h"

namespace ahead::native {
namespace {

/// What computing an element of one result again may cost, in additions.
constexpr int64_t most_work = 32;

constexpr size_t never = std::numeric_limits<size_t>::max();

class Postponing {
 public:
  Postponing(const Graph& graph, const std::vector<std::vector<const Node*>>& groups,
             const NodeSet& late)
      : late_{Graph(graph), {}}, writes_(late_.graph) {
    std::unordered_map<const Node*, size_t> position;
    for (const Node& node : graph.nodes()) position.emplace(&node, position.size());
    for (Node& node : late_.graph.nodes()) {
      places_.emplace(&node, Place{nodes_.size(), -1});
      nodes_.push_back(&node);
    }
    for (size_t group = 0; group < groups.size(); ++group) {
      groups_.emplace_back();
      for (const Node* node : groups[group]) {
        groups_.back().push_back(nodes_[position.at(node)]);
        places_.at(groups_.back().back()).group = static_cast<int32_t>(group);
      }
    }
    for (const Node* node : late) late_.late.insert(nodes_[position.at(node)]);
  }

  std::optional<LateGraph> run() {
    for (size_t group = 0; group < groups_.size(); ++group) postpone(static_cast<int32_t>(group));
    if (copies_.empty()) return std::nullopt;
    passes::eliminate_dead_code(late_.graph);
    NodeSet left;  // a copy may have been postponed, too
    for (const Node& node : late_.graph.nodes()) {
      if (late_.late.count(&node) != 0) left.insert(&node);
    }
    late_.late = std::move(left);
    return std::move(late_);
  }

 private:
  /// Where a node stands, and in which group. A copy stands where it was added.
  struct Place {
    size_t position;
    int32_t group;
  };

  const Place& place_of(const Node* node) const { return places_.at(node); }

  bool is_in(const Node* node, int32_t group) const {
    return node != nullptr && place_of(node).group == group;
  }

  /// The first node outside of a group that reads a value of it; null if there is none.
  Node* first_reader(const Value& value, int32_t group) const {
    Node* first = nullptr;
    for (Node* user : value.users()) {
      if (is_in(user, group)) continue;
      if (first == nullptr || place_of(user).position < place_of(first).position) first = user;
    }
    return first;
  }

  /// Lets those who read results of a group compute them.
  void postpone(int32_t group) {
    std::map<int32_t, std::vector<Value*>> wanted;  // by the group that reads them first
    std::map<int32_t, Node*> readers;
    for (Node* node : groups_[static_cast<size_t>(group)]) {
      for (Value* value : node->results()) {
        if (value == nullptr || value->output_uses() != 0) continue;
        Node* const reader = first_reader(*value, group);
        if (reader == nullptr || place_of(reader).group < 0) continue;
        const int32_t by = place_of(reader).group;
        wanted[by].push_back(value);
        Node*& first = readers[by];
        if (first == nullptr || place_of(reader).position < place_of(first).position)
          first = reader;
      }
    }
    std::vector<int32_t> last_first;
    for (const auto& [by, reader] : readers) last_first.push_back(by);
    std::sort(last_first.begin(), last_first.end(), [&](int32_t one, int32_t other) {
      return place_of(readers.at(one)).position > place_of(readers.at(other)).position;
    });
    for (const int32_t by : last_first) move(wanted.at(by), group, *readers.at(by));
  }

  /// What it takes to compute some results elsewhere.
  struct Copies {
    std::vector<Node*> nodes;  ///< of the group, in order
    NodeSet set;
  };

  /// Lets the group of `reader` compute those of a group's results that are cheap, if less has to
  /// be kept for them than they take.
  void move(const std::vector<Value*>& wanted, int32_t group, Node& reader) {
    Copies copies;
    for (Value* value : wanted) try_to_add(*value->producer(), group, reader, copies);
    std::vector<Value*> moved;
    int64_t saved = 0;
    for (const Node* node : copies.nodes) {
      Value* const value = node->result();
      if (!is_read_outside(*value, group) || !is_read_after(*value, group, reader)) continue;
      moved.push_back(value);
      saved += bytes_of(*value);
    }
    // One operator alone is no kernel.
    if (saved > kept_for(copies, place_of(&reader).position) && num_left(group, moved) != 1)
      copy(copies, moved, group, reader);
  }

  /// How many nodes of a group are needed when these results of it are computed elsewhere.
  size_t num_left(int32_t group, const std::vector<Value*>& moved) const {
    NodeSet left;
    const std::vector<Node*>& nodes = groups_[static_cast<size_t>(group)];
    for (size_t i = nodes.size(); i-- > 0;) {
      const auto is_needed = [&](const Value* value) {
        if (value == nullptr) return false;
        const bool is_moved = std::find(moved.begin(), moved.end(), value) != moved.end();
        return is_read_inside(*value, left) || (!is_moved && is_read_outside(*value, group));
      };
      if (std::any_of(nodes[i]->results().begin(), nodes[i]->results().end(), is_needed))
        left.insert(nodes[i]);
    }
    return left.size();
  }

  /// Whether one of these nodes reads a value, or a view of it.
  static bool is_read_inside(const Value& value, const NodeSet& nodes) {
    return std::any_of(value.users().begin(), value.users().end(), [&](const Node* user) {
      return nodes.count(user) != 0 ||
             (ops::is_layout_view(*user) && is_read_inside(*user->result(), nodes));
    });
  }

  /// Adds a node and what it needs, if all that is cheap.
  bool try_to_add(Node& node, int32_t group, const Node& reader, Copies& copies) {
    Copies more = copies;
    if (!add(node, group, reader, more)) return false;
    int64_t work = 0;
    for (size_t i = copies.nodes.size(); i < more.nodes.size(); ++i)
      work += work_of_element(*more.nodes[i]);
    if (work > most_work) return false;
    copies = std::move(more);
    return true;
  }

  /// Adds a node and those of the group that it needs, but for what stays in memory; false if some
  /// of that is not there where `reader` is.
  bool add(Node& node, int32_t group, const Node& reader, Copies& copies) {
    if (copies.set.count(&node) != 0) return true;
    if (!is_pointwise(node) || place_of(&node).position >= place_of(&reader).position) return false;
    bool fits = true;
    node.for_each_operand([&](Value* value) {
      if (fits) fits = add_operand(*value, group, reader, copies);
    });
    if (!fits) return false;
    copies.set.insert(&node);
    copies.nodes.push_back(&node);
    return true;
  }

  bool add_operand(Value& value, int32_t group, const Node& reader, Copies& copies) {
    Node* const maker = value.producer();
    if (is_in(maker, group)) {
      if (!is_read_outside(value, group)) return add(*maker, group, reader, copies);
      if (is_read_after(value, group, reader) && try_to_add(*maker, group, reader, copies))
        return true;
    }
    // A view of what stays inside is nowhere in memory.
    const Value* const owner = owner_of(&value);
    if (owner != &value && is_in(owner->producer(), group) && !is_read_outside(*owner, group))
      return false;
    const bool is_there = maker == nullptr || place_of(maker).position < place_of(&reader).position;
    return is_there && !writes_.may_ever_change(&value);
  }

  bool is_read_outside(const Value& value, int32_t group) const {
    if (value.output_uses() != 0) return true;
    const Node* first = first_reader(value, group);
    return first != nullptr && !ops::is_layout_view(*first);
  }

  /// Whether nobody outside of a group reads a value of it before `reader` does.
  bool is_read_after(const Value& value, int32_t group, const Node& reader) const {
    return value.output_uses() == 0 &&
           std::all_of(value.users().begin(), value.users().end(), [&](const Node* user) {
             return is_in(user, group) || is_behind(user, reader);
           });
  }

  /// Whether a node stands behind copies that are added before `reader`.
  bool is_behind(const Node* node, const Node& reader) const {
    const size_t own = place_of(node).position, other = place_of(&reader).position;
    return copies_.count(node) != 0 ? own > other : own >= other;
  }

  static bool is_pointwise(const Node& node) {
    if (node.results().size() != 1) return false;
    const auto work = work_of(node);
    return work && work->row_dims == 0 && work->picked == 0 && work->reduced(0) == 0;
  }

  /// What an operator costs for one element, in additions, but for loads.
  int64_t work_of_element(const Node& node) {
    const auto known = work_.find(&node);
    if (known != work_.end()) return known->second;
    Graph alone;
    std::vector<Argument> args;
    for (const Argument& arg : node.args()) {
      if (!arg.is_value()) {
        args.push_back(arg);
        continue;
      }
      const auto index = static_cast<int32_t>(alone.inputs().size());
      args.emplace_back(alone.add_input({Slot::Kind::Primal, index}, by_rows(*arg.value())));
    }
    Node* const copy = alone.add_node(node.op(), std::move(args));
    alone.add_output(alone.add_return(copy, by_rows(*node.result())), {Slot::Kind::Output, 0});
    int64_t work = 0;
    for (const Term& term : lower(alone).terms)
      work += term.op == Op::Load ? 0 : traits_of(term.op).cost;
    return work_.emplace(&node, work).first->second;
  }

  /// However a tensor lies, it is computed in the same way.
  static TensorMeta by_rows(const Value& value) {
    const TensorMeta& meta = value.meta;
    return TensorMeta::contiguous(at::IntArrayRef(meta.sizes), meta.dtype, meta.device);
  }

  /// The memory that copies at a position keep which would be free before.
  int64_t kept_for(const Copies& copies, size_t position) const {
    std::unordered_set<const Value*> owners;
    int64_t bytes = 0;
    for (const Node* node : copies.nodes) {
      node->for_each_operand([&](const Value* value) {
        if (copies.set.count(value->producer()) != 0) return;
        const Value* const owner = owner_of(value);
        if (owners.insert(owner).second && last_read(*owner) < position) bytes += bytes_of(*owner);
      });
    }
    return bytes;
  }

  /// After which position nobody reads a value or a view of it.
  size_t last_read(const Value& value) const {
    if (value.output_uses() != 0) return never;
    // Others than saved tensors belong to the caller.
    if (value.producer() == nullptr &&
        late_.graph.inputs()[value.index()].slot.kind != Slot::Kind::Saved)
      return never;
    size_t last = 0;
    for (const Node* user : value.users()) {
      last = std::max(last, place_of(user).position);
      if (ops::facts(user->op()).view == ops::ViewKind::None) continue;
      for (const Value* view : user->results()) {
        if (view != nullptr) last = std::max(last, last_read(*view));
      }
    }
    return last;
  }

  void copy(const Copies& copies, const std::vector<Value*>& moved, int32_t group, Node& reader) {
    Graph& graph = late_.graph;
    std::unordered_map<const Value*, Value*> made;
    for (Node* node : copies.nodes) {
      std::vector<Argument> args;
      for (const Argument& arg : node->args()) {
        const auto own = arg.is_value() ? made.find(arg.value()) : made.end();
        args.push_back(own == made.end() ? arg : Argument(own->second));
      }
      Node* const copy = graph.add_node(node->op(), std::move(args), &reader);
      copy->belong_to(*node);
      copy->set_tags(node->tags());
      copy->phase = reader.phase;
      made.emplace(node->result(), graph.add_return(copy, node->result()->meta));
      places_.emplace(copy, place_of(&reader));
      copies_.insert(copy);
      late_.late.insert(copy);
    }
    for (Value* value : moved) {
      const std::vector<Node*> users(value->users().begin(), value->users().end());
      for (Node* user : users) {
        if (is_in(user, group)) continue;
        for (size_t i = 0; i < user->args().size(); ++i)
          graph.set_argument(user, i, replaced(user->args()[i], value, made.at(value)));
      }
    }
  }

  static Argument replaced(const Argument& argument, const Value* from, Value* to) {
    if (argument.is_value()) return argument.value() == from ? Argument(to) : argument;
    if (!argument.is_list()) return argument;
    Argument::List list;
    for (const Argument& element : argument.list()) list.push_back(replaced(element, from, to));
    return list;
  }

  LateGraph late_;
  const Writes writes_;
  std::vector<Node*> nodes_;                ///< of the graph as it was
  std::vector<std::vector<Node*>> groups_;  ///< these
  std::unordered_map<const Node*, Place> places_;
  NodeSet copies_;  ///< of nodes, that were added
  std::unordered_map<const Node*, int64_t> work_;
};

}  // namespace

std::optional<LateGraph> compute_late(const Graph& graph,
                                      const std::vector<std::vector<const Node*>>& groups,
                                      const NodeSet& late) {
  return Postponing(graph, groups, late).run();
}

}  // namespace ahead::native
