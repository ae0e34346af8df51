#pragma once

#include <torch/csrc/autograd/saved_variable.h>

#include <memory>
#include <string>
#include <vector>

#include "base/libtorch.h"
#include "runtime/call/call_plan.h"
#include "runtime/node/open_results.h"

namespace ahead::runtime {

class BranchNode;
class HandOver;
class HandOverNode;

/// The autograd node of one call of a compiled function. Holds what its backward needs as eager's
/// nodes do: tensors that the caller can reach are checked against later writes, all of it is
/// released after the backward unless the graph is retained.
///
/// Where somebody could tell that a backward came to an input which the differentiated results do
/// not lead to, that input is behind a BranchNode instead, for which this node computes.
///
/// Where somebody could tell when gradients are handed over, by hooks or by the memory they take,
/// this node is the head of a chain: it hands over the gradients that are made first, and
/// HandOverNodes the others.
class CompiledNode final : public torch::autograd::Node {
 public:
  explicit CompiledNode(std::shared_ptr<const CallPlan> plan) : plan_(std::move(plan)) {}
  ~CompiledNode() override;

  /// Ties the node between the call's inputs and its differentiable outputs.
  void connect(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs,
               const NodePtr& self);
  /// Lets the gradient of one of the plan's grad_inputs go along another edge.
  void replace_edge(size_t place, const torch::autograd::Edge& edge);
  /// Saves the tensors that the backward needs; intermediates are moved out of `outputs`. To be
  /// called after connect().
  void save(const std::vector<at::Tensor>& inputs, std::vector<at::Tensor>& outputs);

  /// Saves inputs again that were not written to, but share the version counter of `written`.
  void save_again(const std::vector<at::Tensor>& inputs, const at::Tensor& written);

  /// Notes the versions of the tensors that the backward will write to, once the call has written
  /// to its inputs.
  void note_versions();

  /// Lets backwards look for hooks on this result of the call, from which others were computed.
  void watch(const at::Tensor& result);

  /// The first link of the chain behind this node; null: it hands over all gradients itself.
  HandOverNode* chain() const;
  /// Whether a hook is called before all gradients are handed over, as compiled_args() found.
  bool is_chain_watched() const { return is_chain_watched_; }
  /// Gradients of links, which apply_with_saved() has computed. Throws if it was not called before.
  torch::autograd::variable_list take_traced(c10::ArrayRef<int32_t> places, bool is_last);

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;
  /// The gradients that go through a branch: those that were computed together with all others, if
  /// this node has run in this backward already.
  torch::autograd::variable_list apply_for(BranchNode& branch,
                                           torch::autograd::variable_list&& gradients);
  void release_variables() override;
  /// Notes that a branch needs no saved tensor any more.
  void note_released_branch();
  void will_release_variables() override { will_release_ = true; }
  std::string name() const override;
  /// For compiled autograd: what the node holds, and its backward graph called operator by
  /// operator.
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& args) const override;
  torch::autograd::variable_list apply_with_saved(
      const torch::autograd::variable_list& gradients,
      torch::dynamo::autograd::SwapSavedVariables& saved) override;

 private:
  /// An intermediate that only this node holds, unless it shares memory with an output.
  struct Intermediate {
    at::Tensor tensor;
    bool is_shared = false;
    uint32_t version = 0;
    uint64_t hash = 0;  ///< of its contents, where these are checked
  };

  /// A tensor from outside that the backward writes to. Not the tensor itself, whose history may
  /// lead to this node, but another one with its memory and version.
  struct Writable {
    at::Tensor tensor;
    uint32_t version = 0;
  };

  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  /// A result of the call from which others were computed, and whose history leads here by another
  /// node. That node cannot be held, not even weakly: it holds this one.
  struct Watched {
    WeakTensor result;
    size_t place;  ///< among the plan's differentiable
  };

  struct Swapped;

