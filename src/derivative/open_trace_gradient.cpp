#include "derivative/open_trace_gradient.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/alias.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <optional>

#include "ahead/errors.h"
#include "base/ambient.h"
#include "base/libtorch.h"
#include "checkpoint/region_watch.h"
#include "derivative/derivative_graph.h"
#include "derivative/forward_cone.h"
#include "runtime/call/surroundings.h"
#include "runtime/compile_request.h"
#include "runtime/node/leaf_edges.h"
#include "tensors/autograd_graph.h"
#include "trace/tracer.h"

namespace ahead::compiling {
namespace {

using torch::autograd::edge_list;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;
using tracing::DifferentiableTrace;
using Need = runtime::DifferentiableBackward::Need;
using Tensors = std::vector<at::Tensor>;

/// A tensor that derivatives may need, or why it cannot be had.
struct Given {
  at::Tensor tensor;
  std::exception_ptr error;

  const at::Tensor& get() const {
    if (error) std::rethrow_exception(error);
    return tensor;
  }
};

template <class Get>
Given try_to_get(Get&& get) {
  try {
    return {get(), nullptr};
  } catch (const c10::Error&) {
    return {at::Tensor(), std::current_exception()};
  }
}

/// What decides which derivative is meant.
struct Key {
  std::vector<int64_t> shape;
  Ambient ambient;
  bool operator==(const Key&) const = default;
};

/// One derivative, compiled, and those that were taken of it.
struct Case {
  Key key;
  aot::Executable run;
  std::vector<DerivativeGraph::Source> sources;
  std::vector<size_t> outputs;
  DifferentiableTrace::Derivative derivative;
  /// For each target of the next derivative, which gradients lead to it.
  std::vector<std::vector<bool>> leading;
  GivenValues given;  ///< for derivatives of this one
  size_t num_given = 0;
  std::vector<std::unique_ptr<Case>> further;
};

class OpenTraceGradient;

/// The autograd node of a derivative that was computed. Like a node of eager's it holds what its
/// own derivative needs.
class DerivativeNode final : public torch::autograd::Node {
 public:
  DerivativeNode(std::shared_ptr<OpenTraceGradient> owner, Case& from,
                 const std::vector<Given>& given)
      : owner_(std::move(owner)), from_(from) {
    for (const Given& one : given) saved_.push_back({{one.tensor, false}, one.error});
  }

  variable_list apply(variable_list&& gradients) override;
  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    saved_.clear();
    is_released_ = true;
  }
  std::string name() const override { return "CompiledFunctionBackwardBackward"; }

 private:
  struct Saved {
    SavedVariable variable;
    std::exception_ptr error;
  };

