#pragma once

#include <string>
#include <vector>

#include "fuzz/input.h"

namespace ahead::fuzz {

/// All that tracing must leave alone: the inputs and the random number generator.
class Snapshot {
 public:
  explicit Snapshot(const std::vector<MadeInput>& inputs);

  /// What has changed since; empty if nothing has.
  std::string difference(const std::vector<MadeInput>& inputs) const;

 private:
  struct Look {
    std::vector<char> memory;  ///< of the whole storage
    uint64_t version;
    const void* grad_fn;
    bool requires_grad;
    bool has_grad;
    size_t num_hooks;
  };
  static Look look_at(const at::Tensor& tensor);
  static const char* compare(const Look& before, const Look& after);

  std::vector<Look> looks_;
  at::Tensor random_state_;
};

}  // namespace ahead::fuzz
