#include "trace/grad_link.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/ops/alias.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "ahead/errors.h"
#include "tensors/autograd_graph.h"
#include "tensors/origin.h"
#include "trace/tensor/functional.h"

namespace ahead::tracing {
namespace {

/// Stands where the history of a tensor from outside begins. Gradients are read off its edge, or,
/// where user code differentiates by what that tensor was made from, go on outside: behind the
/// first edge. The others lead to tensors of the trace that it was made from.
struct Boundary final : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    for (size_t i = 1; i < next_edges().size(); ++i) {
      if (task_should_compute_output(i)) throw_for_origin();
    }
    gradients.resize(next_edges().size());
    const auto* wanted = torch::autograd::get_current_graph_task_exec_info();
    if (wanted != nullptr && !wanted->empty()) return std::move(gradients);
    throw Unsupported(
        "trace",
        "backward(): it reaches an argument or captured tensor that is not a leaf, and would go on "
        "outside the traced function. Detach that tensor, or call backward() outside.");
  }
  std::string name() const override { return "ahead::Boundary"; }

  /// LibTorch lets nobody add an edge to a node that another one leads to, for it numbers nodes by
  /// depth; but what a tensor was made from is less deep than the tensor.
  void add_origin(torch::autograd::Edge origin) { next_edges_.push_back(std::move(origin)); }
};

bool has_hooks(const at::Tensor& real) {
  const auto* meta = torch::autograd::impl::get_autograd_meta(real);
  return meta != nullptr && !meta->hooks_.empty();
}

/// The accumulator of a wrapper that is a leaf of its own. User code may hold the real leaf too and
/// differentiate by it: that one's accumulator is behind the one edge.
struct OwnAccumulator final : torch::autograd::AccumulateGrad {
  using AccumulateGrad::AccumulateGrad;
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    if (real_is_wanted()) return std::move(gradients);
    AccumulateGrad::apply(std::move(gradients));
    return torch::autograd::variable_list(next_edges().size());
  }
  bool real_is_wanted() const {
    const auto* wanted = torch::autograd::get_current_graph_task_exec_info();
    if (wanted == nullptr || next_edges().empty()) return false;
    const auto real = wanted->find(next_edge(0).function.get());
    return real != wanted->end() && real->second.should_execute();
  }
};

void attach(const at::Tensor& tensor, const NodePtr& node) {
  const uint32_t output = node->add_input_metadata(tensor);
  torch::autograd::impl::set_gradient_edge(tensor, {node, output});
}

/// The view that shows all of a tensor. Of a gradient it is the gradient itself: LibTorch cannot
/// functionalise what is written through two views of it.
struct WholeView final : torch::autograd::ViewFunc {
  at::Tensor operator()(const at::Tensor& base) const override {
    return base.requires_grad() ? at::alias(base) : base;
  }
  std::unique_ptr<ViewFunc> clone_and_set(
      std::optional<std::vector<c10::SymInt>> = std::nullopt,
      std::optional<std::vector<at::Tensor>> = std::nullopt) const override {
    return std::make_unique<WholeView>();
  }
};

struct WholeViewBackward final : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return std::move(gradients);
  }
  std::string name() const override { return "ahead::WholeViewBackward"; }
};

/// A view of something computed outside is a view inside too: how autograd goes on after a write,
/// and in which order it adds gradients up, depends on it.
void link_view(Lifted& lifted, torch::autograd::CreationMeta creation) {
  const at::Tensor base = at::functionalization::impl::to_functional_tensor(lifted.contents);
  seal_storage(base);
  attach(base, lifted.node);
  lifted.wrapper = torch::autograd::as_view(
      base, lifted.wrapper, /*is_bw_differentiable=*/true, /*is_fw_differentiable=*/true,
      std::make_unique<WholeView>(), [](const at::Tensor& view) { return at::alias(view); },
      creation);
  NodePtr node = make_autograd_node<WholeViewBackward>();
  node->set_next_edges({torch::autograd::impl::gradient_edge(base)});
  attach(lifted.wrapper, node);
}

}  // namespace

void link_gradient(Lifted& lifted, bool is_own) {
  namespace impl = torch::autograd::impl;
  if (!lifted.real.is_leaf()) {
    lifted.link = GradLink::Boundary;
    lifted.node = make_autograd_node<Boundary>();
    lifted.node->set_next_edges({impl::gradient_edge(lifted.real)});
    const auto* view = impl::get_view_autograd_meta(lifted.real);
    if (view != nullptr && view->has_bw_view()) {
      // Autograd finds views of it by where they lie in it, also after it was written to.
      if (lifted.real.storage_offset() != 0) lifted.storage_is_addressed = true;
      return link_view(lifted, view->get_creation_meta());
    }
    attach(lifted.wrapper, lifted.node);
    return;
  }
  lifted.wrapper.set_requires_grad(true);
  // Outside hooks belong to the real variable and run outside, so it cannot be shared.
  lifted.link = is_own || has_hooks(lifted.real) ? GradLink::OwnLeaf : GradLink::SharedLeaf;
  if (lifted.link == GradLink::SharedLeaf) {
    lifted.node = impl::grad_accumulator(lifted.real);
    impl::set_grad_accumulator(lifted.wrapper, weak(lifted.node));
  } else {
    lifted.node = make_autograd_node<OwnAccumulator>(lifted.wrapper);
    lifted.node->set_next_edges({{impl::grad_accumulator(lifted.real), 0}});
    impl::set_grad_accumulator(lifted.wrapper, weak(lifted.node));
  }
}

void tie_to_origin(const Lifted& made, const Lifted& origin) {
  const torch::autograd::Edge inside = torch::autograd::impl::gradient_edge(origin.wrapper);
  const bool is_unchanged = inside.function == origin.node ||
                            dynamic_cast<WholeViewBackward*>(inside.function.get()) != nullptr;
  if (is_unchanged) static_cast<Boundary&>(*made.node).add_origin(inside);
}

}  // namespace ahead::tracing
