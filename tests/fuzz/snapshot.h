#pragma once

#include <string>
#include <vector>

#include "fuzz/input.h"
#include "support/eager.h"

namespace ahead::fuzz {

/// All that tracing must leave alone: the inputs and the random number generator.
class Snapshot {
 public:
  explicit Snapshot(const std::vector<MadeInput>& inputs);

  /// What has changed since; empty if nothing has.
  std::string difference(const std::vector<MadeInput>& inputs) const;

 private:
  std::vector<TensorSnapshot> tensors_;
  at::Tensor random_state_;
};

}  // namespace ahead::fuzz
