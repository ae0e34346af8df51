#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

namespace ahead::runtime {

/// Whether the gradient that goes along this edge is added to the `.grad` of a leaf.
bool leads_to_leaf(const torch::autograd::Edge& edge);
/// Whether that leaf has a `.grad` now, so that the gradient will be added to it rather than kept.
bool has_grad(const torch::autograd::Edge& edge_to_leaf);
/// Whether somebody has registered to be called when this node, an AccumulateGrad, is run.
bool has_hooks_on_gradient(torch::autograd::Node& node);
/// Whether the user can tell that a backward came along this edge with an undefined gradient: its
/// node has hooks, or is no AccumulateGrad, so that there may be hooks behind it.
bool is_watched(const torch::autograd::Edge& edge);

}  // namespace ahead::runtime
