#pragma once

#include <c10/util/flat_hash_map.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <vector>

/// What can be learnt from LibTorch's graph of autograd nodes before it runs.
namespace ahead::tracing {

/// Visits every autograd node that gradients of the roots reach, once.
template <class Visit>
void for_each_node(const torch::autograd::edge_list& roots, Visit&& visit) {
  std::vector<torch::autograd::Node*> pending;
  ska::flat_hash_set<torch::autograd::Node*> seen;
  const auto add = [&](const torch::autograd::Edge& edge) {
    if (edge.function && seen.insert(edge.function.get()).second)
      pending.push_back(edge.function.get());
  };
  for (const torch::autograd::Edge& root : roots) add(root);
  while (!pending.empty()) {
    torch::autograd::Node* node = pending.back();
    pending.pop_back();
    visit(*node);
    for (const torch::autograd::Edge& edge : node->next_edges()) add(edge);
  }
}

/// Whether an autograd node does more than an operator's formula: a custom function, or hooks.
bool is_opaque(torch::autograd::Node& node);

/// Whether gradients of the roots reach the node of one of the targets.
bool reaches_any(const torch::autograd::edge_list& roots,
                 const torch::autograd::edge_list& targets);

/// An opaque node that gets gradients for several results of its forward; null if there is none.
torch::autograd::Node* find_many_part_gradient(const torch::autograd::edge_list& roots);

/// For each autograd node with a sequence number from `first_sequence` on, by the difference: the
/// roots whose backward reaches it.
std::unordered_map<int64_t, std::vector<bool>> reaching_roots(
    const torch::autograd::edge_list& roots, uint64_t first_sequence);

/// For each of these autograd nodes, by the difference of its sequence number from
/// `first_sequence`: the targets to whose nodes the gradients lead that it makes.
std::unordered_map<int64_t, std::vector<bool>> targets_behind(
    const std::unordered_set<int64_t>& nodes, const torch::autograd::edge_list& roots,
    const torch::autograd::edge_list& targets, uint64_t first_sequence);

/// For each target, the roots whose backward reaches its node.
std::vector<std::vector<bool>> roots_leading_to(const torch::autograd::edge_list& targets,
                                                const torch::autograd::edge_list& roots);

/// For each root, the roots whose backward runs an autograd node that its own backward runs too,
/// targets and leaves not counted. Empty if that holds of any two roots.
std::vector<std::vector<bool>> roots_sharing_nodes(const torch::autograd::edge_list& roots,
                                                   const torch::autograd::edge_list& targets);

/// For each root, the other roots whose backward passes through its edge. Empty if none does.
std::vector<std::vector<bool>> roots_passing_through(const torch::autograd::edge_list& roots);

}  // namespace ahead::tracing
