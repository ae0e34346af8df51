#include "trace/backward_trace.h"

#include <ATen/ops/ones_like.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "ahead/errors.h"
#include "tensors/autograd_graph.h"
#include "tensors/below_tracing.h"
#include "trace/backward_writes.h"
#include "trace/eager/eager_formulas.h"
#include "trace/explain.h"
#include "trace/sparse_gradients.h"
#include "trace/tensor/functional.h"
#include "trace/trace_counts.h"

namespace ahead::tracing {
namespace {

using torch::autograd::edge_list;

std::vector<at::Tensor> run_engine(const edge_list& roots, const std::vector<at::Tensor>& tangents,
                                   const edge_list& targets) {
  try {
    return torch::autograd::Engine::get_default_engine().execute(
        roots, tangents, /*keep_graph=*/false, /*create_graph=*/false, /*accumulate_grad=*/false,
        targets);
  } catch (const Error&) {
    throw;
  } catch (const c10::Error& error) {
    explain(error);
    const std::string reason = error.msg();
    throw Unsupported("trace", "the function has no gradient: " + reason +
                                   (reason.ends_with('.') ? "" : ".") +
                                   " Call it in no_grad mode if none is needed.");
  }
}

/// Eager's backward runs all that a result was made of, also what leads to nothing from outside.
void check_runs(const torch::autograd::Node& node) {
  if (dynamic_cast<const torch::autograd::Error*>(&node) == nullptr) return;
  throw Unsupported("trace", node.name() +
                                 ": a result comes from an operator that has no derivative. Detach "
                                 "what the operator takes.");
}

/// Leaves that the function made and to which alone the gradients of a custom function lead.
/// Nobody asks for these, but eager's backward runs the custom function.
edge_list leaves_behind_custom(const edge_list& roots, const edge_list& targets) {
  edge_list leaves;
  for_each_node(roots, [&](torch::autograd::Node& node) {
    if (!is_opaque(node) || reaches_any(node.next_edges(), targets)) return;
    for_each_node(node.next_edges(), [&](torch::autograd::Node& other) {
      if (dynamic_cast<torch::autograd::AccumulateGrad*>(&other) != nullptr)
        leaves.emplace_back(other.getptr(), 0);
    });
  });
  return leaves;
}

bool is_captured(const Graph& graph, const Lifted& lifted) {
  return graph.inputs()[lifted.value->index()].slot.kind == Slot::Kind::Captured;
}

/// Records the gradient of a function behind its forward, and writes down the graph outputs and the
/// facts that come of it.
class BackwardTrace {
 public:
  BackwardTrace(OpenTrace& open, FunctionMeta& meta)
      : open_(open),
        writer_(open.writer()),
        outside_(open.outside()),
        meta_(meta),
        writes_(open, meta) {}

  /// The histories of the outputs with a tangent, which become graph inputs if wanted.
  edge_list begin(bool with_tangents);
  JointTrace run(const std::optional<AutocastState>& autocast);

 private:
  void add_gradients(const std::optional<AutocastState>& autocast);
  void note_effects(const edge_list& roots, const edge_list& targets);
  void note_casts();
  void cut_boundaries();
  void check_not_argument(const torch::autograd::AccumulateGrad& leaf) const;
  void check_accumulator(const torch::autograd::Node& node) const;
  void lift_unseen_leaves(const edge_list& roots);
  void add_new_grad(const Lifted& lifted, const at::Tensor& grad);
  void add_accumulated_grads();
  void note_grads();
  void drop_unused_inputs();
  void number_inputs();

