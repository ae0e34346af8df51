#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <cstdint>
#include <string>

#include "base/autocast.h"

namespace ahead {

/// The modes of a thread under which operators are called: what decides, besides their arguments
/// and random numbers, what they do.
struct Ambient {
  /// The modes of the calling thread.
  static Ambient current();
  bool operator==(const Ambient&) const = default;
  /// All of it as numbers, for keys.
  std::array<uint64_t, 3> words() const;
  /// What differs, in words; empty if nothing does.
  std::string difference(const Ambient& now) const;
  /// Puts autocast and the default dtype into effect on this thread.
  void apply_dtypes() const;

  uint64_t included_keys, excluded_keys;
  bool grad_mode, inference_mode;
  at::ScalarType default_dtype;
  AutocastState autocast;
  bool deterministic, deterministic_warn_only;
};

}  // namespace ahead
