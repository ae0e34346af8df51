#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <optional>
#include <unordered_set>
#include <vector>

#include "base/libtorch.h"

namespace ahead::observe {

/// The backward of a custom autograd function as a function of all it depends on: the incoming
/// gradients, and the values that the forward saved.
struct CustomFormula {
  using Apply = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& gradients,
                                                      const std::vector<c10::IValue>& saved)>;
  Apply apply;
  std::vector<c10::IValue> saved;
};

/// Whether a node belongs to a custom autograd function.
bool is_custom(const torch::autograd::Node& node);

/// Hides, while it exists, which results of a custom function were marked as not differentiable and
/// which arguments as dirty. Only its forward needs these marks, but LibTorch does not list what a
/// node with marks holds.
class OpenContext {
 public:
  explicit OpenContext(torch::autograd::Node& node);
  ~OpenContext();
  OpenContext(const OpenContext&) = delete;
  OpenContext& operator=(const OpenContext&) = delete;

 private:
  void exchange();

  torch::autograd::Node& node_;
  std::unordered_set<c10::TensorImpl*> non_differentiable_, dirty_;
};

/// The formula of a node; none if it is not to be had: the node has been released, or holds
/// something that cannot be handed around.
std::optional<CustomFormula> formula_of(const NodePtr& node);

/// Replaces every tensor in a value by map(tensor). False if there may be tensors that cannot be
/// reached.
bool map_saved(c10::IValue& value, const std::function<at::Tensor(const at::Tensor&)>& map);

}  // namespace ahead::observe
