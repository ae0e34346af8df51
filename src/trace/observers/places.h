#pragma once

#include <torch/csrc/autograd/edge.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ahead/graph.h"

namespace ahead::tracing {

/// Knows where the user's code called what is traced, if somebody wants to know.
class Places {
 public:
  explicit Places(bool wanted) : wanted_(wanted) {}

  /// The user's code is about to call an operator of the forward, from where the stack tells.
  void before() {
    if (wanted_ && !is_replayed_) look();
  }
  /// The same, where a recording of the user's code is run, which says from where.
  void replay(const std::string* place) {
    is_replayed_ = true;
    if (wanted_) pass(place);
  }

  /// Autograd nodes are about to run: those of these edges and all behind them.
  void before_backward(const torch::autograd::edge_list& roots) {
    if (wanted_) watch(roots);
  }

  /// Says of a new node what it belongs to. `sequence` is the number of the autograd node that it
  /// belongs to, as LibTorch counts.
  void put_on(Node& node, uint64_t sequence) {
    if (wanted_) find(node, sequence);
  }

 private:
  void look();
  void pass(const std::string* place);
  class Hook;
  void watch(const torch::autograd::edge_list& roots);
  void find(Node& node, uint64_t sequence);
  const std::string* of(uint64_t sequence) const;

  const bool wanted_;
  bool is_replayed_ = false;
  const std::string* current_ = nullptr;
  /// Autograd nodes from these numbers on were made from these places.
  std::vector<std::pair<uint64_t, const std::string*>> passed_;
  /// The autograd node that ran last; what is called since then the engine itself calls.
  std::optional<uint64_t> finished_;
};

}  // namespace ahead::tracing
