#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/ops/alias.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "ahead/errors.h"
#include "tensors/autograd_graph.h"
#include "tensors/below_tracing.h"
#include "tensors/forward_mode.h"
#include "tensors/origin.h"
#include "trace/independent_inputs.h"
#include "trace/tensor/functional.h"
#include "trace/tracer.h"

namespace ahead::tracing {
namespace {

thread_local int num_independent = 0;

/// Stands where the history of a tensor from outside begins. Gradients are read off its edge, or,
/// where user code differentiates by what that tensor was made from, go on outside: behind the
/// first edge. The others lead to tensors of the trace that it was made from.
struct Boundary final : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    for (size_t i = 1; i < next_edges().size(); ++i) {
      if (task_should_compute_output(i)) throw_for_origin();
    }
    gradients.resize(next_edges().size());
    const auto* wanted = torch::autograd::get_current_graph_task_exec_info();
    if (wanted != nullptr && !wanted->empty()) return std::move(gradients);
    throw Unsupported(
        "trace",
        "backward(): it reaches an argument or captured tensor that is not a leaf, and would go on "
        "outside the traced function. Detach that tensor, or call backward() outside.");
  }
  std::string name() const override { return "ahead::Boundary"; }

  /// LibTorch lets nobody add an edge to a node that another one leads to, for it numbers nodes by
  /// depth; but what a tensor was made from is less deep than the tensor.
  void add_origin(torch::autograd::Edge origin) { next_edges_.push_back(std::move(origin)); }
};

void check_supported(const at::Tensor& real) {
  if (has_forward_tangent(real)) {
    throw Unsupported("trace",
                      "a tensor with a tangent of forward mode meets the traced function; graphs "
                      "have gradients of backward mode only. Call the function uncompiled.");
  }
  const char* kind = real.layout() == at::kMkldnn    ? "an MKL-DNN"
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

bool has_hooks(const at::Tensor& real) {
  const auto* meta = torch::autograd::impl::get_autograd_meta(real);
  return meta != nullptr && !meta->hooks_.empty();
}

/// The accumulator of a wrapper that is a leaf of its own. User code may hold the real leaf too and
/// differentiate by it: that one's accumulator is behind the one edge.
struct OwnAccumulator final : torch::autograd::AccumulateGrad {
  using AccumulateGrad::AccumulateGrad;
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    if (real_is_wanted()) return std::move(gradients);
    AccumulateGrad::apply(std::move(gradients));
    return torch::autograd::variable_list(next_edges().size());
  }
  bool real_is_wanted() const {
    const auto* wanted = torch::autograd::get_current_graph_task_exec_info();
    if (wanted == nullptr || next_edges().empty()) return false;
    const auto real = wanted->find(next_edge(0).function.get());
    return real != wanted->end() && real->second.should_execute();
  }
};

void attach(const at::Tensor& tensor, const NodePtr& node) {
  const uint32_t output = node->add_input_metadata(tensor);
  torch::autograd::impl::set_gradient_edge(tensor, {node, output});
}

/// The view that shows all of a tensor. Of a gradient it is the gradient itself: LibTorch cannot
/// functionalise what is written through two views of it.
struct WholeView final : torch::autograd::ViewFunc {
  at::Tensor operator()(const at::Tensor& base) const override {
    return base.requires_grad() ? at::alias(base) : base;
  }
  std::unique_ptr<ViewFunc> clone_and_set(
      std::optional<std::vector<c10::SymInt>> = std::nullopt,
      std::optional<std::vector<at::Tensor>> = std::nullopt) const override {
    return std::make_unique<WholeView>();
  }
};

struct WholeViewBackward final : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return std::move(gradients);
  }
  std::string name() const override { return "ahead::WholeViewBackward"; }
};

/// A view of something computed outside is a view inside too: how autograd goes on after a write,
/// and in which order it adds gradients up, depends on it.
void link_view(Lifted& lifted, torch::autograd::CreationMeta creation) {
  const at::Tensor base = at::functionalization::impl::to_functional_tensor(lifted.contents);
  seal_storage(base);
  attach(base, lifted.node);
  lifted.wrapper = torch::autograd::as_view(
      base, lifted.wrapper, /*is_bw_differentiable=*/true, /*is_fw_differentiable=*/true,
      std::make_unique<WholeView>(), [](const at::Tensor& view) { return at::alias(view); },
      creation);
  NodePtr node = make_autograd_node<WholeViewBackward>();
  node->set_next_edges({torch::autograd::impl::gradient_edge(base)});
  attach(lifted.wrapper, node);
}

/// A path from a tensor from outside to one of the trace that it was computed from, so that
/// differentiating by that one does not pass the other by.
void tie(const Lifted& made, const Lifted& origin) {
  const torch::autograd::Edge inside = torch::autograd::impl::gradient_edge(origin.wrapper);
  const bool is_unchanged = inside.function == origin.node ||
                            dynamic_cast<WholeViewBackward*>(inside.function.get()) != nullptr;
  if (is_unchanged) static_cast<Boundary&>(*made.node).add_origin(inside);
}

}  // namespace

IndependentInputs::IndependentInputs() {
  ++num_independent;
}
IndependentInputs::~IndependentInputs() {
  --num_independent;
}
bool IndependentInputs::is_active() {
  return num_independent > 0;
}

const at::Tensor& Tracer::lift(const at::Tensor& real) {
  auto known = lifted_index_.find(real.unsafeGetTensorImpl());
  if (known == lifted_index_.end()) {
    if (generators_ != nullptr) generators_->refuse_state(real);
    return add_lifted(real, {Slot::Kind::Captured, num_captured_++});
  }
  lifted_[known->second].is_reached = true;
  return lifted_[known->second].wrapper;
}

