#include "engine/part_tracer.h"

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
#include "engine/false_history.h"
#include "engine/leaf.h"
#include "engine/node_calls.h"
#include "engine/operators.h"
#include "ir/sizes/expression_node.h"
#include "ir/sizes/layout.h"
#include "ir/tensor_meta.h"
#include "ops/facts/node_facts.h"
#include "passes/stages.h"
#include "runtime/node/compiled_node.h"
#include "tensors/autograd_graph.h"
#include "tensors/saved_variables.h"
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
        pattern_(sizes == nullptr ? nullptr : &sizes->pattern),
        guards_(sizes == nullptr ? nullptr : std::make_shared<SizeGuards>(sizes->values)),
        with_history_(at::GradMode::is_enabled()),
        num_inputs_(backward.num_inputs_before(end)),
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
    find_places();
    find_unpacked();
    find_leaves();
    if (is_lifted()) lift_sizes();
    Graph graph = trace();
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

  Graph trace() {
    const std::vector<at::Tensor> inputs = gather_inputs();
    return tracing::trace_symbolic(
        [this](const std::vector<at::Tensor>& traced) { return follow(traced); }, inputs, layouts_,
        guards_);
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

  bool is_lifted() const { return pattern_ != nullptr; }

  Dim dim(size_t position) const {
    const int32_t symbol = pattern_->symbol(position);
    if (symbol == SizePattern::kFixed) return backward_.sizes()[position];
    return Dim::symbol(static_cast<uint32_t>(symbol));
  }

  c10::SymInt size(size_t position) const { return to_sym_int(dim(position), guards_); }

  /// What stands for the number of a custom function that is at this position.
  c10::IValue number(const c10::IValue& now, size_t position) const {
    const int32_t symbol = pattern_->symbol(position);
    if (symbol == SizePattern::kFixed) return now;
    if (!now.isDouble()) return size(position);
    return FloatNode::make(FloatExpression::symbol(static_cast<uint32_t>(symbol)), guards_);
  }

  Dims dims(size_t first, size_t count) const {
    Dims dims;
    for (size_t i = 0; i < count; ++i) dims.push_back(dim(first + i));
    return dims;
  }

  /// Says how the sizes that nodes hold, their tensors and the gradients that wait may change.
  void lift_sizes() {
    for (const Step& s : backward_.steps()) {
      for (uint32_t i = 0; i < s.num_size_inputs; ++i)
        state_.sym_sizes[s.first_size_input + i] = size(s.first_size + i);
    }
    for (size_t i = 0; i < num_inputs_; ++i) {
      const at::Tensor& input = backward_.inputs()[i];
      if (!input.defined()) continue;
      const auto first = backward_.sizes_of_input(i);
      TORCH_CHECK(first, "a node holds a tensor that is not a plain one");
      const auto count = static_cast<size_t>(input.dim());
      add_layout({dims(*first, count), dims(*first + count, count), input.storage_offset()});
    }
    for (Part::Unpacked& unpacked : part_.unpacked) lift_unpacked(unpacked.tensor);
    for (Part::Expected& expected : part_.expected)
      if (expected.gradient) lift_gradient(expected, gradients_.at(expected.place));
    for (Part::Accumulation& accumulation : part_.accumulations) lift_leaf(accumulation);
  }

  /// Says what stands for the numbers that custom functions hold.
  void lift_numbers() {
    auto& numbers = backward_.call().lifted_ivalue_args.args;
    for (size_t i = 0; i < numbers.size(); ++i) {
      const c10::IValue& now = *numbers[i].actual_ptr;
      const auto position = is_lifted() ? backward_.size_of_number(i) : std::nullopt;
      numbers[i].proxy = position ? number(now, *position) : now;
    }
  }

  /// A leaf, whose layout no operator asks for, and what is added to.
  void lift_leaf(Part::Accumulation& accumulation) {
    if (accumulation.is_deferred()) return;
    const Step& s = step(accumulation.step);
    const at::Tensor& leaf = leaf_of(s);
    if (known_leaf(leaf) == kUnknown) {
      Layout layout{dims(backward_.sizes_of_place(s.first_place), static_cast<size_t>(leaf.dim())),
                    Dims(leaf.strides()), leaf.storage_offset()};
      if (leaf.is_contiguous()) layout.strides = Layout::contiguous(layout.sizes).strides;
      add_layout(std::move(layout));
    }
    if (accumulation.grad.gradient) lift_gradient(accumulation.grad, grad_of(s));
  }

  void lift_gradient(Part::Expected& expected, const at::Tensor& gradient) {
    const TensorMeta& meta = *expected.gradient;
    const size_t first = backward_.sizes_of_place(expected.place);
    Layout layout{dims(first, meta.sizes.size()), meta.strides, meta.offset};
    expected.is_contiguous = gradient.is_contiguous();
    if (expected.is_contiguous) {
      layout.strides = Layout::contiguous(layout.sizes).strides;
    }
    const std::vector<int64_t>& values = guards_->values();
    TORCH_CHECK(layout.describes(gradient, values) &&
                    gradient.strides() == at::IntArrayRef(layout.strides.at(values)),
                "a gradient that waits has other sizes than the tensor it belongs to");
    add_layout(std::move(layout));
  }

  /// What is unpacked is not known when a backward is looked up. So a size that one of the changing
  /// ones has too is taken for that one, which holds or is found not to when the part is looked
  /// for.
  void lift_unpacked(TensorMeta& meta) {
    const std::vector<int64_t>& values = guards_->values();
    const bool is_contiguous = meta.strides == contiguous_strides(meta.sizes);
    for (Dim& size : meta.sizes) {
      const auto same = std::find(values.begin(), values.end(), size.fixed());
      if (size.fixed() > 1 && same != values.end())
        size = Dim::symbol(static_cast<uint32_t>(same - values.begin()));
    }
    if (is_contiguous) meta.strides = contiguous_strides(meta.sizes);
    add_layout({meta.sizes, meta.strides, meta.offset});
  }

  void add_layout(Layout layout) {
    layouts_.push_back(layout.is_fixed() ? std::nullopt : std::optional(std::move(layout)));
  }

  void add_sizes(Graph& graph) {
    const auto count = static_cast<int64_t>(guards_->values().size());
    graph.add_input({Slot::Kind::Sizes, 0}, TensorMeta::contiguous({count}, at::kLong));
    graph.set_example_sizes(guards_->values());
    part_.arguments.push_back({ArgumentKind::Sizes, 0});
    part_.guards = guards_;
  }

  void find_places() {
    std::vector<size_t> places;
    for (size_t i = part_.begin; i < part_.end; ++i) {
      const Step& s = step(i);
      for (uint32_t k = 0; k < s.num_places; ++k) places.push_back(s.first_place + k);
      for (uint32_t k = 0; k < s.num_targets; ++k) {
        const int32_t target = backward_.targets()[s.first_target + k];
        if (target != kNowhere) places.push_back(static_cast<size_t>(target));
      }
    }
    std::sort(places.begin(), places.end());
    places.erase(std::unique(places.begin(), places.end()), places.end());
    for (size_t place : places) {
      const at::Tensor& waiting = gradients_.at(place);
      part_.expected.push_back(
          {place, waiting.defined() ? std::optional(TensorMeta::of(waiting)) : std::nullopt});
    }
  }

  void find_unpacked() {
    for (size_t i = part_.begin; i < part_.end; ++i) {
      const Step& s = step(i);
      for (size_t k = s.first_hooked; k < s.first_hooked + s.num_hooked; ++k) {
        const at::Tensor& tensor = gradients_.unpacked(k);
        if (!tensor.defined() || tensor.is_conj() || tensor.is_neg() ||
            !is_plain(*tensor.unsafeGetTensorImpl()))
          throw NotTraceable(i, "hooks unpack a tensor that graphs cannot take");
        part_.unpacked.push_back({k, tensor.key_set().raw_repr(), TensorMeta::of(tensor)});
      }
    }
  }

  void find_leaves() {
    for (size_t i = 0; i < num_inputs_; ++i) {
      const at::Tensor& input = backward_.inputs()[i];
      if (input.defined()) inputs_.emplace(input.unsafeGetTensorImpl(), inputs_.size());
    }
    for (size_t i = part_.begin; i < part_.end; ++i) {
      if (kinds_[i] == Step::Kind::Accumulate) part_.accumulations.push_back(describe_leaf(i));
    }
  }

  Part::Accumulation describe_leaf(size_t index) const {
    const Step& s = step(index);
    const at::Tensor &leaf = leaf_of(s), &grad = grad_of(s);
    Part::Accumulation found{index,         why_deferred(s), leaf.scalar_type(),
                             leaf.device(), leaf.dim(),      {s.first_place, {}}};
    if (!found.is_deferred() && grad.defined()) found.grad.gradient = TensorMeta::of(grad);
    return found;
  }

  /// Why a graph cannot add to the `.grad` of this leaf; empty: it can.
  std::string why_deferred(const Step& s) const {
    const at::Tensor &leaf = leaf_of(s), &grad = grad_of(s);
    const auto& metadata = s.node->input_metadata(0);
    if (is_added_to(leaf)) return "its tensor has another such node";
    if (!takes_gradient(leaf)) return "its tensor is no leaf that requires grad any more";
    if (!is_plain_gradient(leaf.detach())) return "its tensor is not a plain one";
    if (leaf.sym_sizes() != c10::SymIntArrayRef(metadata.shape_as_dim_vector()))
      return "its tensor has other sizes than in the forward";
    if (!grad.defined()) return "";
    if (!is_plain_gradient(grad))
      return "its `.grad` is sparse, has a history or is otherwise special";
    return is_lifted() && grad.sizes() != leaf.sizes() ? "its `.grad` has other sizes" : "";
  }

  bool is_added_to(const at::Tensor& leaf) const {
    return std::any_of(part_.accumulations.begin(), part_.accumulations.end(),
                       [&](const auto& one) { return leaf_of(step(one.step)).is_same(leaf); });
  }

  static constexpr size_t kUnknown = SIZE_MAX;

  /// The position among the graph's inputs of a leaf that some node holds as well.
  size_t known_leaf(const at::Tensor& leaf) const {
    const auto found = inputs_.find(leaf.unsafeGetTensorImpl());
    return found == inputs_.end() ? kUnknown : found->second;
  }

  /// Leaves that require grad where what they stand for does: what history that has does not matter
  /// to formulas, but a few ask whether there is one, and the operators that are recorded differ in
  /// grad mode.
  std::vector<at::Tensor> gather_inputs() {
    std::vector<at::Tensor> inputs;
    for (size_t i = 0; i < num_inputs_; ++i) {
      const at::Tensor& input = backward_.inputs()[i];
      if (!input.defined()) continue;
      inputs.push_back(input.variable_data().set_requires_grad(input.requires_grad()));
      part_.arguments.push_back({ArgumentKind::Input, i});
    }
    for (const Part::Unpacked& unpacked : part_.unpacked) {
      const at::Tensor& tensor = gradients_.unpacked(unpacked.hooked);
      inputs.push_back(tensor.variable_data().set_requires_grad(tensor.requires_grad()));
      part_.arguments.push_back({ArgumentKind::Unpacked, unpacked.hooked});
    }
    for (const Part::Expected& expected : part_.expected) {
      if (!expected.gradient) continue;
      const at::Tensor& gradient = gradients_.at(expected.place);
      inputs.push_back(gradient.variable_data().set_requires_grad(gradient.requires_grad()));
      part_.arguments.push_back({ArgumentKind::Gradient, expected.place});
    }
    for (const Part::Accumulation& accumulation : part_.accumulations)
      gather_leaf(accumulation, inputs);
    return inputs;
  }

  void gather_leaf(const Part::Accumulation& accumulation, std::vector<at::Tensor>& inputs) {
    if (accumulation.is_deferred()) return;
    const at::Tensor& leaf = leaf_of(step(accumulation.step));
    if (known_leaf(leaf) == kUnknown) {
      inputs.push_back(leaf.variable_data().set_requires_grad(true));
      part_.arguments.push_back({ArgumentKind::Leaf, accumulation.step});
    }
    if (!accumulation.grad.gradient) return;
    const at::Tensor& grad = grad_of(step(accumulation.step));
    inputs.push_back(grad.variable_data().set_requires_grad(grad.requires_grad()));
    part_.arguments.push_back({ArgumentKind::Grad, accumulation.step});
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
    find_known_leaves(traced);
    lift_numbers();
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

  void find_known_leaves(const std::vector<at::Tensor>& traced) {
    for (const Part::Accumulation& accumulation : part_.accumulations) {
      const size_t input = known_leaf(leaf_of(step(accumulation.step)));
      if (input != kUnknown) leaves_[accumulation.step] = tracing::value_of(traced[input]);
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
      torch::autograd::validate_outputs(lifted_metadata(s), outputs, say);
    } else {
      torch::autograd::validate_outputs(s.node->next_edges(), outputs, say);
    }
  }

  /// What the gradients must look like that the step sends along edges which are followed.
  std::vector<std::optional<torch::autograd::InputMetadata>> lifted_metadata(const Step& s) const {
    std::vector<std::optional<torch::autograd::InputMetadata>> lifted(s.num_targets);
    for (uint32_t i = 0; i < s.num_targets; ++i) {
      const int32_t target = backward_.targets()[s.first_target + i];
      if (target == kNowhere) continue;
      const torch::autograd::Edge& edge = s.node->next_edge(i);
      const auto& known = edge.function->input_metadata(edge.input_nr);
      if (known.was_default_constructed()) continue;
      const size_t first = backward_.sizes_of_place(static_cast<size_t>(target));
      const auto shape = to_sym_ints(dims(first, known.shape_as_dim_vector().size()), guards_);
      lifted[i].emplace(known.options(),
                        torch::autograd::SymIntSmallVec(shape.begin(), shape.end()),
                        known.is_tensor_subclass(), /*is_nested=*/false, known.grad_dtype());
    }
    return lifted;
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
    uint32_t position = 0;
    size_t next = s.first_hooked;
    for_each_saved(*s.node, [&](torch::autograd::SavedVariable& saved) {
      const bool is_next =
          next < s.first_hooked + s.num_hooked && backward_.hooked()[next].position == position;
      if (is_next) by_address[&saved] = &unpacked_.at(next++);
      ++position;
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
    for (size_t i = 0; i < num_inputs_; ++i)
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
  const SizePattern* const pattern_;
  const std::shared_ptr<SizeGuards> guards_;
  const bool with_history_;                ///< the backward is run with create_graph
  const size_t num_inputs_;                ///< those that the steps up to the last one hold
  torch::autograd::edge_list histories_;   ///< of what the steps returned
  std::vector<uint64_t> first_sequences_;  ///< for each step, of the history that it makes
  /// Of what is traced, in order; empty: none changes.
  std::vector<std::optional<Layout>> layouts_;
  std::vector<at::Tensor> places_;
  std::vector<at::Tensor> results_;
  /// What stands for tensors that hooks unpacked, by their numbers.
  std::unordered_map<size_t, torch::dynamo::autograd::TensorArg> unpacked_;
  variable_list node_outputs_;  ///< of the last step, if hooks get them before they are passed on
  TraceState state_;
  /// What nodes hold, by identity: its position among the graph's inputs.
  std::unordered_map<const c10::TensorImpl*, size_t> inputs_;
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