  std::shared_ptr<OpenTraceGradient> owner_;
  Case& from_;
  std::vector<Saved> saved_;
  bool is_released_ = false;
};

class OpenTraceGradient final : public runtime::DifferentiableBackward,
                                public std::enable_shared_from_this<OpenTraceGradient> {
 public:
  OpenTraceGradient(std::unique_ptr<DifferentiableTrace> trace, aot::GraphCompiler compiler,
                    const std::optional<AutocastState>& autocast, bool acts,
                    std::vector<Need> needs, DifferentiableTrace::Stage outputs, GivenValues given)
      : trace_(std::move(trace)),
        compiler_(std::move(compiler)),
        autocast_(autocast),
        acts_(acts),
        needs_(std::move(needs)) {
    function_.derivative.next = std::move(outputs);
    function_.given = std::move(given);
    function_.num_given = needs_.size();
  }

  const std::vector<Need>& needs() const override { return needs_; }
  std::vector<Program> programs() override { return {}; }

  Tensors run(const Request& request) override {
    check_not_traced();
    std::vector<Given> given;
    for (size_t i = 0; i < needs_.size(); ++i)
      given.push_back(try_to_get([&] { return request.needed(i); }));
    const std::vector<bool> wanted(request.wanted.begin(), request.wanted.end());
    return differentiate(function_, std::move(given), request.tangents, wanted, request.edges);
  }

  /// Computes the gradients of what `from` computed, which go to `edges`.
  Tensors differentiate(Case& from, std::vector<Given> given, const Tensors& tangents,
                        const std::vector<bool>& wanted, const edge_list& edges) {
    std::optional<AutocastScope> autocast;
    if (autocast_) autocast.emplace(*autocast_);
    Case& found = find(from, tangents, wanted);
    for (const at::Tensor& tangent : tangents) given.push_back({tangent, nullptr});
    Tensors arguments;
    for (const DerivativeGraph::Source& source : found.sources) {
      arguments.push_back(source.outside.defined() ? source.outside : given[source.given].get());
    }
    Tensors computed = found.run(std::move(arguments));
    Tensors gradients(wanted.size());
    for (size_t i = 0; i < found.outputs.size(); ++i)
      gradients[found.outputs[i]] = own(std::move(computed[i]));
    add_history(found, given, tangents, edges, gradients);
    return gradients;
  }

 private:
  static void check_not_traced() {
    if (tracing::Tracer::current() == nullptr) return;
    throw Unsupported("double backward",
                      "a function that is being traced differentiates through an earlier call of a "
                      "compiled function with custom gradients, hooks or hidden writes. Take that "
                      "gradient outside.");
  }

  /// A program may return what it was given, or one tensor twice.
  static at::Tensor own(at::Tensor&& tensor) {
    if (!tensor.defined() || tensor.use_count() == 1) return std::move(tensor);
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    return at::alias(tensor);
  }

  void add_history(Case& found, const std::vector<Given>& given, const Tensors& tangents,
                   edge_list edges, const Tensors& gradients) {
    namespace impl = torch::autograd::impl;
    if (found.derivative.next.roots.empty()) return;
    for (const at::Tensor& tangent : tangents) {
      if (tangent.defined() && tangent.requires_grad())
        edges.push_back(impl::gradient_edge(tangent));
    }
    for (const at::Tensor& outside : found.derivative.outside)
      edges.push_back(impl::gradient_edge(outside));
    Tensors roots;
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (found.derivative.has_history[i]) roots.push_back(gradients[i]);
    }
    // Each part would run the operators with effects that lie behind it.
    const bool is_split = !acts_ && is_unequally_watched(found.leading, edges);
    NodePtr node;
    for (size_t i = 0; i < roots.size(); ++i) {
      if (!node || is_split) {
        node = make_autograd_node<DerivativeNode>(shared_from_this(), found, given);
        node->set_next_edges(
            reached(found.leading, edges, is_split ? std::optional(i) : std::nullopt));
        for (const at::Tensor& root : roots) node->add_input_metadata(root);
      }
      impl::set_gradient_edge(roots[i], {node, static_cast<uint32_t>(i)});
    }
  }

  /// Whether somebody can tell from which of several gradients a backward comes.
  static bool is_unequally_watched(const std::vector<std::vector<bool>>& leading,
                                   const edge_list& edges) {
    for (size_t i = 0; i < edges.size(); ++i) {
      const auto count = std::count(leading[i].begin(), leading[i].end(), true);
      const bool is_partly = count != 0 && static_cast<size_t>(count) != leading[i].size();
      if (is_partly && runtime::is_watched(edges[i])) return true;
    }
    return false;
  }

  /// The edges that a backward of one gradient, or of any, goes along.
  static edge_list reached(const std::vector<std::vector<bool>>& leading, edge_list edges,
                           std::optional<size_t> root) {
    for (size_t i = 0; i < edges.size(); ++i) {
      const std::vector<bool>& from = leading[i];
      const bool is_reached =
          root ? from[*root] : std::find(from.begin(), from.end(), true) != from.end();
      if (!is_reached) edges[i] = {};
    }
    return edges;
  }

  static Key key_of(const Tensors& tangents, const std::vector<bool>& wanted) {
    Key key{{at::GradMode::is_enabled()}, Ambient::current()};
    key.shape.insert(key.shape.end(), wanted.begin(), wanted.end());
    for (const at::Tensor& tangent : tangents) {
      key.shape.push_back(tangent.defined());
      if (!tangent.defined()) continue;
      key.shape.push_back(tangent.requires_grad());
      key.shape.insert(key.shape.end(), tangent.strides().begin(), tangent.strides().end());
    }
    return key;
  }

  Case& find(Case& from, const Tensors& tangents, const std::vector<bool>& wanted) {
    Key key = key_of(tangents, wanted);
    std::lock_guard<std::mutex> lock(mutex_);
    for (const std::unique_ptr<Case>& known : from.further) {
      if (known->key == key) return *known;
    }
    std::unique_ptr<Case> made = make_case(from, tangents, wanted);
    made->key = std::move(key);
    return *from.further.emplace_back(std::move(made));
  }

