#include "runtime/call/view_write.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/dynamo/compiled_autograd.h>

#include "base/libtorch.h"

namespace ahead::runtime {
namespace {

using torch::autograd::variable_list;

/// Stands inside the CopySlices of the view's base. The history that the view had before gets its
/// gradient from the CompiledNode; the engine adds to that what this node sends there, and only
/// negative zeros change nothing in a sum.
struct WriteBackward final : torch::autograd::Node {
  variable_list apply(variable_list&& gradients) override {
    if (!gradients[0].defined()) return variable_list(2);
    at::Tensor nothing;
    if (task_should_compute_output(0)) nothing = at::zeros_like(gradients[0]).neg_();
    return {nothing, gradients[0]};
  }
  std::string name() const override { return "ahead::WriteBackward"; }
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs&) const override {}
  variable_list apply_with_saved(const variable_list& gradients,
                                 torch::dynamo::autograd::SwapSavedVariables&) override {
    return apply(variable_list(gradients));
  }
};

}  // namespace

void write_to_view(const at::Tensor& view, const at::Tensor& contents) {
  namespace impl = torch::autograd::impl;
  torch::autograd::check_inplace(view, /*requires_grad=*/true);
  NodePtr node = make_autograd_node<WriteBackward>();
  node->set_next_edges({impl::gradient_edge(view), impl::gradient_edge(contents)});
  node->add_input_metadata(view);
  {
    at::NoGradGuard no_grad;
    view.copy_(contents);
  }
  impl::rebase_history(view, {node, 0});
}

}  // namespace ahead::runtime
