#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/ops/copy.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/variable.h>

#include "ahead/errors.h"
#include "trace/tensor/functional.h"
#include "trace/tensor/views.h"
#include "trace/tracer.h"

/// What the trace owes to tensors from outside: their place in memory and their history.
namespace ahead::tracing {
namespace {

namespace functional = at::functionalization::impl;

const c10::StorageImpl* storage_of(const at::Tensor& traced) {
  return traced.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

bool lies_in_the_same_place(const at::Tensor& a, const at::Tensor& b) {
  return a.strides() == b.strides() && a.storage_offset() == b.storage_offset() &&
         a.storage().nbytes() == b.storage().nbytes();
}

/// What is written to a tensor that changed its shape lies elsewhere than in the real one.
void check_unwritten(const Lifted& reshaped) {
  if (!functional_wrapper(reshaped.wrapper).has_data_mutation()) return;
  throw Unsupported("trace",
                    "as_strided: the function reaches a tensor from outside by where its elements "
                    "lie, writes to it and changes its shape in place. Use a view of the other "
                    "shape instead.");
}

/// The copy of a tensor copies its storage as a whole, gaps included.
void keep_storage(const Lifted& lifted) {
  functional::sync(lifted.wrapper);
  const at::Tensor now = functional::from_functional_tensor(lifted.wrapper);
  // A tensor from outside that changes its shape is refused in the end, or described by facts.
  if (has_other_memory(lifted)) return;
  if (functional_wrapper(lifted.wrapper).has_metadata_mutation()) return check_unwritten(lifted);
  if (lies_in_the_same_place(now, lifted.contents)) return;
  at::Tensor kept;
  {
    c10::impl::ExcludeDispatchKeyGuard below(
        c10::autograd_dispatch_keyset_with_ADInplaceOrView |
        c10::DispatchKeySet{c10::DispatchKey::DeferredInit, c10::DispatchKey::Functionalize});
    kept = at::copy(lifted.contents, now);
  }
  functional::replace_(lifted.wrapper, kept);
  functional::commit_update(lifted.wrapper);
  functional::sync(lifted.wrapper);
}

}  // namespace

Lifted* Tracer::lifted_of(const at::Tensor& traced) {
  auto found = lifted_storages_.find(storage_of(traced));
  return found == lifted_storages_.end() ? nullptr : &lifted_[found->second];
}

void Tracer::address_storage(const at::Tensor& traced) {
  Lifted* lifted = lifted_of(traced);
  if (lifted == nullptr) return;
  lifted->storage_is_addressed = any_storage_is_addressed_ = true;
  keep_storage(*lifted);
}

void Tracer::keep_storages() {
  if (!any_storage_is_addressed_) return;
  for (size_t i = 0; i < lifted_.size(); ++i) {
    if (lifted_[i].storage_is_addressed) keep_storage(lifted_[i]);
  }
}

void Tracer::check_stays_inside(const at::Tensor& written) const {
  auto found = lifted_storages_.find(storage_of(written));
  if (found == lifted_storages_.end()) return;
  const auto& views = functional_wrapper(written).view_metas();
  if (std::none_of(views.begin(), views.end(), [](const auto& v) { return v->is_as_strided; })) {
    return;
  }
  const at::Tensor& real = lifted_[found->second].real;
  if (real.is_non_overlapping_and_dense() && written.storage_offset() >= real.storage_offset() &&
      end_of(written) <= end_of(real)) {
    return;
  }
  throw Unsupported("trace",
                    "as_strided: the function writes through it to memory that does not belong to "
                    "the tensor it was called on. Pass the whole tensor instead of a view of it.");
}

void Tracer::mirror_history(const at::Tensor& written) {
  namespace impl = torch::autograd::impl;
  Lifted* lifted = is_replay_ ? nullptr : lifted_of(written);
  if (lifted == nullptr || !lifted->wrapper.requires_grad() || lifted->wrapper.is_leaf()) return;
  const torch::autograd::Edge now = impl::gradient_edge(lifted->wrapper);
  if (!now.is_valid() || now.function == lifted->node) return;
  const auto* meta = impl::get_autograd_meta(lifted->real);
  if (!lifted->original_history) {
    lifted->original_history = meta == nullptr
                                   ? torch::autograd::Edge()
                                   : torch::autograd::Edge(meta->grad_fn_, meta->output_nr_);
  }
  impl::set_gradient_edge(lifted->real, now);
}

void Tracer::restore_histories() {
  for (Lifted& lifted : lifted_) {
    if (!lifted.original_history) continue;
    torch::autograd::impl::set_gradient_edge(lifted.real, *lifted.original_history);
    lifted.original_history.reset();
  }
}

void Tracer::note_detached(const at::Tensor& traced) {
  detached_storages_.insert(storage_of(traced));
}

void Tracer::note_fragile_view(const at::Tensor& traced, const Operator& op) {
  fragile_storages_.emplace(storage_of(traced), &op);
}

const Operator* Tracer::fragile_view(const at::Tensor& traced) const {
  const auto found = fragile_storages_.find(storage_of(traced));
  return found == fragile_storages_.end() ? nullptr : found->second;
}

void Tracer::note_write(const at::Tensor& written, bool has_same_history, const Operator& op) {
  const bool is_detached = detached_storages_.count(storage_of(written)) != 0;
  if (is_detached || (has_same_history && written.requires_grad())) hidden_write_ = &op;
}

}  // namespace ahead::tracing
