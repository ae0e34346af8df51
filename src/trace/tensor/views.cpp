#include "trace/tensor/views.h"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <vector>

namespace ahead::tracing {
namespace {

using torch::autograd::ViewFunc;
using torch::autograd::ViewInfo;

class LayoutView final : public ViewFunc {
 public:
  LayoutView(const at::Tensor& base, const at::Tensor& view)
      : sizes_(view.sizes().vec()),
        strides_(view.strides().vec()),
        distance_(view.storage_offset() - base.storage_offset()) {}

  at::Tensor operator()(const at::Tensor& base) const override {
    // The trace looks after the memory that user code addresses; this only says how to go on.
    c10::impl::ExcludeDispatchKeyGuard below(c10::DispatchKey::DeferredInit);
    return base.as_strided(sizes_, strides_, base.storage_offset() + distance_);
  }

  std::unique_ptr<ViewFunc> clone_and_set(
      std::optional<std::vector<c10::SymInt>> = std::nullopt,
      std::optional<std::vector<at::Tensor>> = std::nullopt) const override {
    return std::make_unique<LayoutView>(*this);
  }

 private:
  std::vector<int64_t> sizes_, strides_;
  int64_t distance_;  ///< from the first element of the base to that of the view
};

bool has_same_elements(const at::Tensor& base, const at::Tensor& view) {
  return base.scalar_type() == view.scalar_type() && base.is_conj() == view.is_conj() &&
         base.is_neg() == view.is_neg();
}

bool lies_within(const at::Tensor& base, const at::Tensor& view) {
  return view.storage_offset() >= base.storage_offset() && end_of(view) <= end_of(base);
}

}  // namespace

void recover_by_layout(const at::Tensor& view) {
  auto* meta = torch::autograd::impl::get_view_autograd_meta(view);
  if (meta == nullptr || !meta->has_bw_view()) return;
  auto& info = const_cast<ViewInfo&>(meta->get_backward_view());
  if (!info.has_view_fn() || dynamic_cast<LayoutView*>(info.view_fn_.get()) != nullptr) return;
  // How to go on from views of changing sizes is not remembered: nobody asks, without gradient.
  if (is_symbolic(info.base_) || is_symbolic(view)) return;
  if (!has_same_elements(info.base_, view) || !lies_within(info.base_, view)) return;
  info.view_fn_ = std::make_unique<LayoutView>(info.base_, view);
}

bool is_symbolic(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
}

int64_t end_of(const at::Tensor& tensor) {
  int64_t end = tensor.storage_offset() + 1;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (tensor.size(dim) == 0) return tensor.storage_offset();
    end += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  return end;
}

}  // namespace ahead::tracing
