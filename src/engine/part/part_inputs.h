#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/gradients.h"
#include "engine/part/lifted_sizes.h"
#include "engine/part/part.h"
#include "engine/walk/backward.h"
#include "ir/sizes/layout.h"

namespace ahead::engine {

/// Finds what a part of a backward takes, and what that must be like: what its steps hold and what
/// hooks unpacked for them, gradients that wait, leaves and their `.grad`.
class PartInputs {
 public:
  /// Writes it down in the part, of which the steps are known. Throws NotTraceable, naming the step
  /// at fault, or std::exception if sizes cannot change.
  PartInputs(Part& part, const Backward& backward, const std::vector<Step::Kind>& kinds,
             const Gradients& gradients, const LiftedSizes& sizes);

  /// The part's arguments, without their history.
  const std::vector<at::Tensor>& tensors() const { return tensors_; }
  /// How they lie where sizes change; empty: none does.
  const std::vector<std::optional<Layout>>& layouts() const { return layouts_; }
  /// The position among them of a leaf that some node holds as well.
  std::optional<size_t> held_leaf(const at::Tensor& leaf) const;

 private:
  const Step& step(size_t index) const { return backward_.steps()[index]; }
  void find_places();
  void find_unpacked();
  void find_leaves(const std::vector<Step::Kind>& kinds);
  Part::Accumulation describe_leaf(size_t index) const;
  std::string why_deferred(const Step& step) const;
  bool is_added_to(const at::Tensor& leaf) const;
  void lift();
  void lift_leaf(Part::Accumulation& accumulation);
  void lift_gradient(Part::Expected& expected, const at::Tensor& gradient);
  void lift_unpacked(TensorMeta& meta);
  void add_layout(Layout layout);
  void gather();
  void gather_leaf(const Part::Accumulation& accumulation);
  void add(const at::Tensor& tensor, Part::Argument argument);

  Part& part_;
  const Backward& backward_;
  const Gradients& gradients_;
  const LiftedSizes& sizes_;
  const size_t num_held_;  ///< tensors that the steps up to the last one hold
  /// What nodes hold, by identity: its position among the tensors.
  std::unordered_map<const c10::TensorImpl*, size_t> held_;
  std::vector<at::Tensor> tensors_;
  std::vector<std::optional<Layout>> layouts_;
};

}  // namespace ahead::engine
