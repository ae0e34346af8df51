#include "runtime/call/call.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/alias.h>
#include <ATen/record_function.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/variable.h>

#include "ahead/errors.h"
#include "runtime/call/base_of.h"
#include "runtime/call/log_tensors.h"
#include "runtime/call/view_write.h"
#include "runtime/node/compiled_node.h"

namespace ahead::runtime {
namespace {

/// An inference tensor over the same memory. A view made in inference mode would not be one.
at::Tensor as_inference_tensor(const at::Tensor& tensor) {
  c10::InferenceMode inference;
  at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(tensor.storage()),
                                                             tensor.key_set(), tensor.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(),
                                                    tensor.storage_offset());
  return made;
}

/// Gives a tensor the history of an output whose memory it shares: a view, as if a custom autograd
/// function had returned it; any other tensor, as if it had been written to.
void set_custom_history(const at::Tensor& view, const at::Tensor& output) {
  namespace impl = torch::autograd::impl;
  if (view.is_view()) {
    impl::get_view_autograd_meta(view)->set_creation_meta(
        torch::autograd::CreationMeta::IN_CUSTOM_FUNCTION);
  }
  impl::set_gradient_edge(view, impl::gradient_edge(output));
}

/// Makes a view a multi-output view, to which autograd lets nobody write.
void set_one_of_several(const at::Tensor& view) {
  if (!view.is_view()) return;
  torch::autograd::impl::get_view_autograd_meta(view)->set_creation_meta(
      torch::autograd::CreationMeta::MULTI_OUTPUT_NODE);
}

/// One call on its way from arguments to results.
class Call {
 public:
  explicit Call(const CallPlan& plan) : plan_(plan) {}

  std::vector<at::Tensor> run(const std::shared_ptr<const CallPlan>& shared_plan,
                              const std::vector<at::Tensor>& args,
                              std::vector<at::Tensor>* given_away) {
    args_ = &args;
    gather_inputs();
    if (plan_.asserts != nullptr) plan_.asserts->check_inputs(inputs_);
    std::vector<at::Tensor> inputs(inputs_);
    if (given_away != nullptr && !plan_.kept_inputs.empty()) let_go(*given_away);
    outputs_ = plan_.forward(std::move(inputs));
    check_outputs();
    if (plan_.asserts != nullptr) plan_.asserts->check_outputs(inputs_, outputs_);
    own_outputs();
    make_inference_tensors();
    set_versions();
    change_requires_grad(true);
    if (plan_.backward.program != nullptr) add_node(shared_plan);
    change_requires_grad(false);
    write_inputs();
    save_again();
    set_new_grads();
    make_leaves();
    make_views(plan_.epilogue.num_reset_views);
    reset_inputs();
    make_views(plan_.epilogue.views.size());
    if (plan_.epilogue.grad_mode_after) at::GradMode::set_enabled(*plan_.epilogue.grad_mode_after);
    std::vector<at::Tensor> results = make_results();
    if (node_ && !plan_.backward.passed_by.empty()) watch(results);
    for (size_t i = 0; i < plan_.result_marks.size(); ++i) {
      if (plan_.result_marks[i] != nullptr) tensors::set_marks(results[i], plan_.result_marks[i]);
    }
    return results;
  }

 private:
  void gather_inputs() {
    RECORD_USER_SCOPE("ahead.prologue");
    inputs_ = graph_inputs(*plan_.prologue, *args_);
    if (plan_.verbose) log_tensors(plan_.name + " is given", inputs_);
  }

  /// Leaves the graph as the only owner of arguments that the caller gave away, if nothing but the
  /// graph needs them.
  void let_go(std::vector<at::Tensor>& arguments) {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const bool is_argument = plan_.prologue->inputs[i].kind == Prologue::Input::Kind::Argument;
      if (is_argument && !plan_.kept_inputs[i]) inputs_[i].reset();
    }
    for (at::Tensor& argument : arguments) argument.reset();
  }

  void check_outputs() const {
    if (outputs_.size() >= static_cast<size_t>(plan_.num_outputs)) return;
    throw UserError("call", plan_.name + ": the backend returned " +
                                std::to_string(outputs_.size()) + " outputs, its graph has " +
                                std::to_string(plan_.num_outputs) +
                                ". An executable returns one tensor for each graph output.");
  }

  /// A backend may return one of its arguments, or one tensor twice; history needs a tensor for
  /// each output.
  void own_outputs() {
    for (int32_t i = 0; i < plan_.first_saved_output; ++i) {
      at::Tensor& output = outputs_[static_cast<size_t>(i)];
      if (!output.defined() || output.use_count() == 1) continue;
      at::AutoDispatchBelowADInplaceOrView below_autograd;
      output = at::alias(output);
    }
  }

