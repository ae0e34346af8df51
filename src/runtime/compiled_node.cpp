#include "runtime/compiled_node.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <torch/csrc/autograd/variable.h>

#include "ahead/errors.h"

namespace ahead::runtime {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;
using Saved = CallPlan::Saved;

void CompiledNode::connect(const std::vector<at::Tensor>& inputs,
                           const std::vector<at::Tensor>& outputs, const NodePtr& self) {
  torch::autograd::edge_list edges;
  edges.reserve(plan_->grad_inputs.size());
  for (int32_t input : plan_->grad_inputs) {
    edges.push_back(torch::autograd::impl::gradient_edge(inputs[static_cast<size_t>(input)]));
  }
  set_next_edges(std::move(edges));
  for (int32_t position : plan_->differentiable) {
    const at::Tensor& output = outputs[static_cast<size_t>(position)];
    torch::autograd::impl::set_gradient_edge(output, {self, add_input_metadata(output)});
  }
}

void CompiledNode::save(const std::vector<at::Tensor>& inputs, std::vector<at::Tensor>& outputs) {
  variables_.reserve(plan_->saved.size());
  for (const Saved& saved : plan_->saved) {
    const auto index = static_cast<size_t>(saved.index);
    if (saved.kind == Saved::Kind::Input) {
      variables_.emplace_back(inputs[index], /*is_output=*/false);
    } else if (saved.kind == Saved::Kind::Output) {
      const bool is_own = outputs[index].grad_fn().get() == this;
      variables_.emplace_back(outputs[index], is_own);
    } else {
      Intermediate& kept = intermediates_.emplace_back();
      kept.tensor = std::move(outputs[index]);
      if (saved.shares_with < 0 || kept.tensor.is_inference()) continue;
      const at::Tensor& shared = outputs[static_cast<size_t>(saved.shares_with)];
      const auto& counter = shared.unsafeGetTensorImpl()->version_counter();
      kept.tensor.unsafeGetTensorImpl()->set_version_counter(counter);
      kept.is_shared = true;
      kept.version = counter.current_version();
    }
  }
}

variable_list CompiledNode::apply(variable_list&& gradients) {
  std::lock_guard<std::mutex> lock(mutex_);
  TORCH_CHECK(!released_, torch::autograd::ERR_BACKWARD_TWICE);
  if (at::GradMode::is_enabled()) {
    throw Unsupported("backward",
                      name() + ": create_graph through a compiled function is not there yet.");
  }
  std::vector<at::Tensor> args = unpack();
  BackwardProgram::Mask defined, wanted;
  add_tangents(args, gradients, defined);
  for (size_t i = 0; i < plan_->grad_inputs.size(); ++i) {
    wanted.push_back(task_should_compute_output(i));
  }
  return plan_->backward->run(std::move(args), defined, wanted);
}

std::vector<at::Tensor> CompiledNode::unpack() {
  std::vector<at::Tensor> args;
  args.reserve(plan_->saved.size() + plan_->backward->tangents().size());
  size_t variable = 0, intermediate = 0;
  for (const Saved& saved : plan_->saved) {
    if (saved.kind == Saved::Kind::Intermediate) {
      args.push_back(unpack_intermediate(intermediate++));
    } else {
      args.push_back(variables_[variable++].unpack(getptr()));
    }
  }
  return args;
}

at::Tensor CompiledNode::unpack_intermediate(size_t index) {
  Intermediate& kept = intermediates_[index];
  TORCH_CHECK(!kept.is_shared || kept.tensor._version() == kept.version,
              "one of the variables needed for gradient computation has been modified by an inplace "
              "operation: ",
              TensorMeta::of(kept.tensor).str(), ", of which an output of the compiled function ",
              plan_->name, " is a view, is at version ", kept.tensor._version(),
              "; expected version ", kept.version, " instead.");
  return will_release_ ? std::move(kept.tensor) : kept.tensor;
}

/// The graph was traced for tangents of a certain layout.
void CompiledNode::add_tangents(std::vector<at::Tensor>& args, variable_list& gradients,
                                BackwardProgram::Mask& defined) const {
  const std::vector<TensorMeta>& expected = plan_->backward->tangents();
  for (size_t i = 0; i < expected.size(); ++i) {
    at::Tensor& gradient = gradients[i];
    defined.push_back(gradient.defined());
    if (gradient.defined() && gradient.strides() != expected[i].strides) {
      at::Tensor laid_out =
          at::empty_strided(expected[i].sizes, expected[i].strides, gradient.options());
      gradient = laid_out.copy_(gradient);
    }
    args.push_back(std::move(gradient));
  }
}

void CompiledNode::release_variables() {
  std::lock_guard<std::mutex> lock(mutex_);
  released_ = true;
  variables_.clear();
  intermediates_.clear();
}

std::string CompiledNode::name() const {
  return plan_->name + "Backward";
}

}  // namespace ahead::runtime
