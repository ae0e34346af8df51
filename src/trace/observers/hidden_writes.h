#pragma once

#include <ATen/core/Tensor.h>

#include <unordered_set>

#include "ahead/graph.h"
#include "base/libtorch.h"
#include "trace/dispatch/traced_call.h"

namespace ahead::tracing {

/// Notices writes that autograd does not know of, and histories that are cut: in no_grad mode,
/// through detached tensors, by detach_(). What autograd saved before such a write is out of date,
/// and nobody is told.
class HiddenWrites {
 public:
  /// User code is about to call an operator. Returns the differentiable tensor of which it may make
  /// a view; undefined: none.
  at::Tensor before(const TracedCall& call);
  /// It has been called; `viewed` is what before() returned.
  void after(const TracedCall& call, const at::Tensor& viewed);
  /// A node was written for an operator that user code calls, or that one of those calls.
  void note_node(const Node& node);
  /// Something was made that has the memory of a tensor, but no history: once that tensor is
  /// differentiable, a write to the memory is hidden from autograd.
  void note_detached(const at::Tensor& traced);
  /// A tensor may be differentiable now.
  void note_differentiable(const at::Tensor& traced);
  /// An operator wrote to a traced tensor, whose history_of was `before`.
  void note_write(const at::Tensor& written, const NodePtr& before, const Operator& op);

  /// An operator that wrote without autograd's knowledge, or cut a history; null if there is none.
  const Operator* found() const { return found_; }

  /// The autograd node of a tensor. Asking LibTorch for it would give views of what was written to
  /// another one.
  static NodePtr history_of(const at::Tensor& tensor);

 private:
  void note_view(const at::Tensor& view, const Operator& op);

  bool grad_mode_ = true;  ///< where user code calls the operator now being traced
  /// Memory of differentiable tensors, and of others, that something without history has as well.
  std::unordered_set<const c10::StorageImpl*> detached_, shared_;
  const Operator* found_ = nullptr;
};

}  // namespace ahead::tracing
