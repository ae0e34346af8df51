#include "trace/session.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <typeinfo>
#include <unordered_set>

#include "ahead/errors.h"
#include "tensors/autograd_graph.h"
#include "tensors/below_tracing.h"
#include "trace/dispatch/real_shapes.h"
#include "trace/eager/eager_formulas.h"
#include "trace/tensor/functional.h"

namespace ahead::tracing {
namespace {

namespace functional = at::functionalization::impl;
using torch::autograd::edge_list;

/// Memory is read without an operator, so it is LibTorch that notices. Its two complaints:
bool is_data_access(const c10::Error& error) {
  if (typeid(error) != typeid(c10::Error)) return false;
  for (const char* text :
       {"its data is not allocated yet", "Cannot access data pointer of Tensor"}) {
    if (error.msg().find(text) != std::string::npos) return true;
  }
  return false;
}

/// The one chain of views through which LibTorch's functionalisation cannot write.
bool is_unfunctionalizable_view(const c10::Error& error) {
  return error.msg().find("encountered a mutation on a view chain") != std::string::npos ||
         error.msg().find("tensor being mutated that has internal overlap") != std::string::npos;
}

bool says(const c10::Error& error, const char* text) {
  return error.msg().find(text) != std::string::npos;
}

/// Throws what LibTorch's error means for a trace, if it means anything special.
void explain(const c10::Error& error) {
  if (is_unfunctionalizable_view(error)) {
    throw Unsupported("trace",
                      "as_strided, unfold: the function writes to a view whose elements overlap, "
                      "or that as_strided made of another view. Write to a clone and copy it "
                      "back.");
  }
  if (says(error, "cannot mutate tensors with frozen storage")) {
    throw Unsupported(
        "trace",
        "set_: the function writes to a view of what a tensor held before set_() gave "
        "it other memory. Write to a clone.");
  }
  if (says(error, "view size is not compatible with input tensor's size and stride")) {
    throw Unsupported("trace",
                      "view: a tensor has no view of this shape, or the function writes through "
                      "one that LibTorch cannot write back. Use reshape, or write to a clone.");
  }
  if (says(error, "operator whose output has alias annotations")) {
    throw Unsupported("trace",
                      "custom operator: its schema says that it returns a view of an argument, "
                      "which no graph can follow. Return a clone, or call it outside.");
  }
  if (says(error, "Cannot set version_counter for inference tensor")) {
    throw Unsupported("trace",
                      "inference mode: the function turns it on and takes a view of a tensor that "
                      "was made outside of it. Use no_grad there, or call the function in "
                      "inference mode.");
  }
  if (says(error, "Autograd not support dtype")) {
    throw Unsupported("trace",
                      "in-place operator: it would give a view of a tensor of integers or truth "
                      "values a gradient. Detach its other arguments.");
  }
  if (is_data_access(error)) {
    throw DataDependent("trace",
                        "data_ptr: the values of a traced tensor are read (data_ptr, accessor, "
                        "print or similar), but they "
                        "do not exist while tracing. Do it outside the traced function.");
  }
}

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

bool is_captured(const Graph& graph, const Lifted& lifted) {
  return graph.inputs()[lifted.value->index()].slot.kind == Slot::Kind::Captured;
}

}  // namespace

Session::~Session() {
  tracer_.generators().abandon();
  outside_.restore_histories();
  restore_shapes(outside_);
  restore_grads();
  if (!stays_open_ && !tracer_.is_closed()) tracer_.close();
}

Graph Session::run(const aot::FlatFunction& function, const std::vector<at::Tensor>& inputs) {
  return run(function, inputs, &Session::add_results);
}

JointTrace Session::trace_with_facts(const aot::FlatFunction& function,
                                     const std::vector<at::Tensor>& inputs) {
  with_facts_ = true;
  trace_.graph = run(function, inputs, &Session::add_sorted_results);
  number_inputs(inputs);
  return std::move(trace_);
}

Graph Session::run(const aot::FlatFunction& function, const std::vector<at::Tensor>& inputs,
                   AddResults add_results) {
  tracer_.generators().start();
  {
    TraceScope scope(tracer_);
    at::AutoGradMode restore_grad_mode(at::GradMode::is_enabled());
    run_forward(function, inputs, add_results);
    if (joint_) {
      add_gradients();
      check_not_mutated_in_backward();
    }
    tracer_.generators().finish();
    add_accumulated_grads();
    note_grads();
    if (const Operator* op = tracer_.hidden_writes().found())
      trace_.hidden_write = Culprit{op->name()};
    trace_.differentiates = writer_.differentiates();
  }
  differentiable_.clear();
  restore_grads();
  drop_unused_inputs();
  return tracer_.close();
}

void Session::run_forward(const aot::FlatFunction& function, const std::vector<at::Tensor>& inputs,
                          AddResults add_results) {
  const std::vector<at::Tensor> results = call(function, lift_inputs(inputs));
  outside_.restore_histories();
  restore_shapes(outside_);
  find_new_accumulators();
  lift_results(results);
  add_mutated_inputs();
  (this->*add_results)(results);
}

edge_list Session::begin(const aot::FlatFunction& function, const std::vector<at::Tensor>& inputs) {
  with_facts_ = true;
  edge_list roots;
  tracer_.generators().start();
  {
    TraceScope scope(tracer_);
    at::AutoGradMode restore_grad_mode(at::GradMode::is_enabled());
    run_forward(function, inputs, &Session::add_sorted_results);
    tracer_.generators().finish();
    writer_.set_phase(Phase::Backward);
    for (const auto& [output, position] : differentiable_)
      roots.push_back(torch::autograd::impl::gradient_edge(output));
    cut_boundaries();
    lift_unseen_leaves(roots);
  }
  restore_grads();
  stays_open_ = true;
  return roots;
}

std::vector<at::Tensor> Session::lift_inputs(const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> wrappers;
  wrappers.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) {
      throw UserError("trace", "argument " + std::to_string(i) +
                                   ": it is an undefined tensor. Leave it out, or capture it.");
    }
    wrappers.push_back(outside_.lift_primal(inputs[i], static_cast<int32_t>(i)));
  }
  return wrappers;
}

