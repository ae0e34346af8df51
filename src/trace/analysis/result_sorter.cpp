#include "trace/analysis/result_sorter.h"

#include <ATen/FunctionalStorageImpl.h>
#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/MemoryOverlap.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "ahead/errors.h"
#include "ops/facts/node_facts.h"
#include "trace/tensor/functional.h"

namespace ahead::tracing {
namespace {

using Kind = ResultFacts::Kind;
using ops::viewed_by;
using torch::autograd::CreationMeta;

/// The value of the memory that a traced tensor is a view of, or all of.
Value* root_of(const at::Tensor& traced) {
  return as_fake(functional_memory(traced)->base()).value();
}

/// Several tensors from outside may be views of one: the one that a value was made from.
size_t viewed_among(const Outside& outside, const std::vector<size_t>& candidates, Value* value) {
  if (candidates.size() == 1) return candidates.front();
  for (; value != nullptr; value = viewed_by(value)) {
    for (size_t position : candidates) {
      if (value_of(outside.lifted()[position].wrapper) == value) return position;
    }
  }
  return candidates.front();
}

/// Whether set_() gave a traced tensor other memory, rather than what it is a view of.
bool was_set(const at::Tensor& traced) {
  const bool is_view = !traced.is_inference() && traced.is_view();
  return functional_wrapper(traced).was_storage_changed() &&
         !(is_view && traced._base().is_alias_of(traced));
}

/// Whether autograd knows a traced tensor as a view of `base`, or of what that is a view of.
bool is_tracked_view(const at::Tensor& traced, const at::Tensor& base) {
  if (!traced.is_view() || !base.defined()) return false;
  const bool is_view_itself = !base.is_inference() && base.is_view();
  return traced._base().is_same(is_view_itself ? base._base() : base);
}

CreationMeta creation_of(const at::Tensor& view) {
  return torch::autograd::impl::get_view_autograd_meta(view)->get_creation_meta();
}

/// A custom autograd function gave the view its history.
bool is_custom_view(const at::Tensor& traced, const at::Tensor& base) {
  if (!is_tracked_view(traced, base)) return false;
  return creation_of(traced) == CreationMeta::IN_CUSTOM_FUNCTION;
}

/// Whether calling the view operators again on `base` gives this tensor its history.
bool is_history_of_views(const at::Tensor& traced, const at::Tensor& base) {
  if (!traced.requires_grad() || traced.is_leaf()) return true;
  return is_tracked_view(traced, base) && !is_custom_view(traced, base);
}

/// Views of what was written to get their history when they are asked for it.
void settle_history(const at::Tensor& traced) {
  try {
    traced.grad_fn();
  } catch (const c10::Error& error) {
    throw Unsupported("trace",
                      TensorMeta::of(traced).str() +
                          ": this result has a history that nobody can use: " + error.msg());
  }
}

/// Once an alias of a tensor changed its shape, autograd gives views of the tensor another history:
/// that of as_strided, which spreads gradients over elements that are the same memory.
void check_same_gradient(const at::Tensor& view, const at::Tensor& real,
                         const std::vector<Lifted>& all) {
  if (!view.requires_grad() || view.is_leaf()) return;
  if (at::has_internal_overlap(real) == at::MemOverlap::No) return;
  const bool is_raised = std::any_of(all.begin(), all.end(), [&](const Lifted& lifted) {
    return !lifted.real.is_inference() && lifted.wrapper._version() != 0 &&
           share_version_counter(lifted.real, real);
  });
  if (!is_raised && view._version() == 0) return;
  throw Unsupported("trace",
                    TensorMeta::of(view).str() +
                        ": this result is a view of a tensor from outside, several elements of "
                        "which are the same memory, and of which an alias changed its shape in "
                        "place. Return a clone of it.");
}

torch::autograd::Edge history_of_base(const at::Tensor& view) {
  return torch::autograd::impl::gradient_edge(at::Tensor(view._base()));
}

/// Whether autograd gave a view its history anew, after a write to what it views.
bool has_history_of_place(const at::Tensor& view) {
  if (view._version() == 0 || view.is_leaf()) return false;
  const NodePtr made_by = view.grad_fn();
  return made_by->name() == "AsStridedBackward0" && made_by->next_edge(0) == history_of_base(view);
}

/// How many nodes lead back from a view to where its history ends; 0 if they lead to what it views.
uint32_t length_of_cut_history(const at::Tensor& view) {
  const NodePtr base = history_of_base(view).function;
  if (base == nullptr || !view.requires_grad() || view.is_leaf()) return 0;
  uint32_t length = 0;
  for (NodePtr node = view.grad_fn(); node != nullptr; ++length) {
    if (node == base || node->num_outputs() != 1) return 0;
    node = node->next_edge(0).function;
  }
  return length;
}

/// A view through which gradients flow: LibTorch may let nobody write to it, and if it does, what
/// it is a view of gets the gradient in its own layout.
bool is_differentiable_view(const at::Tensor& traced) {
  if (traced.is_inference() || !traced.requires_grad() || !traced.is_view()) return false;
  return !is_custom_view(traced, at::Tensor(traced._base()));
}

}  // namespace

ResultSorter::ResultSorter(Outside& outside, const std::vector<at::Tensor>& results)
    : outside_(outside), num_results_(results.size()) {
  for (const at::Tensor& result : results) {
    const bool is_real = result.defined() && !is_traced(result);
    traced_.push_back(is_real ? outside.lift(result) : result);
  }
  find_inputs();
  facts_.resize(traced_.size());
  for (size_t i = 0; i < traced_.size(); ++i) {
    if (traced_[i].defined()) sort(i);
  }
  for (const auto& [first, group] : groups_) sort_group(group);
  for (size_t i = 0; i < num_results_; ++i) {
    check_base(i);
    check_custom_view(i);
  }
}

/// Nobody may write to a view of a leaf; a caller would get one that is no view.
void ResultSorter::check_base(size_t i) const {
  const at::Tensor& traced = traced_[i];
  if (!traced.defined() || traced.is_inference() || !traced.is_view()) return;
  const at::Tensor base(traced._base());
  if (!base.is_leaf() || !base.requires_grad() || facts_[i].kind == Kind::ViewOfResult ||
      facts_[i].kind == Kind::Result || inputs_.count(base.unsafeGetTensorImpl()) != 0)
    return;
  throw Unsupported("trace",
                    facts_[i].value->meta.str() +
                        ": the function returns a view of a leaf that it makes itself. Make the "
                        "leaf outside, or return a clone of the view.");
}

/// A caller would get a tensor that is no view, or a view with a history that eager would refuse to
/// use. What is traced for a compiler may do so.
void ResultSorter::check_custom_view(size_t i) const {
  const at::Tensor& traced = traced_[i];
  const Kind kind = facts_[i].kind;
  if (!outside_.is_replay() || !traced.defined() || traced.is_inference() || !traced.is_view() ||
      kind == Kind::Input || kind == Kind::Result ||
      !is_custom_view(traced, at::Tensor(traced._base())))
    return;
  const std::string result = facts_[i].value->meta.str();
  if (kind != Kind::CustomView) {
    throw Unsupported("trace", result +
                                   ": a custom autograd function returns a view of what the "
                                   "function computed, and the function returns that. Return a "
                                   "clone of it.");
  }
  const auto* meta = torch::autograd::impl::get_view_autograd_meta(traced);
  if (meta->get_attr_version() != traced._version()) {
    throw Unsupported("trace", result +
                                   ": a custom autograd function returns a view, and its memory is "
                                   "written to afterwards, which leaves it without history. Return "
                                   "a clone of it.");
  }
}

void ResultSorter::find_inputs() {
  for (size_t i = 0; i < outside_.lifted().size(); ++i) {
    const Lifted& lifted = outside_.lifted()[i];
    inputs_.emplace(lifted.wrapper.unsafeGetTensorImpl(), i);
    memories_[lifted.memory._unsafe_get_target()].push_back(i);
    if (!has_other_memory(lifted)) continue;
    reset_.push_back(i);
    traced_.push_back(lifted.wrapper);
  }
}

void ResultSorter::sort(size_t i) {
  describe(i);
  if (find_input(i)) return;
  facts_[i].was_set = !is_memory(i) && was_set(traced_[i]);
  const bool is_viewed = find_viewed_input(i);
  if (facts_[i].was_set && (!is_viewed || facts_[i].kind != Kind::ViewOfInput ||
                            traced_[i].requires_grad() || traced_[i].is_inference())) {
    throw Unsupported("trace", facts_[i].value->meta.str() +
                                   ": the function returns a tensor that set_() gave other memory. "
                                   "Return what it was set to.");
  }
  if (is_viewed) return;
  groups_[group_of_.emplace(functional_memory(traced_[i]), i).first->second].push_back(i);
}

/// Whether the result is an input, or an earlier result.
bool ResultSorter::find_input(size_t i) {
  if (is_memory(i)) return false;
  const auto same = seen_.emplace(traced_[i].unsafeGetTensorImpl(), i);
  const auto input = inputs_.find(traced_[i].unsafeGetTensorImpl());
  if (input != inputs_.end()) {
    facts_[i].kind = Kind::Input;
    facts_[i].base = static_cast<int32_t>(input->second);
  } else if (!same.second) {
    facts_[i].kind = Kind::Result;
    facts_[i].base = static_cast<int32_t>(same.first->second);
  }
  return facts_[i].kind != Kind::Fresh;
}

/// Whether the result has the memory of an input, by which the caller can find it.
bool ResultSorter::find_viewed_input(size_t i) {
  const at::Tensor& traced = traced_[i];
  size_t position = 0;
  const bool is_view = !is_memory(i) && !traced.is_inference() && traced.is_view();
  const auto viewed = is_view ? inputs_.find(traced._base().unsafeGetTensorImpl()) : inputs_.end();
  const auto memory = memories_.find(functional_memory(traced));
  if (viewed != inputs_.end() && has_other_memory(outside_.lifted()[viewed->second])) {
    position = viewed->second;
  } else if (memory != memories_.end()) {
    position = viewed_among(outside_, memory->second, facts_[i].value);
    if (has_other_memory(outside_.lifted()[position])) {
      throw Unsupported("trace",
                        "set_: what the function returns, or sets a tensor to, is a view of memory "
                        "that a tensor from outside had before set_(). Return a clone.");
    }
  } else {
    return false;
  }
  const at::Tensor& wrapper = outside_.lifted()[position].wrapper;
  facts_[i].root = value_of(wrapper);
  if (!traced.is_inference())
    check_same_gradient(traced, outside_.lifted()[position].real, outside_.lifted());
  make_view(i, Kind::ViewOfInput, static_cast<int32_t>(position), wrapper);
  return true;
}

void ResultSorter::describe(size_t i) {
  const at::Tensor& traced = traced_[i];
  facts_[i].kind = Kind::Fresh;
  settle_history(traced);
  facts_[i].requires_grad = traced.requires_grad();
  facts_[i].is_leaf = traced.is_leaf();
  facts_[i].is_inference = traced.is_inference();
  if (!traced.is_inference()) facts_[i].version = static_cast<uint32_t>(traced._version());
  const bool is_view = !traced.is_inference() && traced.is_view();
  facts_[i].is_no_grad_view = is_view && creation_of(traced) == CreationMeta::NO_GRAD_MODE;
  facts_[i].is_one_of_several = is_view && creation_of(traced) == CreationMeta::MULTI_OUTPUT_NODE;
  facts_[i].is_strided_view = is_view && has_history_of_place(traced);
  if (is_view) facts_[i].history_length = length_of_cut_history(traced);
  facts_[i].base_identity = (is_view ? traced._base() : traced).unsafeGetTensorImpl();
  facts_[i].value = value_of(traced);
  facts_[i].root = root_of(traced);
}

void ResultSorter::sort_group(const std::vector<size_t>& group) {
  if (group.size() == 1 && !is_differentiable_view(traced_[group.front()])) return;
  if (find_base_among(group)) return;
  const int32_t base = add_base(group, facts_[group.front()].root);
  const at::Tensor& tensor = bases_[static_cast<size_t>(base)].tensor;
  for (size_t i : group) {
    // With a history it is returned as it is now, which may be in another shape than it was made.
    if (tensor.defined() && tensor.requires_grad()) facts_[i].root = value_of(tensor);
    make_view(i, Kind::ViewOfBase, base, tensor);
  }
}

/// Several results share memory. One of them may be all of it: the one that the others are made of,
/// or else one that autograd knows as the base of another.
bool ResultSorter::find_base_among(const std::vector<size_t>& group) {
  const auto is_whole = [&](size_t i) { return !is_memory(i) && !traced_[i].is_view(); };
  const auto is_root = [&](size_t i) { return is_whole(i) && facts_[i].value == facts_[i].root; };
  const auto is_viewed = [&](size_t base) {
    return is_whole(base) && std::any_of(group.begin(), group.end(), [&](size_t i) {
             return traced_[i].is_view() && traced_[i]._base().is_same(traced_[base]);
           });
  };
  auto base = std::find_if(group.begin(), group.end(), is_root);
  if (base == group.end()) base = std::find_if(group.begin(), group.end(), is_viewed);
  if (base == group.end()) return false;
  for (size_t i : group) {
    if (i == *base) continue;
    facts_[i].root = facts_[*base].value;
    make_view(i, Kind::ViewOfResult, static_cast<int32_t>(*base), traced_[*base]);
  }
  return true;
}

int32_t ResultSorter::add_base(const std::vector<size_t>& group, Value* root) {
  Base base{{}, root};
  for (size_t i : group) {
    if (!is_memory(i) && traced_[i].is_view()) base.tensor = traced_[i]._base();
    if (base.tensor.defined()) break;
  }
  if (base.tensor.defined()) at::functionalization::impl::sync(base.tensor);
  const bool is_base_of_all = std::all_of(group.begin(), group.end(), [&](size_t i) {
    return base.tensor.defined() && !is_memory(i) && is_tracked_view(traced_[i], base.tensor);
  });
  // It may lie behind a view that autograd does not know, and has a version of its own.
  if (is_base_of_all) base.value = value_of(base.tensor);
  for (size_t i : group) facts_[i].root = base.value;
  bases_.push_back(std::move(base));
  return static_cast<int32_t>(bases_.size() - 1);
}

/// The caller would get a tensor that shares neither memory nor version with the one that it does
/// in eager. Views that custom functions return are looked at when all results are known.
void ResultSorter::check_memory_of_its_own(size_t i, Kind kind,
                                           const at::Tensor& base_tensor) const {
  const bool is_alone = kind == Kind::ViewOfBase &&
                        groups_.at(group_of_.at(functional_memory(traced_[i]))).size() == 1;
  if (is_alone || is_custom_view(traced_[i], base_tensor)) return;
  throw Unsupported("trace",
                    facts_[i].value->meta.str() + ": this result shares memory with " +
                        (kind == Kind::ViewOfInput ? "a tensor from outside" : "another result") +
                        " by detach(), and what was written to it has a gradient. Return a clone "
                        "of it.");
}

void ResultSorter::make_view(size_t i, Kind kind, int32_t base, const at::Tensor& base_tensor) {
  const bool is_replayable = is_memory(i) || is_history_of_views(traced_[i], base_tensor);
  const bool has_own_history =
      !is_replayable && (is_custom_view(traced_[i], base_tensor) || !traced_[i].is_view());
  if (has_own_history && kind == Kind::ViewOfInput) {
    kind = Kind::CustomView;
  } else if (!is_replayable) {
    check_memory_of_its_own(i, kind, base_tensor);
    return;
  }
  facts_[i].kind = kind;
  facts_[i].base = base;
}

}  // namespace ahead::tracing
