#include <ATen/ops/zeros.h>
#include <torch/csrc/dynamo/compiled_autograd.h>

#include <algorithm>

#include "interpreter/plan.h"
#include "runtime/node/compiled_node.h"
#include "runtime/node/hand_over.h"
#include "runtime/node/leaf_edges.h"
#include "trace/inlined_graph.h"
#include "trace/tracer.h"

/// A compiled function's node in the hands of compiled autograd.
namespace ahead::runtime {

using torch::autograd::variable_list;
using torch::dynamo::autograd::CompiledNodeArgs;
using torch::dynamo::autograd::SwapSavedVariables;

namespace {

BackwardVariants::Mask are_defined(const variable_list& gradients) {
  BackwardVariants::Mask defined;
  for (const at::Tensor& gradient : gradients) defined.push_back(gradient.defined());
  return defined;
}

}  // namespace

/// Puts compiled autograd's stand-ins for the saved tensors into the node, and the saved tensors
/// back at its end.
struct CompiledNode::Swapped {
  Swapped(CompiledNode& node, SwapSavedVariables& saved) : node(node), saved(saved) {
    saved.before(node.variables_);
    for (Intermediate& intermediate : node.intermediates_) saved.before(intermediate.tensor);
  }
  ~Swapped() {
    saved.after(node.variables_);
    for (Intermediate& intermediate : node.intermediates_) saved.after(intermediate.tensor);
  }
  CompiledNode& node;
  SwapSavedVariables& saved;
};

/// Whether hooks may see gradients, and do anything, before links have handed over theirs.
bool CompiledNode::find_chain_watched() const {
  const auto is_any_seen = [](const torch::autograd::Node& node, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      const torch::autograd::Edge& edge = node.next_edge(i);
      if (leads_to_leaf(edge) && has_hooks_on_gradient(*edge.function)) return true;
    }
    return false;
  };
  if (chain() != nullptr && is_any_seen(*this, plan_->backward.grad_inputs.size())) return true;
  for (const HandOverNode* link = chain(); link != nullptr; link = link->next()) {
    if (link->next() != nullptr && is_any_seen(*link, link->places().size())) return true;
  }
  return false;
}

/// Keeps the gradients of links until these are traced, and returns those of the head.
variable_list CompiledNode::keep_traced(variable_list&& gradients) {
  traced_.assign(gradients.size(), at::Tensor());
  for (const HandOverNode* link = chain(); link != nullptr; link = link->next()) {
    for (const int32_t place : link->places())
      traced_[static_cast<size_t>(place)] = std::move(gradients[static_cast<size_t>(place)]);
  }
  gradients.push_back(at::zeros({}, chain()->input_metadata(0).options()));
  return std::move(gradients);
}

variable_list CompiledNode::take_traced(c10::ArrayRef<int32_t> places, bool is_last) {
  TORCH_CHECK(!traced_.empty(), "the head of its chain is no part of this graph");
  variable_list taken;
  for (const int32_t place : places)
    taken.push_back(std::move(traced_[static_cast<size_t>(place)]));
  if (is_last) traced_.clear();
  return taken;
}

void CompiledNode::compiled_args(CompiledNodeArgs& args) const {
  TORCH_CHECK(open_.is_any(), torch::autograd::ERR_BACKWARD_TWICE);
  TORCH_CHECK(!plan_->backward.writes_anything(), "its backward writes to tensors from outside");
  TORCH_CHECK(!plan_->backward.program->makes_sparse(), "it makes a sparse gradient");
  is_chain_watched_ = find_chain_watched();
  TORCH_CHECK(!is_chain_watched_, "it hands over gradients to hooks before others are made");
  args.collect(plan_->backward.program->id());
  args.collect(fits_autocast());
  for (const int64_t size : plan_->backward.program->sizes()) args.collect(c10::SymInt(size));
  args.collect(variables_, /*is_output=*/true);
  for (const Intermediate& intermediate : intermediates_) {
    check_version(intermediate);
    args.collect(intermediate.tensor);
  }
}

/// The program's sizes as compiled autograd wants them: those that change are its symbols.
std::vector<c10::SymInt> CompiledNode::traced_sizes(SwapSavedVariables& saved) const {
  std::vector<c10::SymInt> sizes;
  for (const int64_t known : plan_->backward.program->sizes()) {
    c10::SymInt size = known;
    saved.before(size);
    sizes.push_back(size);
    saved.after(size);
  }
  return sizes;
}

/// The graph for these gradients as a part of the trace that is running.
Graph CompiledNode::traced_graph(const variable_list& gradients,
                                 const std::vector<c10::SymInt>& sizes,
                                 BackwardVariants::Layouts layouts) const {
  const Graph graph =
      plan_->backward.program->graph_for(are_defined(gradients), wanted_gradients(), layouts);
  return tracing::over_traced_sizes(graph, sizes);
}

/// Writes the backward graph down for traced tensors. Where sizes may change, the program says for
/// all of them what its operators return. Gradients that lie otherwise than it expects are not
/// copied, since operators may round otherwise then.
variable_list CompiledNode::trace_graph(std::vector<at::Tensor>&& args,
                                        const variable_list& gradients,
                                        const std::vector<c10::SymInt>& sizes) const {
  Graph graph = traced_graph(gradients, sizes, BackwardVariants::Layouts::AsTraced);
  bool all_lie_as_expected =
      plan_->backward.program->lies_as_traced(are_defined(gradients), wanted_gradients());
  for (const at::Tensor& gradient : gradients) {
    const Value& input = *graph.inputs()[args.size()].value;
    if (gradient.defined() && input.is_used())
      all_lie_as_expected &= tracing::lies_as(gradient, input.meta);
    args.push_back(gradient);
  }
  const std::shared_ptr<SizeGuards>& guards = tracing::Tracer::current()->outside().guards();
  if (guards != nullptr && all_lie_as_expected) return tracing::inline_traced(graph, args);
  if (!all_lie_as_expected) graph = traced_graph(gradients, sizes, BackwardVariants::Layouts::Any);
  return Interpreter::Plan(graph).replay(std::move(args), guards);
}

variable_list CompiledNode::apply_with_saved(const variable_list& gradients,
                                             SwapSavedVariables& saved) {
  check_hooks(gradients);
  if (!fits_autocast()) throw_other_autocast();
  const std::vector<c10::SymInt> sizes = traced_sizes(saved);
  const Swapped swapped(*this, saved);
  std::vector<at::Tensor> args;
  for (const BackwardPlan::Saved& one : plan_->backward.saved) {
    const auto place = static_cast<size_t>(one.place);
    args.push_back(one.kind == BackwardPlan::Saved::Kind::Intermediate
                       ? intermediates_[place].tensor
                       : variables_[place].unpack(getptr()));
  }
  variable_list results = trace_graph(std::move(args), gradients, sizes);
  return chain() == nullptr ? results : keep_traced(std::move(results));
}

}  // namespace ahead::runtime