  std::unique_ptr<Case> make_case(Case& from, const Tensors& tangents,
                                  const std::vector<bool>& wanted) {
    const runtime::CheckpointPause unseen;
    const bool create_graph = at::GradMode::is_enabled();
    std::vector<std::optional<TensorMeta>> metas;
    for (const at::Tensor& tangent : tangents) {
      std::optional<TensorMeta>& meta = metas.emplace_back();
      if (!tangent.defined()) continue;
      meta = TensorMeta::of(tangent);
      meta->offset = 0;
      meta->requires_grad = meta->requires_grad && create_graph;
    }
    auto made = std::make_unique<Case>();
    made->derivative = trace_->differentiate(from.derivative.next, metas, wanted, create_graph);
    const DifferentiableTrace::Stage& next = made->derivative.next;
    made->leading = tracing::roots_leading_to(next.targets, next.roots);
    made->given = from.given;
    made->num_given = from.num_given + tangents.size();
    for (size_t i = 0; i < tangents.size(); ++i) {
      if (const Value* tangent = made->derivative.tangents[i])
        made->given.emplace(tangent, from.num_given + i);
    }
    compile(*made);
    return made;
  }

  void compile(Case& made) const {
    DerivativeGraph program = cut_derivative(*trace_, made.derivative, made.given);
    program.graph.verify();
    made.run = compiler_(
        runtime::request_for(program.graph, std::string(runtime::function_name) + ".derivative"));
    made.sources = std::move(program.sources);
    made.outputs = std::move(program.gradients);
  }

  std::unique_ptr<DifferentiableTrace> trace_;
  const aot::GraphCompiler compiler_;
  const std::optional<AutocastState> autocast_;  ///< none: the one there is
  const bool acts_;                              ///< the backward has effects
  const std::vector<Need> needs_;
  std::mutex mutex_;
  Case function_;  ///< what is differentiated first: the function itself
};

variable_list DerivativeNode::apply(variable_list&& gradients) {
  std::lock_guard<std::mutex> lock(mutex_);
  TORCH_CHECK(!is_released_, torch::autograd::ERR_BACKWARD_TWICE);
  std::vector<Given> given;
  for (const Saved& saved : saved_) {
    given.push_back(saved.error ? Given{at::Tensor(), saved.error}
                                : try_to_get([&] { return saved.variable.unpack(getptr()); }));
  }
  std::vector<bool> wanted;
  for (size_t i = 0; i < num_outputs(); ++i) wanted.push_back(task_should_compute_output(i));
  return owner_->differentiate(from_, std::move(given), gradients, wanted, next_edges());
}

/// Finds the values of a joint graph in the open trace that matches the graph it is a copy of.
ValueMap values_of_copy(const ValueMap& values, const Graph& original, const Graph& copy) {
  ValueMap map(copy.value_capacity(), nullptr);
  const auto note = [&](const Value* from, const Value* to) {
    if (from != nullptr && from->id() < values.size()) map[to->id()] = values[from->id()];
  };
  for (size_t i = 0; i < original.inputs().size(); ++i)
    note(original.inputs()[i].value, copy.inputs()[i].value);
  const Node* twin = copy.first();
  for (const Node& node : original.nodes()) {
    for (size_t i = 0; i < node.results().size(); ++i) note(node.result(i), twin->result(i));
    twin = twin->next();
  }
  return map;
}

/// The graph inputs of the forward, in order.
std::vector<const Value*> forward_inputs(const JointGraph& joint) {
  std::vector<const Value*> inputs;
  for (const Graph::Input& input : joint.inputs()) {
    const bool is_given =
        input.slot.kind != Slot::Kind::Tangent && input.slot.kind != Slot::Kind::Sizes;
    if (is_given) inputs.push_back(input.value);
  }
  return inputs;
}

/// Which values of a joint graph its backward and its differentiable outputs are computed from.
std::vector<bool> find_used(const JointGraph& joint, const Graph& backward) {
  std::vector<bool> used(joint.value_capacity());
  for (const Graph::Input& input : backward.inputs()) {
    if (input.slot.kind != Slot::Kind::Tangent) continue;
    used[joint.outputs()[joint_output(joint, input.slot.index)].value->id()] = true;
  }
  for (const Node* node = joint.last(); node != nullptr; node = node->prev()) {
    const auto is_used = [&](const Value* result) {
      return result != nullptr && used[result->id()];
    };
    const bool runs = node->phase == Phase::Backward ||
                      std::any_of(node->results().begin(), node->results().end(), is_used);
    if (runs) node->for_each_operand([&](const Value* value) { used[value->id()] = true; });
  }
  return used;
}

