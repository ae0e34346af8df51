#include "engine/backward.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/tensor.h>

#include <algorithm>

namespace ahead::engine {
namespace {

using torch::autograd::GraphTask;
using torch::autograd::InputMetadata;
using torch::autograd::Node;
using torch::dynamo::autograd::SizeInput;

/// Marks the end of each node's key. LibTorch tells the size of a key modulo 65536 only, so a node
/// with a larger one would go unnoticed.
constexpr uint64_t kEndOfNode = 0x9e3779b97f4a7c15;

bool has_hooks(Node& node) {
  return !node.tensor_pre_hooks().empty() || !node.pre_hooks().empty() ||
         !node.post_hooks().empty() || !node.retains_grad_hooks().empty();
}

bool is_accumulator(const Node& node) {
  return typeid(node) == typeid(torch::autograd::AccumulateGrad);
}

/// Whether the tracer can stand in for this tensor.
bool is_plain(const at::Tensor& tensor) {
  constexpr c10::DispatchKeySet special =
      c10::DispatchKeySet{c10::DispatchKey::Python,
                          c10::DispatchKey::FuncTorchBatched,
                          c10::DispatchKey::FuncTorchGradWrapper,
                          c10::DispatchKey::Functionalize,
                          c10::DispatchKey::ZeroTensor,
                          c10::DispatchKey::Fake};
  return tensor.layout() == at::kStrided && tensor.has_storage() && !tensor.is_quantized() &&
         !tensor.is_nested() && !tensor.key_set().has_any(special) && !tensor.is_meta();
}

/// Whether the node would have to wait for another stream than the current one.
bool is_on_other_stream(const InputMetadata& metadata) {
  if (metadata.device().is_cpu()) return false;
  c10::impl::VirtualGuardImpl guard(metadata.device().type());
  return metadata.stream() != guard.getStream(metadata.device());
}

}  // namespace

Backward::Backward(const NodePtr& root, const GraphTask& task, const std::string* backend)
    : task_(task), call_(SizeInput::STATIC), current_(0, root), args_(call_, current_) {
  describe_surroundings(backend);
  know_nodes(root);
  Known& first = meet(root.get());
  ready_.push_back({root->sequence_nr(), static_cast<uint32_t>(&first - known_.data())});
  while (!ready_.empty() && refusal_.empty()) {
    std::pop_heap(ready_.begin(), ready_.end());
    const uint32_t next = ready_.back().known;
    ready_.pop_back();
    add_step(known_[next]);
  }
}

const GraphTask::ExecInfo* Backward::wanted(const Node* node) const {
  if (task_.exec_info_.empty()) return nullptr;
  const auto found = task_.exec_info_.find(const_cast<Node*>(node));
  return found == task_.exec_info_.end() ? nullptr : &found->second;
}

void Backward::refuse(std::string reason) {
  if (refusal_.empty()) refusal_ = std::move(reason);
}

void Backward::describe_surroundings(const std::string* backend) {
  args_.collect(reinterpret_cast<uint64_t>(backend));
  for (at::DeviceType device : {at::kCPU, at::kCUDA}) {
    const bool autocast = at::autocast::is_autocast_enabled(device);
    args_.collect(autocast);
    if (autocast) args_.collect(at::autocast::get_autocast_dtype(device));
  }
  args_.collect(c10::get_default_dtype_as_scalartype());
  args_.collect(at::globalContext().deterministicAlgorithms());
  end_key();
}

void Backward::know_nodes(const NodePtr& root) {
  const size_t count = task_.dependencies_.size() + 1;
  size_t capacity = 16;
  while (capacity < 2 * count) capacity *= 2;
  table_.assign(capacity, 0);
  known_.reserve(count);
  steps_.reserve(count);
  targets_.reserve(2 * count);
  sizes_.reserve(8 * count);
  for (const auto& [node, dependencies] : task_.dependencies_) insert(node, dependencies);
  if (task_.dependencies_.count(root.get()) == 0) insert(root.get(), 0);
}

void Backward::insert(Node* node, int32_t dependencies) {
  known_.push_back({node, dependencies, kNowhere, true, true});
  size_t at = (reinterpret_cast<uintptr_t>(node) >> 4) * kEndOfNode >> 20;
  while (table_[at & (table_.size() - 1)] != 0) ++at;
  table_[at & (table_.size() - 1)] = static_cast<uint32_t>(known_.size());
}

Backward::Known& Backward::find(Node* node) {
  size_t at = (reinterpret_cast<uintptr_t>(node) >> 4) * kEndOfNode >> 20;
  for (;; ++at) {
    const uint32_t entry = table_[at & (table_.size() - 1)];
    TORCH_INTERNAL_ASSERT(entry != 0, "an edge leads to a node that the engine does not know");
    if (known_[entry - 1].node == node) return known_[entry - 1];
  }
}

/// The node with this address; when it is met first, its inputs are numbered and described.
Backward::Known& Backward::meet(Node* node) {
  Known& known = find(node);
  if (known.first_place != kNowhere) return known;
  known.first_place = static_cast<int32_t>(num_places_);
  num_places_ += node->num_inputs();
  if (!task_.exec_info_.empty()) {
    const auto info = task_.exec_info_.find(node);
    const bool is_known = info != task_.exec_info_.end();
    known.is_wanted = is_known && info->second.should_execute();
    known.is_needed = is_known && info->second.needed_;
  }
  describe_places(*node);
  return known;
}

void Backward::describe_places(Node& node) {
  args_.collect(node.num_inputs());
  for (uint32_t i = 0; i < node.num_inputs(); ++i) {
    const InputMetadata& metadata = node.input_metadata(i);
    if (!args_.cond(!metadata.was_default_constructed())) continue;
    if (metadata.is_nested_tensor()) return refuse("a nested tensor takes part in it");
    if (is_on_other_stream(metadata)) return refuse("it spans several streams");
    args_.collect(metadata.device());
    args_.collect(metadata.options().dtype());
    args_.collect(metadata.layout());
    args_.collect(metadata.is_tensor_subclass());
    args_.collect(metadata.grad_dtype());
    const c10::SymIntArrayRef shape = metadata.shape_as_dim_vector();
    args_.collect(static_cast<uint8_t>(shape.size()));
    for (const c10::SymInt& size : shape) sizes_.push_back(size.expect_int());
  }
}

Step::Kind Backward::kind_of(const Known& known) const {
  Node& node = *known.node;
  if (has_hooks(node)) return Step::Kind::Eager;
  if (!known.is_needed) return Step::Kind::Result;
  if (!is_accumulator(node)) return Step::Kind::Traced;
  return node.tensor_post_acc_grad_hooks() == nullptr ? Step::Kind::Accumulate : Step::Kind::Eager;
}

void Backward::add_step(const Known& known) {
  Node& node = *known.node;
  Step step{};
  step.node = &node;
  step.kind = steps_.empty() ? Step::Kind::Eager : kind_of(known);
  step.first_place = static_cast<uint32_t>(known.first_place);
  step.num_places = node.num_inputs();
  describe_type(node);
  args_.collect(step.first_place);
  if (step.kind == Step::Kind::Traced && !collect_saved(step)) step.kind = Step::Kind::Eager;
  args_.collect(static_cast<uint8_t>(step.kind));
  if (!task_.exec_info_.empty()) describe_captures(&node);
  if (known.is_needed) follow_edges(step);
  end_key();
  step.key_end = static_cast<uint32_t>(key_size_);
  steps_.push_back(step);
}

/// A CopySlices tells what the node inside it holds, but not which node that is.
void Backward::describe_type(const Node& node) {
  args_.collect(reinterpret_cast<uint64_t>(&typeid(node)));
  if (typeid(node) != typeid(torch::autograd::CopySlices)) return;
  const auto& inner = static_cast<const torch::autograd::CopySlices&>(node).fn;
  if (args_.cond(inner != nullptr)) describe_type(*inner);
}

/// False: the node does not say, or must not yet be asked, what it holds. It is left to itself.
bool Backward::collect_saved(Step& step) {
  step.first_number = static_cast<uint32_t>(call_.lifted_ivalue_args.args.size());
  const size_t first_input = inputs().size();
  const size_t first_size = call_.all_size_inputs.size();
  current_.node = step.node->getptr();
  try {
    step.node->compiled_args(args_);
  } catch (const std::exception&) {
    describe_inputs(first_input);
    return false;
  }
  for (size_t i = step.first_number; i < call_.lifted_ivalue_args.args.size(); ++i) {
    const c10::IValue& number = *call_.lifted_ivalue_args.args[i].actual_ptr;
    if (args_.cond(number.isInt())) {
      args_.collect(number.toInt());
    } else if (args_.cond(number.isDouble())) {
      args_.collect(number.toDouble());
    } else {
      describe_inputs(first_input);
      return false;
    }
  }
  for (size_t i = first_size; i < call_.all_size_inputs.size(); ++i) {
    sizes_.push_back(call_.all_size_inputs[i].value);
  }
  return describe_inputs(first_input);
}

bool Backward::describe_inputs(size_t first) {
  bool all_plain = true;
  for (size_t i = first; i < inputs().size(); ++i) {
    const at::Tensor& input = inputs()[i];
    versions_.push_back(version_of(input));
    args_.collect(input.key_set().raw_repr());
    args_.collect(input.requires_grad());
    args_.collect(input.unsafeGetTensorImpl()->is_wrapped_number());
    all_plain = all_plain && is_plain(input);
    if (!is_plain(input)) continue;
    args_.collect(static_cast<uint8_t>(input.dim()));
    for (int64_t size : input.sizes()) sizes_.push_back(size);
    for (int64_t stride : input.strides()) sizes_.push_back(stride);
  }
  return all_plain;
}

void Backward::describe_captures(const Node* node) {
  const GraphTask::ExecInfo* info = wanted(node);
  if (!args_.cond(info != nullptr && info->captures_ != nullptr)) return;
  args_.collect(info->captures_->size());
  for (const auto& capture : *info->captures_) {
    args_.collect(capture.input_idx_);
    args_.collect(capture.output_idx_);
    if (!capture.DO_NOT_USE_DEPRECATED_get_capture_hooks().empty()) {
      refuse("the engine has hooks on what it captures");
    }
  }
}

void Backward::follow_edges(Step& step) {
  step.first_target = static_cast<uint32_t>(targets_.size());
  step.num_targets = step.node->num_outputs();
  for (const torch::autograd::Edge& edge : step.node->next_edges()) {
    int32_t target = kNowhere;
    if (edge.is_valid()) {
      Known& next = meet(edge.function.get());
      const bool is_ready = --next.remaining == 0;
      if (next.is_wanted) target = next.first_place + static_cast<int32_t>(edge.input_nr);
      if (next.is_wanted && is_ready) {
        ready_.push_back({next.node->sequence_nr(), static_cast<uint32_t>(&next - known_.data())});
        std::push_heap(ready_.begin(), ready_.end());
      }
    }
    targets_.push_back(target);
    args_.collect(target);
  }
}

void Backward::end_key() {
  args_.collect(kEndOfNode);
  const auto key = args_.key();
  key_size_ += static_cast<uint16_t>(key.key_size - static_cast<uint16_t>(key_size_));
  if (std::memcmp(key.key + key_size_ - sizeof(kEndOfNode), &kEndOfNode, sizeof(kEndOfNode)) != 0) {
    refuse("a node holds too many constants");
  }
}

}  // namespace ahead::engine
