#include "trace/observers/hidden_writes.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include "trace/tensor/functional.h"

namespace ahead::tracing {

NodePtr HiddenWrites::history_of(const at::Tensor& tensor) {
  const auto* meta = torch::autograd::impl::get_autograd_meta(tensor);
  return meta == nullptr ? NodePtr() : meta->grad_fn_;
}

at::Tensor HiddenWrites::before(const TracedCall& call) {
  grad_mode_ = at::GradMode::is_enabled();
  const at::Tensor* self = call.op.mutates ? nullptr : call.traced_self();
  return self != nullptr && self->requires_grad() ? *self : at::Tensor();
}

void HiddenWrites::after(const TracedCall& call, const at::Tensor& viewed) {
  if (!viewed.defined()) return;
  for_each_traced(call.results(), [&](const at::Tensor& result) {
    if (result.is_alias_of(viewed)) note_view(result, *call.op.op);
  });
}

void HiddenWrites::note_node(const Node& node) {
  // An operator that switches grad mode off inside may do so to write to a differentiable tensor.
  const bool is_inside = node.has(Tag::NoGrad) && grad_mode_ && node.phase == Phase::Forward;
  if (is_inside && torch::autograd::get_current_node() == nullptr) found_ = &node.op();
}

void HiddenWrites::note_detached(const at::Tensor& traced) {
  shared_.insert(functional_memory(traced));
  note_differentiable(traced);
}

void HiddenWrites::note_differentiable(const at::Tensor& traced) {
  if (traced.requires_grad() && shared_.count(functional_memory(traced)) != 0)
    detached_.insert(functional_memory(traced));
}

void HiddenWrites::note_view(const at::Tensor& view, const Operator& op) {
  if (!view.requires_grad()) {
    detached_.insert(functional_memory(view));
    return;
  }
  // Functionalisation makes a view of what was written to again when it is used, by when grad mode
  // may be on again. What gradient formulas view is none of the function's.
  const bool is_of_formula = torch::autograd::get_current_node() != nullptr;
  if (!at::GradMode::is_enabled() && !is_of_formula && !functional_wrapper(view).is_up_to_date())
    found_ = &op;
}

void HiddenWrites::note_write(const at::Tensor& written, const NodePtr& before,
                              const Operator& op) {
  const NodePtr history = history_of(written);
  // A view gets another history whenever its memory was written to, but leads to the same.
  const bool is_same = history == before || !at::GradMode::is_enabled();
  const bool is_unseen = is_same && written.requires_grad();
  const bool is_cut = history == nullptr && before != nullptr;
  if (is_unseen || is_cut || detached_.count(functional_memory(written)) != 0) found_ = &op;
  note_differentiable(written);
}

}  // namespace ahead::tracing
