#pragma once

#include <string>
#include <vector>

#include "ahead/ahead.h"

namespace ahead {

/// Reads a joint graph.
JointGraph parse_joint(const std::string& text);
/// Random tensors for the inputs of a graph that is all floats.
std::vector<at::Tensor> random_args(const Graph& graph);
/// Expects the halves to be right and to give what the joint graph gives for random arguments.
void expect_right(const JointGraph& joint, const PartitionedGraphs& halves);
/// The operators of a graph in order.
std::vector<std::string> operators(const Graph& graph);

}  // namespace ahead
