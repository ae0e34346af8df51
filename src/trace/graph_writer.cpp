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
  BelowTracing below;
  at::Tensor shape(at::detail::empty_strided_meta(meta.sizes, meta.strides, meta.dtype));
  const at::Device device = meta.device;
  Value* value = graph_.add_input(slot, std::move(meta));
  at::Tensor traced = at::functionalization::impl::to_functional_tensor(make_fake(
      std::move(shape), device, value, c10::intrusive_ptr<Tracer>::reclaim_copy(&tracer_)));
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
