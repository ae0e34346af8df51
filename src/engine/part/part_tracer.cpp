#include "engine/part/part_tracer.h"

#include <ATen/SequenceNumber.h>
#include <ATen/ops/add.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/tensor.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ahead/errors.h"
#include "ahead/passes.h"
#include "ahead/trace.h"
#include "base/private_members.h"
#include "checkpoint/region_watch.h"
#include "engine/part/false_history.h"
#include "engine/part/node_calls.h"
#include "engine/part/not_traceable.h"
#include "engine/part/operators.h"
#include "engine/part/part_inputs.h"
#include "engine/walk/hooked_tensors.h"
#include "engine/walk/leaf.h"
#include "ir/sizes/layout.h"
#include "ops/facts/node_facts.h"
#include "passes/stages.h"
#include "runtime/node/compiled_node.h"
#include "tensors/autograd_graph.h"
#include "trace/joint_trace.h"
#include "trace/tensor/fake_tensor.h"
#include "trace/tracer.h"

namespace ahead::engine {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;
using torch::dynamo::autograd::NodeCall;
using torch::dynamo::autograd::SwapSavedVariables;
using torch::dynamo::autograd::TraceState;

/// LibTorch hands this back to us without looking at it.
PyObject* nobody() {
  static int something;
  return reinterpret_cast<PyObject*>(&something);
}

/// Follows the walk with traced tensors in the places of real ones.
class PartTracer {
 public:
  /// `sizes`: null if none may change.
  PartTracer(Backward& backward, const std::vector<Step::Kind>& kinds, size_t begin, size_t end,
             const Gradients& gradients, const ChangingSizes* sizes)
      : backward_(backward),
        kinds_(kinds),
        gradients_(gradients),
        sizes_(backward, sizes),
        with_history_(at::GradMode::is_enabled()),
        places_(backward.num_places()),
        results_(backward.task().captured_vars_.size()),
        state_(std::vector<std::optional<c10::SymInt>>(backward.call().all_size_inputs.size()), 0) {
    part_.begin = begin;
    part_.end = end;
    part_.with_history = with_history_;
  }

  /// Whatever fails is a reason to leave a step to itself.
  Part run() {
    try {
      return make();
    } catch (const ahead::Error& error) {
      throw NotTraceable(part_.end, error.msg());
    }
  }

 private:
  using ArgumentKind = Part::Argument::Kind;

  Part make() {
    const PartInputs inputs(part_, backward_, kinds_, gradients_, sizes_);
    if (is_lifted()) sizes_.lift_held(state_.sym_sizes);
    Graph graph = trace(inputs);
    check_functional(graph);
    add_new_grads(graph);
    optimise(graph);
    drop_unused_inputs(graph);
    note_offsets(graph);
    if (is_lifted()) add_sizes(graph);
    graph.verify();
    part_.graph = std::make_shared<const Graph>(std::move(graph));
    return std::move(part_);
  }

  Graph trace(const PartInputs& inputs) {
    return tracing::trace_symbolic(
        [&](const std::vector<at::Tensor>& traced) {
          find_held_leaves(inputs, traced);
          return follow(traced);
        },
        inputs.tensors(), inputs.layouts(), sizes_.guards());
  }

  /// Where the results get a history, equal calls stay two: gradients would be added up elsewhere.
  void optimise(Graph& graph) const {
    using passes::Stages;
    if (with_history_) {
      passes::eliminate_dead_code(graph);
    } else {
      Stages({}, Stages::Keep::Nothing).optimise(graph, "");
    }
  }

  const Step& step(size_t index) const { return backward_.steps()[index]; }

  bool is_lifted() const { return sizes_.any(); }

  void add_sizes(Graph& graph) {
    const auto count = static_cast<int64_t>(sizes_.guards()->values().size());
    graph.add_input({Slot::Kind::Sizes, 0}, TensorMeta::contiguous({count}, at::kLong));
    graph.set_example_sizes(sizes_.guards()->values());
    part_.arguments.push_back({ArgumentKind::Sizes, 0});
    part_.guards = sizes_.guards();
  }

