#include "runtime/node/compiled_node.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "ahead/errors.h"
#include "ir/tensor_meta.h"
#include "runtime/call/log_tensors.h"
#include "runtime/node/hand_over.h"
#include "tensors/wrapper_keys.h"

namespace ahead::runtime {

using torch::autograd::variable_list;
using Saved = BackwardPlan::Saved;

namespace {

/// Copies a tensor into the layout that the graph was made for, if it has another one.
void lay_out(at::Tensor& tensor, const TensorMeta& expected) {
  if (!tensor.defined() || tensor.strides() == expected.strides) return;
  at::Tensor laid_out = at::empty_strided(expected.sizes, expected.strides, tensor.options());
  tensor = laid_out.copy_(tensor);
}

}  // namespace

void CompiledNode::connect(const std::vector<at::Tensor>& inputs,
                           const std::vector<at::Tensor>& outputs, const NodePtr& self) {
  torch::autograd::edge_list edges;
  edges.reserve(plan_->backward.grad_inputs.size());
  for (size_t i = 0; i < plan_->backward.grad_inputs.size(); ++i) {
    const at::Tensor& input = inputs[static_cast<size_t>(plan_->backward.grad_inputs[i])];
    edges.push_back(plan_->backward.is_reached[i] ? torch::autograd::impl::gradient_edge(input)
                                                  : torch::autograd::Edge());
  }
  for (const BackwardPlan::PartlyReached& part : plan_->backward.partly_reached)
    branch_off(part, edges);
  if (branches_.empty() && !plan_->backward.writes_anything()) tie_chain(self, outputs, edges);
  set_next_edges(std::move(edges));
  for (size_t i = 0; i < plan_->backward.differentiable.size(); ++i) {
    const at::Tensor& output = outputs[static_cast<size_t>(plan_->backward.differentiable[i])];
    const uint32_t place = add_input_metadata(output);
    for (const NodePtr& branch : branches_) branch->add_input_metadata(output);
    torch::autograd::impl::set_gradient_edge(
        output, branches_.empty() ? torch::autograd::Edge(self, place) : edge_of_output(i, output));
  }
}

void CompiledNode::save(const std::vector<at::Tensor>& inputs, std::vector<at::Tensor>& outputs) {
  variables_.reserve(plan_->backward.saved.size());
  for (const Saved& saved : plan_->backward.saved) {
    const auto index = static_cast<size_t>(saved.index);
    if (saved.kind == Saved::Kind::Input) {
      variables_.emplace_back(inputs[index], /*is_output=*/false);
    } else if (saved.kind == Saved::Kind::Output) {
      variables_.emplace_back(outputs[index], is_own(outputs[index]));
    } else if (saved.kind == Saved::Kind::Writable) {
      writable_.push_back({inputs[index].detach()});
    } else {
      Intermediate& intermediate = intermediates_.emplace_back();
      intermediate.tensor = std::move(outputs[index]);
      if (plan_->asserts != nullptr) intermediate.hash = contents_hash(intermediate.tensor);
      if (saved.shares_with < 0 || intermediate.tensor.is_inference()) continue;
      const at::Tensor& shared = outputs[static_cast<size_t>(saved.shares_with)];
      if (!shared.is_alias_of(intermediate.tensor)) continue;
      const auto& counter = shared.unsafeGetTensorImpl()->version_counter();
      intermediate.tensor.unsafeGetTensorImpl()->set_version_counter(counter);
      intermediate.is_shared = true;
      intermediate.version = counter.current_version();
    }
  }
  if (plan_->backward.derivatives != nullptr) save_for_double_backward(inputs);
}

/// Saves the inputs that a double backward needs. The saved values that it needs are saved for the
/// backward already.
void CompiledNode::save_for_double_backward(const std::vector<at::Tensor>& inputs) {
  for (const DifferentiableBackward::Need& need : plan_->backward.derivatives->needs()) {
    if (need.kind != DifferentiableBackward::Need::Kind::Input) continue;
    further_inputs_.emplace_back(inputs[static_cast<size_t>(need.index)], /*is_output=*/false);
  }
}

bool CompiledNode::is_written(int32_t input) const {
  return std::any_of(plan_->epilogue.writes.begin(), plan_->epilogue.writes.end(),
                     [&](const Epilogue::Write& write) { return write.input == input; });
}

void CompiledNode::save_again(const std::vector<at::Tensor>& inputs, const at::Tensor& written) {
  const auto renew = [&](torch::autograd::SavedVariable& variable, int32_t index) {
    const at::Tensor& input = inputs[static_cast<size_t>(index)];
    if (input.is_inference() || !share_version_counter(input, written) || is_written(index)) return;
    variable = torch::autograd::SavedVariable(input, /*is_output=*/false);
  };
  for (const Saved& saved : plan_->backward.saved) {
    if (saved.kind == Saved::Kind::Input)
      renew(variables_[static_cast<size_t>(saved.place)], saved.index);
  }
  if (plan_->backward.derivatives == nullptr) return;
  size_t next = 0;
  for (const DifferentiableBackward::Need& need : plan_->backward.derivatives->needs()) {
    if (need.kind == DifferentiableBackward::Need::Kind::Input)
      renew(further_inputs_[next++], need.index);
  }
}

/// What is checked before a backward begins.
void CompiledNode::check_plain(const variable_list& gradients) {
  for (const at::Tensor& gradient : gradients) {
    if (!gradient.defined() || !tensors::is_wrapper(gradient)) continue;
    throw UserError("backward",
                    "During the backward, we encountered a tensor subclass where we guessed its "
                    "metadata incorrectly. The result is a plain tensor, its gradient is not. Let "
                    "the wrapper that it meets be part of the compiled function.");
  }
}

void CompiledNode::enter(const variable_list& gradients) {
  TORCH_CHECK(!is_empty_, torch::autograd::ERR_BACKWARD_TWICE);
  check_plain(gradients);
  check_hooks(gradients);
  if (plan_->verbose) log_tensors(name() + " is given the gradients", gradients);
  if (plan_->asserts != nullptr) plan_->asserts->check_tangents(gradients);
}

/// What the backward graph takes: saved tensors, and then gradients as they lay in its trace.
std::vector<at::Tensor> CompiledNode::arguments(const BackwardVariants::Part& part,
                                                variable_list&& gradients) {
  lay_out_all(gradients, part.tangents);
  std::vector<at::Tensor> args = unpack(part.needs);
  for (at::Tensor& gradient : gradients) args.push_back(std::move(gradient));
  return args;
}

variable_list CompiledNode::differentiate(variable_list&& gradients,
                                          const BackwardVariants::Mask& wanted) {
  enter(gradients);
  std::optional<AutocastScope> autocast;
  if (plan_->backward.autocast.fixed) autocast.emplace(*plan_->backward.autocast.fixed);
  const bool is_differentiable = at::GradMode::is_enabled();
  if (is_differentiable && plan_->backward.derivatives != nullptr) {
    return apply_differentiably(std::move(gradients), wanted);
  }
  if (!fits_autocast()) return apply_under_autocast(std::move(gradients), wanted);
  if (is_differentiable) check_may_write();
  const BackwardVariants::PartPtr part = plan_->backward.program->variant(gradients, wanted);
  variable_list results = run(*part, std::move(gradients));
  if (plan_->asserts != nullptr) plan_->asserts->check_gradients(results);
  return is_differentiable ? with_error(std::move(results)) : results;
}

/// Gradients that throw when they are differentiated: there is no second derivative.
variable_list CompiledNode::with_error(variable_list&& results) const {
  const NodePtr error = make_autograd_node<torch::autograd::Error>(
      name() +
      (plan_->backward.writes_anything()
           ? ": a custom autograd function in it writes to tensors from outside when the backward "
             "runs, and a second derivative would do so again."
           : ": the function was compiled with double_backward = false, or its backward sets "
             "the state of a generator of random numbers.") +
      " (torch.compile with aot_autograd does not currently support double backward.)");
  error->set_next_edges(all_edges());
  for (const at::Tensor& result : results) {
    if (!result.defined()) continue;
    torch::autograd::impl::set_gradient_edge(result, {error, error->add_input_metadata(result)});
  }
  return std::move(results);
}

/// Whether the backward graph casts as eager would here.
bool CompiledNode::fits_autocast() const {
  const BackwardAutocastPlan& autocast = plan_->backward.autocast;
  if (autocast.fixed || !autocast.castable || !is_autocast_enabled()) return true;
  return autocast.right_for && *autocast.right_for == AutocastState::current();
}

/// Computes the gradients as for a double backward: anew, under the autocast in effect.
variable_list CompiledNode::apply_under_autocast(variable_list&& gradients,
                                                 const BackwardVariants::Mask& wanted) {
  if (plan_->backward.derivatives == nullptr) throw_other_autocast();
  try {
    return apply_differentiably(std::move(gradients), wanted);
  } catch (const Unsupported& error) {
    throw_other_autocast(" It cannot be computed anew: " + error.msg());
  }
}

void CompiledNode::throw_other_autocast(const std::string& why) const {
  throw Unsupported("backward",
                    plan_->backward.autocast.castable->name +
                        ": the backward of a compiled function is run under another autocast than "
                        "it was compiled for, which would cast for this operator. Call it outside "
                        "of autocast, allow Options::double_backward, or choose an autocast with "
                        "Options::backward_autocast." +
                        why);
}

/// A second derivative computes the function once more, for which it needs the inputs as they were.
void CompiledNode::check_unwritten(int32_t input) const {
  for (const Epilogue::Write& write : plan_->epilogue.writes) {
    if (write.input != input || !write.changes_contents()) continue;
    throw Unsupported("double backward",
                      plan_->name +
                          ": the compiled function writes to an input that its second "
                          "derivative needs as it was. Clone the input and write to the "
                          "clone, or take the gradient inside the compiled function.");
  }
}

variable_list CompiledNode::apply_differentiably(variable_list&& gradients,
                                                 const BackwardVariants::Mask& wanted) {
  const std::vector<DifferentiableBackward::Need>& needs = plan_->backward.derivatives->needs();
  const auto is_input = [](const DifferentiableBackward::Need& need) {
    return need.kind == DifferentiableBackward::Need::Kind::Input;
  };
  const auto needed = [&](size_t i) {
    if (!is_input(needs[i])) return unpack_saved(static_cast<size_t>(needs[i].index));
    check_unwritten(needs[i].index);
    const auto place =
        std::count_if(needs.begin(), needs.begin() + static_cast<ptrdiff_t>(i), is_input);
    return further_inputs_[static_cast<size_t>(place)].unpack(getptr());
  };
  return plan_->backward.derivatives->run({needed, gradients, wanted, all_edges()});
}

BackwardVariants::Mask CompiledNode::wanted_gradients() const {
  BackwardVariants::Mask wanted;
  for (size_t i = 0; i < plan_->backward.grad_inputs.size(); ++i) {
    wanted.push_back(task_should_compute_output(i));
  }
  for (const HandOverNode* link = chain(); link != nullptr; link = link->next()) {
    for (size_t i = 0; i < link->places().size(); ++i)
      wanted[static_cast<size_t>(link->places()[i])] = link->task_should_compute_output(i);
  }
  return wanted;
}

/// Saved tensors that are not needed are not unpacked: as in eager, the caller may have written to
/// them.
std::vector<at::Tensor> CompiledNode::unpack(const std::vector<bool>& needs) {
  std::vector<at::Tensor> args;
  args.reserve(plan_->backward.saved.size() + plan_->backward.program->tangents().size());
  for (size_t i = 0; i < plan_->backward.saved.size(); ++i) {
    args.push_back(needs[i] ? unpack_saved(i) : at::Tensor());
    const TensorMeta& layout = plan_->backward.program->saved()[i];
    if (plan_->backward.fixes_saved_layout && needs[i] && !lies_like(args.back(), layout))
      lay_out(args.back(), layout);
  }
  return args;
}

void CompiledNode::check_version(const Intermediate& intermediate) const {
  TORCH_CHECK(
      !intermediate.is_shared || intermediate.tensor._version() == intermediate.version,
      "one of the variables needed for gradient computation has been modified by an inplace "
      "operation: ",
      TensorMeta::of(intermediate.tensor).str(), ", of which an output of the compiled function ",
      plan_->name, " is a view, is at version ", intermediate.tensor._version(),
      "; expected version ", intermediate.version, " instead.");
}

at::Tensor CompiledNode::unpack_saved(size_t index) {
  const Saved& saved = plan_->backward.saved[index];
  if (saved.kind == Saved::Kind::Writable) return unpack_writable(saved);
  if (saved.kind != Saved::Kind::Intermediate) {
    at::Tensor unpacked = variables_[static_cast<size_t>(saved.place)].unpack(getptr());
    if (!branches_.empty()) set_history(saved, unpacked);
    return unpacked;
  }
  Intermediate& intermediate = intermediates_[static_cast<size_t>(saved.place)];
  check_version(intermediate);
  if (plan_->asserts != nullptr) check_unchanged(intermediate);
  return may_donate_ ? std::move(intermediate.tensor) : intermediate.tensor;
}

/// For gradients in layouts that no graph was traced for.
void CompiledNode::lay_out_all(variable_list& gradients, const std::vector<TensorMeta>& expected) {
  for (size_t i = 0; i < expected.size(); ++i) lay_out(gradients[i], expected[i]);
}

void CompiledNode::check_unchanged(const Intermediate& intermediate) const {
  if (contents_hash(intermediate.tensor) == intermediate.hash) return;
  throw UserError("backward", TensorMeta::of(intermediate.tensor).str() + ": this tensor, which " +
                                  plan_->name +
                                  " saved for its backward, has other contents now. A backend "
                                  "must not keep what it returns, nor write to what it is given "
                                  "as long as others hold it.");
}

void CompiledNode::release_variables() {
  std::lock_guard<std::mutex> lock(mutex_);
  open_.release(*plan_);
  const bool is_still_needed = !serves_branches_ && released_branches_ < branches_.size();
  if (!open_.is_any() && !is_still_needed) clear();
}

void CompiledNode::clear() {
  is_empty_ = true;
  variables_.clear();
  intermediates_.clear();
  writable_.clear();
  further_inputs_.clear();
}

std::string CompiledNode::name() const {
  return plan_->name + "Backward";
}

}  // namespace ahead::runtime
