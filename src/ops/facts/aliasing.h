#pragma once

#include <vector>

#include "ahead/graph.h"

namespace ahead::ops {

/// Which values of one graph share memory. Knows the values that were there when it was made, which
/// costs one pass over them, and those of nodes that it is told of.
class Aliasing {
 public:
  explicit Aliasing(const Graph& graph);

  /// The value that owns the memory this one is certainly a view of; the value itself if it is not
  /// certainly a view.
  const Value* base(const Value* value) const { return base_[value->id()]; }
  bool is_view(const Value* value) const { return base(value) != value; }
  /// The same number for two values whenever they may share memory.
  uint32_t group(const Value* value) const;
  /// Takes in the results of a node that was added to the graph since.
  void add(const Node& node);
  /// Notes that two values may share memory from now on.
  void join(const Value* a, const Value* b);

 private:
  void make_room(uint32_t id);
  void add_written(const Node& node);

  std::vector<const Value*> base_;  ///< by Value::id()
  mutable std::vector<uint32_t> parent_;
};

/// Whether all results of the node are views of its first argument: to make them moves no data.
bool is_view(const Node& node);
/// Whether the node's one result is a view of its first argument whose sizes, strides and offset
/// follow from those of the argument and from constants.
bool is_layout_view(const Node& node);

}  // namespace ahead::ops
