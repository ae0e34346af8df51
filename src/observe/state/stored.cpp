#include "observe/state/stored.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/dynamo/compiled_autograd.h>

#include <unordered_set>

#include "base/private_members.h"
#include "observe/state/entry_state.h"
#include "observe/state/state_tensor.h"
#include "observe/tape/custom_formula.h"

namespace ahead::observe {
namespace {

using torch::autograd::AccumulateGrad;
using torch::autograd::SavedVariable;
using torch::dynamo::autograd::AutogradCompilerCall;
using torch::dynamo::autograd::CompiledNodeArgs;
using torch::dynamo::autograd::NodeCall;

NodePtr history_of(const at::Tensor& tensor) {
  const auto* meta = peek_meta(tensor);
  return meta == nullptr ? NodePtr() : meta->grad_fn_;
}

/// How autograd makes a view anew that as_strided() cannot make; null: it is no such view.
const torch::autograd::ViewInfo* replayed_view(const at::Tensor& tensor) {
  const auto* view = torch::autograd::impl::get_view_autograd_meta(tensor);
  if (view == nullptr || !view->has_bw_view()) return nullptr;
  return view->get_backward_view().has_view_fn() ? &view->get_backward_view() : nullptr;
}

/// The node of a leaf; null: it is another one. Cheaper than a dynamic_cast.
AccumulateGrad* as_leaf(torch::autograd::Node& node) {
  return typeid(node) == typeid(AccumulateGrad) ? static_cast<AccumulateGrad*>(&node) : nullptr;
}

/// Whether a node has hooks of its own: the recorder is told of hooks of tensors only.
bool has_hooks(torch::autograd::Node& node) {
  return !node.pre_hooks().empty() || !node.post_hooks().empty();
}

/// Calls visit(tensor) for each tensor that an autograd node saved, as often as it did. A tensor
/// that visit assigns is saved instead, but not where a custom function keeps it without a
/// SavedVariable.
template <class Visit>
void for_each_saved_tensor(const NodePtr& node, Visit&& visit) {
  const OpenContext open(*node);
  AutogradCompilerCall call(torch::dynamo::autograd::SizeInput::STATIC);
  NodeCall node_call(0, node);
  CompiledNodeArgs args(call, node_call);
  try {
    node->compiled_args(args);
  } catch (const std::exception&) {
    // Released, or a node that does not tell.
  }
  if (call.tensor_args.inputs.empty()) return;
  std::unordered_set<const c10::TensorImpl*> unpacked;
  for (const auto& [saved, arg] : args_by_saved_variable(call.tensor_args)) {
    at::Tensor& data = saved_data(const_cast<SavedVariable&>(*saved));
    if (!saved->has_hooks() && data.defined()) visit(data);
    if (arg->defined())
      unpacked.insert(call.tensor_args.inputs[arg->index()].unsafeGetTensorImpl());
  }
  // Tensors that a custom function keeps without a SavedVariable.
  for (at::Tensor& tensor : call.tensor_args.inputs) {
    if (unpacked.count(tensor.unsafeGetTensorImpl()) == 0) visit(tensor);
  }
}

}  // namespace

void OwnerCount::add_result(const at::Tensor& tensor, size_t handles) {
  if (!tensor.defined()) return;
  owners_[tensor.unsafeGetTensorImpl()] += handles;
  if (const torch::autograd::ViewInfo* info = replayed_view(tensor))
    chained_bases_.insert(info->base_.unsafeGetTensorImpl());
  count_saved({history_of(tensor)});
}

void OwnerCount::add_owner(const at::Tensor& tensor) {
  count_saved({history_of(tensor)});
  const auto* meta = peek_meta(tensor);
  if (meta == nullptr) return;
  if (meta->grad_.defined()) ++owners_[meta->grad_.unsafeGetTensorImpl()];
  const auto* view = torch::autograd::impl::get_view_autograd_meta(tensor);
  if (view == nullptr) return;
  if (view->has_bw_view()) {
    const torch::autograd::ViewInfo& info = view->get_backward_view();
    // The function that makes the view anew may hold the base, too.
    owners_[info.base_.unsafeGetTensorImpl()] += info.has_view_fn() ? 2 : 1;
  }
  if (view->has_fw_view() && !view->shared_view_info())
    ++owners_[view->get_forward_view().base_.unsafeGetTensorImpl()];
}

/// Counts the tensors that nodes and all nodes behind them saved.
void OwnerCount::count_saved(std::vector<NodePtr> open) {
  while (!open.empty()) {
    const NodePtr node = std::move(open.back());
    open.pop_back();
    if (!node || walked_.count(node.get()) != 0) continue;
    if (const AccumulateGrad* leaf = as_leaf(*node)) {
      walked_.emplace(node.get(), node);
      if (leaf->variable.defined()) ++owners_[leaf->variable.unsafeGetTensorImpl()];
      continue;
    }
    if (node->sequence_nr() < first_sequence_) continue;
    walked_.emplace(node.get(), node);
    if (node->sequence_nr() >= first_of_call_ && has_hooks(*node)) hooked_ = node->name();
    for_each_saved_tensor(node, [&](at::Tensor& saved) { ++owners_[saved.unsafeGetTensorImpl()]; });
    for (const torch::autograd::Edge& edge : node->next_edges()) open.push_back(edge.function);
  }
}

size_t OwnerCount::unknown_owners(const WeakTensor& tensor) const {
  const auto known = owners_.find(tensor._unsafe_get_target());
  const size_t explained = known == owners_.end() ? 0 : known->second;
  const size_t owners = tensor.use_count();
  return owners > explained ? owners - explained : 0;
}

void OwnerCount::let_go(const at::Tensor& tensor) {
  // The backward that unpacks it has to throw, as in eager.
  if (has_lost_history(tensor)) return;
  const at::Tensor alias = alias_of(tensor);
  for (const auto& [address, node] : walked_) {
    if (node->sequence_nr() < first_of_call_ || as_leaf(*node)) continue;
    for_each_saved_tensor(node, [&](at::Tensor& saved) {
      if (saved.is_same(tensor)) saved = alias;
    });
  }
}

/// Whether a tensor is a view between a base and a result that is made anew by calling functions,
/// which hold it.
bool OwnerCount::is_chained(const at::Tensor& tensor) const {
  const torch::autograd::ViewInfo* info = replayed_view(tensor);
  return info != nullptr && chained_bases_.count(info->base_.unsafeGetTensorImpl()) != 0;
}

std::vector<StoredTensor> OwnerCount::find_stored(const std::vector<MadeTensor>& made) {
  // A stored tensor may have a grad_fn that no result leads to.
  for (const MadeTensor& tensor : made) {
    if (const at::Tensor held = lock(tensor.tensor); held.defined())
      count_saved({history_of(held)});
  }
  std::vector<StoredTensor> stored;
  for (const MadeTensor& tensor : made) {
    size_t owners = unknown_owners(tensor.tensor);
    if (owners != 0 && is_chained(lock(tensor.tensor))) --owners;
    if (owners != 0) stored.push_back({tensor.id, tensor.tensor, owners});
  }
  return stored;
}

}  // namespace ahead::observe
