#include "tensors/origin.h"

#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include "ahead/errors.h"
#include "base/libtorch.h"

namespace ahead::tracing {
namespace {

/// Passes gradients on to its first edge. The second edge leads to the origin, so that the engine
/// runs the node, which then throws, where grad() asks for the gradient of the origin.
struct Tie final : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const auto* wanted = torch::autograd::get_current_graph_task_exec_info();
    const auto origin = wanted->find(next_edge(1).function.get());
    if (origin != wanted->end() && origin->second.captures_ != nullptr) throw_for_origin();
    gradients.resize(2);
    return std::move(gradients);
  }
  std::string name() const override { return "ahead::Tie"; }
};

}  // namespace

void note_origin(const at::Tensor& view, const at::Tensor& origin) {
  NodePtr made_by = view.grad_fn();
  NodePtr tie = make_autograd_node<Tie>();
  tie->set_next_edges({made_by->next_edge(0), torch::autograd::impl::gradient_edge(origin)});
  tie->add_input_metadata(at::Tensor(view._base()));
  made_by->set_next_edge(0, {std::move(tie), 0});
}

void throw_for_origin() {
  throw Unsupported("trace",
                    "grad(): the function differentiates by a tensor from outside that another "
                    "one was computed from outside, by which its gradient would go. Detach the "
                    "other one, or compute it inside the function.");
}

}  // namespace ahead::tracing
