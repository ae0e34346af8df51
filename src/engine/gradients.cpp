#include "engine/gradients.h"

#include <c10/core/StreamGuard.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/input_buffer.h>

#include <sstream>

#include "base/private_members.h"
#include "engine/walk/hooked_tensors.h"
#include "engine/walk/leaf.h"

namespace ahead::engine {
namespace {

using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

thread_local Gradients* current_gradients = nullptr;

void check_outputs(const Node& node, variable_list& outputs) {
  torch::autograd::validate_outputs(node.next_edges(), outputs, [&](const std::string& problem) {
    std::ostringstream text;
    text << "Function " << node.name() << " returned an " << problem;
    return text.str();
  });
}

/// In the place of hooks that were asked already.
class AskedHooks final : public torch::autograd::SavedVariableHooks {
 public:
  AskedHooks(SavedTensorHooks asked, at::Tensor answer)
      : asked_(std::move(asked)), answer_(std::move(answer)) {}
  void call_pack_hook(const at::Tensor&) override {}
  at::Tensor call_unpack_hook() override { return answer_; }
  SavedTensorHooks take_asked() { return std::move(asked_); }

 private:
  SavedTensorHooks asked_;
  at::Tensor answer_;
};

/// Visits the saved tensors of the step's node that hooks unpack, with the lock that nodes take
/// when they unpack.
template <class Visit>
void visit_hooked(const Step& step, const Backward& backward, const Visit& visit) {
  const auto lock = lock_node(*step.node);
  for_each_hooked(*step.node, backward.hooked(), step.first_hooked, step.num_hooked, visit);
}

}  // namespace

Gradients::Gradients(const Backward& backward)
    : backward_(backward),
      waiting_(backward.num_places()),
      results_(backward.task().captured_vars_.size()),
      unpacked_(backward.hooked().size()) {}

Gradients* Gradients::current() {
  return current_gradients;
}

Gradients::Current::Current(Gradients& gradients, const std::vector<size_t>& adds_to)
    : outer_(current_gradients) {
  current_gradients = &gradients;
  gradients.adds_to_ = &adds_to;
  gradients.next_leaf_ = 0;
}

Gradients::Current::~Current() {
  current_gradients = outer_;
}

variable_list Gradients::take_inputs(const Step& step) {
  variable_list inputs(step.num_places);
  for (uint32_t i = 0; i < step.num_places; ++i) {
    inputs[i] = std::move(waiting_[step.first_place + i]);
  }
  return inputs;
}

variable_list Gradients::copy_inputs(const Step& step) const {
  const auto first = waiting_.begin() + step.first_place;
  return variable_list(first, first + step.num_places);
}

void Gradients::note_results(const Step& step, const variable_list& inputs) {
  const auto* info = backward_.wanted(step.node);
  if (info == nullptr || info->captures_ == nullptr) return;
  for (const auto& capture : *info->captures_) {
    results_[static_cast<size_t>(capture.output_idx_)] =
        inputs[static_cast<size_t>(capture.input_idx_)];
  }
}

/// What is asked for is what flows into a node: before its hooks if the node runs too, else after
/// them.
void Gradients::call_before(const Step& step) {
  Node& node = *step.node;
  const c10::OptionalStreamGuard on_its_stream(node.stream());
  variable_list inputs = take_inputs(step);
  if (backward_.is_needed(step.node)) note_results(step, inputs);
  inputs = call_tensor_hooks(node, std::move(inputs));
  if (backward_.is_needed(step.node)) {
    for (const auto& hook : node.pre_hooks()) inputs = (*hook)(inputs);
  }
  for (uint32_t i = 0; i < step.num_places && i < inputs.size(); ++i)
    waiting_[step.first_place + i] = std::move(inputs[i]);
  called_before_ = &step;
}

variable_list Gradients::call_after(const Step& step, variable_list outputs,
                                    const variable_list& inputs) {
  const c10::OptionalStreamGuard on_its_stream(step.node->stream());
  for (const auto& hook : step.node->post_hooks()) outputs = (*hook)(outputs, inputs);
  return outputs;
}

void Gradients::retain(size_t step, size_t input, const at::Tensor& gradient) const {
  const Step& which = backward_.steps()[step];
  variable_list inputs(which.num_places);
  inputs[input] = gradient;
  (*which.node->retains_grad_hooks().at(input))(inputs);
}

void Gradients::unpack(const Step& step) {
  const c10::OptionalStreamGuard on_its_stream(step.node->stream());
  const NodePtr self = step.node->getptr();
  visit_hooked(step, backward_, [&](const SavedVariable& saved, size_t number) {
    unpacked_[number] = {saved.unpack(self), true};
  });
}

bool Gradients::is_unpacked(const Step& step) const {
  for (uint32_t i = 0; i < step.num_hooked; ++i) {
    if (!unpacked_[step.first_hooked + i].is_known) return false;
  }
  return true;
}

variable_list Gradients::call(const Step& step) {
  Node& node = *step.node;
  // The engine runs it with its own device, and on the stream of its forward.
  const c10::OptionalStreamGuard on_its_stream(node.stream());
  variable_list inputs = take_inputs(step);
  const bool was_called = called_before_ == &step;
  if (!backward_.is_needed(step.node)) {
    if (!was_called) inputs = call_tensor_hooks(node, std::move(inputs));
    note_results(step, inputs);
    return {};
  }
  if (!was_called) {
    note_results(step, inputs);
    inputs = call_tensor_hooks(node, std::move(inputs));
    for (const auto& hook : node.pre_hooks()) inputs = (*hook)(inputs);
  }
  if (!backward_.task().keep_graph_) node.will_release_variables();
  variable_list outputs = step.num_hooked != 0 && is_unpacked(step)
                              ? apply_unpacked(step, std::move(inputs))
                              : apply(step, std::move(inputs));
  if (!backward_.task().keep_graph_) node.release_variables();
  return outputs;
}

variable_list Gradients::apply(const Step& step, variable_list inputs) {
  Node& node = *step.node;
  if (node.post_hooks().empty()) {
    variable_list outputs = node(std::move(inputs));
    check_outputs(node, outputs);
    return outputs;
  }
  // AccumulateGrad counts on exactly one more reference to what it may take, if there are hooks.
  variable_list outputs = node(variable_list(inputs));
  check_outputs(node, outputs);
  for (const auto& hook : node.post_hooks()) outputs = (*hook)(outputs, inputs);
  return outputs;
}

/// The same where hooks have unpacked what the node saved. It must not ask them again.
variable_list Gradients::apply_unpacked(const Step& step, variable_list inputs) {
  visit_hooked(step, backward_, [&](SavedVariable& saved, size_t number) {
    SavedTensorHooks& hooks = hooks_of(saved);
    hooks = std::make_unique<AskedHooks>(std::move(hooks), std::move(unpacked(number)));
  });
  const auto put_back = c10::make_scope_exit([&] {
    visit_hooked(step, backward_, [&](SavedVariable& saved, size_t) {
      SavedTensorHooks& hooks = hooks_of(saved);
      if (auto* const asked = dynamic_cast<AskedHooks*>(hooks.get())) hooks = asked->take_asked();
    });
  });
  return apply(step, std::move(inputs));
}

void Gradients::pass_on(const Step& step, variable_list outputs) {
  for (uint32_t i = 0; i < step.num_targets && i < outputs.size(); ++i) {
    const int32_t target = backward_.targets()[step.first_target + i];
    if (target == kNowhere || !outputs[i].defined()) continue;
    at::Tensor& waiting = waiting_[static_cast<size_t>(target)];
    if (!waiting.defined()) {
      waiting = std::move(outputs[i]);
      continue;
    }
    const torch::autograd::Edge& edge = step.node->next_edge(i);
    torch::autograd::InputBuffer sum(1);
    sum.buffer[0] = std::move(waiting);
    sum.add(0, std::move(outputs[i]), step.node->stream(), edge.function->stream(),
            edge.function.get());
    waiting = std::move(sum.buffer[0]);
  }
}

std::unique_lock<std::mutex> Gradients::lock_leaf_with(const at::Tensor& grad) {
  const size_t count = adds_to_->size();
  for (size_t i = 0; i < count; ++i) {
    const size_t leaf = (next_leaf_ + i) % count;
    const Step& step = backward_.steps()[(*adds_to_)[leaf]];
    if (!grad_of(step).is_same(grad)) continue;
    next_leaf_ = leaf + 1;
    return lock_node(*step.node);
  }
  return {};
}

}  // namespace ahead::engine
