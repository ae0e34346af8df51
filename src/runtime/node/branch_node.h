#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/libtorch.h"
#include "runtime/call/call_plan.h"
#include "runtime/node/open_results.h"

namespace ahead::runtime {

class CompiledNode;

/// Passes the gradient of one result of a call on to the CompiledNode of the call and to those of
/// its BranchNodes that the result leads to.
class ForkNode final : public torch::autograd::Node {
 public:
  ForkNode(std::string name, torch::autograd::edge_list&& edges);

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;
  std::string name() const override { return name_; }
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& args) const override;
  torch::autograd::variable_list apply_with_saved(
      const torch::autograd::variable_list& gradients,
      torch::dynamo::autograd::SwapSavedVariables& saved) override;

 private:
  const std::string name_;
};

/// Stands between some inputs of a call and the results that lead to them, so that LibTorch's
/// engine reaches these inputs only where it does in eager. The gradients are computed by the
/// CompiledNode of the call, which is its owner. Compiled autograd does not capture it.
class BranchNode final : public torch::autograd::Node {
 public:
  BranchNode(CompiledNode& owner, std::shared_ptr<const CallPlan> plan,
             const BackwardPlan::PartlyReached& part, torch::autograd::edge_list&& edges);

  /// Whether a result of the call, one of the plan's differentiable, leads to it.
  bool is_reached_by(size_t output) const { return reached_by_[output]; }
  /// For each of the plan's grad_inputs, whether its gradient is to go through here.
  BackwardVariants::Mask wanted_gradients() const;
  /// To be called when the owner is destroyed.
  void forget_owner();

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;
  void release_variables() override;
  std::string name() const override { return plan_->name + "Backward"; }

  // For the owner, which holds its own lock meanwhile:

  /// Takes its gradients out of all that the owner computed in one backward.
  void give(int64_t backward, torch::autograd::variable_list& all);
  /// The gradients that it was given in this backward, if any.
  std::optional<torch::autograd::variable_list> take(int64_t backward);
  /// Notes that it ran in this backward without being given gradients.
  void note_run(int64_t backward) { last_run_ = backward; }
  /// Whether it ran in this backward without being given gradients.
  bool has_run_in(int64_t backward) const { return last_run_ == backward; }

 private:
  NodePtr owner() const;

  struct Given {
    int64_t backward;
    torch::autograd::variable_list gradients;
  };

  CompiledNode* owner_;
  const std::shared_ptr<const CallPlan> plan_;
  const std::vector<bool> reached_by_;
  std::optional<Given> given_;
  int64_t last_run_ = -1;
  OpenResults open_;
};

}  // namespace ahead::runtime
