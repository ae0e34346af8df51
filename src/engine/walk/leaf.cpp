#include "engine/walk/leaf.h"

#include <ATen/core/grad_mode.h>

#include "base/private_members.h"

namespace ahead::engine {

bool is_plain_gradient(const at::Tensor& gradient) {
  return gradient.layout() == at::kStrided && !gradient.is_conj() && !gradient.is_neg() &&
         !gradient._is_zerotensor() && !gradient.is_nested() &&
         (!gradient.requires_grad() || at::GradMode::is_enabled()) &&
         !gradient.key_set().has(c10::DispatchKey::Python);
}

bool takes_gradient(const at::Tensor& leaf) {
  const torch::autograd::AutogradMeta* meta = torch::autograd::impl::get_autograd_meta(leaf);
  return meta != nullptr && meta->requires_grad_ && meta->grad_fn_ == nullptr;
}

void set_grad(const Step& step, at::Tensor grad) {
  {
    const auto lock = lock_node(*step.node);
    at::Tensor& now = leaf_of(step).mutable_grad();
    if (!now.defined()) {
      now = std::move(grad);
      return;
    }
  }
  torch::autograd::variable_list gradients;
  gradients.push_back(std::move(grad));
  (*step.node)(std::move(gradients));
}

}  // namespace ahead::engine
