#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "ahead/detail/tree_function.h"
#include "observe/recorder/place.h"
#include "observe/recorder/recorder.h"
#include "observe/state/state_tensor.h"
#include "tensors/wrapper_keys.h"

/// The variables of a recording: which one a tensor is, and what happened to it without an
/// operator.
namespace ahead::observe {
namespace {

/// Whether a tensor is a wrapped number of a type that its value tells.
bool is_number(const at::Tensor& tensor) {
  const at::ScalarType dtype = tensor.scalar_type();
  return tensor.unsafeGetTensorImpl()->is_wrapped_number() &&
         (dtype == at::kDouble || dtype == at::kLong || dtype == at::kBool ||
          dtype == at::kComplexDouble);
}

size_t bytes_of(const c10::StorageImpl& storage) {
  return static_cast<size_t>(storage.sym_nbytes().maybe_as_int().value_or(0));
}

/// Why a view that a custom autograd function returned cannot be made again; empty: it can.
std::string problem_of_view(const at::Tensor& view) {
  const auto* meta = torch::autograd::impl::get_view_autograd_meta(view);
  if (meta->get_creation_meta() != torch::autograd::CreationMeta::IN_CUSTOM_FUNCTION)
    return ": a custom autograd function returns a view beside other results. Return a clone";
  if (meta->get_attr_version() != view._version())
    return ": a custom autograd function returns a view, and its memory is written to afterwards, "
           "which leaves it without history. Return a clone";
  return "";
}

}  // namespace

/// Takes composite operators apart if a tensor that was made inside them is used outside.
void Recorder::leave_scopes(VariableId id) {
  Variable& variable = variables_[static_cast<size_t>(id)];
  while (variable.scope >= 0 && !is_inside(variable.scope)) {
    Step& composite = tape_->steps[static_cast<size_t>(variable.scope)];
    composite.is_apart = true;
    variable.scope = static_cast<int32_t>(composite.number) - 1;
    variable.is_inner = true;
  }
  if (variable.is_inner) take_users_apart(id);
}

/// Takes composite operators apart that use a tensor they were not given, such as a cast of a
/// weight from autocast's cache: called as a whole, they would cast again.
void Recorder::take_users_apart(VariableId id) {
  const int32_t made_in = variables_[static_cast<size_t>(id)].scope;
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend() && *scope != made_in; ++scope) {
    Step& user = tape_->steps[static_cast<size_t>(*scope)];
    if (std::find(user.ins.begin(), user.ins.end(), id) == user.ins.end()) user.is_apart = true;
  }
}

bool Recorder::is_inside(int32_t scope) const {
  return std::find(scopes_.begin(), scopes_.end(), scope) != scopes_.end();
}

VariableId Recorder::meet(const at::Tensor& tensor) {
  if (has_place(tensor)) check_bytes(*tensor.storage().unsafeGetStorageImpl());
  const auto known = ids_.find(tensor.unsafeGetTensorImpl());
  const bool is_known = known != ids_.end();
  const VariableId id = is_known ? known->second : meet_unknown(tensor);
  if (is_known) note_changes(id, tensor);
  leave_scopes(id);
  return id;
}

/// Meets the tensor that the call before used, if another handle on its memory is met first.
void Recorder::meet_owner(const at::Tensor& handle) {
  const auto known = used_before_.find(handle.storage().unsafeGetStorageImpl());
  if (known == used_before_.end()) return;
  const std::vector<WeakTensor> owners = std::move(known->second);
  used_before_.erase(known);
  for (const WeakTensor& owner : owners) {
    const at::Tensor tensor = observe::lock(owner);
    if (tensor.defined() && !tensor.is_same(handle) && has_place(tensor) &&
        tensor.storage().is_alias_of(handle.storage()) && place_of(tensor) == place_of(handle))
      meet(tensor);
  }
}

bool Recorder::is_captured(VariableId id) const {
  return std::any_of(tape_->captured.begin(), tape_->captured.end(),
                     [&](const CapturedTensor& captured) { return captured.id == id; });
}