std::vector<at::Tensor> Session::call(const aot::FlatFunction& function,
                                      std::vector<at::Tensor> inputs) {
  try {
    return function(inputs);
  } catch (const DataDependent&) {
    throw;
  } catch (const c10::Error& error) {
    check_no_aliased_writes();
    explain(error);
    throw;
  }
}

/// Whatever the function returns counts when it is asked which tensors share memory.
void Session::lift_results(const std::vector<at::Tensor>& results) {
  for (const at::Tensor& result : results) {
    if (result.defined() && !is_traced(result)) outside_.lift(result);
  }
}

void Session::add_output(const at::Tensor& tensor, Slot slot) {
  const bool is_real = tensor.defined() && !is_traced(tensor);
  const at::Tensor& traced = is_real ? outside_.lift(tensor) : tensor;
  const bool has_tangent =
      writer_.phase() == Phase::Forward && traced.defined() && traced.requires_grad();
  add_output(traced, slot, has_tangent);
}

void Session::add_output(const at::Tensor& tensor, Slot slot, bool has_tangent) {
  if (!tensor.defined()) return writer_.graph().add_output(nullptr, slot);
  const at::Tensor& traced = is_traced(tensor) ? tensor : outside_.lift(tensor);
  writer_.graph().add_output(value_of(traced), slot, traced.requires_grad());
  if (joint_ && has_tangent) {
    differentiable_.emplace_back(traced,
                                 static_cast<int32_t>(writer_.graph().outputs().size() - 1));
  }
}

void Session::add_results(const std::vector<at::Tensor>& results) {
  for (size_t i = 0; i < results.size(); ++i) {
    add_output(results[i], {Slot::Kind::Output, static_cast<int32_t>(i)});
  }
}

