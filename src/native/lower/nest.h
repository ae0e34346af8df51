#pragma once

#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "ahead/graph.h"
#include "native/loops/axes.h"
#include "native/lower/rule.h"

namespace ahead::native {

/// One operator that may share loops with others.
struct Member {
  const Node* node;
  Work work;
  std::vector<AxisList> space;  ///< the axes of each dimension
};

/// The loops that several operators share: over rows, and over the columns of each. Outermost
/// first.
struct Nest {
  AxisList rows, columns;
};

/// Finds out which operators of a graph can share loops. The graph must outlive it.
class Nests {
 public:
  explicit Nests(const Graph& graph) : Nests(graph, [](const Node&) { return true; }) {}
  /// Others than those that `takes` takes are left to ATen.
  Nests(const Graph& graph, const std::function<bool(const Node&)>& takes);

  /// The member that computes a node; null if it is left to ATen.
  const Member* member(const Node* node) const;
  /// The member whose result this is, or is a view of that leaves every element in place; null if
  /// there is none.
  const Member* maker(const Value* value) const;
  /// Where elements of a value are along each axis that it follows, as its layout has them.
  /// `member` takes it as its argument with this number.
  std::vector<std::pair<Axis, int64_t>> strides_of_argument(const Member& member,
                                                            size_t argument) const;
  std::vector<std::pair<Axis, int64_t>> strides_of_result(const Member& member,
                                                          size_t result) const;
  /// The same for a result that lies as `meta` says.
  std::vector<std::pair<Axis, int64_t>> strides_of_result(const Member& member, size_t result,
                                                          const TensorMeta& meta) const;
  int64_t size(Axis axis) const { return axes_.size(axis); }
  AxisList resolve(const AxisList& axes) const { return axes_.resolve(axes); }
  /// The axes of the dimensions that these bits stand for.
  AxisList axes_of(const Member& member, uint32_t dims) const;
  /// The axes of the dimensions that one of a tensor follows.
  AxisList axes_of(const Member& member, const Work::Follows& follows) const;

  /// Lets all these share loops: operands that one makes of another's results are found where they
  /// are made. Returns the loops; nothing, and `reason`, if that cannot be, in which case nothing
  /// has changed.
  std::optional<Nest> join(const std::vector<const Member*>& members, std::string* reason);

 private:
  struct SeenDim {
    AxisList axes;
    bool is_repeated = false;  ///< expanded: the same elements again and again
  };
  using Group = std::unordered_map<const Node*, const Member*>;

  std::optional<std::vector<SeenDim>> seen_dims(const Value* value);
  std::optional<std::vector<SeenDim>> seen_through(const Node& view);
  std::vector<std::pair<Axis, int64_t>> strides_of(const Member& member, const Work::Place& place,
                                                   const TensorMeta& meta) const;
  bool connect(const Member& member, const Group& group);
  bool align(const Member& member, const Member& alike);
  std::optional<Nest> nest_of(const std::vector<const Member*>& members, const Group& group,
                              std::string* reason) const;
  bool find_columns(const std::vector<const Member*>& members, const Group& group,
                    const AxisList& all, std::optional<AxisList>& columns,
                    std::string* reason) const;
  std::vector<std::pair<Axis, int64_t>> widest_strides(const Member& member) const;
  int64_t num_elements(const AxisList& axes) const;
  bool is_used_in(const Value* value, const Group& group) const;

  Axes axes_;
  std::unordered_map<const Node*, Member> members_;
};

}  // namespace ahead::native
