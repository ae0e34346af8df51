#include "trace/graph_writer.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>

#include <typeindex>
#include <unordered_map>

#include "base/intern.h"
#include "base/thread_object.h"
#include "tensors/below_tracing.h"
#include "trace/tensor/functional.h"
#include "trace/tracer.h"

namespace ahead::tracing {
namespace {

/// The name of an autograd node's class, looked up by type: composing it is slow.
const std::string* node_name(const torch::autograd::Node& node) {
  using Map = std::unordered_map<std::type_index, const std::string*>;
  auto& names = thread_object<Map, struct KnownNodeNames>();
  const std::string*& name = names[std::type_index(typeid(node))];
  if (name == nullptr) name = intern(node.name());
  return name;
}

/// A meta tensor that lies as described, for the sizes of the run that is being written down.
at::Tensor meta_of_this_run(const TensorMeta& meta, const std::shared_ptr<SizeGuards>& guards) {
  const c10::ArrayRef<int64_t> values =
      guards == nullptr ? c10::ArrayRef<int64_t>() : c10::ArrayRef<int64_t>(guards->values());
  const auto sizes = meta.sizes.at(values), strides = meta.strides.at(values);
  const int64_t offset = meta.offset.at(values);
  at::Tensor lies(at::detail::empty_strided_meta(sizes, strides, meta.dtype));
  if (offset == 0) return lies;
  const auto bytes = at::detail::computeStorageNbytes(sizes, strides, lies.element_size(), offset);
  at::Tensor memory(at::detail::empty_strided_meta(
      {static_cast<int64_t>(bytes / lies.element_size())}, {1}, meta.dtype));
  memory.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return memory;
}

}  // namespace

GraphWriter::GraphWriter(Tracer& tracer)
    : tracer_(tracer), first_sequence_(at::sequence_number::peek()) {}

Graph GraphWriter::take() {
  counts.nodes = graph_.num_nodes();
  return std::move(graph_);
}

Node* GraphWriter::record(const Operator& op, std::vector<Argument> args) {
  Node* node = graph_.add_node(op, std::move(args));
  node->phase = phase_;
  if (!at::GradMode::is_enabled()) node->set(Tag::NoGrad);
  if (autocast_) node->set(Tag::Autocast);
  if (phase_ == Phase::Forward && torch::autograd::get_current_node() != nullptr)
    differentiates_ = true;
  // An operator's autograd node is made before the operator runs below autograd.
  uint64_t sequence = at::sequence_number::peek() - 1;
  if (const NodePtr from = issuer()) {
    sequence = from->sequence_nr();
    node->provenance = node_name(*from);
  }
  if (sequence != UINT64_MAX && sequence >= first_sequence_) {
    node->sequence = static_cast<int64_t>(sequence - first_sequence_);
  }
  tracer_.places().put_on(*node, sequence);
  return node;
}

at::Tensor GraphWriter::add_input(Slot slot, TensorMeta meta) {
  return stand_for(graph_.add_input(slot, std::move(meta)));
}

at::Tensor GraphWriter::stand_for(Value* value) {
  BelowTracing below;
  const TensorMeta& meta = value->meta;
  auto layout = std::make_shared<const Layout>(Layout{meta.sizes, meta.strides, meta.offset});
  const bool is_fixed = layout->is_fixed();
  at::Tensor traced = at::functionalization::impl::to_functional_tensor(make_fake(
      meta_of_this_run(meta, tracer_.outside().guards()), meta.device, value,
      c10::intrusive_ptr<Tracer>::reclaim_copy(&tracer_), is_fixed ? nullptr : std::move(layout)));
  seal_storage(traced);
  return traced;
}

at::Tensor GraphWriter::add_tangent(const at::Tensor& output, int32_t position) {
  TensorMeta meta = TensorMeta::of(output);
  meta.offset = 0;
  meta.requires_grad = false;
  // Laid out as at::empty_like(output) would be.
  if (!output.is_non_overlapping_and_dense()) {
    meta.strides = at::infer_dense_strides(output.sizes(), output.strides());
  }
  return add_input({Slot::Kind::Tangent, position}, std::move(meta));
}

NodePtr GraphWriter::issuer() const {
  return issuer_ ? issuer_ : torch::autograd::get_current_node();
}

}  // namespace ahead::tracing
