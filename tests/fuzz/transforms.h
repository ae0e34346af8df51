#pragma once

#include <string>

#include "ahead/graph.h"
#include "fuzz/program.h"

namespace ahead::fuzz {

/// Runs everything that rewrites graphs, passes, partitioners and fusion, and compares what the
/// rewritten graphs give with what the graph gives. Takes a tensor for each graph input. Says what
/// differs; empty if nothing does.
std::string transforms_problem(const Graph& graph, const Tensors& args);

}  // namespace ahead::fuzz
