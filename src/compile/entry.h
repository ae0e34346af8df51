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
  /// How many further calls are to be traced again.
  std::atomic<int64_t> unconfirmed{0};
};

}  // namespace ahead::detail
