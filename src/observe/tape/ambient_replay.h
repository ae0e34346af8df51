#pragma once

#include <c10/core/InferenceMode.h>

#include <optional>

#include "base/ambient.h"

namespace ahead::observe {

/// Puts the modes of recorded calls into effect, one after the other, relative to the modes that
/// the recording began with; at its end the previous ones are restored, but for grad mode.
class AmbientReplay {
 public:
  explicit AmbientReplay(const Ambient& first) : first_(first) {}
  ~AmbientReplay();
  AmbientReplay(const AmbientReplay&) = delete;
  AmbientReplay& operator=(const AmbientReplay&) = delete;

  /// Puts the modes of one recorded call into effect.
  void apply(const Ambient& ambient);

 private:
  void leave_keys();

  const Ambient& first_;
  const Ambient* now_ = nullptr;
  const Ambient before_ = Ambient::current();
  std::optional<c10::InferenceMode> inference_;
  std::optional<c10::impl::ExcludeDispatchKeyGuard> excluded_;
};

}  // namespace ahead::observe
