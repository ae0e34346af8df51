#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace ahead::partition {

/// A flow network and its largest flow, by Dinic's algorithm.
class MaxFlow {
 public:
  /// More than all other capacities together: an edge of this capacity is never cut.
  static constexpr int64_t kInfinite = std::numeric_limits<int64_t>::max() / 4;

  int32_t add_node();
  void add_edge(int32_t from, int32_t to, int64_t capacity);

  /// Computes the largest flow, which is also the capacity of the smallest cut. Takes time about
  /// proportional to the network for shallow ones, and never recurses.
  int64_t run(int32_t source, int32_t sink);

  /// After run(): for each node, whether it is on the sink's side of the smallest cut that has the
  /// fewest nodes there.
  std::vector<bool> sink_side(int32_t sink) const;

 private:
  struct Edge {
    int32_t from, to;
    int64_t capacity;
  };
  struct Arc {
    int32_t to;
    int32_t reverse;  ///< index of the arc back
    int64_t residual;
  };

  void build();
  bool find_levels(int32_t source, int32_t sink);
  int64_t augment(int32_t source, int32_t sink);

  int32_t num_nodes_ = 0;
  std::vector<Edge> edges_;
  std::vector<Arc> arcs_;             ///< grouped by the node they leave
  std::vector<int32_t> first_arc_;    ///< by node, and one past the last
  std::vector<int32_t> current_arc_;  ///< by node: arcs before it lead nowhere in this phase
  std::vector<int32_t> level_;        ///< by node: distance from the source; -1: not reached
};

}  // namespace ahead::partition
