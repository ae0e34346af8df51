#include "compile/pipeline.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>

#include "ahead/errors.h"
#include "ahead/passes.h"
#include "base/autocast.h"
#include "checkpoint/region_watch.h"
#include "checkpoint/saved_tensor_hooks.h"
#include "derivative/derivative_graph.h"
#include "derivative/double_backward.h"
#include "derivative/forward_cone.h"
#include "derivative/kept_gradient.h"
#include "derivative/tangent_layouts.h"
#include "ops/facts/node_facts.h"
#include "plan/kept_mutations.h"
#include "plan/plan_builder.h"
#include "plan/synthetic_base.h"
#include "runtime/call/call.h"
#include "trace/capture.h"

namespace ahead::compiling {
namespace {

using Clock = std::chrono::steady_clock;
using tracing::Capture;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// The one door through which every stage goes: it is timed, what it made is checked and kept.
class Stages {
 public:
  template <class Stage>
  auto run(const char* name, Stage&& stage) {
    const auto start = Clock::now();
    auto result = stage();
    taken_ = seconds_since(start);
    name_ = name;
    return result;
  }

  /// Keeps a program that the last stage made.
  void keep(const Graph& graph, const char* part = "") {
    graph.verify();
    programs_.push_back({std::string(name_) + part, taken_, std::make_shared<const Graph>(graph)});
  }

  double taken() const { return taken_; }
  std::vector<Program> take_programs() { return std::move(programs_); }

