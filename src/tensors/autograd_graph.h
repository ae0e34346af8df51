#pragma once

#include <c10/util/flat_hash_map.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <unordered_map>
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

/// Whether a gradient does more than its operator's formula says: a custom function, or hooks.
bool is_opaque(torch::autograd::Node& node);

/// Whether gradients of the roots reach one of these nodes.
bool reaches_any(const torch::autograd::edge_list& roots,
                 const torch::autograd::edge_list& targets);

/// An opaque node that gets gradients for several of its results; null if there is none.
torch::autograd::Node* find_many_part_gradient(const torch::autograd::edge_list& roots);

/// For each autograd node made since `first_sequence`, by sequence number counted from there, which
/// roots its gradient comes from.
std::unordered_map<int64_t, std::vector<bool>> reaching_roots(
    const torch::autograd::edge_list& roots, uint64_t first_sequence);

/// For each target, from which of the roots a backward comes to it.
std::vector<std::vector<bool>> roots_leading_to(const torch::autograd::edge_list& targets,
                                                const torch::autograd::edge_list& roots);

/// For each root, the roots from which a backward goes through a node, no target or leaf, that it
/// goes through as well. Empty if these are always all.
std::vector<std::vector<bool>> roots_sharing_nodes(const torch::autograd::edge_list& roots,
                                                   const torch::autograd::edge_list& targets);

/// For each root, the other roots from which a backward passes through it. Empty if none does.
std::vector<std::vector<bool>> roots_passing_through(const torch::autograd::edge_list& roots);

}  // namespace ahead::tracing
