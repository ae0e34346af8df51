#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ahead/graph.h"

namespace ahead::native {

/// What the environment asks of the native backend, to look into it by hand.
struct Switches {
  /// AHEAD_LOGS: what is explained on stderr. A list of fusion, kernels and memory.
  bool logs_fusion = false, logs_kernels = false, logs_memory = false;
  /// AHEAD_FUSE_LIMIT: only so many groups of operators of the process become kernels, those that
  /// come first.
  uint64_t fuse_limit = UINT64_MAX;
  /// AHEAD_NATIVE_SKIP: operators that are left to ATen, by their names in graphs; without the
  /// overload: all overloads, and "aten." may be left out.
  std::vector<std::string> skipped;

  bool skips(const Operator& op) const;
  /// Whether somebody looks at what is done, or says what is left out.
  bool any() const {
    return logs_fusion || logs_kernels || logs_memory || fuse_limit != UINT64_MAX ||
           !skipped.empty();
  }
};

/// Reads the environment. A warning says which of its words mean nothing.
Switches read_switches();

}  // namespace ahead::native