void Session::add_sorted_results(const std::vector<at::Tensor>& results) {
  trace_.grad_mode_after = at::GradMode::is_enabled();
  const ResultSorter sorter(outside_, results);
  describe_inputs();
  trace_.results = sorter.facts();
  result_inputs_.resize(trace_.results.size());
  using Kind = ResultFacts::Kind;
  for (size_t i = 0; i < trace_.results.size(); ++i) {
    ResultFacts& facts = trace_.results[i];
    if (facts.kind != Kind::Input && facts.requires_grad && facts.is_leaf && i < results.size()) {
      returned_leaves_.insert(sorter.traced(i).unsafeGetTensorImpl());
    }
    if (facts.kind == Kind::Input || facts.kind == Kind::ViewOfInput ||
        facts.kind == Kind::CustomView) {
      result_inputs_[i] = outside_.lifted()[static_cast<size_t>(facts.base)].value;
    }
    if (i >= results.size()) {
      add_new_memory(facts, outside_.lifted()[sorter.reset()[i - results.size()]].value, i);
    } else if (facts.kind == Kind::Fresh || facts.kind == Kind::CustomView) {
      add_output(sorter.traced(i), {Slot::Kind::Output, static_cast<int32_t>(i)},
                 facts.requires_grad && !facts.is_leaf);
    }
  }
  for (size_t i = 0; i < sorter.bases().size(); ++i) {
    const auto& [tensor, value] = sorter.bases()[i];
    const Slot slot{Slot::Kind::IntermediateBase, static_cast<int32_t>(i)};
    if (tensor.defined() && tensor.requires_grad()) {
      add_output(tensor, slot, /*has_tangent=*/true);
    } else {
      writer_.graph().add_output(value, slot);
    }
  }
}

/// The graph has all its inputs now: what was known by value gets its position.
void Session::number_inputs(const std::vector<at::Tensor>& inputs) {
  std::unordered_map<const c10::TensorImpl*, int32_t> first_of;
  const std::vector<Graph::Input>& graph_inputs = trace_.graph.inputs();
  for (size_t i = 0; i < graph_inputs.size(); ++i) {
    InputFacts facts = input_facts_[graph_inputs[i].value];
    if (graph_inputs[i].slot.kind == Slot::Kind::Primal) {
      const auto* impl =
          inputs[static_cast<size_t>(graph_inputs[i].slot.index)].unsafeGetTensorImpl();
      const auto [first, is_new] = first_of.emplace(impl, static_cast<int32_t>(i));
      if (!is_new) facts.same_as = first->second;
    }
    const auto owner = grad_inputs_.find(graph_inputs[i].value);
    if (owner != grad_inputs_.end()) facts.grad_of = static_cast<int32_t>(owner->second->index());
    trace_.inputs.push_back(facts);
  }
  for (size_t i = 0; i < trace_.results.size(); ++i) {
    if (result_inputs_[i] == nullptr) continue;
    trace_.results[i].base = static_cast<int32_t>(result_inputs_[i]->index());
  }
  for (InputFacts& facts : trace_.inputs) {
    if (facts.new_memory)
      facts.new_memory->facts = trace_.results[static_cast<size_t>(facts.new_memory->index)];
  }
  trace_.results.resize(trace_.results.size() - reset_inputs_.size());
}

