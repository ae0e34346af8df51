#include "runtime/node/leaf_edges.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <typeinfo>

namespace ahead::runtime {

bool leads_to_leaf(const torch::autograd::Edge& edge) {
  if (!edge.is_valid()) return false;
  const torch::autograd::Node& node = *edge.function;
  return typeid(node) == typeid(torch::autograd::AccumulateGrad);
}

bool has_grad(const torch::autograd::Edge& edge_to_leaf) {
  const auto& node = static_cast<const torch::autograd::AccumulateGrad&>(*edge_to_leaf.function);
  return node.variable.grad().defined();
}

bool has_hooks_on_gradient(torch::autograd::Node& node) {
  return !node.tensor_pre_hooks().empty() || !node.pre_hooks().empty() ||
         !node.post_hooks().empty() || node.tensor_post_acc_grad_hooks() != nullptr;
}

bool is_watched(const torch::autograd::Edge& edge) {
  if (!edge.is_valid()) return false;
  return !leads_to_leaf(edge) || has_hooks_on_gradient(*edge.function);
}

}  // namespace ahead::runtime
