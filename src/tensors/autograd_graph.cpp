#include "tensors/autograd_graph.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <typeinfo>

namespace ahead::tracing {

using torch::autograd::Edge;
using torch::autograd::edge_list;

bool is_opaque(torch::autograd::Node& node) {
  if (dynamic_cast<torch::autograd::AccumulateGrad*>(&node) != nullptr) return false;
  return std::string_view(typeid(node).name()).find("CppNode") != std::string_view::npos ||
         !node.pre_hooks().empty() || !node.post_hooks().empty() ||
         !node.tensor_pre_hooks().empty();
}

bool reaches_any(const edge_list& roots, const edge_list& targets) {
  std::unordered_set<const torch::autograd::Node*> wanted;
  for (const Edge& target : targets) wanted.insert(target.function.get());
  bool found = false;
  for_each_node(roots,
                [&](const torch::autograd::Node& node) { found |= wanted.count(&node) != 0; });
  return found;
}

torch::autograd::Node* find_many_part_gradient(const edge_list& roots) {
  std::unordered_map<const torch::autograd::Node*, uint32_t> parts;
  torch::autograd::Node* found = nullptr;
  const auto note = [&](const Edge& edge) {
    if (!edge.function) return;
    const auto [part, is_first] = parts.emplace(edge.function.get(), edge.input_nr);
    if (!is_first && part->second != edge.input_nr && is_opaque(*edge.function))
      found = edge.function.get();
  };
  for (const Edge& root : roots) note(root);
  for_each_node(roots, [&](const torch::autograd::Node& node) {
    for (const Edge& edge : node.next_edges()) note(edge);
  });
  return found;
}

std::unordered_map<int64_t, std::vector<bool>> reaching_roots(const edge_list& roots,
                                                              uint64_t first_sequence) {
  std::unordered_map<int64_t, std::vector<bool>> reach;
  for (size_t i = 0; i < roots.size(); ++i) {
    for_each_node({roots[i]}, [&](const torch::autograd::Node& node) {
      if (node.sequence_nr() < first_sequence) return;
      std::vector<bool>& from = reach[static_cast<int64_t>(node.sequence_nr() - first_sequence)];
      from.resize(roots.size());
      from[i] = true;
    });
  }
  return reach;
}

std::unordered_map<int64_t, std::vector<bool>> targets_behind(
    const std::unordered_set<int64_t>& nodes, const edge_list& roots, const edge_list& targets,
    uint64_t first_sequence) {
  std::unordered_map<int64_t, std::vector<bool>> behind;
  for_each_node(roots, [&](torch::autograd::Node& node) {
    const auto sequence = static_cast<int64_t>(node.sequence_nr() - first_sequence);
    if (node.sequence_nr() < first_sequence || nodes.count(sequence) == 0) return;
    std::unordered_set<const torch::autograd::Node*> reached;
    for_each_node(node.next_edges(),
                  [&](const torch::autograd::Node& other) { reached.insert(&other); });
    std::vector<bool>& found = behind[sequence];
    found.resize(targets.size());
    for (size_t i = 0; i < targets.size(); ++i)
      found[i] = found[i] || reached.count(targets[i].function.get()) != 0;
  });
  return behind;
}

std::vector<std::vector<bool>> roots_leading_to(const edge_list& targets, const edge_list& roots) {
  std::unordered_map<const torch::autograd::Node*, size_t> known;
  std::vector<std::vector<bool>> leading;
  std::vector<size_t> which;
  for (const Edge& target : targets) {
    which.push_back(known.emplace(target.function.get(), known.size()).first->second);
  }
  std::vector<std::vector<bool>> found(known.size(), std::vector<bool>(roots.size()));
  for (size_t i = 0; i < roots.size(); ++i) {
    for_each_node({roots[i]}, [&](const torch::autograd::Node& node) {
      const auto target = known.find(&node);
      if (target != known.end()) found[target->second][i] = true;
    });
  }
  for (const size_t target : which) leading.push_back(found[target]);
  return leading;
}

std::vector<std::vector<bool>> roots_sharing_nodes(const edge_list& roots,
                                                   const edge_list& targets) {
  std::unordered_set<const torch::autograd::Node*> ends;
  for (const Edge& target : targets) ends.insert(target.function.get());
  std::unordered_map<const torch::autograd::Node*, std::vector<bool>> from;
  for (size_t i = 0; i < roots.size(); ++i) {
    for_each_node({roots[i]}, [&](torch::autograd::Node& node) {
      if (ends.count(&node) != 0 ||
          dynamic_cast<torch::autograd::AccumulateGrad*>(&node) != nullptr)
        return;
      std::vector<bool>& together = from[&node];
      together.resize(roots.size());
      together[i] = true;
    });
  }
  std::set<std::vector<bool>> groups;
  for (const auto& [node, together] : from) groups.insert(together);
  std::vector<std::vector<bool>> sharing(roots.size(), std::vector<bool>(roots.size()));
  bool share_all = true;
  for (size_t i = 0; i < roots.size(); ++i) {
    sharing[i][i] = true;
    for (const std::vector<bool>& together : groups) {
      for (size_t k = 0; k < roots.size() && together[i]; ++k)
        sharing[i][k] = sharing[i][k] || together[k];
    }
    share_all &= std::find(sharing[i].begin(), sharing[i].end(), false) == sharing[i].end();
  }
  return share_all ? std::vector<std::vector<bool>>() : sharing;
}

std::vector<std::vector<bool>> roots_passing_through(const edge_list& roots) {
  std::vector<std::vector<bool>> passing(roots.size(), std::vector<bool>(roots.size()));
  bool is_any = false;
  std::unordered_multimap<const torch::autograd::Node*, size_t> roots_at;
  for (size_t i = 0; i < roots.size(); ++i) roots_at.emplace(roots[i].function.get(), i);
  for (size_t i = 0; i < roots.size(); ++i) {
    for_each_node({roots[i]}, [&](const torch::autograd::Node& node) {
      for (const Edge& edge : node.next_edges()) {
        const auto [first, last] = roots_at.equal_range(edge.function.get());
        for (auto root = first; root != last; ++root) {
          if (roots[root->second].input_nr != edge.input_nr) continue;
          passing[root->second][i] = is_any = true;
        }
      }
    });
  }
  return is_any ? passing : std::vector<std::vector<bool>>();
}

}  // namespace ahead::tracing
