#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/variable.h>

#include "runtime/node/compiled_node.h"
#include "runtime/node/hand_over.h"

/// A compiled function's node that hands its gradients over as they are made.
namespace ahead::runtime {

using torch::autograd::edge_list;
using torch::autograd::variable_list;

namespace {

/// The device on whose queue the engine is to run the links: that of the head.
at::TensorOptions options_of_token(const CallPlan& plan, const std::vector<at::Tensor>& outputs) {
  for (const int32_t output : plan.backward.differentiable) {
    const at::Device device = outputs[static_cast<size_t>(output)].device();
    if (!device.is_cpu()) return at::TensorOptions(at::kFloat).device(device);
  }
  return at::TensorOptions(at::kFloat).device(at::kCPU);
}

}  // namespace

/// Moves edges whose gradients are made later to HandOverNodes, and adds one that leads to these.
/// The last link is made first, as a node's edges must not change once others lead to it.
void CompiledNode::tie_chain(const NodePtr& self, const std::vector<at::Tensor>& outputs,
                             edge_list& edges) {
  const BackwardVariants::Order& order = plan_->backward.program->order();
  const auto ends = cut_chain(order, edges);
  if (ends.empty()) return;
  const at::TensorOptions token = options_of_token(*plan_, outputs);
  NodePtr next;
  for (size_t link = ends.size(); link-- > 0;) {
    const size_t first = ends[link];
    const size_t end = link + 1 < ends.size() ? ends[link + 1] : order.places.size();
    edge_list own;
    own.reserve(end - first + 1);
    for (size_t i = first; i < end; ++i)
      own.push_back(std::move(edges[static_cast<size_t>(order.places[i])]));
    if (next) own.emplace_back(std::move(next), 0);
    next = make_autograd_node<HandOverNode>(self, plan_, first, end, std::move(own));
    next->add_input_metadata(token, c10::SymIntArrayRef(), /*is_tensor_subclass=*/false,
                             /*is_nested=*/false, at::kFloat);
  }
  edges.emplace_back(std::move(next), 0);
}

HandOverNode* CompiledNode::chain() const {
  const size_t own = plan_->backward.grad_inputs.size();
  return num_outputs() <= own ? nullptr : static_cast<HandOverNode*>(next_edge(own).function.get());
}

/// What is to be handed over. Gradients with history are all computed first.
c10::intrusive_ptr<HandOver> CompiledNode::begin(variable_list&& gradients,
                                                 const BackwardVariants::Mask& wanted) {
  if (at::GradMode::is_enabled() || !fits_autocast())
    return c10::make_intrusive<HandOver>(plan_, differentiate(std::move(gradients), wanted));
  enter(gradients);
  BackwardVariants::PartPtr part = plan_->backward.program->variant(gradients, wanted);
  std::vector<at::Tensor> args = arguments(*part, std::move(gradients));
  return c10::make_intrusive<HandOver>(plan_, std::move(part), std::move(args));
}

variable_list CompiledNode::hand_over_first(variable_list&& gradients,
                                            const BackwardVariants::Mask& wanted) {
  const size_t own = plan_->backward.grad_inputs.size();
  const HandOverNode& next = *chain();
  const bool is_last = !task_should_compute_output(own);
  c10::intrusive_ptr<HandOver> rest = begin(std::move(gradients), wanted);
  variable_list taken = rest->take(0, next.first(), is_last);
  variable_list results(own + 1);
  for (size_t i = 0; i < taken.size(); ++i) {
    const int32_t place = plan_->backward.program->order().places[i];
    results[static_cast<size_t>(place)] = std::move(taken[i]);
  }
  if (!is_last) results[own] = HandOver::token(std::move(rest), next.input_metadata(0));
  return results;
}

}  // namespace ahead::runtime
