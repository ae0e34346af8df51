#pragma once

#include <vector>

#include "ahead/partition.h"
#include "partition/extract.h"
#include "partition/recompute_rules.h"

namespace ahead::partition {

/// Finds a partition for options.memory_budget.
///
/// The partitions it may find form a ladder that does not depend on the budget: the default one,
/// the smallest cut, smallest cuts with ever fewer expensive nodes forbidden to run again, and
/// smallest cuts that save what lies between segments of the forward. A rung that saves more than
/// the one before, or has a higher peak, is left out. The first rung that fits is taken, else the
/// last. So a smaller budget never means more of either.
PartitionedGraphs partition_within_budget(const JointFacts& joint, std::vector<Ruling> rulings,
                                          const PartitionOptions& options);

}  // namespace ahead::partition