void Session::add_gradients() {
  edge_list roots, targets;
  std::vector<at::Tensor> tangents;
  writer_.set_phase(Phase::Backward);
  for (auto& [output, position] : differentiable_) {
    roots.push_back(torch::autograd::impl::gradient_edge(output));
    if (!roots.back().is_valid()) {
      throw Unsupported("trace", TensorMeta::of(output).str() +
                                     ": this result says that it requires grad, but has lost its "
                                     "history. Clone it before changing its shape in place.");
    }
    tangents.push_back(writer_.add_tangent(output, position));
  }
  differentiable_.clear();
  cut_boundaries();
  lift_unseen_leaves(roots);
  if (with_facts_ && roots.size() > 1) {
    trace_.reaching_tangents = reaching_roots(roots, writer_.first_sequence());
    if (const auto* node = find_many_part_gradient(roots))
      trace_.many_part_gradient = Culprit{node->name()};
  }
  std::vector<int32_t> positions;
  for (const Lifted& lifted : outside_.lifted()) {
    if (lifted.link == GradLink::None) continue;
    targets.emplace_back(lifted.node, 0);
    positions.push_back(static_cast<int32_t>(lifted.value->index()));
  }
  if (with_facts_ && roots.size() > 1) {
    trace_.tangents_leading_to = roots_leading_to(targets, roots);
    trace_.tangents_sharing = roots_sharing_nodes(roots, targets);
    trace_.tangents_passing_through = roots_passing_through(roots);
  }
  std::vector<at::Tensor> gradients(targets.size());
  if (!roots.empty() && !targets.empty()) {
    std::optional<AutocastScope> autocast;
    if (backward_autocast_) autocast.emplace(*backward_autocast_);
    gradients = run_engine(roots, tangents, targets);
  }
  check_tangents_unwritten(tangents);
  note_casts();
  const bool has_any = std::any_of(gradients.begin(), gradients.end(),
                                   [](const at::Tensor& gradient) { return gradient.defined(); });
  if (!has_any && !reaches_any(roots, targets)) check_no_inner_history(roots);
  for (size_t i = 0; i < gradients.size(); ++i) {
    // Let go of at once, while it is in the caches of the processor.
    const at::Tensor gradient = std::move(gradients[i]);
    add_output(gradient, {Slot::Kind::GradOf, positions[i]});
  }
}

void Session::note_casts() {
  if (const Operator* op = tracer_.casts().cast()) trace_.cast_in_backward = Culprit{op->name()};
  if (const Operator* op = tracer_.casts().castable())
    trace_.castable_in_backward = Culprit{op->name()};
}

/// The caller may hold the tensor that it passes as a tangent.
void Session::check_tangents_unwritten(const std::vector<at::Tensor>& tangents) {
  for (const at::Tensor& tangent : tangents) {
    if (!functional_wrapper(tangent).has_data_mutation()) continue;
    throw Unsupported("trace", TensorMeta::of(tangent).str() +
                                   ": the backward (a hook or a custom function) writes to the "
                                   "gradient of a result. Write to a clone of it.");
  }
}

/// Results that only depend on leaves made inside have a history that nobody can use but see.
void Session::check_no_inner_history(const edge_list& roots) const {
  if (!with_facts_ || roots.empty()) return;
  throw Unsupported(
      "trace",
      "requires_grad_: a result depends on no differentiable tensor but on leaves that "
      "the function makes itself. Make them outside, or detach the result.");
}

/// What lies beyond the tensors from outside is differentiated outside.
void Session::cut_boundaries() {
  for (const Lifted& lifted : outside_.lifted()) {
    const bool leads_outside =
        lifted.link == GradLink::Boundary || lifted.link == GradLink::OwnLeaf;
    if (leads_outside) lifted.node->set_next_edges({});
  }
}

/// The gradient of an argument would come in two parts, by what stands for it inside and by itself.
void Session::check_not_argument(const torch::autograd::AccumulateGrad& leaf) const {
  const Lifted* lifted = outside_.find_lifted(leaf.variable);
  if (lifted == nullptr || lifted->link != GradLink::OwnLeaf || lifted->node.get() == &leaf) return;
  throw Unsupported("trace", TensorMeta::of(leaf.variable).str() +
                                 ": a custom autograd function takes this tensor as a captured "
                                 "one, and it is an argument as well. Use the argument.");
}