  void tie_chain(const NodePtr& self, const std::vector<at::Tensor>& outputs,
                 torch::autograd::edge_list& edges);
  torch::autograd::variable_list hand_over_first(torch::autograd::variable_list&& gradients,
                                                 const BackwardVariants::Mask& wanted);
  c10::intrusive_ptr<HandOver> begin(torch::autograd::variable_list&& gradients,
                                     const BackwardVariants::Mask& wanted);
  static void check_plain(const torch::autograd::variable_list& gradients);
  void enter(const torch::autograd::variable_list& gradients);
  void branch_off(const BackwardPlan::PartlyReached& part, torch::autograd::edge_list& edges);
  torch::autograd::Edge edge_of_output(size_t index, const at::Tensor& output);
  void set_history(const BackwardPlan::Saved& saved, const at::Tensor& unpacked);
  bool find_chain_watched() const;
  std::vector<c10::SymInt> traced_sizes(torch::dynamo::autograd::SwapSavedVariables& saved) const;
  Graph traced_graph(const torch::autograd::variable_list& gradients,
                     const std::vector<c10::SymInt>& sizes,
                     BackwardVariants::Layouts layouts) const;
  torch::autograd::variable_list trace_graph(std::vector<at::Tensor>&& args,
                                             const torch::autograd::variable_list& gradients,
                                             const std::vector<c10::SymInt>& sizes) const;
  torch::autograd::variable_list keep_traced(torch::autograd::variable_list&& gradients);
  bool is_own(const at::Tensor& output) const;
  void check_acts_once(const BranchNode& branch, int64_t backward) const;
  void clear();
  torch::autograd::edge_list all_edges() const;
  torch::autograd::variable_list differentiate(torch::autograd::variable_list&& gradients,
                                               const BackwardVariants::Mask& wanted);
  std::vector<at::Tensor> arguments(const BackwardVariants::Part& part,
                                    torch::autograd::variable_list&& gradients);
  std::vector<at::Tensor> unpack(const std::vector<bool>& needs);
  void check_version(const Intermediate& intermediate) const;
  at::Tensor unpack_saved(size_t index);
  at::Tensor unpack_writable(const BackwardPlan::Saved& saved) const;
  void check_may_write() const;
  torch::autograd::variable_list run(const BackwardVariants::Part& part,
                                     torch::autograd::variable_list&& gradients);
  void finish_writes(const BackwardVariants::Part& part,
                     const torch::autograd::variable_list& gradients,
                     const std::vector<at::Tensor>& laid_out) const;
  void save_for_double_backward(const std::vector<at::Tensor>& inputs);
  bool is_written(int32_t input) const;
  void check_unwritten(int32_t input) const;
  bool fits_autocast() const;
  torch::autograd::variable_list apply_under_autocast(torch::autograd::variable_list&& gradients,
                                                      const BackwardVariants::Mask& wanted);
  [[noreturn]] void throw_other_autocast(const std::string& why = "") const;
  torch::autograd::variable_list apply_differentiably(torch::autograd::variable_list&& gradients,
                                                      const BackwardVariants::Mask& wanted);
  torch::autograd::variable_list with_error(torch::autograd::variable_list&& results) const;
  static void lay_out_all(torch::autograd::variable_list& gradients,
                          const std::vector<TensorMeta>& expected);
  void check_unchanged(const Intermediate& intermediate) const;
  BackwardVariants::Mask wanted_gradients() const;
  bool is_passed(size_t place, const torch::autograd::variable_list& gradients) const;
  void check_hooks(const torch::autograd::variable_list& gradients);

  std::shared_ptr<const CallPlan> plan_;
  std::vector<torch::autograd::SavedVariable> variables_;
  std::vector<Intermediate> intermediates_;
  std::vector<Writable> writable_;
  /// Inputs that only a double backward needs.
  std::vector<torch::autograd::SavedVariable> further_inputs_;
  /// Branch nodes, which know this one as long as it lives; there are none in most calls.
  std::vector<NodePtr> branches_;
  size_t released_branches_ = 0;
  bool serves_branches_ = false;  ///< the backward that runs now gave them all they need
  OpenResults open_;
  std::vector<Watched> watched_;
  mutable bool is_chain_watched_ = false;
  torch::autograd::variable_list traced_;  ///< for links, while compiled autograd traces
  bool is_empty_ = false;                  ///< the saved tensors were released
  bool will_release_ = false;
  bool may_donate_ = false;  ///< no later backward needs the saved intermediates
};

}  // namespace ahead::runtime
