#include "trace/result_sorter.h"

#include <ATen/FunctionalStorageImpl.h>
#include <ATen/FunctionalTensorWrapper.h>
#include <torch/csrc/autograd/variable.h>

#include <map>

#include "ops/facts.h"

namespace ahead::tracing {
namespace {

using Kind = ResultFacts::Kind;

at::functionalization::FunctionalStorageImpl* storage_of(const at::Tensor& traced) {
  return static_cast<at::functionalization::FunctionalStorageImpl*>(
      traced.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
}

Value* current_value(const at::Tensor& traced) {
  at::functionalization::impl::sync(traced);
  const at::Tensor& inner =
      at::functionalization::impl::unsafeGetFunctionalWrapper(traced)->value();
  return as_fake(inner).value();
}

/// The value of the memory that a traced tensor is a view of, or all of.
Value* root_of(const at::Tensor& traced) {
  return as_fake(storage_of(traced)->base()).value();
}

/// The value that this one is a view of; null if it is none.
Value* viewed_by(const Value* value) {
  const Node* node = value->producer();
  if (node == nullptr || !node->op().in_dispatcher()) return nullptr;
  if (ops::facts(node->op()).view == ops::ViewKind::None) return nullptr;
  return !node->args().empty() && node->args()[0].is_value() ? node->args()[0].value() : nullptr;
}

/// Several tensors from outside may be views of one: the one that a value was made from.
size_t viewed_among(Tracer& tracer, const std::vector<size_t>& candidates, Value* value) {
  if (candidates.size() == 1) return candidates.front();
  for (; value != nullptr; value = viewed_by(value)) {
    for (size_t position : candidates) {
      if (current_value(tracer.lifted()[position].wrapper) == value) return position;
    }
  }
  return candidates.front();
}

/// Whether calling the view operators again on `base` gives this tensor its history.
bool is_history_of_views(const at::Tensor& traced, const at::Tensor& base) {
  if (!traced.requires_grad()) return true;
  if (!traced.is_view() || !base.defined()) return false;
  const bool is_view_itself = !base.is_inference() && base.is_view();
  if (!traced._base().is_same(is_view_itself ? base._base() : base)) return false;
  const auto* meta = torch::autograd::impl::get_view_autograd_meta(traced);
  return meta->get_creation_meta() != torch::autograd::CreationMeta::IN_CUSTOM_FUNCTION;
}

}  // namespace

ResultSorter::ResultSorter(Tracer& tracer, const std::vector<at::Tensor>& results)
    : facts_(results.size()) {
  for (const at::Tensor& result : results) {
    const bool is_real = result.defined() && !is_traced(result);
    traced_.push_back(is_real ? tracer.lift(result) : result);
  }
  std::unordered_map<const void*, size_t> inputs, seen;
  std::unordered_map<const void*, std::vector<size_t>> lifted_storages;
  for (size_t i = 0; i < tracer.lifted().size(); ++i) {
    const at::Tensor& wrapper = tracer.lifted()[i].wrapper;
    inputs.emplace(wrapper.unsafeGetTensorImpl(), i);
    lifted_storages[storage_of(wrapper)].push_back(i);
  }
  std::map<size_t, std::vector<size_t>> groups;  // by the first of each
  std::unordered_map<const void*, size_t> group_of;
  for (size_t i = 0; i < traced_.size(); ++i) {
    const at::Tensor& traced = traced_[i];
    if (!traced.defined()) continue;
    describe(i);
    const auto same = seen.emplace(traced.unsafeGetTensorImpl(), i);
    const auto input = inputs.find(traced.unsafeGetTensorImpl());
    if (input != inputs.end()) {
      facts_[i].kind = Kind::Input;
      facts_[i].base = static_cast<int32_t>(input->second);
    } else if (!same.second) {
      facts_[i].kind = Kind::Result;
      facts_[i].base = static_cast<int32_t>(same.first->second);
    } else if (auto lifted = lifted_storages.find(storage_of(traced));
               lifted != lifted_storages.end()) {
      const size_t position = viewed_among(tracer, lifted->second, facts_[i].value);
      const at::Tensor& wrapper = tracer.lifted()[position].wrapper;
      facts_[i].root = current_value(wrapper);
      make_view(i, Kind::ViewOfInput, static_cast<int32_t>(position), wrapper);
    } else {
      groups[group_of.emplace(storage_of(traced), i).first->second].push_back(i);
    }
  }
  for (const auto& [first, group] : groups) sort_group(group);
}

void ResultSorter::describe(size_t i) {
  const at::Tensor& traced = traced_[i];
  facts_[i].kind = Kind::Fresh;
  facts_[i].requires_grad = traced.requires_grad();
  facts_[i].is_leaf = traced.is_leaf();
  facts_[i].is_inference = traced.is_inference();
  if (!traced.is_inference()) facts_[i].version = static_cast<uint32_t>(traced._version());
  facts_[i].value = current_value(traced);
  facts_[i].root = root_of(traced);
}

void ResultSorter::sort_group(const std::vector<size_t>& group) {
  if (group.size() == 1 || find_base_among(group)) return;
  const int32_t base = add_base(group, facts_[group.front()].root);
  for (size_t i : group)
    make_view(i, Kind::ViewOfBase, base, bases_[static_cast<size_t>(base)].tensor);
}

/// Several results share memory. One of them may be all of it.
bool ResultSorter::find_base_among(const std::vector<size_t>& group) {
  for (size_t base : group) {
    if (facts_[base].value != facts_[base].root || traced_[base].is_view()) continue;
    for (size_t i : group) {
      if (i != base) {
        make_view(i, Kind::ViewOfResult, static_cast<int32_t>(base), traced_[base]);
      }
    }
    return true;
  }
  return false;
}

int32_t ResultSorter::add_base(const std::vector<size_t>& group, Value* root) {
  Base base{{}, root};
  for (size_t i : group) {
    if (traced_[i].is_view()) base.tensor = traced_[i]._base();
    if (base.tensor.defined()) break;
  }
  if (base.tensor.defined()) at::functionalization::impl::sync(base.tensor);
  bases_.push_back(std::move(base));
  return static_cast<int32_t>(bases_.size() - 1);
}

void ResultSorter::make_view(size_t i, Kind kind, int32_t base, const at::Tensor& base_tensor) {
  if (!is_history_of_views(traced_[i], base_tensor)) return;
  facts_[i].kind = kind;
  facts_[i].base = base;
}

}  // namespace ahead::tracing