/// All that the backward saves, and the inputs from which the rest of the forward can be computed:
/// a derivative of higher order may need any of it. `values`: those that a trace has met; null:
/// all.
std::vector<Need> find_needs(const JointGraph& joint, const PartitionedGraphs& graphs,
                             const std::vector<const Value*>& inputs, const ValueMap* values) {
  std::vector<Need> needs;
  std::vector<bool> is_saved(inputs.size());
  for (size_t i = 0; i < graphs.saved.size(); ++i) {
    needs.push_back({Need::Kind::Saved, static_cast<int32_t>(i)});
    if (graphs.saved[i].input >= 0) is_saved[static_cast<size_t>(graphs.saved[i].input)] = true;
  }
  const std::vector<bool> used = find_used(joint, graphs.backward);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const uint32_t id = inputs[i]->id();
    if (!is_saved[i] && used[id] && (values == nullptr || (*values)[id] != nullptr))
      needs.push_back({Need::Kind::Input, static_cast<int32_t>(i)});
  }
  return needs;
}

bool acts_in_backward(const JointGraph& joint) {
  for (const Node& node : joint.nodes()) {
    if (node.phase == Phase::Backward && node.has(Tag::Effect)) return true;
  }
  return false;
}

GivenValues find_given(const std::vector<Need>& needs, const std::vector<SavedValue>& saved,
                       const std::vector<const Value*>& inputs, const ValueMap& values) {
  GivenValues given;
  for (size_t i = 0; i < needs.size(); ++i) {
    const auto index = static_cast<size_t>(needs[i].index);
    const bool is_input = needs[i].kind == Need::Kind::Input;
    const int64_t id = is_input ? inputs[index]->id() : saved[index].joint_value;
    const Value* value = id < 0 ? nullptr : values[static_cast<size_t>(id)];
    if (value != nullptr) given.emplace(value, i);
  }
  return given;
}

/// The roots in the order of the backward's tangents.
edge_list find_roots(const DifferentiableTrace& trace, const JointGraph& joint,
                     const Graph& backward) {
  std::vector<int32_t> outputs;
  for (const Graph::Input& input : joint.inputs()) {
    if (input.slot.kind == Slot::Kind::Tangent) outputs.push_back(input.slot.index);
  }
  edge_list roots;
  for (const Graph::Input& input : backward.inputs()) {
    if (input.slot.kind != Slot::Kind::Tangent) continue;
    const auto output = static_cast<int32_t>(joint_output(joint, input.slot.index));
    const auto place = std::find(outputs.begin(), outputs.end(), output) - outputs.begin();
    roots.push_back(trace.roots()[static_cast<size_t>(place)]);
  }
  return roots;
}

}  // namespace

std::vector<Need> open_trace_needs(const JointGraph& joint, const PartitionedGraphs& graphs) {
  return find_needs(joint, graphs, forward_inputs(joint), nullptr);
}

std::shared_ptr<runtime::DifferentiableBackward> make_open_trace_gradient(
    std::unique_ptr<DifferentiableTrace> trace, const Graph& traced, const JointGraph& joint,
    const PartitionedGraphs& graphs, const aot::GraphCompiler& compiler,
    const std::optional<AutocastState>& autocast, const std::vector<Need>* known_needs) {
  const ValueMap values = values_of_copy(trace->values(), traced, joint);
  const std::vector<const Value*> inputs = forward_inputs(joint);
  std::vector<Need> needs =
      known_needs != nullptr ? *known_needs : find_needs(joint, graphs, inputs, &values);
  GivenValues given = find_given(needs, graphs.saved, inputs, values);
  DifferentiableTrace::Stage outputs{find_roots(*trace, joint, graphs.backward), {}};
  for (const Graph::Output& output : graphs.backward.outputs()) {
    const Value* value = values[inputs[static_cast<size_t>(output.slot.index)]->id()];
    outputs.targets.push_back(value == nullptr ? torch::autograd::Edge() : trace->edge_of(*value));
    if (!outputs.targets.back().is_valid()) return nullptr;
  }
  return std::make_shared<OpenTraceGradient>(std::move(trace), compiler, autocast,
                                             acts_in_backward(joint), std::move(needs),
                                             std::move(outputs), std::move(given));
}

}  // namespace ahead::compiling
