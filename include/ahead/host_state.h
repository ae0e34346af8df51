#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "ahead/export.h"

namespace ahead {

/// Numbers that the host keeps and that a compiled function computes with: a rate, a count of
/// steps, a temperature. Derive from it, and take the numbers with `take_next`.
///
/// In a call that runs from graphs none of the function's own code runs, but these methods do: the
/// call is one that the program is for if guard() says so; inputs() are given to its graphs; and
/// commit() is called when they have run. Compiled functions hold it weakly, and one that is gone
/// is observed anew.
class AHEAD_API HostState {
 public:
  virtual ~HostState() = default;

  /// Whether whoever takes these numbers would do the same with them as when it was observed. Is
  /// called before the call begins.
  virtual bool guard() const = 0;
  /// The numbers, as they are once commit() has been called `ahead` times from now on. New tensors
  /// each time, without a history; how many there are and what they look like never changes.
  virtual std::vector<at::Tensor> inputs(size_t ahead) const = 0;
  /// The numbers have been used.
  virtual void commit() = 0;
};

/// The numbers that come next, which are used by that: inputs(0), then commit(). The one way to
/// take them in a function that may be compiled; a trace (`ahead::trace`) has them as constants.
AHEAD_API std::vector<at::Tensor> take_next(const std::shared_ptr<HostState>& state);

}  // namespace ahead
