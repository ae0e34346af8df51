#include <torch/csrc/dynamo/compiled_autograd.h>

#include <algorithm>

#include "ahead/interpret.h"
#include "runtime/node/compiled_node.h"

/// A compiled function's node in the hands of compiled autograd.
namespace ahead::runtime {

using torch::autograd::variable_list;
using torch::dynamo::autograd::CompiledNodeArgs;
using torch::dynamo::autograd::SwapSavedVariables;

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

void CompiledNode::compiled_args(CompiledNodeArgs& args) const {
  TORCH_CHECK(open_.is_any(), torch::autograd::ERR_BACKWARD_TWICE);
  TORCH_CHECK(chain() == nullptr, "it hands over gradients as they are made");
  args.collect(plan_->backward.program->id());
  args.collect(variables_, /*is_output=*/true);
  for (const Intermediate& intermediate : intermediates_) {
    check_version(intermediate);
    args.collect(intermediate.tensor);
  }
}

variable_list CompiledNode::apply_with_saved(const variable_list& gradients,
                                             SwapSavedVariables& saved) {
  check_hooks(gradients);
  if (!fits_autocast()) throw_other_autocast();
  const Swapped swapped(*this, saved);
  std::vector<at::Tensor> args;
  for (const BackwardPlan::Saved& one : plan_->backward.saved) {
    const auto place = static_cast<size_t>(one.place);
    args.push_back(one.kind == BackwardPlan::Saved::Kind::Intermediate
                       ? intermediates_[place].tensor
                       : variables_[place].unpack(getptr()));
  }
  variable_list tangents = gradients;
  lay_out_all(tangents, plan_->backward.program->tangents());
  BackwardVariants::Mask defined;
  for (at::Tensor& tangent : tangents) {
    defined.push_back(tangent.defined());
    args.push_back(std::move(tangent));
  }
  const Graph graph = plan_->backward.program->graph_for(defined, wanted_gradients());
  return Interpreter(graph).replay(std::move(args));
}

}  // namespace ahead::runtime