const Lifted* Tracer::find_lifted(const at::Tensor& real) const {
  auto known = lifted_index_.find(real.unsafeGetTensorImpl());
  return known == lifted_index_.end() ? nullptr : &lifted_[known->second];
}

const at::Tensor& Tracer::lift_primal(const at::Tensor& real, int32_t index) {
  auto known = lifted_index_.find(real.unsafeGetTensorImpl());
  if (known == lifted_index_.end()) return add_lifted(real, {Slot::Kind::Primal, index});
  // The same tensor twice: one wrapper stands for both, the second input stays unused.
  const Lifted& first = lifted_[known->second];
  writer_.graph().add_input({Slot::Kind::Primal, index}, first.value->meta);
  return first.wrapper;
}

const at::Tensor& Tracer::add_lifted(const at::Tensor& real, Slot slot) {
  check_supported(real);
  BelowTracing below;
  // What is not an inference tensor outside must not become one inside, and the other way round.
  c10::InferenceMode mode(real.is_inference() && !in_inference_mode_);
  Lifted lifted;
  lifted.real = real;
  lifted.value = writer_.graph().add_input(slot, TensorMeta::of(real),
                                           slot.kind == Slot::Kind::Captured ? real : at::Tensor());
  auto self = c10::intrusive_ptr<Tracer>::reclaim_copy(this);
  const auto layout = layouts_.find(real.unsafeGetTensorImpl());
  lifted.contents = make_fake(meta_copy(real), real.device(), lifted.value, self,
                              layout == layouts_.end() ? nullptr : layout->second);
  lifted.wrapper = at::functionalization::impl::to_functional_tensor(lifted.contents);
  seal_storage(lifted.wrapper);
  if (real.requires_grad()) link_gradient(lifted, slot.kind == Slot::Kind::Primal);
  lifted.memory = lifted.wrapper.unsafeGetTensorImpl()->unsafe_storage().getWeakStorageImpl();
  lifted_storages_.emplace(lifted.memory._unsafe_get_target(), lifted_.size());
  lifted_index_.emplace(real.unsafeGetTensorImpl(), lifted_.size());
  const size_t position = lifted_.size();
  lifted_.push_back(std::move(lifted));
  if (!IndependentInputs::is_active()) tie_to_relatives(position);
  if (real.is_leaf() && real.grad().defined()) {
    lifted_[position].original_grad = real.grad();
    if (lifted_[position].link != GradLink::SharedLeaf && !is_traced(real.grad())) {
      at::Tensor grad = lift(real.grad());
      lifted_[position].wrapper.mutable_grad() = grad;
    }
  }
  return lifted_[position].wrapper;
}

void Tracer::link_gradient(Lifted& lifted, bool is_primal) {
  namespace impl = torch::autograd::impl;
  if (!lifted.real.is_leaf()) {
    lifted.link = GradLink::Boundary;
    lifted.node = make_autograd_node<Boundary>();
    lifted.node->set_next_edges({impl::gradient_edge(lifted.real)});
    const auto* view = impl::get_view_autograd_meta(lifted.real);
    if (view != nullptr && view->has_bw_view()) {
      // Autograd finds views of it by where they lie in it, also after it was written to.
      if (lifted.real.storage_offset() != 0)
        lifted.storage_is_addressed = any_storage_is_addressed_ = true;
      return link_view(lifted, view->get_creation_meta());
    }
    attach(lifted.wrapper, lifted.node);
    return;
  }
  lifted.wrapper.set_requires_grad(true);
  // Outside hooks belong to the real variable and run outside, so it cannot be shared. A recording
  // names no variables but its own.
  const bool is_own = is_primal || is_replay_ || has_hooks(lifted.real);
  lifted.link = is_own ? GradLink::OwnLeaf : GradLink::SharedLeaf;
  if (lifted.link == GradLink::SharedLeaf) {
    lifted.node = impl::grad_accumulator(lifted.real);
    impl::set_grad_accumulator(lifted.wrapper, weak(lifted.node));
  } else {
    lifted.node = make_autograd_node<OwnAccumulator>(lifted.wrapper);
    lifted.node->set_next_edges({{impl::grad_accumulator(lifted.real), 0}});
    impl::set_grad_accumulator(lifted.wrapper, weak(lifted.node));
  }
}

void Tracer::tie_to_relatives(size_t position) {
  const Lifted& lifted = lifted_[position];
  const bool is_computed = lifted.link == GradLink::Boundary;
  if (!is_computed && lifted.link != GradLink::OwnLeaf) return;
  const auto relatives = ancestry_.add(position, lifted.node->next_edge(0), is_computed);
  for (size_t ancestor : relatives.ancestors) tie(lifted, lifted_[ancestor]);
  for (size_t descendant : relatives.descendants) tie(lifted_[descendant], lifted);
}

FakeTensor& Tracer::lift_constant(const at::Tensor& real) {
  auto known = lifted_index_.find(real.unsafeGetTensorImpl());
  if (known != lifted_index_.end()) {
    lifted_[known->second].is_reached = true;
    const at::Tensor& wrapper = lifted_[known->second].wrapper;
    at::functionalization::impl::sync(wrapper);
    return as_fake(functional_wrapper(wrapper).value());
  }
  auto& [held, fake] = constants_[real.unsafeGetTensorImpl()];
  if (!fake.defined()) {
    check_supported(real);
    TensorMeta meta = TensorMeta::of(real);
    meta.requires_grad = false;
    Value* value =
        writer_.graph().add_input({Slot::Kind::Captured, num_captured_++}, std::move(meta), real);
    held = real;
    fake = make_fake(meta_copy(real), real.device(), value,
                     c10::intrusive_ptr<Tracer>::reclaim_copy(this));
  }
  return as_fake(fake);
}

}  // namespace ahead::tracing