  void make_inference_tensors() {
    for (int32_t output : plan_.epilogue.inference_outputs) {
      at::Tensor& tensor = outputs_[static_cast<size_t>(output)];
      if (!tensor.is_inference()) tensor = as_inference_tensor(tensor);
    }
  }

  /// Gives outputs that the function wrote to the version that they have in eager, before they are
  /// saved.
  void set_versions() {
    for (const auto& [output, version] : plan_.epilogue.new_versions) {
      const at::Tensor& tensor = outputs_[static_cast<size_t>(output)];
      if (tensor.is_inference()) continue;
      c10::VariableVersion counter = tensor.unsafeGetTensorImpl()->version_counter();
      counter.set_version(version);
    }
  }

  /// A change of shape alone does not invalidate a saved tensor, whether the function saved it
  /// before or after: an input that gets another shape is saved at the version that it will have.
  void raise_versions() {
    for (const Epilogue::Write& write : plan_.epilogue.writes) {
      const at::Tensor& input = inputs_[static_cast<size_t>(write.input)];
      if (write.changes_contents() || input.is_inference()) continue;
      raise_version(input, static_cast<int64_t>(write.version_bumps));
    }
    for (const Epilogue::Reset& reset : plan_.epilogue.resets) {
      const at::Tensor& input = inputs_[static_cast<size_t>(reset.input)];
      if (!input.is_inference()) raise_version(input, static_cast<int64_t>(reset.version_bumps));
    }
  }

  void add_node(const std::shared_ptr<const CallPlan>& shared_plan) {
    node_ = make_autograd_node<CompiledNode>(shared_plan);
    auto& node = static_cast<CompiledNode&>(*node_);
    node.connect(inputs_, outputs_, node_);
    const std::vector<at::Tensor> inputs = inputs_to_save();
    // Not before connect(): a view whose version was raised gets a new grad_fn.
    raise_versions();
    node.save(inputs, outputs_);
  }

  /// Inputs that are about to get another shape or other memory are saved as they are now.
  std::vector<at::Tensor> inputs_to_save() const {
    std::vector<at::Tensor> inputs = inputs_;
    for (const Epilogue::Write& write : plan_.epilogue.writes) {
      at::Tensor& input = inputs[static_cast<size_t>(write.input)];
      if (write.geometry && !write.changes_contents()) input = as_it_is(input);
    }
    for (const Epilogue::Reset& reset : plan_.epilogue.resets) {
      at::Tensor& input = inputs[static_cast<size_t>(reset.input)];
      input = as_it_is(input);
    }
    return inputs;
  }

  /// The same memory, version and history in another tensor.
  static at::Tensor as_it_is(const at::Tensor& input) {
    if (input.is_inference()) return input;
    at::Tensor same = input.detach();
    if (input.requires_grad()) {
      torch::autograd::impl::set_gradient_edge(same, torch::autograd::impl::gradient_edge(input));
    }
    return same;
  }

  /// Saves inputs again that were not written to, but share the version counter of one that was:
  /// eager saves them when they are used, after the write.
  void save_again() {
    if (!node_) return;
    for (const Epilogue::Write& write : plan_.epilogue.writes) {
      const at::Tensor& written = inputs_[static_cast<size_t>(write.input)];
      if (!written.is_inference()) static_cast<CompiledNode&>(*node_).save_again(inputs_, written);
    }
    if (!plan_.backward.writes.empty()) static_cast<CompiledNode&>(*node_).note_versions();
  }

  void change_requires_grad(bool value) {
    for (const Epilogue::RequiresGradChange& change : plan_.epilogue.requires_grad_changes) {
      if (change.requires_grad != value) continue;
      inputs_[static_cast<size_t>(change.input)].set_requires_grad(value);
    }
  }

  void write_inputs() {
    for (const Epilogue::Write& write : plan_.epilogue.writes) {
      const at::Tensor& input = inputs_[static_cast<size_t>(write.input)];
      if (input.is_inference()) {
        this->write(input, write);
        continue;
      }
      c10::VariableVersion counter = input.unsafeGetTensorImpl()->version_counter();
      const bool is_raised = plan_.backward.program != nullptr && !write.changes_contents();
      const int64_t version =
          input._version() + (is_raised ? 0 : static_cast<int64_t>(write.version_bumps));
      this->write(input, write);
      counter.set_version(version);
    }
    reshape_arguments();
    // A view gets the grad_fn that follows from its base when it is asked for it.
    for (int32_t argument : plan_.epilogue.rebased_arguments) {
      const at::Tensor& view = (*args_)[static_cast<size_t>(argument)];
      if (may_be_rebased(view)) view.grad_fn();
    }
  }