  OpenTrace& open_;
  GraphWriter& writer_;
  Outside& outside_;
  FunctionMeta& meta_;
  BackwardWrites writes_;
  std::vector<at::Tensor> tangents_;
  JointTrace trace_;
  /// For a graph input that is a `.grad`, the graph input whose one it is.
  std::unordered_map<const Value*, const Value*> grad_inputs_;
};

edge_list BackwardTrace::begin(bool with_tangents) {
  edge_list roots;
  open_.tracer()->generators().begin_backward();
  writer_.set_phase(Phase::Backward);
  for (const auto& [output, position] : meta_.differentiable) {
    roots.push_back(torch::autograd::impl::gradient_edge(output));
    if (!roots.back().is_valid()) {
      throw Unsupported("trace", TensorMeta::of(output).str() +
                                     ": this result says that it requires grad, but has lost its "
                                     "history. Clone it before changing its shape in place.");
    }
    if (!with_tangents) continue;
    tangents_.push_back(meta_.has_implicit_tangents ? at::ones_like(output)
                                                    : writer_.add_tangent(output, position));
  }
  meta_.differentiable.clear();
  cut_boundaries();
  lift_unseen_leaves(roots);
  return roots;
}

JointTrace BackwardTrace::run(const std::optional<AutocastState>& autocast) {
  if (open_.options().joint) add_gradients(autocast);
  open_.tracer()->generators().finish();
  add_accumulated_grads();
  note_grads();
  if (const Operator* op = open_.tracer()->hidden_writes().found())
    trace_.hidden_write = Culprit{op->name()};
  trace_.differentiates = writer_.differentiates();
  trace_.grad_mode_after = meta_.grad_mode_after;
  meta_.differentiable.clear();
  open_.leave();
  drop_unused_inputs();
  trace_.graph = open_.close();
  if (meta_.is_sorted) number_inputs();
  return std::move(trace_);
}

void BackwardTrace::add_gradients(const std::optional<AutocastState>& autocast) {
  const edge_list roots = begin(/*with_tangents=*/true);
  const std::vector<at::Tensor> tangents = std::move(tangents_);
  if (meta_.is_sorted && roots.size() > 1) {
    trace_.reaching_tangents = reaching_roots(roots, writer_.first_sequence());
    if (const auto* node = find_many_part_gradient(roots))
      trace_.many_part_gradient = Culprit{node->name()};
  }
  edge_list targets;
  std::vector<int32_t> positions;
  for (const Lifted& lifted : outside_.lifted()) {
    if (lifted.link == GradLink::None) continue;
    targets.emplace_back(lifted.node, 0);
    positions.push_back(static_cast<int32_t>(lifted.value->index()));
  }
  if (meta_.is_sorted && roots.size() > 1) {
    trace_.tangents_leading_to = roots_leading_to(targets, roots);
    trace_.tangents_sharing = roots_sharing_nodes(roots, targets);
    trace_.tangents_passing_through = roots_passing_through(roots);
  }
  if (!meta_.has_implicit_tangents) writes_.watch(tangents);
  std::vector<at::Tensor> gradients(targets.size());
  edge_list all = targets;
  for (const torch::autograd::Edge& leaf : leaves_behind_custom(roots, targets))
    all.push_back(leaf);
  if (!roots.empty() && !all.empty()) {
    std::optional<AutocastScope> scope;
    if (autocast) scope.emplace(*autocast);
    open_.tracer()->places().before_backward(roots);
    gradients = run_engine(roots, tangents, all);
    gradients.resize(targets.size());
  }
  writes_.record(targets, trace_);
  note_effects(roots, targets);
  note_casts();
  for (size_t i = 0; i < gradients.size(); ++i) {
    // Let go of at once, while it is in the caches of the processor.
    const at::Tensor gradient = std::move(gradients[i]);
    open_.add_output(gradient, {Slot::Kind::GradOf, positions[i]});
  }
  check_sparse_gradients(writer_.graph());
}

void BackwardTrace::note_effects(const edge_list& roots, const edge_list& targets) {
  std::unordered_set<int64_t> acting;
  for (const Node& node : writer_.graph().nodes()) {
    if (node.phase == Phase::Backward && node.has(Tag::Effect)) acting.insert(node.sequence);
  }
  if (acting.empty()) return;
  auto behind = targets_behind(acting, roots, targets, writer_.first_sequence());
  for (const auto& [sequence, reached] : behind) {
    if (std::find(reached.begin(), reached.end(), true) != reached.end()) continue;
    throw Unsupported("trace",
                      "requires_grad_: a custom function whose backward writes or has an effect is "
                      "given what depends on no differentiable tensor but on a leaf that the "
                      "function makes itself. Make it outside, or detach it.");
  }
  trace_.gradients_behind.merge(behind);
}

void BackwardTrace::note_casts() {
  if (const Operator* op = open_.tracer()->casts().cast())
    trace_.cast_in_backward = Culprit{op->name()};
  if (const Operator* op = open_.tracer()->casts().castable())
    trace_.castable_in_backward = Culprit{op->name()};
}

/// What lies beyond the tensors from outside is differentiated outside.
void BackwardTrace::cut_boundaries() {
  for (const Lifted& lifted : outside_.lifted()) {
    const bool leads_outside =
        lifted.link == GradLink::Boundary || lifted.link == GradLink::OwnLeaf;
    if (leads_outside) lifted.node->set_next_edges({});
  }
}

/// The gradient of an argument would come in two parts, by what stands for it inside and by itself.
void BackwardTrace::check_not_argument(const torch::autograd::AccumulateGrad& leaf) const {
  const Lifted* lifted = outside_.find_lifted(leaf.variable);
  if (lifted == nullptr || lifted->link != GradLink::OwnLeaf || lifted->node.get() == &leaf) return;
  throw Unsupported("trace", TensorMeta::of(leaf.variable).str() +
                                 ": a custom autograd function takes this tensor as a captured "
                                 "one, and it is an argument as well. Use the argument.");
}

void BackwardTrace::check_accumulator(const torch::autograd::Node& node) const {
  for (const NodePtr& old : open_.old_accumulators()) {
    if (old.get() != &node) continue;
    throw Unsupported("trace",
                      "set_: a leaf from outside is used before set_() or resize_(), and its "
                      "gradient would have two parts. Detach it before one of them.");
  }
}

/// A custom autograd function may name a parameter that no operator has met yet.
void BackwardTrace::lift_unseen_leaves(const edge_list& roots) {
  for_each_node(roots, [&](torch::autograd::Node& node) {
    if (node.next_edges().empty()) {
      auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(&node);
      if (leaf != nullptr &&
          meta_.returned_leaves.count(leaf->variable.unsafeGetTensorImpl()) != 0) {
        throw Unsupported("trace",
                          "requires_grad_: the function returns a leaf that it made and a result "
                          "that depends on it, whose backward would reach that leaf. Make the leaf "
                          "outside.");
      }
      if (leaf != nullptr && leaf->variable.defined() && !is_traced(leaf->variable)) {
        outside_.lift(leaf->variable);
        check_not_argument(*leaf);
      }
    }
    check_accumulator(node);
    check_runs(node);
    check_eager_formula(node);
    if (is_opaque(node)) {
      trace_.opaque_gradient = Culprit{node.name()};
      if (open_.options().joint && !tangents_.empty()) writes_.watch(node);
    }
    if (!node.next_edges().empty() && node.sequence_nr() < writer_.first_sequence()) {
      throw Unsupported("trace", node.name() +
                                     ": a custom autograd function takes a captured tensor that is "
                                     "not a leaf, and its gradient would go on outside. Pass that "
                                     "tensor as an argument, or detach it.");
    }
  });
}

/// A recorded call gave a leaf another gradient, or took away the one it had.
void BackwardTrace::add_new_grad(const Lifted& lifted, const at::Tensor& grad) {
  const Slot slot{Slot::Kind::AccumulatedGrad, static_cast<int32_t>(lifted.value->index())};
  if (!grad.defined()) {
    if (lifted.original_grad.defined()) open_.add_output(grad, slot);
    return;
  }
  if (value_of(grad)->producer() == nullptr || grad.requires_grad()) {
    throw Unsupported("trace", lifted.value->meta.str() +
                                   ": the function makes a tensor from outside, or one with a "
                                   "history, the .grad of this one. Copy it there.");
  }
  open_.add_output(grad.detach(), slot);
}

/// backward() inside the function leaves new gradients on leaves.
void BackwardTrace::add_accumulated_grads() {
  for (size_t i = 0; i < outside_.lifted().size(); ++i) {
    const Lifted& lifted = outside_.lifted()[i];
    if (outside_.is_replay()) {
      if (const at::Tensor* grad = outside_.find_new_grad(lifted.wrapper))
        add_new_grad(lifted, *grad);
      continue;
    }
    const bool shared = lifted.link == GradLink::SharedLeaf;
    const at::Tensor grad = (shared ? lifted.real : lifted.wrapper).unsafeGetTensorImpl()->grad();
    if (!grad.defined() || !is_traced(grad)) continue;
    if (!lifted.real.is_leaf() || !lifted.wrapper.is_leaf()) continue;
    const bool unchanged = lifted.original_grad.defined() && !shared &&
                           grad.is_same(outside_.lift(lifted.original_grad));
    if (unchanged) continue;
    if (lifted.link == GradLink::OwnLeaf && is_captured(writer_.graph(), lifted)) {
      throw Unsupported("trace",
                        "hook: backward() inside the function reaches a captured leaf with hooks "
                        "of its own. Register "
                        "the hook inside the function.");
    }
    open_.add_output(grad.detach(),
                     {Slot::Kind::AccumulatedGrad, static_cast<int32_t>(lifted.value->index())});
  }
}

/// Which inputs are gradients of others, where a caller has to look for them, and which are known
/// to the function by themselves.
void BackwardTrace::note_grads() {
  for (const Lifted& lifted : outside_.lifted()) {
    if (lifted.is_reached) meta_.inputs[lifted.value].reached = lifted.real;
    if (!lifted.original_grad.defined()) continue;
    if (const Lifted* grad = outside_.find_lifted(lifted.original_grad)) {
      grad_inputs_[grad->value] = lifted.value;
    }
  }
}

/// Drops captured tensors that the function only looked at, such as a `.grad` nobody read.
void BackwardTrace::drop_unused_inputs() {
  Graph& graph = writer_.graph();
  std::unordered_set<int32_t> named;
  for (const Graph::Output& output : graph.outputs()) {
    const Slot::Kind kind = output.slot.kind;
    if (kind != Slot::Kind::Output) named.insert(output.slot.index);
  }
  for (size_t i = graph.inputs().size(); i-- > 0;) {
    const Graph::Input& input = graph.inputs()[i];
    if (input.slot.kind != Slot::Kind::Captured || input.value->is_used()) continue;
    const InputFacts& facts = meta_.inputs[input.value];
    if (facts.new_geometry || facts.new_requires_grad) continue;
    const auto is_in = [&](const std::vector<const Value*>& inputs) {
      return std::find(inputs.begin(), inputs.end(), input.value) != inputs.end();
    };
    if (!is_in(meta_.result_inputs) && !is_in(meta_.reset_inputs) &&
        named.count(static_cast<int32_t>(i)) == 0)
      graph.erase_input(i);
  }
}

/// The graph has all its inputs now: what was known by value gets its position.
void BackwardTrace::number_inputs() {
  std::unordered_map<const c10::TensorImpl*, int32_t> first_of;
  const std::vector<Graph::Input>& graph_inputs = trace_.graph.inputs();
  for (size_t i = 0; i < graph_inputs.size(); ++i) {
    InputFacts facts = meta_.inputs[graph_inputs[i].value];
    if (graph_inputs[i].slot.kind == Slot::Kind::Primal) {
      const auto* argument = open_.inputs()[static_cast<size_t>(graph_inputs[i].slot.index)];
      const auto [first, is_new] = first_of.emplace(argument, static_cast<int32_t>(i));
      if (!is_new) facts.same_as = first->second;
    }
    const auto owner = grad_inputs_.find(graph_inputs[i].value);
    if (owner != grad_inputs_.end()) facts.grad_of = static_cast<int32_t>(owner->second->index());
    trace_.inputs.push_back(facts);
  }
  trace_.results = std::move(meta_.results);
  for (size_t i = 0; i < trace_.results.size(); ++i) {
    if (meta_.result_inputs[i] == nullptr) continue;
    trace_.results[i].base = static_cast<int32_t>(meta_.result_inputs[i]->index());
  }
  for (InputFacts& facts : trace_.inputs) {
    if (facts.new_memory)
      facts.new_memory->facts = trace_.results[static_cast<size_t>(facts.new_memory->index)];
  }
  trace_.results.resize(trace_.results.size() - meta_.reset_inputs.size());
}

/// Arguments are only named where nothing else is left: what was computed from them keeps them.
std::string names_of(const std::vector<const Value*>& values) {
  std::string text;
  size_t count = 0;
  for (const Value* value : values) {
    if (value->producer() == nullptr) continue;
    if (++count > 3) return text + ", …";
    text += (count == 1 ? "" : ", ") + value->producer()->op().name();
  }
  return count == 0 ? "an argument" : text;
}

[[noreturn]] void throw_escaped(const std::vector<const Value*>& escaped) {
  throw Unsupported("trace",
                    names_of(escaped) +
                        ": a traced tensor outlives the trace without being a result (stored in a "
                        "member, a global or a container). Return it from the function instead.");
}

}  // namespace

edge_list begin_backward(OpenTrace& open, FunctionMeta meta) {
  return BackwardTrace(open, meta).begin(/*with_tangents=*/false);
}

JointTrace trace_backward(std::unique_ptr<OpenTrace> open, FunctionMeta meta,
                          const std::optional<AutocastState>& autocast) {
  JointTrace trace = BackwardTrace(*open, meta).run(autocast);
  const c10::intrusive_ptr<Tracer> tracer = open->tracer();
  count_trace(*tracer, open->seconds());
  const bool may_escape = open->options().trace.allow_escapes;
  open.reset();
  const std::vector<const Value*> escaped = tracer->live_tensors().escaped();
  if (!escaped.empty() && !may_escape) throw_escaped(escaped);
  return trace;
}

}  // namespace ahead::tracing