  std::vector<at::Tensor> follow(const std::vector<at::Tensor>& traced) {
    const at::AutoGradMode mode(with_history_);
    tracing::Tracer& tracer = *tracing::Tracer::current();
    tracer.writer().set_phase(Phase::Backward);
    for (size_t i = 0; i < traced.size(); ++i) {
      const auto [kind, index] = part_.arguments[i];
      if (kind == ArgumentKind::Gradient) places_[index] = traced[i];
      if (kind == ArgumentKind::Unpacked) unpacked_[index] = standing_for(traced[i]);
      if (kind == ArgumentKind::Leaf) leaves_[index] = tracing::value_of(traced[i]);
      if (kind == ArgumentKind::Grad) grads_[index] = tracing::value_of(traced[i]);
      if (kind == ArgumentKind::Input)
        backward_.call().tensor_args.lookup(backward_.inputs()[index]).proxy_tensor = traced[i];
    }
    sizes_.lift_numbers();
    const std::vector<at::Tensor> before = places_;
    for (current_ = part_.begin; current_ < part_.end; ++current_) follow_step(tracer);
    std::vector<at::Tensor> outputs = take_outputs(before);
    if (with_history_) check_history(tracer);
    return outputs;
  }

  void follow_step(tracing::Tracer& tracer) {
    const Step& s = step(current_);
    const Graph& graph = tracer.writer().graph();
    const size_t num_inputs = graph.inputs().size();
    const ahead::Node* const before = graph.last();
    first_sequences_.push_back(at::sequence_number::peek());
    tracer.writer().set_issuer(s.node->getptr());
    follow_hooks(s, tracer.writer());
    if (kinds_[current_] == Step::Kind::Accumulate) {
      accumulate(tracer);
    } else if (kinds_[current_] == Step::Kind::Traced) {
      call(s);
    }
    if (graph.inputs().size() != num_inputs) {
      throw NotTraceable(current_, "it uses a tensor that it does not tell of");
    }
    number_nodes(before == nullptr ? graph.first() : before->next());
  }

  void find_held_leaves(const PartInputs& inputs, const std::vector<at::Tensor>& traced) {
    for (const Part::Accumulation& accumulation : part_.accumulations) {
      const auto input = inputs.held_leaf(leaf_of(step(accumulation.step)));
      if (input) leaves_[accumulation.step] = tracing::value_of(traced[*input]);
    }
  }

  /// Writes down that the gradient that waits at a leaf is added to its `.grad`. What is deferred
  /// goes on waiting; where nothing waits, nothing is done.
  void accumulate(tracing::Tracer& tracer) {
    at::Tensor& waiting = places_[step(current_).first_place];
    const auto found = std::find_if(part_.accumulations.begin(), part_.accumulations.end(),
                                    [&](const auto& one) { return one.step == current_; });
    if (!waiting.defined()) {
      part_.accumulations.erase(found);
    } else if (!found->is_deferred()) {
      const at::Tensor gradient = std::exchange(waiting, {});
      record_accumulation(tracer.writer(), tracing::value_of(gradient));
    }
  }

  void record_accumulation(tracing::GraphWriter& writer, Value* gradient) {
    Value* const leaf = leaves_.at(current_);
    const auto found = grads_.find(current_);
    Value* const grad = found == grads_.end() ? nullptr : found->second;
    if (grad != nullptr && !with_history_) {
      ahead::Node* node = writer.record(accumulate_grad_in_place(), {leaf, grad, gradient});
      writer.graph().add_return(node, grad->meta);
      node->set(Tag::Effect);
      part_.adds_to.push_back(current_);
      return;
    }
    Argument before = grad == nullptr ? Argument(c10::IValue()) : Argument(grad);
    ahead::Node* node = writer.record(accumulate_grad(), {leaf, std::move(before), gradient});
    node->set(Tag::Effect);
    new_grads_.push_back({current_, writer.graph().add_return(node, new_meta(*gradient, *leaf))});
  }

