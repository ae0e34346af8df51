#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <typeinfo>

#include "ahead/errors.h"
#include "runtime/node/branch_node.h"
#include "runtime/node/compiled_node.h"
#include "runtime/node/hand_over.h"
#include "runtime/node/leaf_edges.h"

/// A compiled function's node whose inputs are not all reached by all of its results.
namespace ahead::runtime {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::variable_list;

namespace {

BranchNode& branch_of(const NodePtr& node) {
  return static_cast<BranchNode&>(*node);
}

}  // namespace

CompiledNode::~CompiledNode() {
  for (const NodePtr& branch : branches_) branch_of(branch).forget_owner();
}

/// Moves edges to partly reached inputs, where these are watched, to a BranchNode.
void CompiledNode::branch_off(const BackwardPlan::PartlyReached& part, edge_list& edges) {
  edge_list branched;
  for (const int32_t input : part.places) {
    const auto place = static_cast<size_t>(input);
    if (!is_watched(edges[place])) continue;
    branched.resize(edges.size());
    branched[place] = std::exchange(edges[place], Edge());
  }
  if (branched.empty()) return;
  branches_.push_back(make_autograd_node<BranchNode>(*this, plan_, part, std::move(branched)));
}

void CompiledNode::replace_edge(size_t place, const Edge& edge) {
  for (const NodePtr& branch : branches_) {
    if (!branch->next_edge(place).is_valid()) continue;
    branch->next_edges()[place] = edge;
    return;
  }
  for (HandOverNode* link = chain(); link != nullptr; link = link->next()) {
    for (size_t i = 0; i < link->places().size(); ++i) {
      if (static_cast<size_t>(link->places()[i]) != place) continue;
      link->next_edges()[i] = edge;
      return;
    }
  }
  next_edges()[place] = edge;
}

/// Where the gradient of a differentiable output goes: here, or to branches as well.
Edge CompiledNode::edge_of_output(size_t index, const at::Tensor& output) {
  const auto place = static_cast<uint32_t>(index);
  edge_list edges{Edge(getptr(), place)};
  for (const NodePtr& branch : branches_) {
    if (branch_of(branch).is_reached_by(index)) edges.emplace_back(branch, place);
  }
  if (edges.size() == 1) return edges[0];
  const NodePtr fork = make_autograd_node<ForkNode>(name(), std::move(edges));
  return {fork, fork->add_input_metadata(output)};
}

/// Gives a saved output the grad_fn that it has as a result. The SavedVariable cannot hold that: it
/// is a ForkNode, which holds this node.
void CompiledNode::set_history(const BackwardPlan::Saved& saved, const at::Tensor& unpacked) {
  if (saved.kind != BackwardPlan::Saved::Kind::Output || unpacked.grad_fn().get() != this) return;
  const std::vector<int32_t>& outputs = plan_->backward.differentiable;
  const auto found = std::find(outputs.begin(), outputs.end(), saved.index);
  const auto index = static_cast<size_t>(found - outputs.begin());
  torch::autograd::impl::set_gradient_edge(unpacked, edge_of_output(index, unpacked));
}

bool CompiledNode::is_own(const at::Tensor& output) const {
  const torch::autograd::Node* node = output.grad_fn().get();
  if (!branches_.empty() && node != nullptr && typeid(*node) == typeid(ForkNode))
    node = node->next_edge(0).function.get();
  return node == this;
}

edge_list CompiledNode::all_edges() const {
  edge_list edges = next_edges();
  edges.resize(plan_->backward.grad_inputs.size());
  for (const HandOverNode* link = chain(); link != nullptr; link = link->next()) {
    for (size_t i = 0; i < link->places().size(); ++i)
      edges[static_cast<size_t>(link->places()[i])] = link->next_edge(i);
  }
  for (const NodePtr& branch : branches_) {
    for (size_t i = 0; i < edges.size(); ++i) {
      if (branch->next_edge(i).is_valid()) edges[i] = branch->next_edge(i);
    }
  }
  return edges;
}

variable_list CompiledNode::apply(variable_list&& gradients) {
  std::lock_guard<std::mutex> lock(mutex_);
  open_.enter(*plan_, gradients);
  // Compiled autograd runs nodes outside of LibTorch's backwards, so branches are on their own.
  const int64_t backward = branches_.empty() ? 0 : torch::autograd::get_current_graph_task_id();
  serves_branches_ = will_release_ && backward >= 0;
  may_donate_ = serves_branches_ && plan_->backward.donates_saved && open_.is_last(*plan_);
  BackwardVariants::Mask wanted = wanted_gradients();
  if (chain() != nullptr) return hand_over_first(std::move(gradients), wanted);
  if (branches_.empty() || backward < 0) return differentiate(std::move(gradients), wanted);
  std::vector<BranchNode*> following;
  for (const NodePtr& node : branches_) {
    BranchNode& branch = branch_of(node);
    if (branch.has_run_in(backward)) continue;
    const BackwardVariants::Mask further = branch.wanted_gradients();
    for (size_t i = 0; i < wanted.size(); ++i) wanted[i] |= further[i];
    following.push_back(&branch);
  }
  variable_list all = differentiate(std::move(gradients), wanted);
  for (BranchNode* branch : following) branch->give(backward, all);
  return all;
}

void CompiledNode::note_released_branch() {
  std::lock_guard<std::mutex> lock(mutex_);
  ++released_branches_;
  if (!open_.is_any() && released_branches_ == branches_.size()) clear();
}

variable_list CompiledNode::apply_for(BranchNode& branch, variable_list&& gradients) {
  std::lock_guard<std::mutex> lock(mutex_);
  const int64_t backward = torch::autograd::get_current_graph_task_id();
  if (std::optional<variable_list> given = branch.take(backward)) return std::move(*given);
  check_acts_once(branch, backward);
  branch.note_run(backward);
  may_donate_ = false;
  return differentiate(std::move(gradients), branch.wanted_gradients());
}

/// What a custom function does in its backward would be done by each branch that runs alone, and by
/// each of the derivatives of such branches.
void CompiledNode::check_acts_once(const BranchNode& branch, int64_t backward) const {
  const auto leads_to = [](const std::vector<bool>& behind, const BackwardVariants::Mask& wanted) {
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (wanted[i] && behind[i]) return true;
    }
    return false;
  };
  for (const NodePtr& node : branches_) {
    const BranchNode& other = branch_of(node);
    if (!other.has_run_in(backward)) continue;
    for (const std::vector<bool>& behind : plan_->backward.led_to_by_acts) {
      const bool is_once = !at::GradMode::is_enabled() &&
                           !(leads_to(behind, branch.wanted_gradients()) &&
                             leads_to(behind, other.wanted_gradients()));
      if (is_once) continue;
      throw Unsupported(
          "backward",
          "an operator with an effect, or a write, in the backward of a custom autograd function: "
          "it would happen once for each of several gradients that only some results lead to. Use "
          "backward(), ask for one of these gradients, or return one result.");
    }
  }
}

}  // namespace ahead::runtime
