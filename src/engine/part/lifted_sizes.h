#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/SymInt.h>
#include <torch/csrc/autograd/input_metadata.h>

#include <memory>
#include <optional>
#include <vector>

#include "ahead/dim.h"
#include "engine/walk/backward.h"
#include "engine/walk/size_pattern.h"
#include "ir/sizes/size_guards.h"

namespace ahead::engine {

/// The sizes that may change, and their values now.
struct ChangingSizes {
  const SizePattern& pattern;
  const std::vector<int64_t>& values;
};

/// The sizes of a backward as formulas see them while a part of it is traced: expressions where
/// they may change. Positions are those in Backward::sizes().
class LiftedSizes {
 public:
  /// `sizes`: null if none may change. Then nothing but any() may be asked for.
  LiftedSizes(Backward& backward, const ChangingSizes* sizes);

  bool any() const { return pattern_ != nullptr; }
  /// What formulas decide by sizes is noted there; null if none may change.
  const std::shared_ptr<SizeGuards>& guards() const { return guards_; }

  Dims dims(size_t first, size_t count) const;
  /// Says what stands for the sizes that nodes hold themselves.
  void lift_held(std::vector<std::optional<c10::SymInt>>& held) const;
  /// Says what stands for the numbers that custom functions hold, also if no size may change.
  void lift_numbers() const;
  /// What the gradients must look like that the step sends along edges which are followed.
  std::vector<std::optional<torch::autograd::InputMetadata>> metadata(const Step& step) const;

 private:
  Dim dim(size_t position) const;
  c10::SymInt held_size(size_t position) const;
  c10::IValue number(const c10::IValue& now, size_t position) const;

  Backward& backward_;
  const SizePattern* const pattern_;
  const std::shared_ptr<SizeGuards> guards_;
};

}  // namespace ahead::engine