 private:
  const char* name_ = "";
  double taken_ = 0;
  std::vector<Program> programs_;
};

bool names_offsets(const Graph& graph) {
  static const Operator* const as_strided = Operator::find("aten.as_strided");
  for (const Node& node : graph.nodes()) {
    if (&node.op() == as_strided) return true;
  }
  return false;
}

/// Whether a result has a history, though it may lead nowhere.
bool has_gradient(const Graph& graph) {
  for (const Graph::Input& input : graph.inputs()) {
    if (input.slot.kind == Slot::Kind::Tangent) return true;
  }
  return false;
}

bool is_skipped(const Options& options, std::string_view pass) {
  const std::vector<std::string>& skipped = options.skip_passes;
  return std::find(skipped.begin(), skipped.end(), pass) != skipped.end();
}

void run_passes(Graph& graph, const char* part, const Options& options, Stages& stages) {
  for (const passes::Pass& pass : passes::all()) {
    if (is_skipped(options, pass.name)) continue;
    const size_t changes = stages.run(pass.name.data(), [&] { return pass.run(graph); });
    if (changes != 0) stages.keep(graph, part);
  }
}

/// Runs the passes over a graph before it is compiled.
aot::GraphCompiler with_passes(const aot::GraphCompiler& compiler, const Options& options) {
  return [compiler, options](const Graph& graph, const std::vector<TensorMeta>& inputs) {
    Graph optimised(graph);
    for (const passes::Pass& pass : passes::all()) {
      if (!is_skipped(options, pass.name)) pass.run(optimised);
    }
    return compiler(optimised, inputs);
  };
}

/// Puts decompositions in place of operators. What these capture becomes part of the plan.
void decompose(Graph& graph, runtime::CallPlan& plan, const Options& options,
               const detail::Compilers& compilers, Stages& stages) {
  if (compilers.decompositions == nullptr || is_skipped(options, "decompose")) return;
  const size_t num_inputs = graph.inputs().size();
  const size_t changes =
      stages.run("decompose", [&] { return passes::decompose(graph, *compilers.decompositions); });
  if (changes == 0) return;
  for (size_t i = num_inputs; i < graph.inputs().size(); ++i) {
    plan.inputs.push_back(
        {runtime::CallPlan::Input::Kind::Captured, 0, graph.inputs()[i].captured});
  }
  graph.forget_captured();
  stages.keep(graph);
}

/// The positions of arguments that keep their memory from call to call.
std::vector<int64_t> find_static_inputs(const Graph& graph, int64_t num_params_buffers) {
  std::vector<int64_t> positions;
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const Slot slot = graph.inputs()[i].slot;
    if (slot.kind == Slot::Kind::Primal && slot.index < num_params_buffers)
      positions.push_back(static_cast<int64_t>(i));
  }
  return positions;
}

PartitionedGraphs partition(const JointGraph& joint, const Options& options,
                            int64_t num_params_buffers) {
  if (options.partitioner.function()) return options.partitioner.function()(joint);
  if (options.partitioner.kind() == Partitioner::Default) return partition_default(joint);
  return partition_min_cut(joint, {.memory_budget = options.memory_budget,
                                   .static_inputs = find_static_inputs(joint, num_params_buffers)});
}

std::vector<TensorMeta> input_metas(const Graph& graph) {
  std::vector<TensorMeta> metas;
  for (const Graph::Input& input : graph.inputs()) metas.push_back(input.value->meta);
  return metas;
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
void keep_wanted_mutations(Graph& graph, runtime::CallPlan& plan, const char* part,
                           const std::vector<at::Tensor>& arguments, const Options& options,
                           Stages& stages) {
  if (!options.keep_input_mutations) return;
  const std::vector<at::Tensor> inputs = runtime::graph_inputs(plan, arguments);
  const size_t kept =
      stages.run("keep_mutations", [&] { return keep_mutations(graph, plan, inputs); });
  if (kept != 0) stages.keep(graph, part);
}

void compile_inference(runtime::CallPlan& plan, Graph graph,
                       const std::vector<at::Tensor>& arguments, const Options& options,
                       const detail::Compilers& compilers, Stages& stages) {
  keep_wanted_mutations(graph, plan, "", arguments, options, stages);
  run_passes(graph, "", options, stages);
  if (options.debug_asserts) {
    plan.asserts =
        std::make_shared<const runtime::DebugAsserts>(graph, nullptr, compilers.num_params_buffers);
  }
  plan.num_outputs = plan.first_saved_output = static_cast<int32_t>(graph.outputs().size());
  plan.forward =
      stages.run("inference", [&] { return compilers.inference(graph, input_metas(graph)); });
  stages.keep(graph);
}

bool is_of_forward(const JointGraph& joint, const Value& value) {
  if (value.producer() != nullptr) return value.producer()->phase == Phase::Forward;
  return joint.inputs()[value.index()].slot.kind != Slot::Kind::Tangent;
}

/// Whether something that no tangent leads to is, or is added to, a gradient: what a custom
/// function gave as it was. Nothing in the graph tells when eager would have left it out.
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

/// In eager custom gradients see which of the results they stem from were differentiated. One graph
/// cannot tell them.
void check_one_tangent(const JointGraph& joint, const Capture& capture) {
  size_t tangents = 0;
  for (const Graph::Input& input : joint.inputs()) {
    tangents += input.slot.kind == Slot::Kind::Tangent ? 1 : 0;
  }
  std::string opaque = capture.many_part_gradient;
  if (!capture.opaque_gradient.empty() && has_free_gradient(joint))
    opaque = capture.opaque_gradient;
  if (opaque.empty() || tangents <= 1) return;
  throw Unsupported("compile",
                    opaque +
                        ": a custom autograd function or a hook with several differentiable "
                        "results inside a function with several of them. Return one result, or "
                        "call this part uncompiled.");
}

/// The backward as something that can be differentiated.
std::shared_ptr<runtime::DifferentiableBackward> differentiable_backward(
    std::unique_ptr<tracing::KeptTrace> kept, const Capture& capture, const JointGraph& joint,
    const PartitionedGraphs& graphs, const runtime::CallPlan& plan, const Options& options,
    const detail::Compilers& compilers) {
  std::shared_ptr<runtime::DifferentiableBackward> made;
  if (kept != nullptr) {
    made =
        make_kept_gradient(std::move(kept), capture.graph, joint, graphs,
                           with_passes(compilers.inference, options), plan.backward_autocast.fixed);
  }
  return made ? made : make_double_backward(joint, graphs, capture, plan, options, compilers);
}

/// Derivatives of a kept trace need what eager saves. Where a partitioner saves something else,
/// from which that cannot be had again, saves what eager does.
void save_for_derivatives(PartitionedGraphs& halves, const JointGraph& joint,
                          const runtime::CallPlan& plan, const Options& options) {
  if (find_lost(joint, halves.saved, plan).empty()) return;
  if (!options.partitioner.function()) halves = partition_default(joint);
  const std::string lost = find_lost(joint, halves.saved, plan);
  if (lost.empty() || options.fullgraph) return;
  throw Unsupported(
      "compile", lost +
                     ": second derivatives would need this again as it was, and nothing that is "
                     "saved tells it. Take the gradient inside the compiled function, or compile "
                     "with Options::double_backward = false.");
}

void compile_training(runtime::CallPlan& plan, Capture& capture,
                      std::unique_ptr<tracing::KeptTrace> kept,
                      const std::vector<at::Tensor>& arguments, const Options& options,
                      const detail::Compilers& compilers, Stages& stages) {
  const JointGraph joint(capture.graph);
  check_one_tangent(joint, capture);
  PartitionedGraphs graphs = stages.run("partition", [&] {
    PartitionedGraphs halves = partition(joint, options, compilers.num_params_buffers);
    if (kept != nullptr) save_for_derivatives(halves, joint, plan, options);
    copy_raised_inputs(halves, plan);
    return halves;
  });
  plan.first_saved_output =
      static_cast<int32_t>(graphs.forward.outputs().size() - graphs.saved.size());
  if (options.double_backward) {
    plan.double_backward =
        differentiable_backward(std::move(kept), capture, joint, graphs, plan, options, compilers);
  }
  plan_backward(plan, graphs);
  find_partly_reached(plan, capture);
  plan.num_outputs = static_cast<int32_t>(graphs.forward.outputs().size());
  stages.keep(graphs.forward, ".forward");
  stages.keep(graphs.backward, ".backward");
  keep_wanted_mutations(graphs.forward, plan, ".forward", arguments, options, stages);
  // Not on the joint graph: a second derivative needs the operators as they were called. Nor on the
  // backward as a whole: what undefined tangents leave out of it must be seen first.
  run_passes(graphs.forward, ".forward", options, stages);
  plan.forward = stages.run(
      "backend", [&] { return compilers.forward(graphs.forward, input_metas(graphs.forward)); });
  plan.donates_saved = options.donated_buffers;
  plan.fixes_saved_layout = !is_skipped(options, "static_saved_layout");
  if (options.debug_asserts) {
    plan.asserts = std::make_shared<const runtime::DebugAsserts>(graphs.forward, &graphs.backward,
                                                                 compilers.num_params_buffers);
  }
  plan.backward = std::make_shared<runtime::BackwardProgram>(
      std::move(graphs.backward), std::move(capture.reaching_tangents),
      with_passes(compilers.backward, options), with_tangent_layouts);
  if (!options.lazy_backward) plan.backward->compile();
}

/// Autocast as it is now. A graph cannot switch it, so a function that leaves it otherwise cannot
/// be compiled; whatever happens, it is put back.
class AutocastKeeper {
 public:
  ~AutocastKeeper() { before_.apply(); }

  void check_unchanged() const {
    if (AutocastState::current() == before_) return;
    throw Unsupported("compile",
                      "autocast: the function leaves it in another state than it found it. Switch "
                      "it outside, or with a guard inside.");
  }

 private:
  const AutocastState before_ = AutocastState::current();
};

/// The autocast that the user wants for the backward, whatever there is when it runs.
std::optional<AutocastState> fixed_autocast(const BackwardAutocastChoice& choice) {
  if (choice.kind() == BackwardAutocast::AsCalled) return std::nullopt;
  AutocastState state = AutocastState::current();
  if (choice.kind() == BackwardAutocast::SameAsForward) return state;
  state = state.off();
  for (const AutocastSetting& setting : choice.settings()) {
    for (AutocastState::Device& device : state.devices) {
      if (device.type == setting.device) device = {setting.device, true, setting.dtype};
    }
  }
  return state;
}

void check_settings(const BackwardAutocastChoice& choice) {
  for (const AutocastSetting& setting : choice.settings()) {
    if (setting.device == at::kCPU || setting.device == at::kCUDA) continue;
    throw UserError("compile",
                    "Options::backward_autocast: " + c10::DeviceTypeName(setting.device) +
                        " has no autocast here. Name CPU and CUDA only.");
  }
}

/// A captured function, the plan for calling it, and whether its arguments had to be merged.
struct Captured {
  Capture capture;
  runtime::CallPlan plan;
  bool is_merged = false;
  /// What was traced: the function itself, or that of the merged arguments.
  aot::FlatFunction function;
  std::vector<at::Tensor> inputs;
};

/// Traces a function. If it writes to an argument that shares memory with another, it is traced
/// once more over the tensors they are views of.
Captured capture_function(const aot::FlatFunction& function, const std::vector<at::Tensor>& inputs,
                          const std::optional<AutocastState>& backward_autocast) {
  // What autograd saves while tracing is no business of a checkpoint around the compiled function.
  const runtime::KeeperScope::Pause unkept;
  const runtime::RegionWatch::Pause unwatched;
  Captured result;
  const AutocastKeeper autocast;
  try {
    result.capture = tracing::capture(function, inputs, backward_autocast);
    result.plan = plan_call(result.capture);
    result.function = function;
    result.inputs = inputs;
  } catch (const tracing::AliasedWrite&) {
    const MergedArguments merged(function, inputs);
    result.capture = tracing::capture(merged.function(), merged.inputs(), backward_autocast);
    result.plan = plan_call(result.capture);
    result.is_merged = true;
    result.function = merged.function();
    result.inputs = merged.inputs();
    merged.adapt(result.plan);
  }
  autocast.check_unchanged();
  if (result.capture.grad_mode_after == at::GradMode::is_enabled())
    result.plan.grad_mode_after.reset();
  return result;
}

/// Traces, and says of an error of LibTorch's that it came of a trace.
template <class Trace>
auto trace_explained(const Options& options, Trace&& trace) {
  try {
    return trace();
  } catch (const Error&) {
    throw;
  } catch (c10::Error& error) {
    if (!options.fullgraph) {
      throw Unsupported("compile",
                        "LibTorch complains about the function as it is traced, though not about "
                        "the function itself: " +
                            error.msg());
    }
    error.add_context(
        "[compile] thrown while tracing; without Options::fullgraph the call would "
        "run eagerly");
    throw;
  }
}

/// Traces a function. Where its backward depends on the autocast that backward() is called under,
/// it is traced once more for none, and what runs under another one is found out then.
Captured capture_function(const aot::FlatFunction& function, const std::vector<at::Tensor>& inputs,
                          const Options& options) {
  check_settings(options.backward_autocast);
  const std::optional<AutocastState> fixed = fixed_autocast(options.backward_autocast);
  const AutocastState now = AutocastState::current();
  const auto trace = [&](const std::optional<AutocastState>& backward_autocast) {
    return trace_explained(options,
                           [&] { return capture_function(function, inputs, backward_autocast); });
  };
  Captured result = trace(fixed);
  const std::string cast = result.capture.cast_in_backward;
  const bool depends = !fixed && !cast.empty();
  if (depends && !options.double_backward) {
    throw Unsupported("compile",
                      cast +
                          ": autocast casts what this operator of the backward takes, but only if "
                          "the backward runs inside autocast, too. Allow Options::double_backward, "
                          "or choose an autocast with Options::backward_autocast.");
  }
  if (depends) result = trace(now.off());
  result.plan.backward_autocast = {fixed, result.capture.castable_in_backward, std::nullopt};
  if (!depends) result.plan.backward_autocast.right_for = now;
  return result;
}

/// Whether a function writes to a part of a tensor. Autograd has other formulas for that than for
/// the operator that stands for it in the graph.
bool writes_to_parts(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    const std::string& name = node.op().name();
    if (node.phase == Phase::Forward && name.find("_scatter") != std::string::npos) return true;
  }
  return false;
}

/// Whether nothing is drawn, done or changed in the forward of a joint graph, and gradients flow
/// through its operators to all results that have one.
bool is_pure(const Graph& joint, const runtime::CallPlan& plan) {
  if (!plan.writes.empty() || !plan.resets.empty()) return false;
  for (const Node& node : joint.nodes()) {
    if (node.phase == Phase::Forward && ops::is_ordered(node)) return false;
  }
  const std::vector<bool> depends = find_dependent(joint);
  for (const Graph::Input& input : joint.inputs()) {
    if (input.slot.kind != Slot::Kind::Tangent) continue;
    const Value* result = joint.outputs()[static_cast<size_t>(input.slot.index)].value;
    if (!depends[result->id()]) return false;
  }
  return true;
}

/// Whether the function's gradient can be found by running its operators once more.
bool can_run_again(const Captured& captured) {
  if (is_pure(captured.capture.graph, captured.plan)) return true;
  const JointGraph joint(captured.capture.graph);
  return ForwardCone(joint, partition_default(joint)).why_not(captured.plan).empty();
}

/// Traces a function once more for derivatives that the operators in its graph do not tell. Null if
/// there are none, or if the function does something else this time.
std::unique_ptr<tracing::KeptTrace> keep_trace(const Captured& captured, const Options& options) {
  const Capture& capture = captured.capture;
  if (!options.double_backward || !has_gradient(capture.graph)) return nullptr;
  const bool is_special = !capture.opaque_gradient.empty() || !capture.hidden_write.empty() ||
                          writes_to_parts(capture.graph) || !can_run_again(captured);
  if (!is_special) return nullptr;
  const runtime::KeeperScope::Pause unkept;
  const runtime::RegionWatch::Pause unwatched;
  const AutocastKeeper autocast;
  return trace_explained(options, [&] {
    return tracing::KeptTrace::make(captured.function, captured.inputs, capture.graph);
  });
}

}  // namespace

