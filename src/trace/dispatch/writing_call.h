#pragma once

#include <c10/util/SmallVector.h>

#include <utility>

#include "trace/dispatch/traced_call.h"
#include "trace/tracer.h"

namespace ahead::tracing {

/// A call of an operator that writes to its arguments. Functionalisation calls its twin that
/// returns a new tensor instead; this sees to it that what was written to is as in eager, and
/// refuses writes for which it cannot.
class WritingCall {
 public:
  /// To be made before the call. Throws Unsupported if a graph could not express it.
  WritingCall(Tracer& tracer, const TracedCall& call);

  /// After the call: gives what was written to the layout it had.
  void restore_layouts();
  /// Once everything lies where it did: tells the real tensors and the observers of the writes.
  void tell() const;

 private:
  struct Written {
    at::Tensor tensor;
    NodePtr history;    ///< before the call
    at::Tensor before;  ///< what it held, if the operator keeps its layout
  };

  void write_by_layout();
  void find_written();
  void remember_layouts();
  void restore_layout(const Written& written) const;
  void return_originals();

  bool is_differentiated() const;
  bool is_elementwise() const;
  void check_not_overlapping(const at::Tensor& tensor) const;
  void check_not_fragile(const at::Tensor& tensor) const;
  void check_not_expanded(const at::Tensor& tensor) const;
  void check_not_written(const at::Tensor& read) const;
  void check_not_overlapping_written(const at::Tensor& read) const;
  void check_made_inside(const at::Tensor& resized) const;

  Tracer& tracer_;
  const TracedCall& call_;
  const TracedOp& op_;
  const c10::SmallVector<size_t, 2> indices_;  ///< of the arguments that it writes to
  c10::SmallVector<Written, 1> written_;
  /// Views of bases that are written to in place of other views, and those.
  c10::SmallVector<std::pair<at::Tensor, at::Tensor>, 1> by_layout_;
};

}  // namespace ahead::tracing
