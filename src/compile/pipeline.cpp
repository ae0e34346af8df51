#include "compile/pipeline.h"

#include <algorithm>

#include "ahead/errors.h"
#include "ahead/passes.h"
#include "compile/describe_meta.h"
#include "compile/partition_laid_out.h"
#include "compile/traced_function.h"
#include "derivative/backward_program.h"
#include "derivative/derivative_graph.h"
#include "derivative/double_backward.h"
#include "derivative/forward_cone.h"
#include "derivative/open_trace_gradient.h"
#include "derivative/sparse_gradients.h"
#include "ir/constants.h"
#include "ir/slots.h"
#include "ops/facts/node_facts.h"
#include "partition/extract.h"
#include "partition/whole_step.h"
#include "passes/choose_layouts.h"
#include "passes/random_states.h"
#include "passes/read_values_first.h"
#include "passes/stages.h"
#include "passes/unread_operands.h"
#include "plan/backward_plan.h"
#include "plan/graph_writes.h"
#include "runtime/backends.h"
#include "runtime/call/call.h"
#include "runtime/call/kept_inputs.h"
#include "runtime/compile_request.h"

namespace ahead::compiling {
namespace {

using passes::Stages;
using runtime::BackwardPlan;
using runtime::CallPlan;
using runtime::StaticArguments;
using tracing::JointTrace;

bool names_offsets(const Graph& graph) {
  static const Operator* const as_strided = Operator::find("aten.as_strided");
  for (const Node& node : graph.nodes()) {
    if (&node.op() == as_strided) return true;
  }
  return false;
}

/// The objects of custom classes among the constants of a graph, each once.
std::vector<c10::weak_intrusive_ptr<torch::CustomClassHolder>> objects_of(const Graph& graph) {
  std::vector<c10::weak_intrusive_ptr<torch::CustomClassHolder>> objects;
  for (const Node& node : graph.nodes()) {
    for (const Argument& argument : node.args()) {
      if (!argument.is_constant()) continue;
      const auto object = object_in(argument.constant());
      if (object == nullptr) continue;
      const c10::weak_intrusive_ptr<torch::CustomClassHolder> weak(object);
      if (std::find(objects.begin(), objects.end(), weak) == objects.end()) objects.push_back(weak);
    }
  }
  return objects;
}

/// Puts decompositions in place of operators. What these capture becomes an input of the call.
void decompose(TracedFunction& traced, const detail::Compilers& compilers, Stages& stages) {
  if (compilers.decompositions == nullptr) return;
  Graph& graph = traced.trace.graph;
  const size_t num_inputs = graph.inputs().size();
  stages.rewrite("decompose", "", graph, [&](Graph& decomposed) {
    const size_t changes = passes::decompose(decomposed, *compilers.decompositions);
    for (size_t i = num_inputs; i < decomposed.inputs().size(); ++i) {
      traced.frame.prologue.inputs.push_back(
          {runtime::Prologue::Input::Kind::Captured, 0, decomposed.inputs()[i].captured});
    }
    decomposed.forget_captured();
    return changes;
  });
}

/// The positions of inputs that keep their memory from call to call.
std::vector<int64_t> find_static_inputs(const Graph& graph, const StaticArguments& arguments) {
  std::vector<int64_t> positions;
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    if (runtime::is_static(graph.inputs()[i].slot, arguments))
      positions.push_back(static_cast<int64_t>(i));
  }
  return positions;
}

PartitionedGraphs partition(const JointGraph& joint, const Options& options,
                            const StaticArguments& arguments) {
  if (options.partitioner.function()) return options.partitioner.function()(joint);
  if (options.partitioner.kind() == Partitioner::Default) return partition_default(joint);
  return partition_min_cut(
      joint, {.memory_budget = options.memory_budget,
              .static_inputs = find_static_inputs(joint, arguments),
              .fused_operators = runtime::traits_of(options.backend).fused_operators});
}

/// Lets a graph that takes gradients itself compute again what it would have to keep for them, if
/// the backend computes it with what reads it, or a budget asks for it.
void recompute_inside(Graph& graph, const Options& options, Stages& stages) {
  const std::vector<std::string>& fused = runtime::traits_of(options.backend).fused_operators;
  if (options.partitioner.function() || options.partitioner.kind() == Partitioner::Default ||
      (fused.empty() && options.memory_budget == 1))
    return;
  stages.rewrite("recompute_inside", "", graph, [&](Graph& whole) {
    return partition::recompute_inside(
        whole, {.memory_budget = options.memory_budget, .fused_operators = fused});
  });
}

/// The part of a joint graph that runs when nobody can ask for a gradient.
Graph without_gradient(Graph graph) {
  for (size_t i = graph.outputs().size(); i-- > 0;) {
    if (graph.outputs()[i].slot.kind == Slot::Kind::GradOf) graph.erase_output(i);
  }
  for (size_t i = graph.inputs().size(); i-- > 0;) {
    if (graph.inputs()[i].slot.kind == Slot::Kind::Tangent) graph.erase_input(i);
  }
  return graph;
}

/// Lets the graph write to inputs itself, if the options want that.
void write_in_graph_if_wanted(Graph& graph, CallFrame& frame, const BackwardPlan& backward,
                              const char* part, const std::vector<at::Tensor>& arguments,
                              const Options& options, Stages& stages) {
  if (!options.keep_input_mutations) return;
  const std::vector<at::Tensor> inputs = runtime::graph_inputs(frame.prologue, arguments);
  stages.rewrite("keep_mutations", part, graph, [&](Graph& forward) {
    return write_in_graph(forward, frame.epilogue.writes, backward, inputs);
  });
}

std::shared_ptr<const runtime::DebugAsserts> asserts_for(const Graph& forward,
                                                         const Graph* backward,
                                                         const Options& options,
                                                         const detail::Compilers& compilers) {
  if (!options.debug_asserts) return nullptr;
  return std::make_shared<const runtime::DebugAsserts>(forward, backward,
                                                       compilers.num_params_buffers);
}

int32_t num_outputs(const Graph& graph) {
  return static_cast<int32_t>(graph.outputs().size());
}

/// The plan for a function none of whose results has a history.
CallPlan plan_inference(TracedFunction traced, const std::vector<at::Tensor>& arguments,
                        const Options& options, const detail::Compilers& compilers,
                        Stages& stages) {
  CallFrame& frame = traced.frame;
  Graph graph = without_gradient(std::move(traced.trace.graph));
  stages.rewrite("choose_layouts", "", graph, [&](Graph& laid_out) {
    return passes::choose_layouts(laid_out, compilers.layouts);
  });
  recompute_inside(graph, options, stages);
  write_in_graph_if_wanted(graph, frame, BackwardPlan(), "", arguments, options, stages);
  stages.rewrite("read_values_first", "", graph, passes::read_values_first);
  stages.optimise(graph, "");
  aot::Executable forward =
      stages.compile(compilers.inference,
                     runtime::request_for(graph, std::string(runtime::function_name) + ".inference",
                                          traced.static_arguments),
                     "inference");
  return {.name = runtime::function_name,
          .prologue = std::make_shared<const runtime::Prologue>(std::move(frame.prologue)),
          .forward = std::move(forward),
          .num_outputs = num_outputs(graph),
          .first_saved_output = num_outputs(graph),
          .backward = {},
          .epilogue = std::move(frame.epilogue),
          .differentiates = traced.trace.differentiates,
          .asserts = asserts_for(graph, nullptr, options, compilers),
          .verbose = options.verbose};
}

bool is_of_forward(const JointGraph& joint, const Value& value) {
  if (value.producer() != nullptr) return value.producer()->phase == Phase::Forward;
  return joint.inputs()[value.index()].slot.kind != Slot::Kind::Tangent;
}

/// Whether a value that depends on no tangent is a gradient, or is added to one: a tensor of the
/// forward that a custom backward returned. The graph does not tell when eager would leave it out.
bool has_free_gradient(const JointGraph& joint) {
  static const Operator* const add = Operator::find("aten.add.Tensor");
  for (const Node& node : joint.nodes()) {
    if (node.phase != Phase::Backward || &node.op() != add) continue;
    bool is_free = false;
    node.for_each_operand([&](const Value* value) { is_free |= is_of_forward(joint, *value); });
    if (is_free) return true;
  }
  for (const Graph::Output& output : joint.outputs()) {
    const bool is_gradient = output.slot.kind == Slot::Kind::GradOf && output.value != nullptr;
    if (is_gradient && is_of_forward(joint, *output.value)) return true;
  }
  return false;
}

/// In eager a custom backward sees which results of its forward are differentiated. One graph
/// cannot tell it.
void check_one_tangent(const JointGraph& joint, const JointTrace& trace) {
  size_t tangents = 0;
  for (const Graph::Input& input : joint.inputs()) {
    tangents += input.slot.kind == Slot::Kind::Tangent ? 1 : 0;
  }
  std::optional<Culprit> opaque = trace.many_part_gradient;
  if (trace.opaque_gradient && has_free_gradient(joint)) opaque = trace.opaque_gradient;
  if (!opaque || tangents <= 1) return;
  throw Unsupported("compile",
                    opaque->name +
                        ": a custom autograd function or a hook with several differentiable "
                        "results inside a function with several of them. Return one result, or "
                        "call this part uncompiled.");
}

/// Derivatives of an open trace need the tensors that eager saves. If these cannot be computed from
/// what the partitioner saves, the joint graph is cut as eager would instead.
void save_for_derivatives(PartitionedGraphs& halves, const JointGraph& joint,
                          const TracedFunction& traced, const Options& options) {
  const auto lost = [&] {
    return find_lost(joint, halves.saved, traced.frame.epilogue, traced.trace.differentiates);
  };
  if (lost().empty()) return;
  if (!options.partitioner.function()) halves = partition_default(joint);
  const std::string still_lost = lost();
  if (still_lost.empty() || options.fullgraph) return;
  throw Unsupported(
      "compile", still_lost +
                     ": second derivatives would need this again as it was, and nothing that is "
                     "saved tells it. Take the gradient inside the compiled function, or compile "
                     "with Options::double_backward = false.");
}

/// Cuts a joint graph into what a call runs and what its backward runs. `has_open_trace`:
/// derivatives will be read off an open trace.
PartitionedGraphs partition(const JointGraph& joint, const TracedFunction& traced,
                            bool has_open_trace, const Options& options) {
  PartitionedGraphs halves = partition(joint, options, traced.static_arguments);
  if (has_open_trace) save_for_derivatives(halves, joint, traced, options);
  copy_raised_inputs(halves, traced.frame.epilogue.writes);
  check_grown_unsaved(halves, traced.frame.epilogue.resets);
  SparseGradients::check_none_in(halves.forward);
  return halves;
}

/// Lets random operators say which state they draw from, so that the backward may run them again:
/// all of them, or those that a checkpoint would have so. Returns how many do.
size_t name_states(JointGraph& joint, const Options& options, Stages& stages) {
  const bool all = options.functionalize_rng;
  size_t changes = 0;
  stages.rewrite("name_states", ".joint", joint, [&](Graph& graph) {
    return changes = passes::name_states(
               graph, [&](const Node& node) { return all || passes::is_worth_drawing_again(node); },
               all ? passes::HandOn::States : passes::HandOn::Nothing);
  });
  return changes;
}

/// Whether second derivatives are wanted, and to be had.
bool has_derivatives(const TracedFunction& traced, const Options& options) {
  return options.double_backward && !traced.trace.has_backward_writes() &&
         !sets_generators(traced.trace.graph);
}

bool is_random(const JointGraph& joint) {
  for (const Node& node : joint.nodes()) {
    if (ops::is_random(node)) return true;
  }
  return false;
}

/// Cuts a joint graph. Second derivatives run its forward again, on the numbers that it drew: what
/// the backward does not save of these for itself is saved for them.
template <class Cut>
PartitionedGraphs cut_with_random_numbers(JointGraph& joint, const TracedFunction& traced,
                                          const Options& options, const Cut& cut) {
  PartitionedGraphs halves = cut(joint);
  if (!has_derivatives(traced, options) || options.partitioner.function() || !is_random(joint))
    return halves;
  const std::vector<const Node*> drawing = ForwardCone(joint, halves).unsaved_random_nodes();
  if (drawing.empty()) return halves;
  for (Node& node : joint.nodes()) {
    if (std::find(drawing.begin(), drawing.end(), &node) != drawing.end())
      partition::save_in_any_case(node);
  }
  return cut(joint);
}

/// Cuts a joint graph with such states in it, and leaves them there; or as it is, if nothing names
/// any, or if second derivatives could not be had of what is saved then.
PartitionedGraphs partition_with_states(JointGraph& joint, const TracedFunction& traced,
                                        const Options& options, const detail::Compilers& compilers,
                                        Stages& stages) {
  const auto cut_once = [&](const JointGraph& graph) {
    return partition_laid_out(graph, compilers.layouts, stages, [&](const JointGraph& laid_out) {
      return partition(laid_out, traced, /*has_open_trace=*/false, options);
    });
  };
  const auto cut = [&](JointGraph& graph) {
    return cut_with_random_numbers(graph, traced, options, cut_once);
  };
  JointGraph named(joint);
  if (name_states(named, options, stages) == 0) return cut(joint);
  PartitionedGraphs halves = cut_once(named);
  if (options.double_backward && !sets_generators(joint) && !traced.trace.has_backward_writes() &&
      !ForwardCone(named, halves).why_not(traced.frame.epilogue).empty())
    return cut(joint);
  joint = std::move(named);
  return halves;
}

/// The backward as something that can be differentiated; null if the options do not want it.
std::shared_ptr<runtime::DifferentiableBackward> differentiable_backward(
    std::unique_ptr<tracing::DifferentiableTrace> open, const TracedFunction& traced,
    const JointGraph& joint, const PartitionedGraphs& halves, const Options& options,
    const detail::Compilers& compilers, Stages& stages) {
  if (!has_derivatives(traced, options)) return nullptr;
  std::shared_ptr<runtime::DifferentiableBackward> made;
  if (open != nullptr) {
    made = make_open_trace_gradient(std::move(open), traced.trace.graph, joint, halves,
                                    stages.optimising(compilers.inference, ".derivative"),
                                    traced.autocast.fixed);
  }
  if (made != nullptr) return made;
  return make_double_backward(
      recipe_of(joint, halves, traced.trace, traced.frame.epilogue, options), options, compilers);
}

/// For each saved value, whether only the CompiledNode holds it.
std::vector<bool> donated_by(const BackwardPlan& backward) {
  std::vector<bool> donated;
  for (const BackwardPlan::Saved& saved : backward.saved) {
    donated.push_back(backward.donates_saved && saved.shares_with < 0 &&
                      saved.kind == BackwardPlan::Saved::Kind::Intermediate);
  }
  return donated;
}

/// Gives a program for many sizes its second derivatives.
void derive_general(SizedProgram::General& general, bool has_open_trace,
                    const TracedFunction& traced, const JointGraph& joint,
                    const PartitionedGraphs& halves, const Options& options,
                    const detail::Compilers& compilers) {
  if (!has_derivatives(traced, options)) return;
  if (!has_open_trace) {
    general.derivatives = make_sized_derivatives(
        recipe_of(joint, halves, traced.trace, traced.frame.epilogue, options), options, compilers);
    return;
  }
  general.open_traces = std::make_shared<const SizedOpenTraces>(
      traced.trace.graph, joint, halves,
      general.stages->optimising(compilers.inference, ".derivative"), traced.autocast.fixed);
}

/// Lets a backend begin with a backward, for the usual case that all tangents are defined.
void begin_backward(const Graph& backward, const Options& options,
                    const detail::Compilers& compilers) {
  if (!compilers.begin) return;
  compilers.begin([graph = std::make_shared<const Graph>(backward), skipped = options.skip_passes] {
    Graph optimised = SparseGradients(*graph).dense();
    std::make_shared<Stages>(skipped, Stages::Keep::Nothing)->optimise(optimised, "");
    return optimised;
  });
}

/// The plan for a function with results that have a history. `has_open_trace`: its derivatives are
/// read off one. `general`: gets those of a graph that takes sizes; null: it takes none.
CallPlan plan_training(TracedFunction traced, std::unique_ptr<tracing::DifferentiableTrace> open,
                       bool has_open_trace, const std::vector<at::Tensor>& arguments,
                       const Options& options, const detail::Compilers& compilers, Stages& stages,
                       SizedProgram::General* general = nullptr) {
  CallFrame& frame = traced.frame;
  JointGraph joint(traced.trace.graph);
  // The nodes of an open trace have all their operands.
  if (!has_open_trace)
    stages.rewrite("forget_unread_operands", ".joint", joint, passes::forget_unread_operands);
  check_one_tangent(joint, traced.trace);
  auto [halves, seconds] = Stages::run([&, &joint = joint] {
    // Nor do states that are named have a place in an open trace.
    if (has_open_trace) return partition(joint, traced, has_open_trace, options);
    return partition_with_states(joint, traced, options, compilers, stages);
  });
  const int32_t first_saved =
      num_outputs(halves.forward) - static_cast<int32_t>(halves.saved.size());
  std::shared_ptr<runtime::DifferentiableBackward> derivatives;
  if (general == nullptr) {
    derivatives =
        differentiable_backward(std::move(open), traced, joint, halves, options, compilers, stages);
  } else {
    derive_general(*general, has_open_trace, traced, joint, halves, options, compilers);
  }
  BackwardPlan backward = plan_backward(halves, traced.trace);
  backward.derivatives = std::move(derivatives);
  backward.autocast = traced.autocast;
  backward.donates_saved = options.donated_buffers;
  backward.fixes_saved_layout = !stages.is_skipped("static_saved_layout");
  stages.keep("partition.forward", seconds, halves.forward);
  stages.keep("partition.backward", seconds, halves.backward);
  begin_backward(halves.backward, options, compilers);
  if (!options.functionalize_rng)
    stages.rewrite("draw_directly", ".forward", halves.forward, passes::draw_directly);
  write_in_graph_if_wanted(halves.forward, frame, backward, ".forward", arguments, options, stages);
  stages.rewrite("read_values_first", ".forward", halves.forward, passes::read_values_first);
  // Not on the joint graph: a second derivative needs the operators as they were called. Nor on the
  // backward as a whole: nodes that undefined tangents leave out of it have to be found first.
  stages.optimise(halves.forward, ".forward");
  aot::Executable forward = stages.compile(
      compilers.forward,
      runtime::request_for(halves.forward, std::string(runtime::function_name) + ".forward",
                           traced.static_arguments),
      "backend.forward");
  std::shared_ptr<const runtime::DebugAsserts> asserts =
      asserts_for(halves.forward, &halves.backward, options, compilers);
  const auto program = std::make_shared<BackwardProgram>(
      std::move(halves.backward),
      BackwardProgram::Reach{std::move(traced.trace.reaching_tangents),
                             std::move(traced.trace.gradients_behind),
                             std::move(traced.trace.tangents_leading_to)},
      find_edges(joint), donated_by(backward), stages.optimising(compilers.backward, ".backward"));
  if (!options.lazy_backward) program->compile();
  backward.program = program;
  return {.name = runtime::function_name,
          .prologue = std::make_shared<const runtime::Prologue>(std::move(frame.prologue)),
          .forward = std::move(forward),
          .num_outputs = num_outputs(halves.forward),
          .first_saved_output = first_saved,
          .backward = std::move(backward),
          .epilogue = std::move(frame.epilogue),
          .differentiates = traced.trace.differentiates,
          .asserts = std::move(asserts),
          .verbose = options.verbose};
}

std::shared_ptr<Stages> make_stages(const Options& options) {
  return std::make_shared<Stages>(
      options.skip_passes, Stages::Keep::All,
      options.functionalize_rng ? Stages::Random::FromStates : Stages::Random::FromGenerators);
}

/// Whether one program for many sizes may serve the function. What is left out is compiled for the
/// sizes at hand.
bool is_sizable(const std::vector<at::Tensor>& inputs, const Options& options,
                const detail::Compilers& compilers) {
  const auto is_inference = [](const at::Tensor& tensor) { return tensor.is_inference(); };
  return !options.debug_asserts && !options.partitioner.function() &&
         compilers.decompositions == nullptr &&
         std::none_of(inputs.begin(), inputs.end(), is_inference);
}

/// Compiles a graph that takes sizes; `traced` is the function for one choice of them.
SizedProgram::General compile_general(TracedFunction traced, const Graph& graph,
                                      const std::vector<at::Tensor>& inputs, const Options& options,
                                      const detail::Compilers& compilers, double trace_seconds) {
  const bool has_open_trace = needs_open_trace(traced, options);
  SizedProgram::General general;
  general.stages = make_stages(options);
  general.value_sizes = ValueSizes::make(graph);
  traced.trace.graph = graph;
  general.stages->keep("trace", trace_seconds, graph);
  general.plan =
      has_tangents(graph)
          ? plan_training(std::move(traced), nullptr, has_open_trace, inputs, options, compilers,
                          *general.stages, &general)
          : plan_inference(std::move(traced), inputs, options, compilers, *general.stages);
  general.plan.prologue = nullptr;
  return general;
}

/// The plan of a program for many sizes, which is made if there is none yet.
std::optional<CallPlan> plan_for_many_sizes(const TracedFunction& traced,
                                            const std::vector<at::Tensor>& inputs,
                                            const Options& options,
                                            const detail::Compilers& compilers,
                                            const ManySizes& sizes, Compilation& result) {
  const Graph& graph = traced.trace.graph;
  const GraphNumbers numbers = numbers_of(graph);
  const std::shared_ptr<SizedPrograms::Family> family =
      sizes.programs.family_of(traced, sizes.static_sizes);
  result.family = family;
  std::optional<SizedPrograms::Match> match = family->find(traced, numbers, sizes.reals);
  if (!match) {
    const std::shared_ptr<const FittedGraph> fitted = family->fit(graph, numbers);
    if (fitted == nullptr) return family->remember(numbers, sizes.reals), std::nullopt;
    SizedProgram::General general =
        compile_general(traced, fitted->graph(), inputs, options, compilers, result.trace_seconds);
    general.plan.result_marks = family->marks_of_results(traced);
    family->add(std::make_shared<SizedProgram>(fitted, std::move(general)));
    match = family->find(traced, numbers, sizes.reals);
    result.is_new = true;
  }
  family->remember(numbers, sizes.reals);
  result.sized = match->program;
  result.sizes = match->sizes;
  result.is_certain = match->is_certain;
  if (!sizes.programs.compares_numbers() && !match->program->has_open_traces())
    result.free = match->free;
  result.stages = match->program->stages();
  return match->program->at(match->sizes, traced);
}

}  // namespace

