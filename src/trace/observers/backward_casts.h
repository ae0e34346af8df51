#pragma once

#include <c10/core/ScalarType.h>

#include <optional>

#include "ahead/graph.h"

namespace ahead::tracing {

/// Notices what autocast does, or could do, in the backward of a trace. A backward that runs later
/// may find autocast in another state than the one it was traced in.
class BackwardCasts {
 public:
  /// An operator that autocast may cast for is about to be called in the backward on floating-point
  /// tensors of this type; none: of several types.
  void watch(const Operator& op, std::optional<at::ScalarType> dtype) {
    watched_ = &op;
    uncast_ = dtype;
  }
  void stop_watching() { watched_ = nullptr; }
  /// A floating-point tensor of this type reached a kernel.
  void note_dtype(at::ScalarType dtype) {
    if (watched_ != nullptr && uncast_ != dtype) cast_ = watched_;
  }
  /// The watched operator returned a floating-point tensor of another type than it was given.
  void note_cast_result() { cast_ = watched_; }
  /// An operator of the backward takes tensors that autocast could cast, were it on.
  void note_castable(const Operator& op) { castable_ = &op; }

  /// An operator of the backward for which autocast cast something; null if there is none.
  const Operator* cast() const { return cast_; }
  /// One for which autocast could cast something, were it on; null if there is none.
  const Operator* castable() const { return castable_; }

 private:
  const Operator* watched_ = nullptr;
  std::optional<at::ScalarType> uncast_;  ///< what it was given
  const Operator* cast_ = nullptr;
  const Operator* castable_ = nullptr;
};

}  // namespace ahead::tracing
