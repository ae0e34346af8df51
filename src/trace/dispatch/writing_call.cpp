#include "trace/dispatch/writing_call.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/copy.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>

#include "ahead/errors.h"
#include "ir/signature.h"
#include "ops/facts/facts.h"
#include "tensors/partial_overlap.h"
#include "trace/dispatch/real_shapes.h"
#include "trace/eager/expand.h"
#include "trace/eager/in_place.h"
#include "trace/tensor/functional.h"

namespace ahead::tracing {
namespace {

namespace functional = at::functionalization::impl;

}  // namespace

WritingCall::WritingCall(Tracer& tracer, const TracedCall& call)
    : tracer_(tracer), call_(call), op_(call.op), indices_(written_arguments(*call.op.op)) {
  if (op_.keeps_layout) write_by_layout();
  find_written();
  if (op_.keeps_layout) remember_layouts();
}

void WritingCall::tell() const {
  for (const Written& written : written_) {
    tracer_.outside().mirror_history(written.tensor);
    if (!op_.keeps_layout) mirror_shape(tracer_.outside(), written.tensor);
    tracer_.hidden_writes().note_write(written.tensor, written.history, *op_.op);
  }
}

/// Functionalisation undoes expand by adding up what was expanded. A part of it, each element of
/// which is memory of its own, is written to as the part of the base that it is.
void WritingCall::write_by_layout() {
  for (size_t index : indices_) {
    c10::IValue& argument = call_.argument(index);
    if (!argument.isTensor() || !is_traced(argument.toTensor())) continue;
    const at::Tensor written = argument.toTensor();
    if (!is_expanded(written) || at::has_internal_overlap(written) == at::MemOverlap::Yes) continue;
    const at::Tensor view = view_by_layout(tracer_.outside(), written);
    if (!view.defined()) continue;
    argument = view;
    by_layout_.emplace_back(view, written);
  }
}

void WritingCall::find_written() {
  for (size_t index : indices_) {
    for_each_traced(call_.argument(index), [&](const at::Tensor& tensor) {
      tracer_.live_tensors().hold_replaced(tensor);
      written_.push_back({tensor, HiddenWrites::history_of(tensor), {}});
    });
  }
}

void WritingCall::remember_layouts() {
  for (auto& [tensor, history, before] : written_) {
    check_not_overlapping(tensor);
    check_not_fragile(tensor);
    check_not_expanded(tensor);
    check_complex_rounding(op_, tensor, call_.arguments());
    tracer_.outside().check_stays_inside(tensor);
    functional::sync(tensor);
    before = functional::from_functional_tensor(tensor);
  }
  for (size_t i = 0; i < call_.arguments().size(); ++i) {
    if (!call_.argument(i).isTensor()) continue;
    const at::Tensor& operand = call_.argument(i).toTensor();
    check_not_overlapping_written(operand);
    if (std::find(indices_.begin(), indices_.end(), i) == indices_.end())
      check_not_written(operand);
  }
}

void WritingCall::restore_layouts() {
  for (const Written& written : written_) {
    if (written.before.defined()) restore_layout(written);
  }
  return_originals();
}

/// Functionalisation gives a tensor the layout that the out-of-place operator chooses; in eager
/// it keeps its own.
void WritingCall::restore_layout(const Written& written) const {
  const auto& [wrapper, history, before] = written;
  functional::sync(wrapper);
  const at::Tensor after = functional::from_functional_tensor(wrapper);
  if (after.sym_sizes() != before.sym_sizes()) return check_made_inside(wrapper);
  if (after.sym_strides() == before.sym_strides()) return;
  at::Tensor restored;
  {
    c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                                             c10::DispatchKeySet(c10::DispatchKey::Functionalize));
    restored = at::copy(before, after);
  }
  functional::replace_(wrapper, restored);
  functional::commit_update(wrapper);
  functional::sync(wrapper);
}

