#pragma once

#include <torch/csrc/api/include/torch/nn/module.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "ahead/detail/compiled_core.h"
#include "compile/pipeline.h"
#include "runtime/guards.h"

namespace ahead::detail {

/// One program of a compiled callable and the calls it is right for; or the knowledge that such
/// calls have to run eagerly.
struct Entry {
  TreeSpec spec;
  runtime::AmbientState ambient;
  std::vector<bool> training;
  runtime::CallGuard guard;
  std::shared_ptr<const runtime::CallPlan> plan;
  std::shared_ptr<const void> prototype;
  std::vector<Program> programs;
  uint64_t fingerprint = 0;
  /// Why calls run eagerly; empty if they do not.
  std::string eager_reason;
  /// Eager may throw as well, so that nothing is to be remembered.
  bool is_doubtful = false;
  /// Tensors that the traced call itself stored outside the function, to be had from the last
  /// results. Such an entry serves that call only.
  std::vector<at::Tensor> escapes{};
  /// How many further calls are to be traced again.
  std::atomic<int64_t> unconfirmed{0};
  /// For each captured tensor the fewest owners it has been seen with, this entry among them.
  std::vector<std::atomic<size_t>> owners{};

  /// Notes how many owners each captured tensor has now, once the program is known to be right.
  void count_owners();
  /// A captured tensor belongs to nobody else any more: the function cannot be using it.
  bool is_stale() const;
  /// A captured tensor has fewer owners than ever: the function may be using another one.
  bool lost_an_owner() const;
};

}  // namespace ahead::detail