VariableId Recorder::meet_unknown(const at::Tensor& tensor) {
  if (is_number(tensor)) return add_number(tensor);
  if (has_place(tensor) && !used_before_.empty()) meet_owner(tensor);
  const VariableId same = has_place(tensor) ? find_by_place(tensor) : no_variable;
  return same != no_variable ? same : add_captured(tensor);
}

/// Another handle on memory that is known: a tensor that autograd saved, or one that shares the
/// data of another and nothing else.
VariableId Recorder::find_by_place(const at::Tensor& tensor) {
  const auto memory = memories_.find(tensor.storage().unsafeGetStorageImpl());
  if (memory == memories_.end()) return no_variable;
  const uint64_t place = place_of(tensor);
  const auto* history = peek_history(tensor);
  const uint32_t output_nr = history == nullptr ? 0 : peek_meta(tensor)->output_nr_;
  VariableId found = no_variable;
  for (VariableId id : memory->second.variables) {
    const Variable& variable = variables_[static_cast<size_t>(id)];
    if (variable.place != place || variable.storage != tensor.storage().unsafeGetStorageImpl())
      continue;
    const bool is_same = variable.history == history && variable.output_nr == output_nr &&
                         variable.requires_grad == tensor.requires_grad();
    if (is_same && history != nullptr) return id;
    found = id;
    if (is_same && is_in_backward()) return id;
  }
  if (found == no_variable) return no_variable;
  if (is_in_backward() && !at::GradMode::is_enabled()) return found;
  // Views and detached tensors that were made outside share the version counter of their base; a
  // handle on the data of a tensor (.data()) does not.
  const at::Tensor known = observe::lock(variables_[static_cast<size_t>(found)].tensor);
  const bool is_outside = found < tape_->num_inputs || is_captured(found);
  if (is_outside && known.defined() && !tensor.is_inference() && !known.is_inference() &&
      share_version_counter(known, tensor))
    return no_variable;
  if (history != nullptr) {
    refuse("a tensor that no operator returned has a history of its own");
    return found;
  }
  // A handle on a tensor from outside came before that tensor.
  const bool came_first =
      is_captured(found) &&
      (tensor.requires_grad() || variables_[static_cast<size_t>(found)].tensor.use_count() == 0);
  if (came_first) return no_variable;
  leave_scopes(found);
  Step data{Step::Kind::Data};
  data.ins = {found};
  const VariableId id = add_variable(tensor);
  data.outs = {id};
  add(std::move(data));
  if (tensor.requires_grad()) {
    Step step{Step::Kind::RequiresGrad};
    step.ins = {id};
    step.args = {c10::IValue(true)};
    add(std::move(step));
  }
  return id;
}

/// Notes the `.grad` that a leaf has, so that the gradient is known to be the leaf's when it is
/// met.
void Recorder::note_first_grad(const at::Tensor& leaf) {
  if (peek_history(leaf) != nullptr || !leaf.is_leaf()) return;
  const at::Tensor grad = leaf.grad();
  if (!grad.defined() && !leaf.requires_grad()) return;
  const c10::TensorImpl *owner = leaf.unsafeGetTensorImpl(), *owned = grad.unsafeGetTensorImpl();
  const at::Tensor shell = grad.defined() && has_place(grad) ? shell_of(grad) : at::Tensor();
  const bool is_new =
      first_grads_
          .emplace(owner, FirstGrad{WeakTensor(grad.getIntrusivePtr()), shell, count_hooks(leaf)})
          .second;
  if (!is_new || !grad.defined()) return;
  leaf_of_grad_.emplace(owned, owner);
  // Optimisers use another handle on its data.
  if (has_place(grad))
    used_before_[grad.storage().unsafeGetStorageImpl()].emplace_back(grad.getIntrusivePtr());
  // It may have been met before the leaf (zero_grad).
  for (CapturedTensor& captured : tape_->captured) {
    if (captured.tensor._unsafe_get_target() != owned) continue;
    captured.grad_of = owner;
    captured.shell = shell;
    captured.contents = at::Tensor();
  }
}

