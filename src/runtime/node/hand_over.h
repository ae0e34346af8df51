#pragma once

#include <c10/core/TensorImpl.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ahead/executable.h"
#include "base/libtorch.h"
#include "runtime/call/call_plan.h"

namespace ahead::runtime {

class CompiledNode;

/// What one backward of a compiled function has still to hand over. It travels from node to node of
/// the call's chain, held by a token: a tensor without dimensions that goes the way of gradients.
class HandOver final : public c10::BackendMeta {
 public:
  /// Gradients that are all made.
  HandOver(std::shared_ptr<const CallPlan> plan, torch::autograd::variable_list&& made);
  /// Gradients that `part` makes of its arguments; as many at a time as its backend can.
  HandOver(std::shared_ptr<const CallPlan> plan, BackwardVariants::PartPtr part,
           std::vector<at::Tensor>&& args);

  /// The gradients at [first, end) of the order of the backward program. `is_last`: nothing else is
  /// asked for.
  torch::autograd::variable_list take(size_t first, size_t end, bool is_last);

  /// A token that holds it, with the device of `like`.
  static at::Tensor token(c10::intrusive_ptr<HandOver> content,
                          const torch::autograd::InputMetadata& like);
  static HandOver& in(const at::Tensor& token);

 private:
  struct Watched {
    size_t saved;
    c10::VariableVersion counter;
    uint32_t version;
  };

  void watch(const std::vector<at::Tensor>& args);
  void check_versions() const;
  void check_gradients(c10::ArrayRef<int32_t> places,
                       const torch::autograd::variable_list& gradients) const;

  const std::shared_ptr<const CallPlan> plan_;
  const BackwardVariants::PartPtr part_;
  /// Saved values that nobody may write to before they were read for the last time.
  std::vector<Watched> watched_;
  std::unique_ptr<aot::GraphRun> run_;
};

/// One link of the chain of nodes behind a CompiledNode: it has edges to the inputs whose gradients
/// are made together, and one to the next link. So LibTorch's engine takes these gradients before
/// the next ones are made, as it does in eager.
class HandOverNode final : public torch::autograd::Node {
 public:
  /// Hands over the gradients at [first, end) of the order of the backward program. The last edge
  /// leads to the next link, unless there is none.
  HandOverNode(const NodePtr& head, std::shared_ptr<const CallPlan> plan, size_t first, size_t end,
               torch::autograd::edge_list&& edges);

  torch::autograd::variable_list apply(torch::autograd::variable_list&& token) override;
  std::string name() const override { return plan_->name + "Backward"; }
  /// For compiled autograd, in whose traces the head has computed the gradients of all links.
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& args) const override;
  torch::autograd::variable_list apply_with_saved(
      const torch::autograd::variable_list& token,
      torch::dynamo::autograd::SwapSavedVariables& saved) override;

  /// The numbers of its gradients among all, one for each edge but that to the next link.
  c10::ArrayRef<int32_t> places() const;
  /// The first of its gradients in the order in which all are handed over.
  size_t first() const { return first_; }
  /// The next link; null: this is the last one.
  HandOverNode* next() const;

 private:
  NodePtr head() const;

  const std::shared_ptr<const CallPlan> plan_;
  const size_t first_, end_;
  decltype(weak(NodePtr())) head_;  ///< which holds this node
};

/// The link that follows a node in a chain; null if there is none.
HandOverNode* next_link(const torch::autograd::Node& node);

/// Where a chain is to be cut, as ends of its links in the order in which gradients are made;
/// empty: nobody could tell gradients that are handed over together from others.
///
/// `edges`: where each gradient goes.
c10::SmallVector<size_t, 8> cut_chain(const BackwardVariants::Order& order,
                                      const torch::autograd::edge_list& edges);

}  // namespace ahead::runtime
