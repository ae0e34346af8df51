#include "native/fuse/order.h"

#include <algorithm>
#include <queue>

#include "ahead/errors.h"
#include "native/writes.h"
#include "ops/facts/aliasing.h"
#include "ops/facts/facts.h"
#include "ops/facts/node_facts.h"

namespace ahead::native {

Order::Order(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    index_.emplace(&node, static_cast<int32_t>(nodes_.size()));
    nodes_.push_back(&node);
  }
  before_.resize(nodes_.size());
  seen_.resize(nodes_.size());
  viewed_.assign(nodes_.size(), -1);
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!ops::is_layout_view(*nodes_[i])) continue;
    const Node* maker = nodes_[i]->args()[0].value()->producer();
    if (maker == nullptr) continue;
    const auto made = static_cast<size_t>(index(maker));
    viewed_[i] = ops::is_layout_view(*maker) ? viewed_[made] : index(maker);
  }
  add_operands();
  add_ordered_nodes();
  add_checked_sizes();
  add_writes(graph);
  for (size_t i = 0; i < nodes_.size(); ++i) {
    group_.push_back(static_cast<int32_t>(i));
    members_.push_back({static_cast<int32_t>(i)});
  }
}

void Order::add_operands() {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    nodes_[i]->for_each_operand([&](const Value* value) {
      if (value->producer() != nullptr) before_[i].push_back(index(value->producer()));
    });
  }
}

void Order::add_ordered_nodes() {
  int32_t last = -1;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = *nodes_[i];
    if (!ops::is_random(node) && !ops::has_effect(node)) continue;
    if (last >= 0) before_[i].push_back(last);
    last = static_cast<int32_t>(i);
  }
}

/// Kernels are made for sizes that a tensor may turn out not to have: nothing uses it before.
void Order::add_checked_sizes() {
  static const Operator* const check = Operator::find("ahead.expect_sizes");
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (&nodes_[i]->op() != check) continue;
    for (const Node* user : nodes_[i]->args()[0].value()->users()) {
      if (user != nodes_[i])
        before_[static_cast<size_t>(index(user))].push_back(static_cast<int32_t>(i));
    }
  }
}

/// What reads memory before it is written to stays before that, and what reads it afterwards
/// behind.
void Order::add_writes(const Graph& graph) {
  const Writes writes(graph);
  for (const Writes::Writer& writer : writes.writers()) {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      bool meets = false;
      const auto look = [&](const Value* value) {
        meets = meets || (value != nullptr && writes.may_write(writer, value));
      };
      nodes_[i]->for_each_operand(look);
      for (const Value* result : nodes_[i]->results()) look(result);
      if (!meets || i == writer.position) continue;
      if (i < writer.position) {
        before_[writer.position].push_back(static_cast<int32_t>(i));
      } else {
        before_[i].push_back(static_cast<int32_t>(writer.position));
      }
    }
  }
}

template <class Inside, class Use>
void Order::for_each_before(int32_t node, const Inside& inside, const Use& use) const {
  for (const int32_t earlier : before_[static_cast<size_t>(node)]) {
    const int32_t viewed = viewed_[static_cast<size_t>(earlier)];
    const bool is_inside = viewed >= 0 && inside(group(viewed)) && inside(group(node));
    if (!is_inside) use(group(earlier));
  }
}

bool Order::may_merge(int32_t one, int32_t other) const {
  ++search_;
  std::vector<int32_t> open;
  const auto visit = [&](int32_t group) {
    int32_t& seen = seen_[static_cast<size_t>(group)];
    if (seen == search_) return;
    seen = search_;
    open.push_back(group);
  };
  // Whatever these wait for, apart from one another, must not wait for them.
  const auto is_of_them = [&](int32_t group) { return group == one || group == other; };
  const auto for_each_waited = [&](int32_t group, const auto& use) {
    const auto is_inside = [&](int32_t viewed) {
      return is_of_them(group) ? is_of_them(viewed) : viewed == group;
    };
    for (const int32_t node : nodes_in(group)) for_each_before(node, is_inside, use);
  };
  for (const int32_t start : {one, other}) {
    for_each_waited(start, [&](int32_t group) {
      if (!is_of_them(group)) visit(group);
    });
  }
  while (!open.empty()) {
    const int32_t group = open.back();
    open.pop_back();
    bool reaches = false;
    for_each_waited(group, [&](int32_t earlier) {
      reaches = reaches || is_of_them(earlier);
      if (!is_of_them(earlier)) visit(earlier);
    });
    if (reaches) return false;
  }
  return true;
}

int32_t Order::merge(int32_t one, int32_t other) {
  if (nodes_in(one).size() < nodes_in(other).size()) std::swap(one, other);
  std::vector<int32_t>& into = members_[static_cast<size_t>(one)];
  std::vector<int32_t>& from = members_[static_cast<size_t>(other)];
  for (const int32_t node : from) group_[static_cast<size_t>(node)] = one;
  std::vector<int32_t> both(into.size() + from.size());
  std::merge(into.begin(), into.end(), from.begin(), from.end(), both.begin());
  into = std::move(both);
  from.clear();
  return one;
}

std::vector<int32_t> Order::sorted() const {
  std::vector<std::vector<int32_t>> after(nodes_.size());
  std::vector<int32_t> waits_for(nodes_.size());
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const auto is_own = [&](int32_t group) { return group == group_[i]; };
    for_each_before(static_cast<int32_t>(i), is_own, [&](int32_t earlier) {
      if (earlier == group_[i]) return;
      after[static_cast<size_t>(earlier)].push_back(group_[i]);
      ++waits_for[static_cast<size_t>(group_[i])];
    });
  }
  // The group whose last node comes first runs first.
  const auto later = [&](int32_t one, int32_t other) {
    return nodes_in(one).back() > nodes_in(other).back();
  };
  std::priority_queue<int32_t, std::vector<int32_t>, decltype(later)> ready(later);
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!members_[i].empty() && waits_for[i] == 0) ready.push(static_cast<int32_t>(i));
  }
  std::vector<int32_t> order;
  while (!ready.empty()) {
    const int32_t next = ready.top();
    ready.pop();
    order.push_back(next);
    for (const int32_t waiting : after[static_cast<size_t>(next)]) {
      if (--waits_for[static_cast<size_t>(waiting)] == 0) ready.push(waiting);
    }
  }
  const auto num_groups = static_cast<size_t>(std::count_if(
      members_.begin(), members_.end(), [](const auto& group) { return !group.empty(); }));
  if (order.size() != num_groups) throw InternalError("native", "groups wait for each other.");
  return order;
}

}  // namespace ahead::native
