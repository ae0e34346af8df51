#include "trace/outside.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/ops/copy.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "ahead/errors.h"
#include "tensors/below_tracing.h"
#include "tensors/forward_mode.h"
#include "trace/grad_link.h"
#include "trace/independent_inputs.h"
#include "trace/tensor/functional.h"
#include "trace/tensor/views.h"
#include "trace/tracer.h"

namespace ahead::tracing {
namespace {

namespace functional = at::functionalization::impl;

void check_supported(const at::Tensor& real) {
  if (has_forward_tangent(real)) {
    throw Unsupported("trace",
                      "a tensor with a tangent of forward mode meets the traced function; graphs "
                      "have gradients of backward mode only. Call the function uncompiled.");
  }
  const char* kind = tensors::is_wrapper(real)       ? "a wrapper"
                     : real.layout() == at::kMkldnn  ? "an MKL-DNN"
                     : real.is_nested()              ? "a nested"
                     : real.is_quantized()           ? "a quantized"
                     : real.layout() != at::kStrided ? "a sparse"
                     : !real.has_storage()           ? "an opaque"
                                                     : nullptr;
  if (kind == nullptr) return;
  throw Unsupported("trace", std::string(kind) +
                                 " tensor meets the traced function; only dense strided tensors "
                                 "can be traced. Convert it with "
                                 "to_dense() or dequantize(), or keep it outside.");
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
void restore_storage(const Lifted& lifted) {
  functional::sync(lifted.wrapper);
  const at::Tensor now = functional::from_functional_tensor(lifted.wrapper);
  // A tensor from outside that changes its shape is refused in the end, or described by facts.
  if (has_other_memory(lifted)) return;
  if (functional_wrapper(lifted.wrapper).has_metadata_mutation()) return check_unwritten(lifted);
  if (lies_in_the_same_place(now, lifted.contents)) return;
  at::Tensor in_place;
  {
    c10::impl::ExcludeDispatchKeyGuard below(
        c10::autograd_dispatch_keyset_with_ADInplaceOrView |
        c10::DispatchKeySet{c10::DispatchKey::DeferredInit, c10::DispatchKey::Functionalize});
    in_place = at::copy(lifted.contents, now);
  }
  functional::replace_(lifted.wrapper, in_place);
  functional::commit_update(lifted.wrapper);
  functional::sync(lifted.wrapper);
}

}  // namespace

const at::Tensor& Outside::lift(const at::Tensor& real) {
  auto known = lifted_index_.find(real.unsafeGetTensorImpl());
  if (known == lifted_index_.end()) {
    tracer_.generators().refuse_state(real);
    return add(real, next_captured());
  }
  lifted_[known->second].is_reached = true;
  return lifted_[known->second].wrapper;
}

const Lifted* Outside::find_lifted(const at::Tensor& real) const {
  auto known = lifted_index_.find(real.unsafeGetTensorImpl());
  return known == lifted_index_.end() ? nullptr : &lifted_[known->second];
}

const at::Tensor& Outside::lift_primal(const at::Tensor& real, int32_t index) {
  auto known = lifted_index_.find(real.unsafeGetTensorImpl());
  if (known == lifted_index_.end()) return add(real, {Slot::Kind::Primal, index});
  // The same tensor twice: one wrapper stands for both, the second input stays unused.
  const Lifted& first = lifted_[known->second];
  tracer_.writer().graph().add_input({Slot::Kind::Primal, index}, first.value->meta);
  return first.wrapper;
}

const at::Tensor& Outside::add(const at::Tensor& real, Slot slot) {
  check_supported(real);
  BelowTracing below;
  // What is not an inference tensor outside must not become one inside, and the other way round.
  c10::InferenceMode mode(real.is_inference() && !tracer_.in_inference_mode());
  Lifted lifted;
  lifted.real = real;
  const auto layout = layouts_.find(real.unsafeGetTensorImpl());
  TensorMeta meta = TensorMeta::of(real);
  if (layout != layouts_.end()) layout->second->describe(meta);
  lifted.value = tracer_.writer().graph().add_input(
      slot, std::move(meta), slot.kind == Slot::Kind::Captured ? real : at::Tensor());
  auto self = c10::intrusive_ptr<Tracer>::reclaim_copy(&tracer_);
  lifted.contents = make_fake(meta_copy(real), real.device(), lifted.value, self,
                              layout == layouts_.end() ? nullptr : layout->second);
  lifted.wrapper = functional::to_functional_tensor(lifted.contents);
  seal_storage(lifted.wrapper);
  // A recording names no variables but its own.
  if (real.requires_grad()) link_gradient(lifted, slot.kind == Slot::Kind::Primal || is_replay_);
  any_storage_is_addressed_ = any_storage_is_addressed_ || lifted.storage_is_addressed;
  lifted.memory = lifted.wrapper.unsafeGetTensorImpl()->unsafe_storage().getWeakStorageImpl();
  lifted_storages_.emplace(lifted.memory._unsafe_get_target(), lifted_.size());
  lifted_index_.emplace(real.unsafeGetTensorImpl(), lifted_.size());
  const size_t position = lifted_.size();
  lifted_.push_back(std::move(lifted));
  if (!IndependentInputs::is_active()) tie_to_relatives(position);
  if (real.is_leaf() && real.grad().defined()) lift_grad(position);
  return lifted_[position].wrapper;
}

void Outside::lift_grad(size_t position) {
  const at::Tensor grad = lifted_[position].real.grad();
  lifted_[position].original_grad = grad;
  if (lifted_[position].link == GradLink::SharedLeaf || is_traced(grad)) return;
  if (grad.layout() != at::kStrided) {
    has_untraced_grad_ |= !IndependentInputs::is_active();
    return;
  }
  const at::Tensor wrapper = lift(grad);
  lifted_[position].wrapper.mutable_grad() = wrapper;
}

void Outside::check_grads() const {
  if (!has_untraced_grad_ || is_replay_) return;
  throw Unsupported("trace",
                    "the .grad of an argument is sparse, and values of graphs are dense, though "
                    "the function could read it. Reset it before the call.");
}

void Outside::tie_to_relatives(size_t position) {
  const Lifted& lifted = lifted_[position];
  const bool is_computed = lifted.link == GradLink::Boundary;
  if (!is_computed && lifted.link != GradLink::OwnLeaf) return;
  const auto relatives = ancestry_.add(position, lifted.node->next_edge(0), is_computed);
  for (size_t ancestor : relatives.ancestors) tie_to_origin(lifted, lifted_[ancestor]);
  for (size_t descendant : relatives.descendants) tie_to_origin(lifted_[descendant], lifted);
}

FakeTensor& Outside::lift_constant(const at::Tensor& real) {
  auto known = lifted_index_.find(real.unsafeGetTensorImpl());
  if (known != lifted_index_.end()) {
    lifted_[known->second].is_reached = true;
    const at::Tensor& wrapper = lifted_[known->second].wrapper;
    functional::sync(wrapper);
    return as_fake(functional_wrapper(wrapper).value());
  }
  auto& [held, fake] = constants_[real.unsafeGetTensorImpl()];
  if (!fake.defined()) {
    check_supported(real);
    TensorMeta meta = TensorMeta::of(real);
    meta.requires_grad = false;
    Value* value = tracer_.writer().graph().add_input(next_captured(), std::move(meta), real);
    held = real;
    fake = make_fake(meta_copy(real), real.device(), value,
                     c10::intrusive_ptr<Tracer>::reclaim_copy(&tracer_));
  }
  return as_fake(fake);
}

Lifted* Outside::lifted_of(const at::Tensor& traced) {
  auto found = lifted_storages_.find(functional_memory(traced));
  return found == lifted_storages_.end() ? nullptr : &lifted_[found->second];
}

void Outside::address_storage(const at::Tensor& traced) {
  Lifted* lifted = lifted_of(traced);
  if (lifted == nullptr) return;
  lifted->storage_is_addressed = any_storage_is_addressed_ = true;
  restore_storage(*lifted);
}

void Outside::restore_addressed_storages() {
  for (size_t i = 0; i < lifted_.size(); ++i) {
    if (lifted_[i].storage_is_addressed) restore_storage(lifted_[i]);
  }
}

void Outside::check_stays_inside(const at::Tensor& written) const {
  auto found = lifted_storages_.find(functional_memory(written));
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

void Outside::mirror_history(const at::Tensor& written) {
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

void Outside::restore_histories() {
  for (Lifted& lifted : lifted_) {
    if (!lifted.original_history) continue;
    torch::autograd::impl::set_gradient_edge(lifted.real, *lifted.original_history);
    lifted.original_history.reset();
  }
}

void Outside::forget_arguments() {
  for (Lifted& lifted : lifted_) {
    const bool is_argument =
        tracer_.writer().graph().inputs()[lifted.value->index()].slot.kind == Slot::Kind::Primal;
    const bool is_unused = lifted.link == GradLink::None && !lifted.value->is_used();
    lifted.original_grad.reset();
    if (!is_argument && !is_unused) continue;
    lifted_index_.erase(lifted.real.unsafeGetTensorImpl());
    lifted.real.reset();
  }
}

at::Tensor Outside::find_real(const Value& input) const {
  for (const Lifted& lifted : lifted_) {
    if (lifted.value == &input) return lifted.real;
  }
  for (const auto& [impl, constant] : constants_) {
    if (as_fake(constant.fake).value() == &input) return constant.real;
  }
  return {};
}

void Outside::clear() {
  lifted_.clear();
  lifted_index_.clear();
  lifted_storages_.clear();
  constants_.clear();
  new_grads_.clear();
}

}  // namespace ahead::tracing
