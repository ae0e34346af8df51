#pragma once

#include <c10/core/ScalarType.h>

#include <optional>

#include "ahead/graph.h"
#include "trace/dispatch/traced_call.h"

namespace ahead::tracing {

/// Notices what autocast does, or could do, in the backward of a trace. A backward that runs later
/// may find autocast in another state than the one it was traced in.
class BackwardCasts {
 public:
  /// The one floating-point type that a watched call takes and that its results are expected to
  /// have; none: they may have any.
  using Expected = std::optional<at::ScalarType>;

  /// An operator that autocast may cast for is about to be called in the backward.
  Expected before(const TracedCall& call);
  /// A floating-point tensor of this type reached a kernel.
  void note_dtype(at::ScalarType dtype) {
    if (watched_ != nullptr && uncast_ != dtype) cast_ = watched_;
  }
  /// Any operator has been called.
  void after(const TracedCall& call, Expected expected) {
    if (expected) check_results(call, *expected);
    watched_ = nullptr;
  }

  /// An operator of the backward for which autocast cast something; null if there is none.
  const Operator* cast() const { return cast_; }
  /// One for which autocast could cast something, were it on; null if there is none.
  const Operator* castable() const { return castable_; }

 private:
  void check_results(const TracedCall& call, at::ScalarType expected);

  const Operator* watched_ = nullptr;     ///< the operator being called
  std::optional<at::ScalarType> uncast_;  ///< what it takes; none: several types
  const Operator* cast_ = nullptr;
  const Operator* castable_ = nullptr;
};

}  // namespace ahead::tracing