  /// LibTorch lays a new `.grad` out as its leaf, or else row by row.
  TensorMeta new_meta(const Value& gradient, const Value& leaf) const {
    TensorMeta meta = gradient.meta;
    meta.offset = 0;
    meta.strides = leaf_of(step(current_)).is_non_overlapping_and_dense()
                       ? leaf.meta.strides
                       : Layout::contiguous(meta.sizes).strides;
    return meta;
  }

  void add_new_grads(Graph& graph) {
    for (const auto& [step, value] : new_grads_) {
      const auto leaf = static_cast<int32_t>(value->producer()->args()[0].value()->index());
      graph.add_output(value, {Slot::Kind::AccumulatedGrad, leaf}, with_history_);
      using Kind = Part::Destination::Kind;
      part_.destinations.push_back(
          {grads_.count(step) != 0 ? Kind::ReplacedGrad : Kind::NewGrad, step});
    }
  }

  /// A graph's nodes have the number of their step.
  void number_nodes(ahead::Node* first) const {
    for (ahead::Node* node = first; node != nullptr; node = node->next())
      node->sequence = static_cast<int64_t>(current_);
  }

  void note_results(const Step& s) {
    const auto* info = backward_.wanted(s.node);
    if (info == nullptr || info->captures_ == nullptr) return;
    for (const auto& capture : *info->captures_) {
      results_[static_cast<size_t>(capture.output_idx_)] =
          places_[s.first_place + static_cast<size_t>(capture.input_idx_)];
    }
  }

  /// What is asked for is what flows into a node: before its hooks if the node runs too, else after
  /// them. Where user code is called before the node, that does all of this but the last.
  void follow_hooks(const Step& s, tracing::GraphWriter& writer) {
    const bool was_called = s.hooks.has(Hooks::Before);
    if (backward_.is_needed(s.node) && !was_called) note_results(s);
    if (!was_called && s.hooks.has(Hooks::Traced)) trace_hooks(s);
    if (!was_called && s.hooks.has(Hooks::Retained)) retain_grads(s, writer);
    if (!backward_.is_needed(s.node)) note_results(s);
  }

  /// Whatever is thrown is a reason to leave the current step to itself.
  template <class Call>
  void or_not_traceable(const Call& call) const {
    try {
      call();
    } catch (const NotTraceable&) {
      throw;
    } catch (const OpaqueFunction& function) {
      throw NotTraceable(current_, function.what(), /*is_user_code=*/true);
    } catch (const c10::Error& error) {
      throw NotTraceable(current_, error.msg());
    } catch (const std::exception& error) {
      throw NotTraceable(current_, error.what());
    }
  }

  void trace_hooks(const Step& s) {
    const auto first = places_.begin() + s.first_place;
    variable_list gradients(first, first + s.num_places);
    or_not_traceable([&] {
      for (const auto& hook : s.node->tensor_pre_hooks()) gradients = (*hook)(gradients);
    });
    std::move(gradients.begin(), gradients.end(), first);
  }

  void retain_grads(const Step& s, tracing::GraphWriter& writer) {
    for (const auto& [input, hook] : s.node->retains_grad_hooks()) {
      const at::Tensor& gradient = places_[s.first_place + static_cast<size_t>(input)];
      if (!gradient.defined()) continue;
      ahead::Node* node =
          writer.record(retain_grad(), {tracing::value_of(gradient), static_cast<int64_t>(current_),
                                        static_cast<int64_t>(input)});
      node->set(Tag::Effect);
    }
  }

  /// LibTorch has two formulas for some nodes, and that for tensors without data rounds otherwise
  /// or gives another layout.
  static bool has_formula_of_its_own(const Node& node) {
    static const auto* names =
        new std::unordered_set<std::string>{"ProdBackward0", "ProdBackward1", "CumprodBackward0",
                                            "MaskedSelectBackward0", "MaskedFillBackward1"};
    if (typeid(node) == typeid(torch::autograd::CopySlices))
      return has_formula_of_its_own(*static_cast<const torch::autograd::CopySlices&>(node).fn);
    return names->count(node.name()) != 0;
  }