  /// One of several views (split) may not, after a write without grad mode: LibTorch says so to
  /// whoever asks for its grad_fn.
  static bool may_be_rebased(const at::Tensor& view) {
    const auto* meta = torch::autograd::impl::get_view_autograd_meta(view);
    return meta == nullptr || !meta->has_bw_view() ||
           meta->get_creation_meta() == torch::autograd::CreationMeta::DEFAULT;
  }

  void write(const at::Tensor& input, const Epilogue::Write& write) {
    at::AutoGradMode mode(write.seen_by_autograd);
    if (write.geometry) {
      input.as_strided_(write.geometry->sizes, write.geometry->strides,
                        input.storage_offset() + write.geometry->offset.fixed());
    }
    if (write.output < 0) return;
    const at::Tensor& contents = outputs_[static_cast<size_t>(write.output)];
    // copy_ would send zeros to the history that the view had before: adding them to its gradient
    // changes layouts and signs of zero.
    if (write.seen_by_autograd && input.is_view() && contents.requires_grad())
      return write_to_view(input, contents);
    if (!write.seen_by_autograd || input.is_view()) {
      input.copy_(contents);
      return;
    }
    {
      at::NoGradGuard no_grad;
      input.copy_(contents);
    }
    torch::autograd::impl::rebase_history(input, torch::autograd::impl::gradient_edge(contents));
  }

  void reshape_arguments() {
    for (const Epilogue::Reshape& reshape : plan_.epilogue.reshapes) {
      const at::Tensor& argument = (*args_)[static_cast<size_t>(reshape.argument)];
      const TensorMeta& geometry = reshape.geometry;
      // Autograd makes the grad_fn of a view anew, from its layout.
      at::NoGradGuard no_grad;
      argument.as_strided_(geometry.sizes, geometry.strides, geometry.offset.fixed());
      if (!argument.is_inference()) raise_version(argument, -1);
    }
    for (const Epilogue::VersionBump& raised : plan_.epilogue.version_bumps) {
      raise_version((*args_)[static_cast<size_t>(raised.argument)],
                    static_cast<int64_t>(raised.bumps));
    }
  }

  static void raise_version(const at::Tensor& tensor, int64_t by) {
    c10::VariableVersion counter = tensor.unsafeGetTensorImpl()->version_counter();
    counter.set_version(tensor._version() + by);
  }

  void set_new_grads() {
    for (const Epilogue::NewGrad& grad : plan_.epilogue.new_grads) {
      const at::Tensor& input = inputs_[static_cast<size_t>(grad.input)];
      input.mutable_grad() = std::move(outputs_[static_cast<size_t>(grad.output)]);
    }
  }

  const at::Tensor& find(const Source& source) const {
    const auto index = static_cast<size_t>(source.index);
    if (source.kind == Source::Kind::Input) return inputs_[index];
    if (source.kind == Source::Kind::Output) return outputs_[index];
    if (source.kind == Source::Kind::Argument) return (*args_)[index];
    return views_[index][static_cast<size_t>(source.result)];
  }

  void reset_inputs() {
    for (const Epilogue::Reset& reset : plan_.epilogue.resets) {
      const at::Tensor& input = inputs_[static_cast<size_t>(reset.input)];
      const bool is_raised = plan_.backward.program != nullptr;
      const int64_t bumps = is_raised ? 0 : static_cast<int64_t>(reset.version_bumps);
      const int64_t version = input.is_inference() ? 0 : input._version() + bumps;
      set_memory(input, find(reset.source), reset.grows);
      follow_accumulator(reset.input);
      if (!input.is_inference()) raise_version(input, version - input._version());
    }
  }

  static void set_memory(const at::Tensor& input, const at::Tensor& source, bool grows) {
    at::NoGradGuard no_grad;
    if (grows) {
      input.resize_(source.sizes()).copy_(source);
    } else {
      input.set_(source);
    }
  }

  /// set_() gives a leaf another AccumulateGrad node, to which its gradient must go.
  void follow_accumulator(int32_t input) {
    for (size_t i = 0; i < plan_.backward.grad_inputs.size() && node_; ++i) {
      if (plan_.backward.grad_inputs[i] != input) continue;
      static_cast<CompiledNode&>(*node_).replace_edge(
          i, torch::autograd::impl::gradient_edge(inputs_[static_cast<size_t>(input)]));
    }
  }

