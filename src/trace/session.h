#pragma once

#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <unordered_map>
#include <unordered_set>

#include "trace/joint_trace.h"
#include "trace/result_sorter.h"
#include "trace/tracer.h"

namespace ahead::tracing {

/// Runs a function under a tracer: forward, then, if joint, the gradient of what it returned; and
/// writes down what came out as graph outputs. Whatever happens, nothing of the trace stays behind.
class Session {
 public:
  /// The gradient is recorded under `backward_autocast`; none: under the autocast there is.
  Session(Tracer& tracer, bool joint, std::optional<AutocastState> backward_autocast = {})
      : tracer_(tracer),
        writer_(tracer.writer()),
        outside_(tracer.outside()),
        joint_(joint),
        backward_autocast_(backward_autocast) {}
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// The graph as trace and trace_joint give it: every result is an output.
  Graph run(const aot::FlatFunction& function, const std::vector<at::Tensor>& inputs);
  /// Runs the function and leaves the trace open, for its gradient to be taken later. Returns the
  /// histories of the results that have a tangent, in the order of `trace_with_facts`.
  torch::autograd::edge_list begin(const aot::FlatFunction& function,
                                   const std::vector<at::Tensor>& inputs);
  /// The graph and the facts that a compiled function needs.
  JointTrace trace_with_facts(const aot::FlatFunction& function,
                              const std::vector<at::Tensor>& inputs);

 private:
  /// What becomes of the function's results.
  using AddResults = void (Session::*)(const std::vector<at::Tensor>&);

  Graph run(const aot::FlatFunction& function, const std::vector<at::Tensor>& inputs,
            AddResults add_results);
  void run_forward(const aot::FlatFunction& function, const std::vector<at::Tensor>& inputs,
                   AddResults add_results);
  bool is_history_changed(const Lifted& lifted) const;
  void check_geometry(const Lifted& lifted);
  bool can_be_set(const Lifted& lifted) const;
  void describe_inputs();
  void note_requires_grad(Lifted& lifted, InputFacts& facts);
  void add_new_memory(const ResultFacts& facts, const Value* input, size_t index);
  void add_sorted_results(const std::vector<at::Tensor>& results);
  void number_inputs(const std::vector<at::Tensor>& inputs);
  std::vector<at::Tensor> lift_inputs(const std::vector<at::Tensor>& inputs);
  std::vector<at::Tensor> call(const aot::FlatFunction& function, std::vector<at::Tensor> inputs);
  void find_new_accumulators();
  void check_accumulator(const torch::autograd::Node& node) const;
  void lift_results(const std::vector<at::Tensor>& results);
  void add_mutated_inputs();
  static void check_not_overlapping(const Lifted& mutated);
  void check_not_aliased(size_t mutated) const;
  void check_no_aliased_writes() const;
  void add_results(const std::vector<at::Tensor>& results);
  void add_gradients();
  static void check_tangents_unwritten(const std::vector<at::Tensor>& tangents);
  void note_casts();
  void check_no_inner_history(const torch::autograd::edge_list& roots) const;
  void cut_boundaries();
  void add_accumulated_grads();
  void add_new_grad(const Lifted& lifted, const at::Tensor& grad);
  void lift_unseen_leaves(const torch::autograd::edge_list& roots);
  void check_not_argument(const torch::autograd::AccumulateGrad& leaf) const;
  void check_not_mutated_in_backward() const;
  void note_grads();
  void restore_grads();
  void drop_unused_inputs();
  void add_output(const at::Tensor& tensor, Slot slot);
  void add_output(const at::Tensor& tensor, Slot slot, bool has_tangent);

  Tracer& tracer_;
  GraphWriter& writer_;
  Outside& outside_;
  bool joint_;
  const std::optional<AutocastState> backward_autocast_;
  bool with_facts_ = false;
  bool stays_open_ = false;
  /// The forward outputs that have a gradient, with their positions among the graph's outputs.
  std::vector<std::pair<at::Tensor, int32_t>> differentiable_;
  std::vector<uint64_t> mutation_counts_;
  /// The accumulators of leaves before set_() or resize_().
  std::vector<NodePtr> old_accumulators_;
  /// The trace with its facts. Inputs are known by their values, since their positions may change.
  JointTrace trace_;
  std::unordered_map<const Value*, InputFacts> input_facts_;
  std::unordered_map<const Value*, const Value*> grad_inputs_;
  std::vector<const Value*> result_inputs_;
  std::vector<const Value*> reset_inputs_;
  /// Results that are leaves made inside.
  std::unordered_set<const c10::TensorImpl*> returned_leaves_;
};

}  // namespace ahead::tracing
