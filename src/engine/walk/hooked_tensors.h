#pragma once

#include <c10/util/FunctionRef.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace ahead::engine {

/// A tensor that a node saved and that hooks unpack, when the node is reached.
struct HookedTensor {
  uint32_t position;  ///< among all that the node saved
  /// Those with the same number are made again together (GroupedHooks); kAlone: by itself.
  uint32_t group;

  static constexpr uint32_t kAlone = UINT32_MAX;
};

/// The saved tensors of a backward that hooks unpack, node by node in the order in which nodes do.
class HookedTensors {
 public:
  /// Adds those of a node; returns how many.
  uint32_t add(torch::autograd::Node& node);
  const std::vector<HookedTensor>& all() const { return all_; }
  size_t size() const { return all_.size(); }
  void clear();

 private:
  uint32_t group_of(torch::autograd::SavedVariable& saved);

  std::vector<HookedTensor> all_;
  std::vector<const void*> groups_;  ///< of these, each once
};

/// Visits some saved tensors of a node, given by their positions from `first` on, with the numbers
/// of these. False: some are gone, as the node was released. The node must be locked.
bool for_each_hooked(torch::autograd::Node& node, const std::vector<HookedTensor>& all,
                     size_t first, size_t count,
                     c10::function_ref<void(torch::autograd::SavedVariable&, size_t)> visit);

/// While it lives, a node seems to have saved nothing where hooks would have to be asked.
class HookedAside {
 public:
  explicit HookedAside(torch::autograd::Node& node);
  ~HookedAside();
  HookedAside(const HookedAside&) = delete;
  HookedAside& operator=(const HookedAside&) = delete;

 private:
  using SavedVariable = torch::autograd::SavedVariable;
  std::vector<std::pair<SavedVariable*, SavedVariable>> aside_;
};

}  // namespace ahead::engine
