#pragma once

#include <unordered_map>
#include <vector>

#include "ahead/graph.h"

namespace ahead::native {

/// What has to run before what in a graph whose nodes are put together in groups.
class Order {
 public:
  explicit Order(const Graph& graph);

  size_t num_nodes() const { return nodes_.size(); }
  const Node& node(size_t index) const { return *nodes_[index]; }
  /// The position of a node.
  int32_t index(const Node* node) const { return index_.at(node); }

  /// The group that a node belongs to: the position of one of its nodes.
  int32_t group(int32_t node) const { return group_[static_cast<size_t>(node)]; }
  const std::vector<int32_t>& nodes_in(int32_t group) const {
    return members_[static_cast<size_t>(group)];
  }
  /// Whether two groups may become one: nothing else has to run between them.
  bool may_merge(int32_t one, int32_t other) const;
  /// Returns what the group is called from then on.
  int32_t merge(int32_t one, int32_t other);
  /// All groups, in an order in which they can run, as near as may be to that of the graph.
  std::vector<int32_t> sorted() const;

 private:
  /// Calls use(group) for each group that a node waits for, as if `inside` holds the groups that
  /// are one with its own: views between these are made inside, so that nobody waits for them.
  template <class Inside, class Use>
  void for_each_before(int32_t node, const Inside& inside, const Use& use) const;

  void add_operands();
  void add_ordered_nodes();
  void add_checked_sizes();
  void add_writes(const Graph& graph);

  std::vector<const Node*> nodes_;
  std::unordered_map<const Node*, int32_t> index_;
  std::vector<std::vector<int32_t>> before_;  ///< by node: what it waits for
  /// By node: the one that makes what it is a view of, if it is but a view; else -1.
  std::vector<int32_t> viewed_;
  std::vector<int32_t> group_;
  std::vector<std::vector<int32_t>> members_;  ///< by group, sorted; empty for those that are gone
  mutable std::vector<int32_t> seen_;          ///< by group: the last search that met it
  mutable int32_t search_ = 0;
};

}  // namespace ahead::native