VariableId Recorder::add_captured(const at::Tensor& tensor) {
  note_first_grad(tensor);
  const auto first_grad = first_grads_.find(tensor.unsafeGetTensorImpl());
  if (first_grad != first_grads_.end()) {
    note_entry(tensor, first_grad->second.grad, first_grad->second.shell);
  } else {
    note_entry(tensor, WeakTensor(at::Tensor().getIntrusivePtr()));
  }
  const VariableId id = add_variable(tensor);
  CapturedTensor captured{id, WeakTensor(tensor.getIntrusivePtr())};
  if (has_place(tensor)) captured.look = TensorMeta::of(tensor);
  const bool is_wrapper = tensors::is_wrapper(tensor);
  if (!tensor.is_inference()) captured.version = tensor._version();
  captured.had_grad = first_grad == first_grads_.end() ? peek_grad(tensor) != nullptr
                                                       : first_grad->second.shell.defined();
  captured.num_hooks =
      first_grad == first_grads_.end() ? count_hooks(tensor) : first_grad->second.num_hooks;
  const auto leaf = leaf_of_grad_.find(tensor.unsafeGetTensorImpl());
  if (leaf != leaf_of_grad_.end()) {
    captured.grad_of = leaf->second;
    captured.shell = first_grads_.at(leaf->second).shell;
  }
  const size_t position = tape_->captured.size();
  for (size_t i = 0; before_ != nullptr && i < before_->stored.size(); ++i) {
    const StoredTensor& stored = before_->stored[i];
    if (stored.tensor._unsafe_get_target() == tensor.unsafeGetTensorImpl())
      captured.stored_before = stored.id;
  }
  const bool may_be_state = captured.stored_before != no_variable || handles_.had(tensor);
  if (may_be_state) {
    const RecordingPause pause;
    captured.state = alias_of(tensor);
  }
  if (before_ != nullptr) {
    const bool is_another =
        position >= before_->captured.size() ||
        before_->captured[position].tensor._unsafe_get_target() != tensor.unsafeGetTensorImpl();
    const bool is_small =
        has_place(tensor) && !is_wrapper && tensor.nbytes() <= most_compared_bytes;
    if (is_another && !may_be_state && is_small && !captured.grad_of && !tensor.requires_grad() &&
        !tensor.is_meta())
      captured.contents = copy_of(tensor);
  }
  const bool is_tiny = has_place(tensor) && !is_wrapper && tensor.nbytes() <= most_constant_bytes;
  if (before_ == nullptr && is_tiny && !captured.grad_of && tensor.device().is_cpu() &&
      !tensor.requires_grad())
    captured.contents = copy_of(tensor);
  tape_->captured.push_back(std::move(captured));
  if (first_grad != first_grads_.end()) {
    const c10::TensorImpl* grad = first_grad->second.grad._unsafe_get_target();
    variables_[static_cast<size_t>(id)].grad =
        grad == c10::UndefinedTensorImpl::singleton() ? nullptr : grad;
    note_grad(id, tensor);
  }
  return id;
}

VariableId Recorder::add_number(const at::Tensor& tensor) {
  Step step{Step::Kind::Number};
  step.contents = copy_of(tensor);
  step.contents.unsafeGetTensorImpl()->set_wrapped_number(true);
  const VariableId id = add_variable(tensor);
  step.outs = {id};
  add(std::move(step));
  return id;
}

VariableId Recorder::add_variable(const at::Tensor& tensor) {
  const auto id = static_cast<VariableId>(variables_.size());
  Variable& variable = variables_.emplace_back(Variable{WeakTensor(tensor.getIntrusivePtr())});
  variable.scope = scopes_.empty() ? -1 : scopes_.back();
  ids_[tensor.unsafeGetTensorImpl()] = id;
  see(id, tensor);
  return id;
}