/// A custom autograd function may name a parameter that no operator has met yet.
void Session::lift_unseen_leaves(const edge_list& roots) {
  for_each_node(roots, [&](torch::autograd::Node& node) {
    if (node.next_edges().empty()) {
      auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(&node);
      if (leaf != nullptr && returned_leaves_.count(leaf->variable.unsafeGetTensorImpl()) != 0) {
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
    if (is_opaque(node)) trace_.opaque_gradient = Culprit{node.name()};
    if (!node.next_edges().empty() && node.sequence_nr() < writer_.first_sequence()) {
      throw Unsupported("trace", node.name() +
                                     ": a custom autograd function takes a captured tensor that is "
                                     "not a leaf, and its gradient would go on outside. Pass that "
                                     "tensor as an argument, or detach it.");
    }
  });
}

void Session::check_not_mutated_in_backward() const {
  for (size_t i = 0; i < outside_.lifted().size(); ++i) {
    const Lifted& lifted = outside_.lifted()[i];
    const uint64_t before = i < mutation_counts_.size() ? mutation_counts_[i] : 0;
    if (functional_wrapper(lifted.wrapper).mutation_counter() == before) continue;
    throw Unsupported("trace", lifted.value->meta.str() +
                                   ": the backward (a hook or a custom function) writes to a "
                                   "tensor from outside. Move the "
                                   "write out of the backward.");
  }
}

/// A recorded call gave a leaf another gradient, or took away the one it had.
void Session::add_new_grad(const Lifted& lifted, const at::Tensor& grad) {
  const Slot slot{Slot::Kind::AccumulatedGrad, static_cast<int32_t>(lifted.value->index())};
  if (!grad.defined()) {
    if (lifted.original_grad.defined()) add_output(grad, slot);
    return;
  }
  if (value_of(grad)->producer() == nullptr || grad.requires_grad()) {
    throw Unsupported("trace", lifted.value->meta.str() +
                                   ": the function makes a tensor from outside, or one with a "
                                   "history, the .grad of this one. Copy it there.");
  }
  add_output(grad.detach(), slot);
}

/// backward() inside the function leaves new gradients on leaves.
void Session::add_accumulated_grads() {
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
    add_output(grad.detach(),
               {Slot::Kind::AccumulatedGrad, static_cast<int32_t>(lifted.value->index())});
  }
}

/// Which inputs are gradients of others, where a caller has to look for them, and which are known
/// to the function by themselves.
void Session::note_grads() {
  for (const Lifted& lifted : outside_.lifted()) {
    if (lifted.is_reached) input_facts_[lifted.value].reached = lifted.real;
    if (!lifted.original_grad.defined()) continue;
    if (const Lifted* grad = outside_.find_lifted(lifted.original_grad)) {
      grad_inputs_[grad->value] = lifted.value;
    }
  }
}

void Session::restore_grads() {
  for (const Lifted& lifted : outside_.lifted()) {
    if (lifted.link != GradLink::SharedLeaf) continue;
    const at::Tensor& grad = lifted.real.unsafeGetTensorImpl()->grad();
    if (grad.defined() && is_traced(grad)) lifted.real.mutable_grad() = lifted.original_grad;
  }
}

/// Drops captured tensors that the function only looked at, such as a `.grad` nobody read.
void Session::drop_unused_inputs() {
  Graph& graph = writer_.graph();
  std::unordered_set<int32_t> named;
  for (const Graph::Output& output : graph.outputs()) {
    const Slot::Kind kind = output.slot.kind;
    if (kind != Slot::Kind::Output) named.insert(output.slot.index);
  }
  for (size_t i = graph.inputs().size(); i-- > 0;) {
    const Graph::Input& input = graph.inputs()[i];
    if (input.slot.kind != Slot::Kind::Captured || input.value->is_used()) continue;
    const InputFacts& facts = input_facts_[input.value];
    if (facts.new_geometry || facts.new_requires_grad) continue;
    const auto is_in = [&](const std::vector<const Value*>& inputs) {
      return std::find(inputs.begin(), inputs.end(), input.value) != inputs.end();
    };
    if (!is_in(result_inputs_) && !is_in(reset_inputs_) &&
        named.count(static_cast<int32_t>(i)) == 0)
      graph.erase_input(i);
  }
}

}  // namespace ahead::tracing