  void call(const Step& s) {
    if (has_formula_of_its_own(*s.node)) {
      throw NotTraceable(current_, "LibTorch's formula reads values");
    }
    if (with_history_ && typeid(*s.node) == typeid(runtime::CompiledNode)) {
      throw NotTraceable(current_, "it finds second derivatives by itself");
    }
    if (dynamic_cast<torch::autograd::AccumulateGrad*>(s.node) != nullptr) {
      throw NotTraceable(current_, "it accumulates gradients in its own way");
    }
    variable_list outputs;
    or_not_traceable([&] {
      outputs = apply(s);
      validate(s, outputs);
      if (with_history_) note_history(outputs);
    });
    if (s.hooks.has(Hooks::Outputs)) {
      node_outputs_ = std::move(outputs);
      return;
    }
    for (uint32_t i = 0; i < s.num_targets && i < outputs.size(); ++i) {
      const int32_t target = backward_.targets()[s.first_target + i];
      if (target == kNowhere || !outputs[i].defined()) continue;
      at::Tensor& waiting = places_[static_cast<size_t>(target)];
      waiting = waiting.defined() ? at::add(waiting, outputs[i]) : std::move(outputs[i]);
    }
  }

  void note_history(const variable_list& outputs) {
    for (const at::Tensor& output : outputs) {
      if (output.defined() && output.grad_fn()) histories_.emplace_back(output.grad_fn(), 0);
    }
  }

  /// The operators of the graph make the history once more. Where a custom function, a hook or a
  /// write that autograd does not see had a part in it, theirs would not be the same.
  void check_history(tracing::Tracer& tracer) {
    // Nothing of the trace may outlive it.
    const torch::autograd::edge_list histories = std::exchange(histories_, {});
    tracing::for_each_node(histories, [&](Node& node) {
      if (tracing::is_opaque(node))
        throw NotTraceable(maker_of(node), node.name() + " inside it has a gradient of its own");
    });
    if (const ahead::Node* node = find_false_history(tracer.writer().graph()))
      throw NotTraceable(static_cast<size_t>(node->sequence),
                         node->op().name() + " has another derivative than what it stands for");
    if (const Operator* op = tracer.hidden_writes().found())
      throw NotTraceable(part_.end, op->name() + ": it hides from autograd what it does");
  }

  /// The step that made a node of the history.
  size_t maker_of(const Node& node) const {
    const auto later =
        std::upper_bound(first_sequences_.begin(), first_sequences_.end(), node.sequence_nr());
    return part_.begin + static_cast<size_t>(later - first_sequences_.begin()) - 1;
  }

  void validate(const Step& s, variable_list& outputs) const {
    const auto say = [](const std::string& problem) { return problem; };
    if (is_lifted()) {
      torch::autograd::validate_outputs(sizes_.metadata(s), outputs, say);
    } else {
      torch::autograd::validate_outputs(s.node->next_edges(), outputs, say);
    }
  }

  variable_list apply(const Step& s) {
    variable_list inputs(s.num_places);
    for (uint32_t i = 0; i < s.num_places; ++i) inputs[i] = std::move(places_[s.first_place + i]);
    state_.sym_sizes_index = is_lifted() ? s.first_size_input : 0;
    backward_.call().lifted_ivalue_args.next = s.first_number;
    const NodeCall node_call(static_cast<uint32_t>(current_), s.node->getptr());
    const auto lock = lock_node(*s.node);
    SwapSavedVariables saved(backward_.call(), state_, nobody(), node_call);
    if (s.num_hooked != 0) tell_unpacked(s);
    NodeCalls::clear_problem();
    variable_list outputs = s.node->apply_with_saved(inputs, saved);
    NodeCalls::rethrow_problem();
    return outputs;
  }

  /// LibTorch asks for what stands for a saved tensor by its address.
  void tell_unpacked(const Step& s) {
    auto& by_address = args_by_saved_variable(backward_.call().tensor_args);
    for_each_hooked(*s.node, backward_.hooked(), s.first_hooked, s.num_hooked,
                    [&](const torch::autograd::SavedVariable& saved, size_t number) {
                      by_address[&saved] = &unpacked_.at(number);
                    });
  }

