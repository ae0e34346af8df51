#include "tensors/ancestry.h"

#include <algorithm>
#include <unordered_set>

#include "tensors/autograd_graph.h"

namespace ahead::tracing {

const std::vector<size_t>& Ancestry::find(const Tensors& tensors, const Place& place) {
  static const std::vector<size_t> none;
  const auto found = tensors.find(place);
  return found == tensors.end() ? none : found->second;
}

Ancestry::Relatives Ancestry::add(size_t tensor, const torch::autograd::Edge& outside,
                                  bool is_computed) {
  Relatives relatives;
  relatives.descendants = find(in_front_of_, place_of(outside));
  at_[place_of(outside)].push_back(tensor);
  if (!is_computed) return relatives;
  std::unordered_set<Place, PlaceHash> behind;
  for_each_node({outside}, [&](const torch::autograd::Node& node) {
    for (const torch::autograd::Edge& edge : node.next_edges()) {
      if (edge.is_valid()) behind.insert(place_of(edge));
    }
  });
  for (const Place& place : behind) {
    const std::vector<size_t>& there = find(at_, place);
    relatives.ancestors.insert(relatives.ancestors.end(), there.begin(), there.end());
    in_front_of_[place].push_back(tensor);
  }
  std::sort(relatives.ancestors.begin(), relatives.ancestors.end());
  return relatives;
}

}  // namespace ahead::tracing