/// In-place operators return the tensor that they were called on.
void WritingCall::return_originals() {
  for (const auto& [view, original] : by_layout_) {
    functional::sync(original);
    for (size_t i = call_.first_result(); i < call_.stack.size(); ++i) {
      c10::IValue& result = call_.stack[i];
      if (result.isTensor() && result.toTensor().is_same(view)) result = original;
    }
  }
}

bool WritingCall::is_differentiated() const {
  bool requires_grad = false;
  for_each_tensor(call_.arguments(), [&](const at::Tensor& tensor) {
    requires_grad = requires_grad || tensor.requires_grad();
  });
  return requires_grad && at::GradMode::is_enabled();
}

/// Whether eager reads each element for the last time when it writes to it.
bool WritingCall::is_elementwise() const {
  const Operator* twin = ops::facts(*op_.op).functional;
  const ops::OpFacts& facts = ops::facts(twin != nullptr ? *twin : *op_.op);
  return facts.op_class == ops::OpClass::Pointwise || facts.op_class == ops::OpClass::Copy;
}

/// Functionalisation would add up what is written to the same memory.
void WritingCall::check_not_overlapping(const at::Tensor& tensor) const {
  if (at::has_internal_overlap(tensor) != at::MemOverlap::Yes) return;
  throw Unsupported("trace", op_.op->name() +
                                 ": it writes to a tensor several elements of which are the same "
                                 "memory (expand, for example). Clone it first.");
}

/// Autograd would have to know how views of one memory lie to each other.
void WritingCall::check_not_fragile(const at::Tensor& written) const {
  const Operator* op = tracer_.fragile_views().find(written);
  if (op == nullptr || !is_differentiated()) return;
  throw Unsupported(
      "trace", op_.op->name() + ": it writes to memory of which there is a view that " +
                   op->name() + " made of another view, or changed in place. Clone that view.");
}

/// Functionalisation would not know which of the elements that are one counts.
void WritingCall::check_not_expanded(const at::Tensor& tensor) const {
  if (!is_expanded(tensor)) return;
  throw Unsupported("trace", op_.op->name() +
                                 ": it writes to a part of an expanded tensor. Write to the "
                                 "tensor itself, or clone it first.");
}

/// Eager overwrites the operand while it reads it: mm_out(x, x, y).
void WritingCall::check_not_written(const at::Tensor& read) const {
  const bool is_written =
      read.defined() && std::any_of(written_.begin(), written_.end(),
                                    [&](const Written& to) { return to.tensor.is_same(read); });
  if (!is_written || ops::is_custom(*op_.op) || is_elementwise()) return;
  throw Unsupported("trace", op_.op->name() +
                                 ": it writes its result to a tensor that it reads as an "
                                 "operand. Clone the operand.");
}

/// Eager reads what it has just written.
void WritingCall::check_not_overlapping_written(const at::Tensor& read) const {
  if (!read.defined() || !is_traced(read)) return;
  for (const Written& written : written_) {
    if (written.tensor.is_same(read) || !written.tensor.is_alias_of(read)) continue;
    functional::sync(read);
    if (!overlaps_partly(written.tensor, read)) continue;
    throw Unsupported("trace", op_.op->name() +
                                   ": it writes to a tensor and reads another view of the same "
                                   "memory, so that the result depends on the order in which it "
                                   "does so. Clone what it reads.");
  }
}

/// Operators resize what they are given for their result.
void WritingCall::check_made_inside(const at::Tensor& resized) const {
  const auto& lifted = tracer_.outside().lifted();
  if (std::none_of(lifted.begin(), lifted.end(),
                   [&](const Lifted& outside) { return outside.wrapper.is_same(resized); }))
    return;
  throw Unsupported("trace", op_.op->name() +
                                 ": it changes the size of a tensor from outside to that of its "
                                 "result. Pass a tensor of the right size.");
}

}  // namespace ahead::tracing
