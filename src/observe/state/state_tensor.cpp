#include "observe/state/state_tensor.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/variable.h>

#include "observe/state/entry_state.h"

namespace ahead::observe {

namespace impl = torch::autograd::impl;
using torch::autograd::DifferentiableViewMeta;
using torch::autograd::ViewInfo;

at::Tensor alias_of(const at::Tensor& tensor) {
  if (tensor.is_inference()) return tensor;
  at::Tensor same = tensor.detach();
  if (tensor.requires_grad() && !tensor.is_leaf())
    impl::set_gradient_edge(same, impl::gradient_edge(tensor));
  return same;
}

bool has_lost_history(const at::Tensor& tensor) {
  const DifferentiableViewMeta* view = view_meta(tensor);
  return view != nullptr && view->get_creation_meta() != torch::autograd::CreationMeta::DEFAULT &&
         view->get_attr_version() != tensor._version();
}

bool can_become(const at::Tensor& made) {
  if (made.is_inference() || (made.is_leaf() && made.requires_grad())) return false;
  const DifferentiableViewMeta* view = view_meta(made);
  return view == nullptr || !view->get_backward_view().has_view_fn();
}

void become(const at::Tensor& held, const at::Tensor& made) {
  if (held.is_same(made)) return;
  c10::TensorImpl& to = *held.unsafeGetTensorImpl();
  to.shallow_copy_from(made.getIntrusivePtr());
  to.set_autograd_meta(nullptr);
  if (const DifferentiableViewMeta* view = view_meta(made)) {
    to.set_autograd_meta(std::make_unique<DifferentiableViewMeta>(
        &to, ViewInfo(view->get_backward_view().base_, nullptr, nullptr), std::nullopt,
        /*shared_view_info=*/true, view->get_creation_meta()));
    impl::get_view_autograd_meta(held)->set_attr_version(view->get_attr_version());
  }
  to.set_version_counter(made.unsafeGetTensorImpl()->version_counter());
  if (made.requires_grad() && peek_history(made) != nullptr) {
    auto* meta = impl::materialize_autograd_meta(held);
    meta->grad_fn_ = peek_meta(made)->grad_fn_;
    meta->output_nr_ = peek_meta(made)->output_nr_;
    // The hook of retain_grad() stores the gradient in the tensor that registered it.
    if (made.retains_grad()) held.retain_grad();
  }
}

}  // namespace ahead::observe
