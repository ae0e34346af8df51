#include "runtime/node/branch_node.h"

#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/dynamo/compiled_autograd.h>

#include <utility>

#include "runtime/node/compiled_node.h"

namespace ahead::runtime {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::variable_list;
using torch::dynamo::autograd::CompiledNodeArgs;
using torch::dynamo::autograd::SwapSavedVariables;

ForkNode::ForkNode(std::string name, edge_list&& edges)
    : Node(std::move(edges)), name_(std::move(name)) {}

variable_list ForkNode::apply(variable_list&& gradients) {
  return {num_outputs(), gradients[0]};
}

void ForkNode::compiled_args(CompiledNodeArgs& /*args*/) const {}

variable_list ForkNode::apply_with_saved(const variable_list& gradients,
                                         SwapSavedVariables& /*saved*/) {
  return {num_outputs(), gradients[0]};
}

/// A sequence number below the owner's lets the engine run the owner first, which computes all
/// gradients at once.
BranchNode::BranchNode(CompiledNode& owner, std::shared_ptr<const CallPlan> plan,
                       const BackwardPlan::PartlyReached& part, edge_list&& edges)
    : Node(owner.sequence_nr() == 0 ? 0 : owner.sequence_nr() - 1, std::move(edges)),
      owner_(&owner),
      plan_(std::move(plan)),
      reached_by_(part.outputs),
      open_(part.outputs) {}

BackwardVariants::Mask BranchNode::wanted_gradients() const {
  BackwardVariants::Mask wanted;
  for (size_t i = 0; i < num_outputs(); ++i) wanted.push_back(task_should_compute_output(i));
  return wanted;
}

void BranchNode::forget_owner() {
  std::lock_guard<std::mutex> lock(mutex_);
  owner_ = nullptr;
}

/// The engine reaches a branch by a ForkNode, which holds the owner as well.
NodePtr BranchNode::owner() const {
  TORCH_CHECK(owner_ != nullptr, torch::autograd::ERR_BACKWARD_TWICE);
  return owner_->getptr();
}

variable_list BranchNode::apply(variable_list&& gradients) {
  std::lock_guard<std::mutex> lock(mutex_);
  open_.enter(*plan_, gradients);
  return static_cast<CompiledNode&>(*owner()).apply_for(*this, std::move(gradients));
}

void BranchNode::release_variables() {
  std::lock_guard<std::mutex> lock(mutex_);
  const bool was_open = open_.is_any();
  open_.release(*plan_);
  if (owner_ != nullptr && was_open && !open_.is_any()) owner_->note_released_branch();
}

void BranchNode::give(int64_t backward, variable_list& all) {
  Given& given = given_.emplace(Given{backward, variable_list(num_outputs())});
  for (size_t i = 0; i < num_outputs(); ++i) {
    if (next_edge(i).is_valid()) given.gradients[i] = std::move(all[i]);
  }
}

std::optional<variable_list> BranchNode::take(int64_t backward) {
  std::optional<Given> given = std::exchange(given_, std::nullopt);
  if (!given || given->backward != backward) return std::nullopt;
  return std::move(given->gradients);
}

}  // namespace ahead::runtime