/// Notes where a variable lies and what it is to autograd, after an operator returned it.
void Recorder::see(VariableId id, const at::Tensor& tensor) {
  Variable& variable = variables_[static_cast<size_t>(id)];
  variable.history = peek_history(tensor);
  variable.output_nr = variable.history == nullptr ? 0 : peek_meta(tensor)->output_nr_;
  variable.requires_grad = tensor.requires_grad();
  variable.has_flag = has_flag(tensor);
  if (variable.history != nullptr) {
    c10::SmallVector<Made, 2>& made = made_by_[variable.history];
    if (made.empty()) tape_->nodes.push_back(weak(peek_meta(tensor)->grad_fn_));
    made.push_back({id, variable.output_nr});
  }
  variable.is_watched_leaf =
      variable.history == nullptr && (variable.requires_grad || peek_grad(tensor) != nullptr);
  if (variable.is_watched_leaf) variable.grad = peek_grad(tensor);
  if (has_place(tensor)) place(id, tensor);
}

void Recorder::place(VariableId id, const at::Tensor& tensor) {
  Variable& variable = variables_[static_cast<size_t>(id)];
  const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  variable.place = place_of(tensor);
  Memory& memory = memory_of(tensor);
  if (variable.storage == storage) return;
  variable.storage = storage;
  memory.variables.push_back(id);
}

/// What is known of the memory of a tensor, whose size is noted.
Recorder::Memory& Recorder::memory_of(const at::Tensor& tensor) {
  const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  auto memory = memories_.find(storage);
  if (memory == memories_.end())
    memory = memories_.emplace(storage, Memory{tensor.storage().getWeakStorageImpl(), {}, 0}).first;
  memory->second.bytes = bytes_of(*storage);
  return memory->second;
}

/// An operator that returns nothing may have made the storages that it writes to larger.
void Recorder::note_bytes(const ObservedOp& op, const Step& step) {
  const bool writes = std::any_of(op.arguments.begin(), op.arguments.end(),
                                  [](const auto& argument) { return argument.is_written; });
  if (!writes) return;
  for (VariableId id : step.ins) {
    if (id == no_variable) continue;
    const auto memory = memories_.find(variables_[static_cast<size_t>(id)].storage);
    if (memory != memories_.end()) memory->second.bytes = bytes_of(*memory->first);
  }
}

/// Refuses a storage whose size was changed without an operator.
void Recorder::check_bytes(const c10::StorageImpl& storage) {
  const auto memory = memories_.find(&storage);
  if (memory == memories_.end() || memory->second.bytes == bytes_of(storage)) return;
  refuse("the function changes the size of a storage from " + std::to_string(memory->second.bytes) +
         " to " + std::to_string(bytes_of(storage)) +
         " bytes, by no operator. Call resize_(), or do so outside");
}

void Recorder::check_all_bytes() {
  for (const auto& [storage, memory] : memories_) {
    if (const auto held = memory.storage.lock()) check_bytes(*storage);
  }
}

/// Records what happened to a variable, without an operator, since an operator returned it.
void Recorder::note_changes(VariableId id, const at::Tensor& tensor) {
  const Variable& variable = variables_[static_cast<size_t>(id)];
  const auto* history = peek_history(tensor);
  if (history != variable.history) {
    note_history(id, tensor);
  } else if (history == nullptr && has_flag(tensor) != variable.has_flag) {
    Step step{Step::Kind::RequiresGrad};
    step.ins = {id};
    step.args = {c10::IValue(has_flag(tensor))};
    see(id, tensor);
    add(std::move(step));
  }
  if (variables_[static_cast<size_t>(id)].is_watched_leaf) note_grad(id, tensor);
}

void Recorder::note_history(VariableId id, const at::Tensor& tensor) {
  torch::autograd::Node* node = peek_history(tensor);
  // A view whose base was written to, and a base whose view was, get a new grad_fn by themselves.
  if (node == nullptr || !is_custom(*node)) {
    see(id, tensor);
    return;
  }
  if (tensor.is_view()) {
    if (const std::string problem = problem_of_view(tensor); !problem.empty())
      refuse(node->name() + problem);
  }
  see(id, tensor);
  if (customs_.count(node) == 0) customs_[node] = describe_history(peek_meta(tensor)->grad_fn_);
  Step step{Step::Kind::History};
  step.history = customs_[node];
  step.outs = {id};
  step.number = peek_meta(tensor)->output_nr_;
  add(std::move(step));
}

