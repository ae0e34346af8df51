#pragma once

#include <cstdint>
#include <vector>

#include "ahead/export.h"
#include "ahead/partition.h"

namespace ahead {

/// What running a partitioned joint graph costs. Times are the caller's, or estimates that are the
/// same on every machine: what it takes to move bytes and to compute with them.
struct PartitionCost {
  /// The memory kept from the forward to the backward.
  int64_t saved_bytes = 0;
  /// The most memory in use at a time, in the backward too.
  int64_t peak_bytes = 0;
  /// The time for what runs a second time, as a share of the time for the joint graph.
  double recomputed = 0;
};

/// The cost of two halves of a joint graph. Throws UserError if they are not its halves: if a node
/// is missing in both, or if they have more outputs.
AHEAD_API PartitionCost partition_cost(const JointGraph& joint, const PartitionedGraphs& halves,
                                       const RuntimeEstimator& runtime = {});

/// What a memory budget gives.
struct BudgetPoint {
  double budget = 1;
  PartitionCost cost;
};

/// The costs for budgets that are evenly spaced from 1 down to 0, at least two. The options' own
/// budget does not count.
AHEAD_API std::vector<BudgetPoint> budget_curve(const JointGraph& joint, int32_t num_budgets = 11,
                                                const PartitionOptions& options = {});

/// The budget after which less memory begins to cost much time: where peak and time, each scaled to
/// its range on the curve, are nearest to the least of both. Of equals the larger budget. Throws
/// UserError for a curve without points.
AHEAD_API double knee_budget(const std::vector<BudgetPoint>& curve);

}  // namespace ahead
