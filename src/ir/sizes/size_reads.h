#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "ahead/graph.h"

/// Sizes that a graph reads from tensors while it runs, where others are known when a run begins.
/// After `ahead.local_scalar_dense(%0, size("s0"))` the size s0 is the integer in %0. Sizes are
/// numbered in the order in which they become known.
namespace ahead {

/// Whether the node reads a size.
bool reads_size(const Node& node);
/// Whether any node of the graph does, those of sub-graphs aside.
bool reads_sizes(const Graph& graph);
/// The number of the size that such a node reads. Throws UserError if it names none.
uint32_t size_read_by(const Node& node);
/// How many sizes there are, or must be, before the first node.
uint32_t count_given_sizes(const Graph& graph);
/// How many sizes have to be known for a constant of a graph, or for a description.
uint32_t count_needed_sizes(const c10::IValue& constant);
uint32_t count_needed_sizes(const Dims& dims);

/// Throws Unsupported, in the name of a stage, if the graph reads sizes.
void refuse_size_reads(const Graph& graph, std::string_view stage,
                       const std::string& what_to_do);

}  // namespace ahead
