#pragma once

#include <vector>

#include "partition/extract.h"
#include "partition/recompute_rules.h"

namespace ahead::partition {

/// What partition_default decides about each node.
std::vector<Verdict> default_verdicts(const JointFacts& joint, const std::vector<Ruling>& rulings);

}  // namespace ahead::partition
