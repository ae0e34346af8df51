#pragma once

#include <cstdint>

#include "ahead/graph.h"

/// A well-formed graph with about `num_nodes` nodes, the same for the same seed: elementwise calls,
/// lists, reductions, sub-graphs, undefined values, constants of every kind, both phases, all tags.
/// Its metadata are made up: it can be printed, checked and compared, but not run.
ahead::Graph random_graph(uint64_t seed, size_t num_nodes = 30);