Compilation compile_function(const aot::FlatFunction& function,
                             const std::vector<at::Tensor>& inputs, const Options& options,
                             const detail::Compilers& compilers) {
  Compilation result;
  Stages stages;
  Captured captured =
      stages.run("trace", [&] { return capture_function(function, inputs, options); });
  Capture& capture = captured.capture;
  result.trace_seconds = stages.taken();

  const auto start = Clock::now();
  std::unique_ptr<tracing::KeptTrace> kept = keep_trace(captured, options);
  // The plan holds the captured tensors, and nobody else, so that it can tell when they are stale.
  capture.graph.forget_captured();
  stages.keep(capture.graph);
  result.with_offsets = captured.is_merged || names_offsets(capture.graph);
  auto plan = std::make_shared<runtime::CallPlan>(std::move(captured.plan));
  plan->name = "CompiledFunction";
  plan->verbose = options.verbose;
  decompose(capture.graph, *plan, options, compilers, stages);
  if (has_gradient(capture.graph)) {
    compile_training(*plan, capture, std::move(kept), inputs, options, compilers, stages);
  } else {
    compile_inference(*plan, without_gradient(capture.graph), inputs, options, compilers, stages);
  }
  result.plan = std::move(plan);
  result.programs = stages.take_programs();
  result.compile_seconds = seconds_since(start);
  return result;
}

}  // namespace ahead::compiling
