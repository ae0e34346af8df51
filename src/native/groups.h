#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ahead/graph.h"
#include "native/loops/kernel.h"
#include "native/print/print_kernel.h"
#include "native/slices/slices.h"

namespace ahead::native {

/// Operators that one kernel computes.
struct Group {
  std::shared_ptr<const Graph> graph;
  Kernel kernel;
  PrintedKernel printed;
  /// By result: the argument that it is copied to when the kernel is done, and to which the kernel
  /// writes it at once, if it may; -1, or nothing: there is none.
  std::vector<int32_t> targets = {};
};

/// The groups of a fused graph, and why others are left to ATen.
struct Groups {
  std::vector<Group> groups;
  /// A line for each sub-graph that is left to ATen.
  std::vector<std::string> left;
  /// How many of these could not be lowered.
  size_t failed = 0;
};

/// Lowers and prints the sub-graphs of a fused graph, in their order, but for those of `sliced`. At
/// most `fuse_limit` of the process are: see Switches. `strict`: as lower() has it.
Groups find_groups(const Graph& fused, const std::vector<SlicedCall>& sliced, uint64_t fuse_limit,
                   bool strict = false);

}  // namespace ahead::native
