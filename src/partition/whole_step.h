#pragma once

#include "ahead/partition.h"

namespace ahead::partition {

/// Cuts a graph that takes gradients itself, such as a whole step of training, where its last
/// backward begins, as partition_min_cut cuts a joint graph, and puts the halves one behind the
/// other: what is cheap to run again runs again, rather than lie in memory from one half to the
/// other. The nodes of the second half are tagged must_be_in_backward, those that run again
/// must_recompute as well. Returns how many run again; 0: the graph is as it was, since there is no
/// backward, or fewer bytes to gain than `least_gain`.
size_t recompute_inside(Graph& graph, PartitionOptions options,
                        int64_t least_gain = int64_t{256} << 10);

}  // namespace ahead::partition