std::shared_ptr<CustomHistory> Recorder::describe_history(const NodePtr& node) {
  auto history = std::make_shared<CustomHistory>();
  history->name = node->name();
  tape_->histories.push_back({first_step_after(*node), history});
  for (uint32_t i = 0; i < node->num_inputs(); ++i)
    history->results.push_back(node->input_metadata(i));
  for (const torch::autograd::Edge& edge : node->next_edges())
    history->edges.push_back(edge.is_valid() ? find_origin(edge, *node) : CustomHistory::Edge());
  const RecordingPause pause;
  std::optional<CustomFormula> formula = formula_of(node);
  bool is_known = formula.has_value();
  if (is_known) {
    for (c10::IValue& saved : formula->saved) {
      is_known &= map_saved(saved, [&](const at::Tensor& tensor) {
        if (const std::optional<size_t> mark = find_mark_of(tensor)) {
          history->saved_variables.push_back(state_at(*mark));
          return tensor;
        }
        history->saved_variables.push_back(find_saved(tensor));
        return detail::placeholder();
      });
    }
    history->formula = std::move(*formula);
  }
  if (!is_known)
    refuse(node->name() +
           ": a custom autograd function keeps something for its backward that cannot be repeated");
  return history;
}

/// The variable that a custom function saved. Its backward gets another handle on that.
VariableId Recorder::find_saved(const at::Tensor& tensor) {
  const auto known = ids_.find(tensor.unsafeGetTensorImpl());
  VariableId found = known == ids_.end() ? no_variable : known->second;
  if (found == no_variable && has_place(tensor)) {
    const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
    const auto memory = memories_.find(storage);
    const uint64_t place = place_of(tensor);
    for (size_t i = 0; memory != memories_.end() && i < memory->second.variables.size(); ++i) {
      const VariableId id = memory->second.variables[i];
      const Variable& variable = variables_[static_cast<size_t>(id)];
      if (variable.place != place || variable.storage != storage) continue;
      if (found == no_variable || variable.history == peek_history(tensor)) found = id;
    }
  }
  if (found == no_variable) return meet(tensor);
  leave_scopes(found);
  return found;
}

/// The variable whose history an edge of a custom function leads to.
CustomHistory::Edge Recorder::find_origin(const torch::autograd::Edge& edge,
                                          const torch::autograd::Node& node) {
  if (is_custom(*edge.function)) {
    if (customs_.count(edge.function.get()) == 0)
      customs_[edge.function.get()] = describe_history(edge.function);
    return {no_variable, customs_[edge.function.get()], edge.input_nr};
  }
  VariableId found = no_variable;
  if (auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(edge.function.get())) {
    found = meet(leaf->variable);
  } else if (const auto made = made_by_.find(edge.function.get()); made != made_by_.end()) {
    for (const Made& candidate : made->second) {
      if (candidate.output_nr == edge.input_nr) found = candidate.id;
    }
  }
  if (found == no_variable) {
    refuse(node.name() + ": what a custom autograd function was given is not known any more");
  } else {
    leave_scopes(found);
  }
  return {found};
}

void Recorder::note_grad(VariableId id, const at::Tensor& tensor) {
  const c10::TensorImpl* now = peek_grad(tensor);
  if (now == variables_[static_cast<size_t>(id)].grad) return;
  variables_[static_cast<size_t>(id)].grad = now;
  if (now != nullptr && (tensors::is_wrapper(tensor) || tensors::is_wrapper(tensor.grad())))
    refuse("backward(): it leaves a wrapper in a .grad. Call it outside of the function.");
  if (now != nullptr && tensor.grad().is_sparse())
    refuse(
        "backward(): it leaves a sparse gradient in a .grad, and values of graphs are dense. Call "
        "it outside of the function, or use sparse = false.");
  Step step{Step::Kind::SetGrad};
  step.ins = {id, now == nullptr ? no_variable : meet(tensor.grad())};
  add(std::move(step));
}

}  // namespace ahead::observe
