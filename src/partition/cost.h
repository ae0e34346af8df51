#pragma once

#include <cstdint>

#include "ahead/graph.h"
#include "ahead/partition.h"

/// What values and calls cost. Estimates, but the same on every machine. Where sizes change, they
/// are for `sizes`: Graph::example_sizes().
namespace ahead::partition {

/// The memory from a tensor's first element to its last, in bytes.
int64_t storage_bytes(const TensorMeta& meta, c10::ArrayRef<int64_t> sizes = {});

/// How many floating point operations the call takes; 0 if memory is what limits it.
double flops(const Node& node, c10::ArrayRef<int64_t> sizes = {});

/// How long the call takes, in units of the time it takes to move one byte, or as `estimator` says.
/// Throws UserError if that is negative or not finite.
double runtime(const Node& node, const RuntimeEstimator& estimator,
               c10::ArrayRef<int64_t> sizes = {});

/// PartitionedGraphs::peak_bytes() for a backend that computes these operators, pointwise ones and
/// reductions in one pass with what reads them: what only they make and read takes no memory.
int64_t peak_with_kernels(const PartitionedGraphs& halves, const std::vector<std::string>& fused);

}  // namespace ahead::partition
