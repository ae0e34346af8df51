#pragma once

#include <functional>

#include "ahead/backend_traits.h"
#include "ahead/partition.h"
#include "passes/stages.h"

namespace ahead::compiling {

/// Cuts a copy of a joint graph in which images lie as the backend prefers, so that both halves,
/// and what is saved, agree on that. Inputs and outputs have the layouts of the graph. Saved values
/// name those of the graph itself; such that lie otherwise there name none.
PartitionedGraphs partition_laid_out(const JointGraph& joint, const LayoutPreferences& layouts,
                                     passes::Stages& stages, const PartitionFunction& cut);

}  // namespace ahead::compiling
