#pragma once

#include <vector>

#include "ahead/partition.h"
#include "partition/extract.h"

namespace ahead::partition {

/// Whether the backward may compute a node of the forward again.
enum class Again : uint8_t {
  Never,      ///< a second run would give other values, repeat an effect, or is forbidden
  Expensive,  ///< only to keep to a memory budget
  Cheap,      ///< where it saves memory
  View,       ///< always: its results are never saved
  Must,       ///< always, as a tag or a write in the backward demands
};

/// The ruling on one node, and the reason for it.
struct Ruling {
  Again again = Again::Never;
  const char* reason = "";
};

/// Rules on every node of the joint graph, in their order. The rules are a table: the first whose
/// pattern fits a node decides.
std::vector<Ruling> apply_recompute_rules(const JointFacts& joint, const PartitionOptions& options);

}  // namespace ahead::partition
