#pragma once

#include <vector>

#include "partition/extract.h"
#include "partition/recompute_rules.h"

namespace ahead::partition {

/// Decides what to save so that the saved bytes are the fewest, under rulings that may be changed
/// between calls. `is_static` is as in extract().
std::vector<Verdict> min_cut_verdicts(const JointFacts& joint, const std::vector<Ruling>& rulings,
                                      const std::vector<bool>& is_static);

}  // namespace ahead::partition
