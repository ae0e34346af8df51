#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

#include "ahead/ahead.h"

namespace ahead {

/// One tensor for each input of a graph: those a graph holds itself, else `args` in order.
std::vector<at::Tensor> with_captured(const Graph& graph, const std::vector<at::Tensor>& args);

/// Says what is wrong with the halves of a joint graph: whether they are well formed, have the
/// inputs and outputs they should have, and give the joint graph's results to the bit when the
/// inputs it mutates are overwritten between them. Takes a tensor for each input of the joint
/// graph; leaves them as they are. Empty if all is well.
std::string halves_problem(const JointGraph& joint, const PartitionedGraphs& halves,
                           const std::vector<at::Tensor>& args);

/// Says how the results of two graphs with the same inputs differ; empty if they do not.
std::string results_difference(const Graph& expected, const Graph& actual,
                               const std::vector<at::Tensor>& args);

}  // namespace ahead
