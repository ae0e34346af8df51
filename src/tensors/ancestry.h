#pragma once

#include <torch/csrc/autograd/edge.h>

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/hash.h"

namespace ahead::tracing {

/// Knows which tensors from outside a trace were computed from which others, by autograd's edges.
class Ancestry {
 public:
  struct Relatives {
    std::vector<size_t> ancestors;
    std::vector<size_t> descendants;
  };

  /// Adds a tensor by its number, which is larger than the numbers before. `outside`: the edge by
  /// which its gradient goes on outside; `is_computed`: that edge leads to the node of the operator
  /// that made it. Returns the tensors added before that it was computed from, and the tensors
  /// added before that were computed from it, in order.
  Relatives add(size_t tensor, const torch::autograd::Edge& outside, bool is_computed);

 private:
  using Place = std::pair<const torch::autograd::Node*, uint32_t>;
  struct PlaceHash {
    size_t operator()(const Place& place) const {
      return hash_combine(reinterpret_cast<uintptr_t>(place.first), place.second);
    }
  };
  using Tensors = std::unordered_map<Place, std::vector<size_t>, PlaceHash>;

  static Place place_of(const torch::autograd::Edge& edge) {
    return {edge.function.get(), edge.input_nr};
  }
  static const std::vector<size_t>& find(const Tensors& tensors, const Place& place);

  Tensors at_;           ///< by their gradient edge
  Tensors in_front_of_;  ///< by each edge that their gradient reaches after that
};

}  // namespace ahead::tracing