  /// Lets results that are leaves require grad, before views are made of them.
  void make_leaves() {
    for (const Epilogue::Result& result : plan_.epilogue.results) {
      const bool is_leaf = result.kind == Epilogue::Result::Kind::Tensor && result.requires_grad &&
                           result.is_leaf && result.source.kind == Source::Kind::Output;
      if (!is_leaf) continue;
      const at::Tensor& tensor = find(result.source);
      if (tensor.is_leaf()) tensor.set_requires_grad(true);
    }
  }

  void make_views(size_t count) {
    views_.reserve(plan_.epilogue.views.size());
    torch::jit::Stack stack;
    while (views_.size() < count) {
      const ViewStep& step = plan_.epilogue.views[views_.size()];
      at::AutoGradMode mode(!step.no_grad);
      stack.emplace_back(find(step.source));
      stack.insert(stack.end(), step.rest.begin(), step.rest.end());
      if (step.is_relative)
        stack.back() = stack.back().toInt() + stack.front().toTensor().storage_offset();
      step.op->callBoxed(stack);
      std::vector<at::Tensor>& results = views_.emplace_back();
      if (stack.back().isTensorList()) {
        results = std::move(stack.back()).toTensorVector();
      } else {
        results.push_back(std::move(stack.back()).toTensor());
      }
      if (step.is_one_of_several) set_one_of_several(results.front());
      stack.clear();
    }
  }

  std::vector<at::Tensor> make_results() {
    std::vector<at::Tensor> results;
    results.reserve(plan_.epilogue.results.size());
    for (const Epilogue::Result& result : plan_.epilogue.results) {
      switch (result.kind) {
        case Epilogue::Result::Kind::Undefined:
          results.emplace_back();
          break;
        case Epilogue::Result::Kind::Repeated:
          results.push_back(results[static_cast<size_t>(result.repeats)]);
          break;
        case Epilogue::Result::Kind::Tensor:
          results.push_back(finished(result));
          break;
      }
    }
    return results;
  }

  at::Tensor finished(const Epilogue::Result& result) {
    at::Tensor tensor = find(result.source);
    if (result.source.kind == Source::Kind::Input || result.source.kind == Source::Kind::Argument) {
      return tensor;
    }
    if (result.history >= 0) {
      set_custom_history(tensor, outputs_[static_cast<size_t>(result.history)]);
      return tensor;
    }
    if (result.own_version >= 0) {
      tensor = tensor.variable_data();
      raise_version(tensor, result.own_version);
      return tensor;
    }
    const bool has_history = tensor.requires_grad() && !tensor.is_leaf();
    if (has_history && (!result.requires_grad || result.is_leaf)) tensor = tensor.detach();
    if (result.requires_grad && !tensor.requires_grad()) tensor.set_requires_grad(true);
    return tensor;
  }

  void watch(const std::vector<at::Tensor>& results) {
    auto& node = static_cast<CompiledNode&>(*node_);
    for (const at::Tensor& result : results) node.watch(result);
    for (const Epilogue::Write& write : plan_.epilogue.writes)
      node.watch(inputs_[static_cast<size_t>(write.input)]);
  }

  const CallPlan& plan_;
  const std::vector<at::Tensor>* args_ = nullptr;
  NodePtr node_;
  std::vector<at::Tensor> inputs_;
  std::vector<at::Tensor> outputs_;
  std::vector<std::vector<at::Tensor>> views_;
};

}  // namespace

std::vector<at::Tensor> graph_inputs(const Prologue& prologue,
                                     const std::vector<at::Tensor>& args) {
  std::vector<at::Tensor> inputs;
  inputs.reserve(prologue.inputs.size());
  for (const Prologue::Input& input : prologue.inputs) {
    const auto index = static_cast<size_t>(input.index);
    switch (input.kind) {
      case Prologue::Input::Kind::Argument:
        inputs.push_back(args[index]);
        break;
      case Prologue::Input::Kind::Captured:
        inputs.push_back(input.captured);
        break;
      case Prologue::Input::Kind::GradOfInput:
        inputs.push_back(inputs[index].grad());
        break;
      case Prologue::Input::Kind::Base:
        inputs.push_back(base_of(prologue.bases[index], args));
        break;
    }
  }
  return inputs;
}

std::vector<at::Tensor> call(const std::shared_ptr<const CallPlan>& plan,
                             const std::vector<at::Tensor>& args,
                             std::vector<at::Tensor>* given_away) {
  return Call(*plan).run(plan, args, given_away);
}

}  // namespace ahead::runtime