  static torch::dynamo::autograd::TensorArg standing_for(const at::Tensor& traced) {
    torch::dynamo::autograd::TensorArg argument(1);  // any number but zero, which is for none
    argument.proxy_tensor = traced;
    return argument;
  }

  std::vector<at::Tensor> take_outputs(const std::vector<at::Tensor>& before) {
    std::vector<at::Tensor> outputs;
    for (size_t i = 0; i < results_.size(); ++i) {
      if (!results_[i].defined()) continue;
      outputs.push_back(std::move(results_[i]));
      part_.destinations.push_back({Part::Destination::Kind::Result, i});
    }
    for (const Part::Expected& expected : part_.expected) {
      at::Tensor& now = places_[expected.place];
      if (!now.defined() || now.is_same(before[expected.place])) continue;
      outputs.push_back(std::move(now));
      part_.destinations.push_back({Part::Destination::Kind::Place, expected.place});
    }
    for (size_t i = 0; i < node_outputs_.size(); ++i) {
      if (!node_outputs_[i].defined()) continue;
      outputs.push_back(std::move(node_outputs_[i]));
      part_.destinations.push_back({Part::Destination::Kind::Output, i});
    }
    node_outputs_.clear();
    for (size_t i = 0; i < backward_.num_inputs_before(part_.end); ++i)
      backward_.call().tensor_args.lookup(backward_.inputs()[i]).proxy_tensor.reset();
    unpacked_.clear();
    places_.clear();
    return outputs;
  }

  void check_functional(const Graph& graph) const {
    for (const Graph::Output& output : graph.outputs()) {
      if (output.slot.kind == Slot::Kind::Output) continue;
      throw NotTraceable(part_.end, "a node writes to what it holds");
    }
  }

  void drop_unused_inputs(Graph& graph) {
    for (size_t i = graph.inputs().size(); i-- > 0;) {
      if (graph.inputs()[i].value->is_used()) continue;
      graph.erase_input(i);
      part_.arguments.erase(part_.arguments.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  void note_offsets(const Graph& graph) {
    bool reads_storage = false;
    for (const ahead::Node& node : graph.nodes()) reads_storage |= ops::reads_storage(node);
    if (!reads_storage) return;
    for (const Graph::Input& input : graph.inputs()) {
      part_.offsets.push_back(input.value->meta.offset.fixed());
    }
  }

  Backward& backward_;
  const std::vector<Step::Kind>& kinds_;
  const Gradients& gradients_;
  const LiftedSizes sizes_;
  const bool with_history_;                ///< the backward is run with create_graph
  torch::autograd::edge_list histories_;   ///< of what the steps returned
  std::vector<uint64_t> first_sequences_;  ///< for each step, of the history that it makes
  std::vector<at::Tensor> places_;
  std::vector<at::Tensor> results_;
  /// What stands for tensors that hooks unpacked, by their numbers.
  std::unordered_map<size_t, torch::dynamo::autograd::TensorArg> unpacked_;
  variable_list node_outputs_;  ///< of the last step, if hooks get them before they are passed on
  TraceState state_;
  /// By step: the leaf and its `.grad` in the graph.
  std::unordered_map<size_t, Value*> leaves_, grads_;
  struct NewGrad {
    size_t step;
    Value* value;
  };
  std::vector<NewGrad> new_grads_;
  Part part_;
  size_t current_ = 0;
};

}  // namespace

Part trace_part(Backward& backward, const std::vector<Step::Kind>& kinds, size_t begin, size_t end,
                const Gradients& gradients) {
  const runtime::CheckpointPause unnoticed;
  const NodeCalls calls;
  return PartTracer(backward, kinds, begin, end, gradients, nullptr).run();
}

Part trace_lifted_part(Backward& backward, const std::vector<Step::Kind>& kinds, size_t begin,
                       size_t end, const Gradients& gradients, const ChangingSizes& sizes) {
  const runtime::CheckpointPause unnoticed;
  const NodeCalls calls;
  return PartTracer(backward, kinds, begin, end, gradients, &sizes).run();
}

}  // namespace ahead::engine