std::vector<Program> Compilation::programs() const {
  if (stages == nullptr) return {};
  std::vector<Program> all = stages->programs();
  if (plan->backward.derivatives == nullptr) return all;
  for (Program& program : plan->backward.derivatives->programs()) all.push_back(std::move(program));
  return all;
}

size_t Compilation::num_backwards() const {
  const bool has_backward = plan != nullptr && plan->backward.program != nullptr;
  return has_backward ? plan->backward.program->num_variants() : 0;
}

Compilation compile_function(Subject& subject, const Options& options,
                             const detail::Compilers& compilers, ManySizes* sizes) {
  Compilation result;
  auto [traced, trace_seconds] = Stages::run([&] { return trace_function(subject, options); });
  result.trace_seconds = trace_seconds;
  const std::vector<at::Tensor>& inputs = subject.inputs;
  auto [plan, seconds] = Stages::run([&, &traced = traced]() -> std::optional<CallPlan> {
    Graph& graph = traced.trace.graph;
    traced.forget_captured();
    if (!options.dump_folder.empty()) result.meta = describe_meta(traced.trace);
    result.objects = objects_of(graph);
    result.with_offsets = traced.is_merged || names_offsets(graph);
    const bool has_open_trace = needs_open_trace(traced, options);
    const bool may_be_sized = !has_open_trace || can_be_traced_later(traced);
    if (sizes != nullptr && may_be_sized && is_sizable(inputs, options, compilers)) {
      std::optional<CallPlan> found =
          plan_for_many_sizes(traced, inputs, options, compilers, *sizes, result);
      if (found || !sizes->compiles_fixed) return found;
    }
    std::unique_ptr<tracing::DifferentiableTrace> open =
        has_open_trace ? open_trace(traced, options) : nullptr;
    const bool is_open = open != nullptr;
    result.is_new = true;
    result.stages = make_stages(options);
    Stages& stages = *result.stages;
    stages.keep("trace", result.trace_seconds, graph);
    decompose(traced, compilers, stages);
    return has_tangents(graph)
               ? plan_training(std::move(traced), std::move(open), is_open, inputs, options,
                               compilers, stages)
               : plan_inference(std::move(traced), inputs, options, compilers, stages);
  });
  result.compile_seconds = seconds;
  if (!plan) return result;
  plan->kept_inputs = runtime::find_kept_inputs(*plan);
  result.plan = std::make_shared<const CallPlan>(std::move(*plan));
  return result;
}

}  // namespace ahead::compiling
