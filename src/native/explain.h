#pragma once

#include <string>
#include <vector>

#include "ahead/graph.h"
#include "native/build/kernel_library.h"
#include "native/fuse/fuse.h"
#include "native/groups.h"

namespace ahead::native {

/// Writes lines to stderr, all at once, each after "[ahead <topic>] <name>: ".
void log_lines(const char* topic, const std::string& name, const std::vector<std::string>& lines);

/// What a kernel computes, reads and writes, and where its code came from.
std::string explain_kernel(const Group& group, KernelOrigin origin);

/// What the kernels of a graph keep out of memory, and what they need for it.
std::vector<std::string> explain_memory(const Graph& graph, const Graph& fused,
                                        const std::vector<Group>& groups);

}  // namespace ahead::native
